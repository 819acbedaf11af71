/**
 * Losses as requests of Tinker's protocol. Every service has three losses, which are sent by name. Any other loss is
 * sent as its derivatives by the log-probabilities: the gradient of Σ −w · ℓ with w = −∂loss/∂ℓ equals the loss's own,
 * and so does that of Σ −exp(ℓ − ℓ') · a with a = −∂loss/∂ℓ where ℓ' is ℓ itself.
 *
 * The protocol sums losses over tokens. Some services (SkyRL's on JAX) divide by the sum of a sequence's weights and by
 * the number of sequences. There all weights must be 1, so the numbers go into the advantages.
 */
import type { LossDescriptor, LossTotals } from '../../algorithms/losses/losses.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import { InputError } from '../../base/errors.ts'
import type { PreparedBatchLoss } from './backend.ts'

/** A loss of the protocol, with its parameters. */
export interface TinkerLoss {
  readonly name: 'cross_entropy' | 'importance_sampling' | 'ppo'
  readonly config: Readonly<Record<string, number>>
}

/** How a service combines the losses of tokens. */
export type TinkerReduction = 'sum' | 'mean'

/** A column of numbers in a request. */
interface Tensor {
  readonly data: readonly number[]
  readonly dtype: 'float32' | 'int64'
  readonly shape: readonly number[]
}

/** A sequence, and its loss inputs for each token but the first. */
export interface Datum {
  readonly model_input: {
    readonly chunks: readonly { readonly type: 'encoded_text'; readonly tokens: readonly number[] }[]
  }
  readonly loss_fn_inputs: Readonly<Record<string, Tensor>>
}

/** The protocol's loss that equals a loss; null if there is none. */
export function namedLoss({ settings, program }: LossDescriptor): TinkerLoss | null {
  if (program !== null) return null
  const { surrogate, ratio, clipLow, clipHigh, dualClip, ratioMax, logRatioMax, klCoef } = settings
  if (surrogate === 'cross-entropy') return { name: 'cross_entropy', config: {} }
  const isPlain = dualClip === null && ratioMax === null && logRatioMax === null && klCoef === 0
  if (surrogate !== 'clip' || ratio !== 'token' || !isPlain) return null
  if (clipLow === null && clipHigh === null) return { name: 'importance_sampling', config: {} }
  if (clipHigh === null) return null // JSON cannot express an infinite bound.
  return { name: 'ppo', config: { clip_low_threshold: 1 - (clipLow ?? 1), clip_high_threshold: 1 + clipHigh } }
}

/** Refuses a loss that needs more of a service than log-probabilities. @throws InputError that names what it needs. */
export function checkTinkerLoss(subject: string, { id, settings, program }: LossDescriptor): void {
  const refuse = (what: string, expected: string) => new InputError(`${subject}, loss ${id}`, what, expected)
  if (settings.advantage === 'critic')
    throw refuse('a critic', 'a loss of log-probabilities only: there is no value head')
  const readsEntropy = program !== null && Object.hasOwn(program.columns, 'entropy')
  if (settings.entropyCoef !== 0 || readsEntropy) {
    throw refuse(
      readsEntropy ? 'a loss of entropies' : `entropyCoef ${settings.entropyCoef}`,
      'a loss of log-probabilities only: the service returns no entropies',
    )
  }
}

/** The weight of each token's loss: 1 / D, with D of `policyLoss`; 0 for masked tokens. */
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

/** The sequences of a batch's micro-batches, with the loss inputs from `inputsOf`. */
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

/** The batch's datums for a loss that is sent by name. */
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
    // Masked tokens may have no valid numbers.
    const learned = (of: (t: number) => number) => (t: number) => (scaleOf(t) === 0 ? 0 : of(t))
    return {
      logprobs: learned((t) => given.oldLogprob[t]!),
      advantages: learned((t) => whole * scaleOf(t) * correction(t) * tokenAdvantage[t]!),
      ...(reduction === 'sum' ? {} : { weights: one }),
    }
  })
}

/** The batch's datums for a loss that is sent as derivatives, and the protocol's loss for them. */
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
