/** Environments of Python's Gymnasium. */
import { checkOptions, InputError, show } from '../../base/errors.ts'
import type { EnvironmentFactory } from '../environment.ts'
import { scriptOf } from './python-process.ts'
import { defineServed, type ServedOptions, servedOptions } from './served.ts'

/**
 * Options of `fromGymnasium`. `id` is that of `gymnasium.make`: `LunarLander-v3`, or `package:Name-v0` for an environment that a Python
 * package registers. `maxEpisodeSteps`: by default Gymnasium's registered limit.
 */
export type FromGymnasiumOptions<I extends string = string> = ServedOptions<I>

const script = scriptOf('colonnade.py', 'numpy and gymnasium')

/**
 * An environment of Gymnasium, stepped by Python, with the spaces, time limit and dynamics of `gymnasium.make`. Observations that are not
 * a box are flattened as in Gymnasium, and their parts keep their names (`observationSpace.parts`). Observation bounds are not enforced, because environments do not respect them.
 * @throws InputError if Python cannot run or lacks Gymnasium or the environment (on creation), and for wrong options. An exception of an
 * environment is reported with the lane, episode and step; a process that died or exceeded `timeoutSeconds`, with Python's last output.
 * @example
 * export const lander = fromGymnasium({ id: 'LunarLander-v3', module: import.meta.url, python: '.venv/bin/python' })
 */
export function fromGymnasium<const I extends string>(
  options: FromGymnasiumOptions<I>,
): EnvironmentFactory<Record<never, never>, I> {
  checkOptions('fromGymnasium', options, servedOptions)
  const { id, kwargs = {} } = options
  if (typeof id !== 'string' || id === '')
    throw new InputError('fromGymnasium id', show(id), 'a name, like LunarLander-v3')
  return defineServed(options, script, { id, kwargs })
}
