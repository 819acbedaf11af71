/** Whole conversations with fixed weights, for evaluation and generation. */
import { InputError, show } from '../../../base/errors.ts'
import type { TextEnvironmentDefinition } from '../../../environments/text.ts'
import type { KernelBuild } from '../../../kernels/kernels.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import { setWeights } from '../../../language/transformer/quantized.ts'
import { tick } from '../../../systems/tick.ts'
import { completionOf, type Trajectory } from '../../../tables/trajectories/trajectory.ts'
import { type ConversationCohortOptions, loadAdapter } from '../../../world/conversations/cohort.ts'
import { createWorld } from '../../../world/world.ts'

/** The weights and sampling of conversations. */
export interface ConverseOptions
  extends Readonly<
    Pick<ConversationCohortOptions, 'policy' | 'sampling' | 'tooLong' | 'heldOut' | 'cutTurn' | 'rewardReduction'>
  > {
  /** Replaces the policy's weights and its adapter's, which may be the folder of a saved one. */
  readonly weights?: Float32Array
  readonly adapter?: Float32Array | string | null
  readonly seed?: number
  /** Sample tokens instead of taking the most probable. */
  readonly explore?: boolean
  /** The kernel build; default the fastest. */
  readonly kernels?: KernelBuild | 'best'
}

export interface Conversed {
  /** One row, or several if the chat template rewrote earlier messages. */
  readonly rows: readonly Trajectory[]
  /** The first prompt's ids and all that follow; for later rows, ids from the start of the model's turn. */
  readonly promptIds: readonly number[]
  readonly completionIds: readonly number[]
  /** The text after the prompt, without the end token; one line per row. */
  readonly completion: string
}

const LANES_MAX = 64

/** Runs `episodes` conversations. They are returned in the order of their start, a group's members together. */
export async function converse({
  policy,
  environment,
  episodes,
  weights,
  adapter = null,
  ...options
}: ConverseOptions & {
  environment: TextEnvironmentDefinition
  episodes: number
  groupSize?: number
  maxTokens?: number
  stopStrings?: readonly string[]
}): Promise<{
  readonly tokenizer: Tokenizer
  readonly conversed: readonly Conversed[]
  readonly numQuestions: number | null
}> {
  const world = await createWorld({ environment, policy, numLanes: Math.min(LANES_MAX, episodes), ...options })
  const cohort = world.cohort()
  try {
    if (weights !== undefined) setWeights(cohort.quantized ?? cohort.weights, cohort.model, weights)
    if (typeof adapter === 'string') await loadAdapter(cohort, adapter)
    else if (adapter !== null) setAdapter(cohort.adapter?.weights ?? new Float32Array(0), adapter)
    cohort.released = episodes
    while (cohort.trajectories.numConversations < episodes) {
      const waiting = tick(world)
      if (waiting !== undefined) await waiting
    }
  } finally {
    world.close()
  }
  const { tokenizer, trajectories } = cohort
  const conversations: Trajectory[][] = []
  for (const i of trajectories.order()) {
    const row = trajectories.row(i)
    if (row.segment === 0) conversations.push([row])
    else conversations.at(-1)!.push(row)
  }
  const conversed = conversations.map((rows) => {
    // With several turns, special tokens are spelled out to separate them.
    const skipSpecial = rows.length === 1 && rows[0]!.turns === 1
    const parts = rows.map(({ token, lossMask, version }) => {
      const ids = Array.from(token)
      const completionIds = completionOf({ token, lossMask, version })
      return { promptIds: ids.slice(0, ids.length - completionIds.length), completionIds }
    })
    const completions = parts.map(({ completionIds }) => {
      const isEnded = tokenizer.endIds.includes(completionIds.at(-1)!)
      return tokenizer.decode(completionIds.slice(0, isEnded ? -1 : undefined), { skipSpecial })
    })
    return {
      rows,
      promptIds: parts[0]!.promptIds,
      completionIds: parts.flatMap(({ completionIds }) => completionIds),
      completion: completions.join('\n'),
    }
  })
  return { tokenizer, conversed, numQuestions: cohort.examples?.numQuestions ?? null }
}

function setAdapter(own: Float32Array, given: Float32Array): void {
  if (!(given instanceof Float32Array)) throw new InputError('adapter', show(given), 'a Float32Array, or a folder')
  if (own.length !== given.length) {
    throw new InputError('adapter', `${given.length} numbers`, `${own.length}, as in the policy`)
  }
  own.set(given)
}
