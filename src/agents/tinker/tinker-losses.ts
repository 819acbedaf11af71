/**
 * The losses of Tinker's protocol, by name: sums over the tokens of a datum, in f64, with their derivatives by the log-probabilities.
 * Formulas: https://tinker-docs.thinkingmachines.ai/losses; GSPO as in equations 14 and 15 of arXiv:2507.18071.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'

/** A datum's inputs by name: a number per target. */
export type LossInputs = Readonly<Record<string, ArrayLike<number>>>
/** The settings of a loss. */
export type LossConfig = Readonly<Record<string, number | string>>

/** The loss of each target of a datum, and its derivative by the log-probability. */
export interface DatumLoss {
  readonly elementwise: Float32Array
  readonly dLogprob: Float32Array
}

/** A named loss. */
export interface TinkerLoss {
  /** Required inputs besides `target_tokens`. */
  readonly needs: readonly string[]
  /** Optional inputs. */
  readonly takes: readonly string[]
  /** Takes several targets per token, each with inputs of its own. */
  readonly takesSeveralTargets?: boolean
  /** Settings with their defaults; null: required. */
  readonly config: Readonly<Record<string, number | null>>
  /** Writes the loss of each token and its derivative, for the log-probabilities ℓ. */
  of(logprob: Float32Array, inputs: LossInputs, config: Readonly<Record<string, number>>, loss: DatumLoss): void
}

const CLIP = { clip_low_threshold: 0.8, clip_high_threshold: 1.2 }
const CLIP_INPUTS = Object.keys(CLIP)

/** A loss per token: a function of ℓ, the ratio ρ = exp(ℓ − logprobs) and the advantage A. */
function perToken(
  config: TinkerLoss['config'],
  of: (
    token: { logprob: number; old: number; ratio: number; advantage: number; low: number; high: number },
    config: Readonly<Record<string, number>>,
  ) => readonly [loss: number, derivative: number],
): TinkerLoss {
  return {
    needs: ['logprobs', 'advantages'],
    takes: 'clip_low_threshold' in config ? CLIP_INPUTS : [],
    config,
    of(logprobs, inputs, settings, { elementwise, dLogprob }) {
      for (let t = 0; t < logprobs.length; t++) {
        const [logprob, old, advantage] = [logprobs[t]!, inputs.logprobs![t]!, inputs.advantages![t]!]
        if (advantage === 0) continue // Masks the token, in the protocol.
        const [low, high] = thresholds(inputs, settings, t)
        const token = { logprob, old, ratio: Math.exp(logprob - old), advantage, low, high }
        const [loss, derivative] = of(token, settings)
        elementwise[t] = loss
        dLogprob[t] = derivative
      }
    },
  }
}

/** The clip thresholds of a token: the datum's, with one number or one per token, or the loss's. */
function thresholds(inputs: LossInputs, config: Readonly<Record<string, number>>, t: number): [number, number] {
  const [low, high] = CLIP_INPUTS.map((name) => {
    const own = inputs[name]
    return own === undefined ? config[name]! : own.length === 1 ? own[0]! : own[t]!
  })
  return [low!, high!]
}

const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, low), high)

/** −min(ρA, clip(ρ)A), and its derivative by ℓ: −ρA if the first is smaller. */
function clipped(ratio: number, advantage: number, low: number, high: number): readonly [number, number] {
  const [free, bound] = [ratio * advantage, clamp(ratio, low, high) * advantage]
  return free <= bound ? [-free, -free] : [-bound, 0]
}

export const tinkerLosses: Readonly<Record<string, TinkerLoss>> = {
  cross_entropy: {
    needs: [],
    takes: ['weights'],
    takesSeveralTargets: true,
    config: {},
    of(logprob, { weights }, _, { elementwise, dLogprob }) {
      for (let t = 0; t < logprob.length; t++) {
        const weight = weights === undefined ? 1 : weights[t]!
        if (weight === 0) continue
        elementwise[t] = -weight * logprob[t]!
        dLogprob[t] = -weight
      }
    },
  },
  importance_sampling: perToken({}, ({ ratio, advantage }) => [-ratio * advantage, -ratio * advantage]),
  ppo: perToken(CLIP, ({ ratio, advantage, low, high }) => clipped(ratio, advantage, low, high)),
  cispo: perToken(CLIP, ({ logprob, ratio, advantage, low, high }) => {
    const weight = clamp(ratio, low, high) * advantage
    return [-weight * logprob, -weight]
  }),
  dro: perToken({ beta: null }, ({ logprob, old, advantage }, { beta }) => {
    const change = logprob - old
    return [-(logprob * advantage - 0.5 * beta! * change * change), -(advantage - beta! * change)]
  }),
  gspo: {
    needs: ['logprobs', 'advantages', 'sequence_ratio_mask'],
    takes: CLIP_INPUTS,
    config: CLIP,
    of(logprob, inputs, config, { elementwise, dLogprob }) {
      const { logprobs, advantages, sequence_ratio_mask: mask } = inputs as Record<string, ArrayLike<number>>
      let [sum, count] = [0, 0]
      for (let t = 0; t < logprob.length; t++) {
        if (mask![t] === 0) continue
        sum += mask![t]! * (logprob[t]! - logprobs![t]!)
        count += mask![t]!
      }
      const ratio = Math.exp(count === 0 ? 0 : sum / count)
      for (let t = 0; t < logprob.length; t++) {
        if (mask![t] === 0 || advantages![t] === 0) continue
        const [low, high] = thresholds(inputs, config, t)
        const [loss, derivative] = clipped(ratio, advantages![t]!, low, high)
        elementwise[t] = loss
        dLogprob[t] = derivative
      }
    },
  },
}

/** Returns a loss with its settings. @throws InputError for an unknown loss, and unknown or missing settings. */
export function findTinkerLoss(
  name: string,
  given: LossConfig | null = {},
): { readonly loss: TinkerLoss; readonly config: Readonly<Record<string, number>> } {
  const loss = Object.hasOwn(tinkerLosses, name) ? tinkerLosses[name]! : null
  if (loss === null) throw unknownWord('loss_fn', name, Object.keys(tinkerLosses))
  for (const key of Object.keys(given ?? {})) {
    if (!Object.hasOwn(loss.config, key)) throw unknownWord(`loss_fn_config of ${name}`, key, Object.keys(loss.config))
  }
  const config = Object.entries(loss.config).map(([key, initial]) => {
    const value = given?.[key] ?? initial
    if (typeof value === 'number' && Number.isFinite(value)) return [key, value]
    throw new InputError(`loss_fn_config.${key} of ${name}`, show(value), 'a finite number')
  })
  return { loss, config: Object.fromEntries(config) }
}
