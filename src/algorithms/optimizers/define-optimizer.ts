/** The contract of an optimizer, and how one is defined: in one file, here or in a module of your own. */
import type { Part } from '../../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'

/** The settings that some optimizers take and others refuse. */
export interface OptimizerNumbers {
  readonly momentum: number
  readonly beta1: number
  readonly beta2: number
}

const NUMBERS: readonly (keyof OptimizerNumbers)[] = ['momentum', 'beta1', 'beta2']

/** What a step is told. */
export interface OptimizerStep {
  /** The weights, which the step writes. All columns have `length` elements. */
  readonly weights: Float32Array
  /** Its first column of moments; no elements where it keeps none. */
  readonly moment: Float32Array
  /** Its second one. */
  readonly squareMoment: Float32Array
  readonly gradient: Float32Array
  /** What the gradient is multiplied by: 1, or less where its norm was too large. */
  readonly gradientScale: number
  readonly learningRate: number
  /** `momentum`, `beta1`, `beta2`, `epsilon`, and `weightDecay`, which is 0 for weights that do not decay. */
  readonly settings: OptimizerNumbers & { readonly epsilon: number; readonly weightDecay: number }
  /** The settings of `powersOf`, to the power of the number of steps with this one. */
  readonly powers: readonly number[]
  readonly kernels: Kernels
  readonly length: number
}

/** An optimizer. It works on each weight alone: threads share the weights, and each steps a part of them. */
export interface Optimizer {
  readonly id: string
  /** Which of the settings it takes; others are refused unless they have their defaults. */
  readonly takes: readonly (keyof OptimizerNumbers)[]
  /** Columns that it keeps, of one number for each weight: 0, 1 (`moment`) or 2 (`squareMoment` too). */
  readonly moments: 0 | 1 | 2
  /** Settings whose powers by the number of steps it reads. */
  readonly powersOf: readonly (keyof OptimizerNumbers)[]
  step(given: OptimizerStep): void
}

/** An optimizer as the setting `optimizer` takes it. */
export interface OptimizerPart extends Part {
  (): Optimizer
}

/**
 * Defines an optimizer: the part `optimizer` of every algorithm. With `module: import.meta.url` and an export, a run names it by the
 * path of its module, and other threads and later runs find it there.
 * @throws InputError for an id, a step or a number of moments that is none, and for settings that no optimizer has.
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
