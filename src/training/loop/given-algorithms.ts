/** Checks the algorithms that users give each cohort: an algorithm of episodes, or phases of conversations. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import type { SftDefinition } from '../../algorithms/tokens/sft.ts'
import { InputError, show } from '../../base/errors.ts'

/** True for the algorithm, or the phases, of a single cohort. */
export function isOneCohorts(algorithms: object): algorithms is Algorithms {
  return Array.isArray(algorithms) || isAlgorithm(algorithms) || isPhase(algorithms)
}

function isPhase(value: object | undefined): value is SftDefinition | RlDefinition {
  const { id, loss, settings } = (value ?? {}) as Partial<RlDefinition>
  return (id === 'sft' || id === 'rl') && typeof loss === 'object' && typeof settings === 'object'
}

/** @throws InputError for invalid phases, a repeated one, or another order than sft, rl. */
export function phasesOf(name: string, algorithms: Algorithms): Phases {
  const list = Array.isArray(algorithms) ? (algorithms as readonly object[]) : [algorithms]
  const ids = list.map((each) => (isPhase(each) ? each.id : show(each)))
  if (!['sft', 'rl', 'sft rl'].includes(ids.join(' '))) {
    throw new InputError(
      `algorithm of ${name}`,
      ids.length === 0 ? 'none' : ids.join(', '),
      'sft(), rl(), or [sft(), rl()]',
    )
  }
  return Object.fromEntries(list.map((each, i) => [ids[i], each]))
}

/** @throws InputError if other threads could not make the algorithm. */
export function checkThreads(name: string, algorithm: AlgorithmDefinition, threads: number): AlgorithmDefinition {
  if (threads === 1 || algorithm.module !== undefined) return algorithm
  const got = `no module, and ${threads} threads`
  throw new InputError(`algorithm ${algorithm.id} of ${name}`, got, 'a definition with a module, or threads: 1')
}

export function isAlgorithm(value: object | undefined): value is AlgorithmDefinition {
  return typeof (value as AlgorithmDefinition | undefined)?.bind === 'function'
}

/** The phases of a training of conversations, in this order; missing ones are skipped. */
export interface Phases {
  readonly sft?: SftDefinition
  readonly rl?: RlDefinition
}

/** A cohort's algorithm, or the phases of its training in order. */
export type Algorithms = AlgorithmDefinition | SftDefinition | RlDefinition | readonly (SftDefinition | RlDefinition)[]
