/** What algorithms share of optimizers: their settings, the columns that they keep beside the weights, and the step. */
import type { Part, Parts } from '../../base/definition.ts'
import { InputError, unknownWord } from '../../base/errors.ts'
import { number, optionalNumber, part, type SettingValues } from '../../base/settings.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Parameter } from '../../policies/policy.ts'
import { adam } from './adam.ts'
import type { Optimizer, OptimizerNumbers, OptimizerPart } from './define-optimizer.ts'
import { rmsprop } from './rmsprop.ts'
import { sgd } from './sgd.ts'

const BETA_1 = 0.9
const BETA_2 = 0.999

/** Optimizers by their ids: those that come with Colonnade, and parts that algorithms were given. */
const known = new Map([adam, sgd, rmsprop].map((part) => [part.id, part()]))
const builtIn = [...known.keys()]
const OPTIMIZER = `the optimizer (${builtIn.join(', ')}, or the path of a module that exports one); adam with weightDecay: AdamW`

/** The optimizer of that id. @throws InputError that names the nearest one. */
function optimizerOf(id: string, subject = 'optimizer'): Optimizer {
  const optimizer = known.get(id)
  if (optimizer !== undefined) return optimizer
  throw unknownWord(subject, id, [...known.keys()])
}

/** Keeps a part by its id. @throws InputError if `defineOptimizer` did not make it, or another optimizer has its id. */
function admit(subject: string, part: Part): void {
  const made: unknown = (part as OptimizerPart)()
  if (typeof (made as Optimizer)?.step !== 'function') {
    throw new InputError(`${subject}.optimizer`, String(part.id), 'an optimizer made by defineOptimizer')
  }
  const optimizer = made as Optimizer
  const former = known.get(optimizer.id)
  if (former !== undefined && former !== optimizer) {
    throw new InputError(`${subject}.optimizer`, `a second ${optimizer.id}`, 'the first one, or an id of its own')
  }
  known.set(optimizer.id, optimizer)
}

/** What an algorithm that descends a gradient declares among its settings; epsilon has the field's value for it. */
export function optimizerSettings(epsilon: number, optimizer = adam.id) {
  return {
    optimizer: { ...part('optimizer', optimizer, OPTIMIZER), words: builtIn },
    momentum: number(0, 'momentum of sgd and rmsprop', { min: 0, max: 1 }),
    beta1: number(BETA_1, "decay of adam's running mean of the gradient", { min: 0, below: 1 }),
    beta2: number(BETA_2, "decay of adam's running mean of the squared gradient", {
      min: 0,
      below: 1,
    }),
    epsilon: number(epsilon, 'added to the square root by which adam and rmsprop divide', { above: 0 }),
    weightDecay: number(
      0,
      'decoupled weight decay, as in AdamW: each step shrinks weights by learningRate × weightDecay',
      {
        min: 0,
      },
    ),
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
  return optionalNumber(null, `learning rate before the schedule; null: ${rates}`, { above: 0 })
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

/**
 * Refuses an unknown optimizer, and settings that the optimizer does not take. Keeps `parts.optimizer` by its id.
 * @throws InputError for these, like a momentum of Adam, whose momentum is β₁.
 */
export function checkOptimizer(subject: string, given: OptimizerSettings, parts: Parts = {}): void {
  const { optimizer, ...numbers } = given
  if (parts.optimizer !== undefined) admit(subject, parts.optimizer)
  const { takes } = optimizerOf(optimizer, `${subject}.optimizer`)
  for (const [name, expected] of Object.entries({ momentum: 0, beta1: BETA_1, beta2: BETA_2 } as const)) {
    const key = name as keyof OptimizerNumbers
    if (takes.includes(key) || numbers[key] === expected) continue
    throw new InputError(
      `${subject}.${name}`,
      String(numbers[key]),
      `${expected}: ${optimizer} takes ${takes.join(' and ') || 'none'}`,
    )
  }
}

/** The columns of an optimizer: empty where it keeps none. */
export function optimizerPlan({ optimizer }: Pick<OptimizerSettings, 'optimizer'>, numParameters: number) {
  const { moments, powersOf } = optimizerOf(optimizer)
  return {
    /** First moment of the gradient, or what momentum has gathered. */
    moment: saved(column('f32', moments > 0 ? numParameters : 0)),
    squareMoment: saved(column('f32', moments > 1 ? numParameters : 0)),
    /** β₁ and β₂ to the power of the steps taken. */
    betaPowers: saved(column('f64', powersOf.length)),
  } satisfies Plan
}

/** An optimizer's columns. */
export type OptimizerColumns = Columns<ReturnType<typeof optimizerPlan>>

/** Sets the columns of an optimizer that has taken no step; those of zeros are right as they come. */
export function startOptimizer({ betaPowers }: OptimizerColumns): void {
  betaPowers.fill(1)
}

/** Elements of what is trained that stand together, and whether weight decay shrinks them. */
export interface TrainedPart {
  readonly from: number
  readonly to: number
  readonly decays: boolean
}

/**
 * The parts of parameters of which only matrices decay: norms and biases, which have one side, do not. As transformers'
 * trainer has it (`get_decay_parameter_names`).
 */
export function decayingParts(parameters: readonly Parameter[]): TrainedPart[] {
  const parts: TrainedPart[] = []
  for (const { offset, shape } of parameters) {
    const to = offset + shape.reduce((product, side) => product * side, 1)
    const decays = shape.length > 1
    const last = parts.at(-1)
    if (last?.decays === decays) parts[parts.length - 1] = { ...last, to }
    else parts.push({ from: offset, to, decays })
  }
  return parts
}

/** The settings of `powersOf` to the power of the steps taken, the one that comes next included: `betaPowers` once it is done. */
export function powersAfter(settings: OptimizerSettings, { betaPowers }: OptimizerColumns): number[] {
  return optimizerOf(settings.optimizer).powersOf.map((name, i) => betaPowers[i]! * settings[name])
}

/**
 * One step of `weights` against `gradientScale` times the first weights.length elements of `gradient`, by the powers after it.
 * `parts` cover them; without any, all of them decay.
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
