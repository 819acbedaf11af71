/** Computes shares of the gradients over tokens of another process's learner. */
import { fillColumns, type GradientHelp, type NamedColumns } from '../../algorithms/shared-gradient.ts'
import { slotsOfShare } from '../../algorithms/slot-shares.ts'
import { sumRange, trainedOf } from '../../algorithms/tokens/token-learner.ts'
import { copyResults, emptyResults, type SentRows, type SentWork } from '../../algorithms/tokens/token-shares.ts'
import { type DifferentiateWork, TokenThread, tokenUpdatePlan } from '../../algorithms/tokens/token-thread.ts'
import { InputError } from '../../base/errors.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import { unpackNested } from '../../components/nested.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { packedPlan } from '../../language/transformer/packed.ts'
import { numStages } from '../../language/transformer/stages.ts'
import type { ConversationCohort, ConversationDraft } from '../../world/conversations/cohort.ts'
import type { World } from '../../world/world.ts'
import { inOwnMemory } from '../text/learn/token-update.ts'
import { turns } from './actor-work.ts'
import type { ConversationDescription } from './description.ts'

/** The columns of a learner's thread, with as many gradient slots as the learner's. */
export function tokenHelpPlan(
  { opened: { model, context, adapter, weightBits } }: ConversationDraft,
  { rows, numSlots }: NonNullable<ConversationDescription['gradients']>,
) {
  const { numParameters } = adapter ?? model
  return {
    packed: packedPlan(model, rows, context, adapter, weightBits),
    gradient: column('f32', numSlots * numParameters),
    passed: column('i32', numStages(model)),
  } satisfies Plan
}

export class TokenHelp implements GradientHelp {
  readonly #thread: TokenThread
  readonly #kernels: Kernels
  readonly #gradient: Float32Array
  readonly #weights: Float32Array
  readonly #hasCritic: boolean
  #rows: { readonly sent: SentRows; readonly update: DifferentiateWork['update'] } | null = null
  #minibatch: SentWork | null = null

  /** A cohort with the columns of `tokenHelpPlan`. */
  constructor({ kernels, clock }: World, { model, weights, quantized, adapter, learner }: ConversationCohort) {
    const { packed, gradient, passed } = learner as Columns<ReturnType<typeof tokenHelpPlan>>
    const base = quantized ?? weights
    const columns = { packed, gradient, passed, reference: new Float32Array(0) }
    this.#thread = new TokenThread(model, base, columns, kernels, adapter, clock)
    this.#kernels = kernels
    this.#gradient = gradient
    this.#weights = trainedOf(base, adapter)
    this.#hasCritic = model.hasValueHead
  }

  take(input: string, columns: NamedColumns): void {
    if (input === 'weights') fillColumns('weights of the learner', columns, { weights: this.#weights })
    else if (input === 'minibatch') this.#minibatch = unpackNested(columns)
    else if (input === 'rows') this.#rows = this.#openRows(unpackNested(columns))
    else throw new InputError('input of the learner', input, 'weights, rows or minibatch')
  }

  #openRows(sent: SentRows) {
    const { token, spans } = sent.batch
    const update = inOwnMemory(tokenUpdatePlan({ rows: spans.begin.length, tokens: token.length }, this.#hasCritic))
    return { sent, update: { ...update, prepared: { ...update.prepared, ...sent.prepared } } }
  }

  async compute(_: readonly number[], share: number, shareCount: number): Promise<NamedColumns> {
    const { sent, update } = this.#rows!
    const { parts, ...rest } = this.#minibatch!
    const batch = { ...sent.batch, parts }
    const { taken } = update
    const slots = slotsOfShare(share, this.#thread.slotsOf(batch), shareCount)
    const work: DifferentiateWork = { kind: 'differentiate', batch, given: sent.given, update, taken, slots, ...rest }
    taken[0] = slots.first
    const pause = turns()
    for (const _ of this.#thread.steps(work)) await pause()
    const { length } = this.#weights
    sumRange(this.#kernels, this.#gradient, length, slots)
    const list = this.#thread.partsOf(batch, slots)
    const results = emptyResults(work, list)
    copyResults(work, list, results, false)
    return { gradient: this.#gradient.subarray(slots.first * length, (slots.first + 1) * length), ...results }
  }
}
