/** Optimizers: the columns that each keeps beside the weights, and its step. */
import { type Columns, column, type Plan, saved } from '../components/column.ts'
import { InputError } from '../errors.ts'
import type { Kernels } from '../kernels/bind.ts'
import { choice, number, type SettingValues } from '../settings.ts'

/** What an algorithm that descends a gradient declares among its settings. */
export const optimizerSettings = {
  optimizer: choice(
    'adam',
    ['adam', 'sgd', 'rmsprop'],
    'what makes a step of a gradient; adam with weightDecay: AdamW',
  ),
  momentum: number(0, 'momentum of sgd and rmsprop', { min: 0, max: 1 }),
  weightDecay: number(0, 'decoupled weight decay, as in AdamW: weights shrink by learningRate × weightDecay a step', {
    min: 0,
  }),
}

/** The values of `optimizerSettings`. */
export type OptimizerSettings = SettingValues<typeof optimizerSettings>

const BETA_1 = 0.9
const BETA_2 = 0.999
const ALPHA = 0.99
const EPSILON = 1e-5 // As in openai/baselines, for Adam and RMSprop.

/**
 * Refuses settings that the optimizer has no use for.
 * @throws InputError for a momentum of Adam, which has its own.
 */
export function checkOptimizer(subject: string, { optimizer, momentum }: OptimizerSettings): void {
  if (optimizer === 'adam' && momentum !== 0) {
    throw new InputError(`${subject}.momentum`, String(momentum), '0 with optimizer adam, whose β₁ is 0.9')
  }
}

/** The columns of an optimizer: empty where it keeps none. */
export function optimizerPlan({ optimizer }: OptimizerSettings, numParameters: number) {
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

/** One step of `weights` against `gradientScale` times the first weights.length elements of `gradient`. */
export function optimizerStep(
  { optimizer, momentum, weightDecay }: OptimizerSettings,
  { moment, squareMoment, betaPowers }: OptimizerColumns,
  kernels: Kernels,
  weights: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
): void {
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
      EPSILON,
      weightDecay,
      length,
    )
    return
  }
  betaPowers[0] = betaPowers[0]! * BETA_1
  betaPowers[1] = betaPowers[1]! * BETA_2
  kernels.adamStep(
    weights,
    moment,
    squareMoment,
    gradient,
    gradientScale,
    learningRate,
    BETA_1,
    BETA_2,
    EPSILON,
    weightDecay,
    1 - betaPowers[0]!,
    1 - betaPowers[1]!,
    length,
  )
}
