/** Optimizers: the columns that each keeps beside the weights, and its step. */
import { InputError } from '../base/errors.ts'
import { choice, number, optionalNumber, type SettingValues } from '../base/settings.ts'
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Parameter } from '../policies/policy.ts'

const BETA_1 = 0.9
const BETA_2 = 0.999

const optimizers = ['adam', 'sgd', 'rmsprop'] as const

/** One of the optimizers. */
export type OptimizerName = (typeof optimizers)[number]

/** What an algorithm that descends a gradient declares among its settings; epsilon has the field's value for it. */
export function optimizerSettings(epsilon: number, optimizer: OptimizerName = 'adam') {
  return {
    optimizer: choice(optimizer, optimizers, 'what makes a step of a gradient; adam with weightDecay: AdamW'),
    momentum: number(0, 'momentum of sgd and rmsprop', { min: 0, max: 1 }),
    beta1: number(BETA_1, 'how much of its running mean of the gradient adam keeps in a step', { min: 0, below: 1 }),
    beta2: number(BETA_2, 'how much of its running mean of the squared gradient adam keeps in a step', {
      min: 0,
      below: 1,
    }),
    epsilon: number(epsilon, 'added to the root of that mean, by which adam and rmsprop divide', { above: 0 }),
    weightDecay: number(0, 'decoupled weight decay, as in AdamW: weights shrink by learningRate × weightDecay a step', {
      min: 0,
    }),
  }
}

/** Learning rates where none is given: of a model made from nothing, of one that was loaded, and of adapters of such a one. */
export interface DefaultRates {
  readonly made: number
  readonly loaded: number
  readonly adapter: number
}

/** The setting of a learning rate whose default depends on what is trained. */
export function learningRateSetting({ made, loaded, adapter }: DefaultRates) {
  const rates = `${made} of a new model, ${loaded} of one that was loaded, ${adapter} of adapters of such a one`
  return optionalNumber(null, `of the optimizer, before the schedule; null: ${rates}`, { above: 0 })
}

/** The learning rate that was given, or the default of what is trained. */
export function learningRateOf(
  given: number | null,
  rates: DefaultRates,
  { isLoaded, adapter }: { readonly isLoaded: boolean; readonly adapter: object | null },
): number {
  if (given !== null) return given
  if (!isLoaded) return rates.made
  return adapter === null ? rates.loaded : rates.adapter
}

/** The values of `optimizerSettings`. */
export type OptimizerSettings = SettingValues<ReturnType<typeof optimizerSettings>>

/** What RMSprop keeps of its running mean of the squared gradient in a step. */
const ALPHA = 0.99

/**
 * Refuses settings that the optimizer has no use for.
 * @throws InputError for a momentum of Adam, which has its own, and β₁ or β₂ of another.
 */
export function checkOptimizer(subject: string, { optimizer, momentum, beta1, beta2 }: OptimizerSettings): void {
  if (optimizer === 'adam' && momentum !== 0) {
    throw new InputError(`${subject}.momentum`, String(momentum), '0 with optimizer adam, whose momentum is beta1')
  }
  if (optimizer === 'adam') return
  for (const [name, got, expected] of [
    ['beta1', beta1, BETA_1],
    ['beta2', beta2, BETA_2],
  ] as const) {
    if (got !== expected) {
      throw new InputError(`${subject}.${name}`, String(got), `${expected}, or optimizer adam: ${optimizer} has none`)
    }
  }
}

/** The columns of an optimizer: empty where it keeps none. */
export function optimizerPlan({ optimizer }: Pick<OptimizerSettings, 'optimizer'>, numParameters: number) {
  return {
    /** First moment of the gradient, or what momentum has gathered. */
    moment: saved(column('f32', numParameters)),
    squareMoment: saved(column('f32', optimizer === 'sgd' ? 0 : numParameters)),
    /** β₁ and β₂ to the power of the steps taken. */
    betaPowers: saved(column('f64', optimizer === 'adam' ? 2 : 0)),
  } satisfies Plan
}

/** An optimizer's columns. */
export type OptimizerColumns = Columns<ReturnType<typeof optimizerPlan>>

/** Sets the columns of an optimizer that has taken no step; those of zeros are right as they come. */
export function startOptimizer({ betaPowers }: OptimizerColumns): void {
  betaPowers.fill(1)
}

/** Elements of what is trained that stand together, and whether weight decay shrinks them. */
export interface OptimizerPart {
  readonly from: number
  readonly to: number
  readonly decays: boolean
}

/**
 * The parts of parameters of which only matrices decay: norms and biases, which have one side, do not. As transformers'
 * trainer has it (`get_decay_parameter_names`).
 */
export function decayingParts(parameters: readonly Parameter[]): OptimizerPart[] {
  const parts: OptimizerPart[] = []
  for (const { offset, shape } of parameters) {
    const to = offset + shape.reduce((product, side) => product * side, 1)
    const decays = shape.length > 1
    const last = parts.at(-1)
    if (last?.decays === decays) parts[parts.length - 1] = { ...last, to }
    else parts.push({ from: offset, to, decays })
  }
  return parts
}

/** β₁ and β₂ to the power of the steps taken, the one that comes next included: `betaPowers` once it is done. */
export function powersAfter(
  { optimizer, beta1, beta2 }: OptimizerSettings,
  { betaPowers }: OptimizerColumns,
): number[] {
  return optimizer === 'adam' ? [betaPowers[0]! * beta1, betaPowers[1]! * beta2] : []
}

/**
 * One step of `weights` against `gradientScale` times the first weights.length elements of `gradient`, by the powers after it.
 * `parts` cover them; without any, all of them decay.
 */
export function optimizerStep(
  settings: OptimizerSettings,
  columns: Pick<OptimizerColumns, 'moment' | 'squareMoment'>,
  betaPowers: readonly number[],
  kernels: Kernels,
  weights: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
  parts: readonly OptimizerPart[] = [],
): void {
  if (settings.weightDecay === 0 || parts.length === 0) {
    stepPart(settings, columns, betaPowers, kernels, weights, gradient, gradientScale, learningRate)
    return
  }
  const { moment, squareMoment } = columns
  for (const { from, to, decays } of parts) {
    stepPart(
      decays ? settings : { ...settings, weightDecay: 0 },
      { moment: moment.subarray(from, to), squareMoment: squareMoment.subarray(from, to) },
      betaPowers,
      kernels,
      weights.subarray(from, to),
      gradient.subarray(from, to),
      gradientScale,
      learningRate,
    )
  }
}

function stepPart(
  settings: OptimizerSettings,
  { moment, squareMoment }: Pick<OptimizerColumns, 'moment' | 'squareMoment'>,
  betaPowers: readonly number[],
  kernels: Kernels,
  weights: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
): void {
  const { optimizer, momentum, epsilon, weightDecay } = settings
  const { length } = weights
  if (optimizer === 'sgd') {
    kernels.sgdStep(weights, moment, gradient, gradientScale, learningRate, momentum, weightDecay, length)
    return
  }
  if (optimizer === 'rmsprop') {
    kernels.rmspropStep(
      weights,
      moment,
      squareMoment,
      gradient,
      gradientScale,
      learningRate,
      ALPHA,
      momentum,
      epsilon,
      weightDecay,
      length,
    )
    return
  }
  kernels.adamStep(
    weights,
    moment,
    squareMoment,
    gradient,
    gradientScale,
    learningRate,
    settings,
    1 - betaPowers[0]!,
    1 - betaPowers[1]!,
    length,
  )
}
