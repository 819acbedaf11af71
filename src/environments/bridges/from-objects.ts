/** Environments that somebody has already, as objects with `reset(seed)` and `step(action)`: one object a lane. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import type { Space } from '../../base/space.ts'
import type { EnvironmentFactory } from '../environment.ts'
import { defineLed, type LedOptions, type ObjectEnvironment } from './led.ts'

/** What is said of objects that are environments. */
export type FromObjectsOptions<A extends Space, S extends Settings, I extends string> = LedOptions<A, S, I>

/**
 * Makes environments of objects: `create` makes one object for each lane.
 *
 * @throws InputError for options that are wrong. A step whose answer is an array is a TypeError; one that lacks a part, has an unknown one
 * or one of a wrong type is an InputError that names the lane, its episode and its step. What an object throws is told likewise, with what
 * it threw as the cause. So is an object that answers otherwise when it is led through the same episode again.
 * @example
 * export const game = fromObjects(() => new Game(), {
 *   id: 'Game-v0',
 *   module: import.meta.url,
 *   observationSpace: box({ low: 0, high: 1, shape: [4] }),
 *   actionSpace: discrete(3),
 *   maxEpisodeSteps: 200,
 * })
 */
export function fromObjects<
  const A extends Space,
  const S extends Settings = Record<never, never>,
  const I extends string = string,
>(
  create: (parameters: SettingValues<S>) => ObjectEnvironment<A>,
  options: FromObjectsOptions<A, S, I>,
): EnvironmentFactory<S, I> {
  checkGiven('options of fromObjects', options, ['id', 'observationSpace', 'actionSpace', 'maxEpisodeSteps'])
  if (typeof create !== 'function') {
    throw new InputError(`fromObjects ${options.id}`, show(create), 'a function that makes one')
  }
  return defineLed(options, { columns: {}, create })
}
