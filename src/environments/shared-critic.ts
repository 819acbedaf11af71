/** Critics that see whole games. */
import { InputError } from '../base/errors.ts'
import { type BoxSpace, box, observationType, spaceWidth } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { gridPicture, isGrid } from './picture.ts'
import { defineWrapper } from './wrapper.ts'

/**
 * The critic of a game's policy sees the observations of all players, the actor only its own: centralized critics as in MAPPO (Yu et al.
 * 2022), with an observation for each agent. A lane's observation becomes its own one, then those of the players after it, around to the one before
 * it, which are for the critic alone (`criticOnly` of `box`). Rollouts, replays and files get that many times as wide.
 * @throws InputError around an environment of one player, and around one whose critics see more than actors already.
 * @example wrap(predatorPrey(), sharedCritic())
 */
export const sharedCritic = defineWrapper({
  id: 'sharedCritic',
  module: import.meta.url,
  settings: {},
  state: (_, { observationSpace }) => ({
    seen: [observationType(observationSpace), spaceWidth(observationSpace)],
  }),
  make(_, environment) {
    const { id, numPlayers = 1 } = environment
    const space = environment.observationSpace as BoxSpace
    if (numPlayers === 1)
      throw new InputError('sharedCritic', `around ${id}, which has one player`, 'a game of several players')
    if (space.criticOnly !== undefined) {
      throw new InputError(
        'sharedCritic',
        `around ${id}, whose critics see more than actors`,
        'one where they see the same',
      )
    }
    const width = spaceWidth(space)
    const times = (bounds: readonly number[]) => Array.from({ length: numPlayers }, () => bounds).flat()
    /** Writes the observation of lane n from those of its game. */
    const write = (observation: ObservationColumn, seen: ObservationColumn, n: number) => {
      const player = n % numPlayers
      let to = n * numPlayers * width
      for (let i = 0; i < numPlayers; i++) {
        let from = (n - player + ((player + i) % numPlayers)) * width
        for (const end = from + width; from < end; from++) observation[to++] = seen[from]!
      }
    }
    return {
      observationSpace: box({
        low: times(space.low),
        high: times(space.high),
        shape: [numPlayers * width],
        type: observationType(space),
        criticOnly: (numPlayers - 1) * width,
      }),
      draw:
        environment.draw === undefined && isGrid(space)
          ? ({ seen }, n) => gridPicture(space, seen.subarray(n * width, (n + 1) * width))
          : undefined,
      reset({ own, outer, inner }, rows, count) {
        inner.observation = own.seen
        environment.reset(inner, rows, count)
        for (let i = 0; i < count; i++) write(outer.observation, own.seen, rows[i]!)
      },
      step({ own, outer, inner }, from, to) {
        inner.observation = own.seen
        environment.step(inner, from, to)
        for (let n = from; n < to; n++) write(outer.observation, own.seen, n)
      },
    }
  },
})
