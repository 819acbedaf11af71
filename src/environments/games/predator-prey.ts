import { Stream } from '../../base/random.ts'
import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, STEPS_MAX, type State, withSettings } from '../environment.ts'
import { Dice } from '../grids/grid-rooms.ts'

/** Change of column and row of each action: stay, right, down, left, up. */
const COLUMN = [0, 1, 0, -1, 0] as const
const ROW = [0, 0, 1, 0, -1] as const

const STATE = {
  x: 'u8',
  y: 'u8',
} as const

type Places = State<typeof STATE>

/**
 * Predators chase prey on a walled grid. The first `predators` lanes of a game are predators, the next `prey` lanes are prey. All move at
 * once, at most one field, and may share a field. Prey is caught if a predator is on its field after the step or swapped places with it;
 * it then moves to a random free field.
 *
 * - **Action space**: Discrete(5): 0 stays, 1 moves right, 2 down, 3 left, 4 up.
 * - **Observation space**: Box of 3 + 2 · (predators + prey): 1 for a predator and 0 for prey; its own column and row; and for each agent
 *   of the game, predators first, its offset to the right and down. Positions and offsets are fractions of the side.
 * - **Rewards**: Predators: 1 for each catch. Prey: −1 when caught.
 * - **Starting state**: Each player on a different random field.
 * - **Episode end**: Never terminated. Truncated after `maxEpisodeSteps` (100) steps.
 */
export const predatorPrey = defineEnvironment({
  id: 'PredatorPrey-v0',
  module: import.meta.url,
  settings: {
    predators: integer(2, 'predators of a game', { min: 1, max: 8 }),
    prey: integer(2, 'prey of a game', { min: 1, max: 8 }),
    side: integer(8, 'side of the square field, in cells', { min: 5, max: 32 }),
    maxEpisodeSteps: integer(100, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
  },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 600_000 },
      algorithm: withSettings('ppo', {
        numSteps: 100,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 1e-3,
        gamma: 0.95,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  state: () => STATE,
  make: ({ predators, prey, side, maxEpisodeSteps }) => {
    const numPlayers = predators + prey
    const width = 3 + 2 * numPlayers
    const dice = new Dice()
    /** Positions of a game's players before the step. */
    const xBefore = new Uint8Array(numPlayers)
    const yBefore = new Uint8Array(numPlayers)

    function isTaken({ x, y }: Places, from: number, to: number, field: number): boolean {
      for (let n = from; n < to; n++) if (y[n]! * side + x[n]! === field) return true
      return false
    }

    /** Puts lane n on a random field without any of the lanes `from` to `to`. */
    function put(places: Places, n: number, from: number, to: number): void {
      let numFree = 0
      for (let field = 0; field < side * side; field++) if (!isTaken(places, from, to, field)) numFree++
      let field = 0
      for (let skipped = dice.below(numFree); skipped > 0 || isTaken(places, from, to, field); field++) {
        if (!isTaken(places, from, to, field)) skipped--
      }
      places.x[n] = field % side
      places.y[n] = Math.floor(field / side)
    }

    /** Whether predator i of the game caught prey j in this step. */
    function hasCaught({ x, y }: Places, first: number, i: number, j: number): boolean {
      const p = first + i
      const q = first + j
      if (x[p] === x[q] && y[p] === y[q]) return true
      const isThere = x[p] === xBefore[j] && y[p] === yBefore[j]
      return isThere && x[q] === xBefore[i] && y[q] === yBefore[i]
    }

    function show(observation: Float32Array, { x, y }: Places, first: number, n: number): void {
      let at = n * width
      observation[at++] = n - first < predators ? 1 : 0
      observation[at++] = x[n]! / side
      observation[at++] = y[n]! / side
      for (let other = first; other < first + numPlayers; other++) {
        observation[at++] = (x[other]! - x[n]!) / side
        observation[at++] = (y[other]! - y[n]!) / side
      }
    }

    return {
      observationSpace: box({ low: -1, high: 1, shape: [width] }),
      actionSpace: discrete(COLUMN.length),
      numPlayers,
      draw({ x, y }, n) {
        const first = n - (n % numPlayers)
        const fields = new Uint8Array(side * side)
        for (let m = first + numPlayers - 1; m >= first; m--) {
          fields[y[m]! * side + x[m]!] = m - first < predators ? 4 : 5
        }
        return { rows: side, columns: side, fields }
      },
      maxEpisodeSteps,
      returnThreshold: null,
      reset({ state, observation, lane, episode, random }, rows, count) {
        for (let i = 0; i < count; i += numPlayers) {
          const first = rows[i]!
          dice.begin(random, lane[first]!, episode[first]!)
          for (let n = first; n < first + numPlayers; n++) put(state, n, first, n)
          for (let n = first; n < first + numPlayers; n++) show(observation, state, first, n)
        }
      },
      step({ state, observation, reward, action, lane, episode, step, random }, from, to) {
        const { x, y } = state
        for (let first = from; first < to; first += numPlayers) {
          const end = first + numPlayers
          dice.begin(random, lane[first]!, episode[first]!, Stream.step, Math.ceil(prey / 4) * step[first]!)
          for (let n = first; n < end; n++) {
            xBefore[n - first] = x[n]!
            yBefore[n - first] = y[n]!
            x[n] = Math.min(Math.max(x[n]! + COLUMN[action[n]!]!, 0), side - 1)
            y[n] = Math.min(Math.max(y[n]! + ROW[action[n]!]!, 0), side - 1)
            reward[n] = 0
          }
          for (let j = predators; j < numPlayers; j++) {
            for (let i = 0; i < predators; i++) {
              if (!hasCaught(state, first, i, j)) continue
              reward[first + i] = reward[first + i]! + 1
              reward[first + j] = -1
            }
          }
          for (let n = first + predators; n < end; n++) if (reward[n] === -1) put(state, n, first, end)
          for (let n = first; n < end; n++) show(observation, state, first, n)
        }
      },
    }
  },
})
