/** The contract of optimizers. An optimizer is one file, built in or in a user's module. */
import type { Part } from '../../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'

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

/** An optimizer. Each weight is independent: threads share the weights, and each updates a part. */
export interface Optimizer {
  readonly id: string
  /** The settings that it accepts. Other settings must keep their defaults. */
  readonly takes: readonly (keyof OptimizerNumbers)[]
  /** Number of moment columns, with one number per weight: 0, 1 (`moment`) or 2 (`squareMoment` too). */
  readonly moments: 0 | 1 | 2
  readonly powersOf: readonly (keyof OptimizerNumbers)[]
  step(given: OptimizerStep): void
}

/** An optimizer as a value of the setting `optimizer`. */
export interface OptimizerPart extends Part {
  (): Optimizer
}

/**
 * Defines an optimizer, the part `optimizer` of every algorithm. With `module: import.meta.url` and an export, a run names it by the path
 * of its module, where other threads and later runs load it.
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
export function defineOptimizer(
  given: Pick<Optimizer, 'id' | 'step'> &
    Partial<Pick<Optimizer, 'takes' | 'moments' | 'powersOf'>> & { readonly module?: string },
): OptimizerPart {
  checkGiven('options of defineOptimizer', given, ['id', 'step'])
  const { id, module, takes = [], moments = 0, powersOf = [], step } = given
  if (typeof id !== 'string' || id === '') throw new InputError('optimizer id', show(id), 'a name, like adam')
  if (typeof step !== 'function') throw new InputError(`optimizer ${id}, step`, show(step), 'a function')
  for (const [name, numbers] of Object.entries({ takes, powersOf })) {
    checkGiven(`${name} of optimizer ${id}`, numbers, 'a list')
    const wrong = numbers.find((each) => !NUMBERS.includes(each))
    if (wrong !== undefined) throw unknownWord(`optimizer ${id}, ${name}`, String(wrong), NUMBERS)
  }
  if (![0, 1, 2].includes(moments)) throw new InputError(`optimizer ${id}, moments`, show(moments), '0, 1 or 2')
  const optimizer: Optimizer = { id, takes, moments, powersOf, step }
  return Object.assign(() => optimizer, { id, ...(module === undefined ? {} : { module }) })
}
