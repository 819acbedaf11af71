/** Environments from existing objects with `reset(seed)` and `step(action)`, one object per lane. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import type { Space } from '../../base/space.ts'
import type { EnvironmentFactory } from '../environment.ts'
import { defineLed, type LedOptions, type ObjectEnvironment } from './led.ts'

/** Options of `fromObjects`. */
export type FromObjectsOptions<A extends Space, S extends Settings, I extends string> = LedOptions<A, S, I>

/**
 * Creates an environment from objects: `create` returns one object per lane.
 * @throws InputError for wrong options. A step that answers with an array is a TypeError; one with a missing, unknown or wrong part is an
 * InputError with the lane, episode and step. An exception of an object is reported likewise, with the exception as its cause. So is an
 * object that answers differently when its episode is replayed.
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
    throw new InputError(`fromObjects ${options.id}`, show(create), 'a function that creates an object')
  }
  return defineLed(options, { columns: {}, create })
}
