/** The common settings, state columns and step of optimizers. */
import type { Part, Parts } from '../../base/definition.ts'
import { InputError, unknownWord } from '../../base/errors.ts'
import { fraction, number, optionalNumber, part, type SettingValues } from '../../base/settings.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Parameter } from '../../policies/policy.ts'
import { adam } from './adam.ts'
import {
  type ElementOptimizer,
  isOfTensors,
  type Optimizer,
  type OptimizerNumbers,
  type OptimizerPart,
} from './define-optimizer.ts'
import { rmsprop } from './rmsprop.ts'
import { sgd } from './sgd.ts'

const BETA_1 = 0.9
const BETA_2 = 0.999

/** Optimizers by id: built-in ones and parts given to algorithms. */
const known = new Map<string, Optimizer>([adam, sgd, rmsprop].map((part) => [part.id, part()]))
const builtIn = [...known.keys()]
const OPTIMIZER = `the optimizer (${builtIn.join(', ')}, or the path of a module that exports one); adam with weightDecay is AdamW`

/** `ofTensors`: whether it may take whole parameters. */
export function optimizerOf(id: string, subject?: string, ofTensors?: false): ElementOptimizer
export function optimizerOf(id: string, subject: string | undefined, ofTensors: boolean): Optimizer
export function optimizerOf(id: string, subject = 'optimizer', ofTensors = false): Optimizer {
  const isFit = (optimizer: Optimizer) => ofTensors || !isOfTensors(optimizer)
  const optimizer = known.get(id)
  if (optimizer !== undefined && isFit(optimizer)) return optimizer
  throw unknownWord(
    subject,
    id,
    [...known.values()].filter(isFit).map((each) => each.id),
  )
}

/** Registers a part by id, at most once. @throws InputError if `defineOptimizer` did not create it, or another optimizer has its id. */
export function admit(subject: string, part: Part): void {
  const made: unknown = (part as OptimizerPart)()
  if (typeof (made as Optimizer)?.step !== 'function') {
    throw new InputError(`${subject}.optimizer`, String(part.id), 'an optimizer made by defineOptimizer')
  }
  const optimizer = made as Optimizer
  const former = known.get(optimizer.id)
  if (former !== undefined && former !== optimizer) {
    throw new InputError(`${subject}.optimizer`, `a second ${optimizer.id}`, 'the first one, or another id')
  }
  known.set(optimizer.id, optimizer)
}

/** The optimizer settings of an algorithm. `epsilon` is the default: 1e-5 in control, 1e-8 for language models. */
export function optimizerSettings(epsilon: number, optimizer = adam.id) {
  return {
    optimizer: { ...part('optimizer', optimizer, OPTIMIZER), words: builtIn },
    momentum: fraction(0, 'momentum of sgd and rmsprop'),
    beta1: number(BETA_1, "decay of adam's running mean of the gradient", { min: 0, below: 1 }),
    beta2: number(BETA_2, "decay of adam's running mean of the squared gradient", {
      min: 0,
      below: 1,
    }),
    epsilon: number(epsilon, 'added to the divisor (a square root) of adam and rmsprop', { above: 0 }),
    weightDecay: number(
      0,
      'decoupled weight decay, as in AdamW: each step shrinks weights by learningRate × weightDecay',
      {
        min: 0,
      },
    ),
  }
}

/** Default learning rates: of a new model, of a loaded model, and of adapters of a loaded model. */
export interface DefaultRates {
  readonly made: number
  readonly loaded: number
  readonly adapter: number
}

/** A learning-rate setting whose default depends on the trained weights. */
export function learningRateSetting({ made, loaded, adapter }: DefaultRates) {
  const rates = `${made} for a new model, ${loaded} for a loaded model, ${adapter} for its adapters`
  return optionalNumber(null, `learning rate before the schedule; null: ${rates}`, { above: 0 })
}

/** Returns the given learning rate, or the default for the trained weights. */
export function learningRateOf(
  given: number | null,
  rates: DefaultRates,
  { isLoaded, adapter }: { readonly isLoaded: boolean; readonly adapter: object | null },
): number {
  if (given !== null) return given
  if (!isLoaded) return rates.made
  return adapter === null ? rates.loaded : rates.adapter
}

export type OptimizerSettings = SettingValues<ReturnType<typeof optimizerSettings>>

/**
 * Checks the optimizer and its settings, and registers `parts.optimizer` by id. `ofTensors`: whether it may take whole parameters.
 * @throws InputError for an unknown optimizer and for settings that it does not accept, like a momentum for Adam, which uses beta1.
 */
export function checkOptimizer(subject: string, given: OptimizerSettings, parts: Parts = {}, ofTensors = false): void {
  const { optimizer, ...numbers } = given
  if (parts.optimizer !== undefined) admit(subject, parts.optimizer)
  const { takes } = optimizerOf(optimizer, `${subject}.optimizer`, ofTensors)
  for (const [name, expected] of Object.entries({ momentum: 0, beta1: BETA_1, beta2: BETA_2 } as const)) {
    const key = name as keyof OptimizerNumbers
    if (takes.includes(key) || numbers[key] === expected) continue
    throw new InputError(
      `${subject}.${name}`,
      String(numbers[key]),
      `${expected}: ${optimizer} accepts ${takes.join(' and ') || 'none of them'}`,
    )
  }
}

/** The state columns of an optimizer; empty if it keeps none. `numStages`: number of parts of the parameters that count their own steps. */
export function optimizerPlan(
  { optimizer }: Pick<OptimizerSettings, 'optimizer'>,
  numParameters: number,
  numStages = 1,
) {
  const { moments, powersOf } = optimizerOf(optimizer)
  return {
    /** First moment of the gradient, or the accumulated momentum. */
    moment: saved(column('f32', moments > 0 ? numParameters : 0)),
    squareMoment: saved(column('f32', moments > 1 ? numParameters : 0)),
    /** β₁ and β₂ raised to the number of steps, per stage. */
    betaPowers: saved(column('f64', numStages * powersOf.length)),
  } satisfies Plan
}

export type OptimizerColumns = Columns<ReturnType<typeof optimizerPlan>>

/** Initializes the state before the first step. Columns that start at zero need no initialization. */
export function startOptimizer({ betaPowers }: OptimizerColumns): void {
  betaPowers.fill(1)
}

/** A range of the trained elements, and whether weight decay applies to it. */
export interface TrainedPart {
  readonly from: number
  readonly to: number
  readonly decays: boolean
}

/** Splits parameters by weight decay: only matrices decay, not norms and biases (transformers' `get_decay_parameter_names`), nor what is frozen. */
export function decayingParts(parameters: readonly Parameter[]): TrainedPart[] {
  const parts: TrainedPart[] = []
  for (const { offset, shape, isFrozen } of parameters) {
    const to = offset + shape.reduce((product, side) => product * side, 1)
    const decays = shape.length > 1 && isFrozen !== true
    const last = parts.at(-1)
    if (last?.decays === decays) parts[parts.length - 1] = { ...last, to }
    else parts.push({ from: offset, to, decays })
  }
  return parts
}

/** Writes the settings of `powersOf` raised to the number of steps, the next one included: the new `betaPowers`. */
export function powersAfter(
  powers: number[],
  settings: OptimizerSettings,
  { betaPowers }: Pick<OptimizerColumns, 'betaPowers'>,
): void {
  const { powersOf } = optimizerOf(settings.optimizer, undefined, true)
  for (let i = 0; i < powersOf.length; i++) powers[i] = betaPowers[i]! * settings[powersOf[i]!]
}

/**
 * Makes one step on `weights` with `gradientScale` times the first weights.length elements of `gradient` and the given powers. `parts`
 * cover the weights; without parts, all of them decay.
 */
export function optimizerStep(
  settings: OptimizerSettings,
  { moment, squareMoment }: Pick<OptimizerColumns, 'moment' | 'squareMoment'>,
  powers: readonly number[],
  kernels: Kernels,
  weights: Float32Array,
  gradient: Float32Array,
  gradientScale: number,
  learningRate: number,
  parts: readonly TrainedPart[] = [],
): void {
  const optimizer = optimizerOf(settings.optimizer)
  const { length } = weights
  const all = {
    weights,
    moment,
    squareMoment,
    gradient,
    gradientScale,
    learningRate,
    settings,
    powers,
    kernels,
    length,
  }
  if (settings.weightDecay === 0 || parts.length === 0) {
    optimizer.step(all)
    return
  }
  for (const { from, to, decays } of parts) {
    const part = (column: Float32Array) => column.subarray(from, to)
    optimizer.step({
      ...all,
      ...{ weights: part(weights), moment: part(moment), squareMoment: part(squareMoment), gradient: part(gradient) },
      settings: decays ? settings : { ...settings, weightDecay: 0 },
      length: to - from,
    })
  }
}
