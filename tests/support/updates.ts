/** Batches of tokens for tests, and their columns. */
import { markLearned, type TokenBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { tokenUpdatePlan } from '../../src/algorithms/tokens/token-thread.ts'
import { takeArena } from '../../src/components/arena.ts'

/** The columns of an update from this batch, with its learned tokens. */
export function updateOf(batch: TokenBatch, hasCritic = false) {
  const { token, order } = batch
  const { columns } = takeArena(tokenUpdatePlan({ rows: order.length, tokens: token.length }, hasCritic))
  markLearned(columns.learned, batch)
  return columns
}
