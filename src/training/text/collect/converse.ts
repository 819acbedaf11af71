/** Whole conversations under fixed weights: what evaluation and generation have in common. */
import { InputError, show } from '../../../base/errors.ts'
import type { RewardReduction, TextEnvironmentDefinition } from '../../../environments/text.ts'
import type { KernelBuild } from '../../../kernels/kernels.ts'
import type { TooLong } from '../../../language/examples.ts'
import type { HeldOut } from '../../../language/held-out.ts'
import type { LanguageModelDefinition } from '../../../language/language-model.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import { setWeights } from '../../../language/transformer/quantized.ts'
import type { Sampling } from '../../../language/transformer/sampling.ts'
import { tick } from '../../../systems/tick.ts'
import { completionOf, type Trajectory } from '../../../tables/trajectories/trajectory.ts'
import { type CutTurn, loadAdapter } from '../../../world/conversations/cohort.ts'
import { createWorld } from '../../../world/world.ts'

/** Under which weights conversations are had, and how tokens are drawn. */
export interface ConverseOptions {
  readonly policy: LanguageModelDefinition
  /** In place of the policy's own: those of the model, and of its adapter, which may be the folder of a saved one. */
  readonly weights?: Float32Array
  readonly adapter?: Float32Array | string | null
  readonly seed?: number
  /** Draw tokens instead of taking the most probable. */
  readonly explore?: boolean
  /** The distribution that they are drawn from; default the model's own. */
  readonly sampling?: Partial<Sampling>
  /** What becomes of examples that are too long, and of turns that are cut off; as in a world. */
  readonly tooLong?: TooLong
  /** Questions that are held out: conversations are about those alone, or about the others; default about all. */
  readonly heldOut?: HeldOut
  readonly cutTurn?: CutTurn
  /** What a conversation's reward is of its turns'; default `last`. */
  readonly rewardReduction?: RewardReduction
  /** The build of the kernels; default the fastest that there is. */
  readonly kernels?: KernelBuild | 'best'
}

/** A conversation that is over. */
export interface Conversed {
  /** Its rows: one, or several where the chat template rewrote what stood. */
  readonly rows: readonly Trajectory[]
  /** Ids of its first prompt, and all that follow; of later rows, those from where the model's turn begins. */
  readonly promptIds: readonly number[]
  readonly completionIds: readonly number[]
  /** What follows in words, without the token that ended it; a line a row. */
  readonly completion: string
}

const LANES_MAX = 64

/** Has `episodes` conversations; they come in the order in which they were begun, members of a group together. */
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
    // Of several turns special tokens are spelled out, as they tell the turns apart.
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
    throw new InputError('adapter', `${given.length} numbers`, `${own.length}, as the policy has`)
  }
  own.set(given)
}
