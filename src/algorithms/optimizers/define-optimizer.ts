/** The contract of optimizers. An optimizer is one file, built in or in a user's module. */
import type { Part } from '../../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Parameter } from '../../policies/policy.ts'

/** The settings that only some optimizers accept. */
export interface OptimizerNumbers {
  readonly momentum: number
  readonly beta1: number
  readonly beta2: number
}

const NUMBERS: readonly (keyof OptimizerNumbers)[] = ['momentum', 'beta1', 'beta2']

/** The inputs of a step. */
export interface OptimizerStep {
  /** The weights, updated in place. All columns have `length` elements. */
  readonly weights: Float32Array
  /** First moment; empty if the optimizer keeps none. */
  readonly moment: Float32Array
  /** Second moment; empty if the optimizer keeps fewer than two. */
  readonly squareMoment: Float32Array
  readonly gradient: Float32Array
  /** Factor of the gradient: 1, or less if its norm is clipped. */
  readonly gradientScale: number
  readonly learningRate: number
  /** `momentum`, `beta1`, `beta2`, `epsilon` and `weightDecay`, which is 0 for weights that do not decay. */
  readonly settings: OptimizerNumbers & { readonly epsilon: number; readonly weightDecay: number }
  /** The settings of `powersOf`, each raised to the number of steps, this one included. */
  readonly powers: readonly number[]
  readonly kernels: Kernels
  readonly length: number
}

/** The inputs of a step of one parameter. Its moments have as many elements as `moments` says. */
export interface TensorStep extends OptimizerStep {
  readonly parameter: Parameter
  /** At least as long as `workspace` says. */
  readonly workspace: Float32Array
}

interface OptimizerBase {
  readonly id: string
  /** The settings that it accepts. Other settings must keep their defaults. */
  readonly takes: readonly (keyof OptimizerNumbers)[]
  readonly powersOf: readonly (keyof OptimizerNumbers)[]
}

/** An optimizer to which each weight is independent: threads share the weights, and each updates a part. */
export interface ElementOptimizer extends OptimizerBase {
  /** Number of moment columns, with one number per weight: 0, 1 (`moment`) or 2 (`squareMoment` too). */
  readonly moments: 0 | 1 | 2
  step(given: OptimizerStep): void
}

/** An optimizer of language models, which steps one parameter after another in one thread, and knows their names and shapes. */
export interface TensorOptimizer extends OptimizerBase {
  /** Elements of the two moments of a parameter; zeros are their initial state. */
  moments(parameter: Parameter): readonly [first: number, second: number]
  /** Elements of workspace for a parameter. */
  workspace(parameter: Parameter): number
  step(given: TensorStep): void
}

/** The result of `defineOptimizer`: an optimizer of elements, or an optimizer of language models that takes whole parameters. */
export type Optimizer = ElementOptimizer | TensorOptimizer

export function isOfTensors(optimizer: Optimizer): optimizer is TensorOptimizer {
  return typeof optimizer.moments === 'function'
}

type Given<O extends Optimizer, Optional extends keyof O> = Omit<O, Optional> &
  Partial<Pick<O, Optional>> & { readonly module?: string }
type GivenOfTensors = Given<TensorOptimizer, 'takes' | 'powersOf' | 'workspace'>
type GivenOfElements = Given<ElementOptimizer, 'takes' | 'powersOf' | 'moments'>

/** An optimizer as a value of the setting `optimizer`. */
export interface OptimizerPart<O extends Optimizer = Optimizer> extends Part {
  (): O
}

/**
 * Defines an optimizer, the part `optimizer` of every algorithm. With `module: import.meta.url` and an export, a run names it by the path
 * of its module, where other threads and later runs load it. With a function as `moments` it is an optimizer of language models.
 * @throws InputError for an invalid id, step or number of moments, and for unknown settings.
 * @example
 * export const signSgd = defineOptimizer({
 *   id: 'sign-sgd',
 *   module: import.meta.url,
 *   step({ weights, gradient, learningRate, length }) {
 *     for (let i = 0; i < length; i++) weights[i]! -= learningRate * Math.sign(gradient[i]!)
 *   },
 * })
 * ppo({}, { optimizer: signSgd }) // On the command line: ppo.optimizer=./sign-sgd.ts
 */
export function defineOptimizer(given: GivenOfTensors): OptimizerPart<TensorOptimizer>
export function defineOptimizer(given: GivenOfElements): OptimizerPart<ElementOptimizer>
export function defineOptimizer(given: GivenOfTensors | GivenOfElements): OptimizerPart {
  checkGiven('options of defineOptimizer', given, ['id', 'step'])
  const { id, module, takes = [], moments = 0, powersOf = [], step } = given
  if (typeof id !== 'string' || id === '') throw new InputError('optimizer id', show(id), 'a name, like adam')
  if (typeof step !== 'function') throw new InputError(`optimizer ${id}, step`, show(step), 'a function')
  for (const [name, numbers] of Object.entries({ takes, powersOf })) {
    checkGiven(`${name} of optimizer ${id}`, numbers, 'a list')
    const wrong = numbers.find((each) => !NUMBERS.includes(each))
    if (wrong !== undefined) throw unknownWord(`optimizer ${id}, ${name}`, String(wrong), NUMBERS)
  }
  const isKnown = typeof moments === 'function' || [0, 1, 2].includes(moments)
  if (!isKnown) throw new InputError(`optimizer ${id}, moments`, show(moments), '0, 1, 2 or a function of a parameter')
  const { workspace = () => 0 } = given as Partial<TensorOptimizer>
  const optimizer = { id, takes, moments, powersOf, step, workspace } as Optimizer
  return Object.assign(() => optimizer, { id, ...(module === undefined ? {} : { module }) })
}
