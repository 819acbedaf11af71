/**
 * Divides a rollout into minibatches, and minibatches into blocks. The shuffled unit is one row or, for a policy with memory, one
 * sequence: consecutive rows of one lane with a burn-in before them. A block holds whole units, at most `blockRows` rows.
 */
import { InputError } from '../base/errors.ts'
import { type Columns, column } from '../components/column.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { BLOCK_ROWS, type PolicyModel, type Sequence } from '../policies/policy.ts'

/** The inputs that determine the division of a rollout. */
export interface RolloutShape {
  readonly numSteps: number
  readonly numLanes: number
  readonly numMinibatches: number
}

/**
 * Computes the sizes of the division.
 * @throws InputError for more minibatches than units, and a rollout that does not divide into sequences.
 */
export function cutOf({ numSteps, numLanes, numMinibatches }: RolloutShape, model: PolicyModel) {
  const sequence = model.sequence ?? null
  if (sequence !== null) checkSequence(sequence, numSteps)
  const unitRows = sequence === null ? 1 : sequence.burnIn + sequence.length
  const numUnits = sequence === null ? numSteps * numLanes : (numSteps / sequence.length) * numLanes
  const noun = sequence === null ? 'rows' : 'sequences'
  if (numMinibatches > numUnits) {
    throw new InputError('numMinibatches', String(numMinibatches), `at most the rollout's ${numUnits} ${noun}`)
  }
  const minibatchUnits = Math.ceil(numUnits / numMinibatches)
  const unitsPerBlock = Math.max(1, Math.floor((model.blockRows ?? BLOCK_ROWS) / unitRows))
  const evaluatedRows = sequence?.length ?? 1
  return {
    sequence,
    numUnits,
    minibatchUnits,
    unitsPerBlock,
    /** Maximum rows of a block that the policy reads, and that it evaluates. */
    seenRows: Math.min(unitsPerBlock, minibatchUnits) * unitRows,
    blockRows: Math.min(unitsPerBlock, minibatchUnits) * evaluatedRows,
    /** Maximum trained rows of a minibatch. */
    minibatchRows: minibatchUnits * evaluatedRows,
    numBlocks: Math.ceil(minibatchUnits / unitsPerBlock),
  }
}

/** The sizes of a division. */
export type Cut = ReturnType<typeof cutOf>

function checkSequence({ length, burnIn }: Sequence, numSteps: number): void {
  if (numSteps % length !== 0) {
    throw new InputError('numSteps', String(numSteps), `a multiple of the policy's sequence length, ${length}`)
  }
  if (burnIn + length > numSteps) {
    const sum = `${burnIn} + ${length}`
    throw new InputError('burnIn + sequenceLength', sum, `at most the ${numSteps} rows of a lane's rollout`)
  }
}

/** One thread's columns to divide minibatches into blocks of sequences. Single rows need none: `order` lists them. */
export function cutPlan({ sequence, unitsPerBlock, minibatchUnits }: Cut) {
  const { burnIn, length } = sequence ?? { burnIn: 0, length: 0 }
  const sequences = Math.min(unitsPerBlock, minibatchUnits)
  return {
    /** Trained rows of the current minibatch. */
    minibatch: column('u32', minibatchUnits * length),
    /** The current block: rows that the policy reads, burn-in included, and whether each continues the row before it. */
    seen: column('u32', sequences * (burnIn + length)),
    continues: column('u8', sequences * (burnIn + length)),
    evaluated: column('u32', sequences * length),
    /** Its trained rows, with their places among the evaluated ones. */
    learned: column('u32', sequences * length),
    places: column('u32', sequences * length),
  }
}

/** Lists units in their initial order: valid rows, or sequences with a valid row. Returns their number. */
export function listUnits(
  order: Uint32Array,
  { sequence, numUnits }: Pick<ReturnType<typeof cutOf>, 'sequence' | 'numUnits'>,
  numLanes: number,
  { valid }: RolloutColumns,
  kernels: Kernels,
): number {
  if (sequence === null) return kernels.listValid(order, valid, valid.length)
  let listed = 0
  for (let unit = 0; unit < numUnits; unit++) {
    let k = 0
    while (k < sequence.length && valid[rowOf(unit, k, sequence.length, numLanes)] === 0) k++
    if (k === sequence.length) continue
    order[listed] = unit
    listed++
  }
  return listed
}

/** Lists the trained (valid) rows of units order[first … first + count). Returns their number. */
export function listLearned(
  minibatch: Uint32Array,
  order: Uint32Array,
  first: number,
  count: number,
  { length }: Sequence,
  numLanes: number,
  { valid }: RolloutColumns,
): number {
  let numLearned = 0
  for (let i = first; i < first + count; i++) {
    for (let k = 0; k < length; k++) {
      const row = rowOf(order[i]!, k, length, numLanes)
      if (valid[row] === 0) continue
      minibatch[numLearned] = row
      numLearned++
    }
  }
  return numLearned
}

/** The row of step k of a sequence; k < 0 is before it. Unit `stretch * numLanes + n` is a stretch of lane n. */
function rowOf(unit: number, k: number, length: number, numLanes: number): number {
  const stretch = Math.floor(unit / numLanes)
  return (stretch * length + k) * numLanes + (unit % numLanes)
}

/**
 * Lists a block of sequences order[first … first + count), one after another. The first sequence of a lane has no earlier rows in this
 * rollout: its first row replaces the burn-in rows, and it continues none of them. Returns the number of trained rows.
 */
export function listBlock(
  { seen, continues, evaluated, learned, places }: Columns<ReturnType<typeof cutPlan>>,
  order: Uint32Array,
  first: number,
  count: number,
  { length, burnIn }: Sequence,
  numLanes: number,
  { valid, step }: RolloutColumns,
): number {
  let numSeen = 0
  let numEvaluated = 0
  let numLearned = 0
  for (let i = first; i < first + count; i++) {
    const unit = order[i]!
    for (let k = -burnIn; k < length; k++) {
      const row = rowOf(unit, k, length, numLanes)
      const hasPast = k > -burnIn && row >= numLanes && step[row]! !== 0
      seen[numSeen] = row < 0 ? unit % numLanes : row
      continues[numSeen] = hasPast ? 1 : 0
      numSeen++
      if (k < 0) continue
      evaluated[numEvaluated] = row
      if (valid[row] !== 0) {
        learned[numLearned] = row
        places[numLearned] = numEvaluated
        numLearned++
      }
      numEvaluated++
    }
  }
  return numLearned
}
