/** Levels: numbered starts of an environment, like its mazes, of which a system may choose each lane's next one. */
import { InputError, show } from '../base/errors.ts'
import { Random, Stream } from '../base/random.ts'
import type { Lanes, LEVEL_STATE, State } from './environment.ts'

/** Draws levels of environments, in numbers that no seed of a run gives to other draws. */
const OWN_SEED = 0x1e7e15

/**
 * For `reset` of an environment with levels: takes lane n's chosen level, or draws one of `count` uniformly, and returns it; it is then in
 * `state.level`.
 * @throws InputError for a chosen level that is not there, and for lanes without the columns of `LEVEL_STATE`.
 */
export function beginLevel(
  lanes: Pick<Lanes<State<typeof LEVEL_STATE>>, 'state' | 'lane' | 'episode' | 'random'>,
  n: number,
  count: number,
): number {
  if (lanes?.state?.nextLevel === undefined)
    throw new InputError('lanes of beginLevel', show(lanes), 'those of an environment with LEVEL_STATE in its state')
  const { state, lane, episode, random } = lanes
  let level = state.nextLevel[n]! - 1
  if (level === -1) {
    random.draw(Stream.level, lane[n]!, episode[n]!, 0)
    level = Math.floor(random.uniform(0) * count)
  }
  if (level < 0 || level >= count) {
    throw new InputError(`nextLevel of lane ${lane[n]}`, `${level + 1}`, `1 + a level from 0 to ${count - 1}, or 0`)
  }
  state.level[n] = level
  return level
}

/** Random numbers that are the same for a level in every run, whatever its seed. */
export function levelRandom(): Random {
  return new Random(OWN_SEED)
}
