/**
 * Losses as requests of Tinker's protocol. Three of its losses are known to every service; a loss of ours that is one of them goes by
 * its name. Any other one goes by its derivatives by the log-probabilities: the gradient of Σ −w · ℓ with w = −∂loss/∂ℓ is the loss's
 * own, and so is that of Σ −exp(ℓ − ℓ') · a with a = −∂loss/∂ℓ where ℓ' is ℓ itself.
 *
 * The protocol sums losses over tokens. There are services (SkyRL's on JAX) that divide by the sum of a sequence's weights and by the
 * number of sequences; there nothing may have its numbers in the weights, so they are all 1, and the numbers go into the advantages.
 */
import type { LossDescriptor, LossTotals } from '../../algorithms/losses/losses.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import { InputError } from '../../base/errors.ts'
import type { PreparedBatchLoss } from './backend.ts'

/** A loss of the protocol, with what it is told. */
export interface TinkerLoss {
  readonly name: 'cross_entropy' | 'importance_sampling' | 'ppo'
  readonly config: Readonly<Record<string, number>>
}

/** How a service adds the losses of tokens up. */
export type TinkerReduction = 'sum' | 'mean'

/** A column of numbers as it travels. */
interface Tensor {
  readonly data: readonly number[]
  readonly dtype: 'float32' | 'int64'
  readonly shape: readonly number[]
}

/** A sequence, and what its loss is told of each token but the first. */
export interface Datum {
  readonly model_input: {
    readonly chunks: readonly { readonly type: 'encoded_text'; readonly tokens: readonly number[] }[]
  }
  readonly loss_fn_inputs: Readonly<Record<string, Tensor>>
}

/** The loss of the protocol that a loss of ours is; null where it is none of them. */
export function namedLoss({ settings, program }: LossDescriptor): TinkerLoss | null {
  if (program !== null) return null
  const { surrogate, ratio, clipLow, clipHigh, dualClip, ratioMax, logRatioMax, klCoef } = settings
  if (surrogate === 'cross-entropy') return { name: 'cross_entropy', config: {} }
  const isPlain = dualClip === null && ratioMax === null && logRatioMax === null && klCoef === 0
  if (surrogate !== 'clip' || ratio !== 'token' || !isPlain) return null
  if (clipLow === null && clipHigh === null) return { name: 'importance_sampling', config: {} }
  if (clipHigh === null) return null // The bound would be infinite, and no JSON says that.
  return { name: 'ppo', config: { clip_low_threshold: 1 - (clipLow ?? 1), clip_high_threshold: 1 + clipHigh } }
}

/**
 * Refuses a loss that needs more of a service than log-probabilities.
 * @throws InputError that says what of it.
 */
export function checkTinkerLoss(subject: string, { id, settings, program }: LossDescriptor): void {
  const refuse = (what: string, expected: string) => new InputError(`${subject}, loss ${id}`, what, expected)
  if (settings.advantage === 'critic')
    throw refuse('a critic', 'a loss of log-probabilities alone: there is no value head')
  const readsEntropy = program !== null && Object.hasOwn(program.columns, 'entropy')
  if (settings.entropyCoef !== 0 || readsEntropy) {
    throw refuse(
      readsEntropy ? 'a loss of entropies' : `entropyCoef ${settings.entropyCoef}`,
      'a loss of log-probabilities alone: the service tells no entropies',
    )
  }
}

/** What each token's loss counts times: 1 / D, with D of `policyLoss`; 0 for tokens that are not learned from. */
function scalesOf(
  { aggregation }: LossDescriptor,
  { denominator }: LossTotals,
  { given: { wholeTokens }, update: { prepared } }: PreparedBatchLoss,
  { spans }: TokenBatch,
  i: number,
): (t: number) => number {
  const { counted } = prepared
  let count = 0
  for (let t = spans.begin[i]!; t < spans.end[i]!; t++) count += counted[t]!
  const scale = 1 / (denominator * (aggregation === 'sequence-mean' ? (wholeTokens?.[i] ?? count) : 1))
  return (t) => (counted[t] === 1 ? scale : 0)
}

/** The sequences of a batch, those of its micro-batches, with what `inputsOf` says of each. */
export function datumsOf(
  { parts, spans, token }: TokenBatch,
  inputsOf: (i: number, length: number) => Readonly<Record<string, (t: number) => number>>,
): Datum[] {
  const datums: Datum[] = []
  for (let i = parts[0]!; i < parts.at(-1)!; i++) {
    const [begin, end] = [spans.begin[i]!, spans.end[i]!]
    const length = end - begin - 1
    const column = (of: (t: number) => number, dtype: Tensor['dtype'] = 'float32'): Tensor => ({
      data: Array.from({ length }, (_, k) => of(begin + 1 + k)),
      dtype,
      shape: [length],
    })
    const tokens = Array.from({ length }, (_, k) => token[begin + k]!)
    const inputs = Object.entries(inputsOf(i, length)).map(([name, of]) => [name, column(of)])
    datums.push({
      model_input: { chunks: [{ type: 'encoded_text', tokens }] },
      loss_fn_inputs: { target_tokens: column((t) => token[t]!, 'int64'), ...Object.fromEntries(inputs) },
    })
  }
  return datums
}

const one = () => 1

/** The batch's datums for a loss that goes by its name. */
export function namedDatums(
  { name }: TinkerLoss,
  batch: TokenBatch,
  work: PreparedBatchLoss,
  reduction: TinkerReduction,
): Datum[] {
  const { loss, totals, given, update } = work
  const { tokenAdvantage, weight } = update.prepared
  const correction = loss.settings.correction === 'none' ? one : (t: number) => weight[t]!
  const count = batch.parts.at(-1)! - batch.parts[0]!
  return datumsOf(batch, (i, length) => {
    const scaleOf = scalesOf(loss, totals, work, batch, i)
    if (name === 'cross_entropy') return { weights: scaleOf }
    const whole = reduction === 'sum' ? 1 : length * count
    // Of tokens that are not learned from nobody may know anything.
    const learned = (of: (t: number) => number) => (t: number) => (scaleOf(t) === 0 ? 0 : of(t))
    return {
      logprobs: learned((t) => given.oldLogprob[t]!),
      advantages: learned((t) => whole * scaleOf(t) * correction(t) * tokenAdvantage[t]!),
      ...(reduction === 'sum' ? {} : { weights: one }),
    }
  })
}

/** The batch's datums for a loss that goes by its derivatives; and the loss of the protocol that they are for. */
export function derivedDatums(
  batch: TokenBatch,
  dLogprob: Float32Array,
  logprob: Float32Array | null,
  reduction: TinkerReduction,
): { readonly loss: TinkerLoss; readonly datums: Datum[] } {
  const count = batch.parts.at(-1)! - batch.parts[0]!
  if (reduction === 'sum') {
    const datums = datumsOf(batch, () => ({ weights: (t) => -dLogprob[t]! }))
    return { loss: { name: 'cross_entropy', config: {} }, datums }
  }
  const datums = datumsOf(batch, (_, length) => ({
    logprobs: (t) => logprob![t]!,
    advantages: (t) => -length * count * dLogprob[t]!,
    weights: one,
  }))
  return { loss: { name: 'importance_sampling', config: {} }, datums }
}
