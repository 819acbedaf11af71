import { InputError, show } from '../../base/errors.ts'
import { boolean, fraction, integer, text } from '../../base/settings.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'
import { listOutcomes, TRANSITION_STATE, type Transitions, transitionModel } from './transitions.ts'

const MAP_4X4 = 'SFFF/FHFH/FFFH/HFFG'
const MAP_8X8 = 'SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG'
/** Maximum fields of a map: an observation has one element for each. */
const FIELDS_MAX = 4096

const settings = {
  isSlippery: boolean(true, 'whether the player may slip to either side of the chosen direction'),
  successRate: fraction(1 / 3, 'probability of the chosen direction, if slippery'),
}
const steps = (initial: number) =>
  integer(initial, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX })
const map = (initial: string) =>
  text(initial, 'rows of cells from the top, separated by /; a cell is S (start), F (frozen), H (hole) or G (goal)')

/**
 * FrozenLake-v1 with Gymnasium's transition table: cross a frozen lake of 4 × 4 fields, or a custom map, without falling into a hole.
 * `FrozenLake8x8-v1` has 8 × 8.
 *
 * - **Action space**: Discrete(4): 0 left, 1 down, 2 right, 3 up. If it is slippery, the lane moves in this direction with `successRate`,
 *   otherwise to either side with equal probability.
 * - **Observation space**: Box of one element for each field, row by row: 1 for the lane's field, otherwise 0.
 * - **Rewards**: 1 for the goal, otherwise 0. Solved at a mean return of 0.7 on the slippery 4 × 4 lake, 0.85 on 8 × 8.
 * - **Starting state**: The start; uniform if the map has several.
 * - **Episode end**: Terminated in a hole and at the goal. Truncated after `maxEpisodeSteps` (100; 200 for 8 × 8) steps.
 * - **Arguments**: `map` (`SFFF/FHFH/FFFH/HFFG`), `isSlippery` (true), `successRate` (1/3).
 */
export const frozenLake = defineEnvironment({
  id: 'FrozenLake-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: steps(100), map: map(MAP_4X4), ...settings },
  presets: [
    {
      run: { numLanes: 64, totalSteps: 300_000 },
      algorithm: withSettings('ppo', {
        numSteps: 64,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 2e-3,
        gamma: 0.99,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', {}),
    },
  ],
  state: () => TRANSITION_STATE,
  make: ({ map, isSlippery, successRate, maxEpisodeSteps }) => {
    const isUsual = map === MAP_4X4 && isSlippery && successRate === 1 / 3
    return lakeModel('FrozenLake-v1', map, isSlippery ? successRate : 1, {
      maxEpisodeSteps,
      returnThreshold: isUsual ? 0.7 : null,
    })
  },
})

/** FrozenLake8x8-v1: the lake of `frozenLake` with 8 × 8 fields and 200 steps. */
export const frozenLake8x8 = defineEnvironment({
  id: 'FrozenLake8x8-v1',
  module: import.meta.url,
  settings: { maxEpisodeSteps: steps(200), map: map(MAP_8X8), ...settings },
  presets: [
    {
      run: { numLanes: 128, totalSteps: 600_000 },
      algorithm: withSettings('ppo', {
        numSteps: 64,
        numMinibatches: 8,
        updateEpochs: 3,
        learningRate: 3e-3,
        gamma: 0.98,
        entropyCoef: 0.005,
        // At random, one in hundreds of episodes finds the goal; until then normalized noise would decide what a lane learns.
        normalizeAdvantage: false,
      }),
      policy: withSettings('mlp', {}),
    },
  ],
  state: () => TRANSITION_STATE,
  make: ({ map, isSlippery, successRate, maxEpisodeSteps }) => {
    const isUsual = map === MAP_8X8 && isSlippery && successRate === 1 / 3
    return lakeModel('FrozenLake8x8-v1', map, isSlippery ? successRate : 1, {
      maxEpisodeSteps,
      returnThreshold: isUsual ? 0.85 : null,
    })
  },
})

function lakeModel(
  id: string,
  map: string,
  successRate: number,
  limits: { maxEpisodeSteps: number; returnThreshold: number | null },
): ReturnType<typeof transitionModel> {
  const transitions = lakeTransitions(id, map, successRate)
  const rows = map.split('/')
  const colors = { S: 3, F: 9, H: 8, G: 5 } as Readonly<Record<string, number>>
  return {
    ...transitionModel(transitions, { digits: [transitions.numStates], ...limits }),
    draw({ at }, n) {
      const fields = Uint8Array.from(rows.join(''), (field) => colors[field]!)
      fields[at[n]!] = 4
      return { rows: rows.length, columns: rows[0]!.length, fields }
    },
  }
}

/** Left, down, right, up, as changes of row and column. */
const MOVES = [
  [0, -1],
  [1, 0],
  [0, 1],
  [-1, 0],
] as const

/**
 * The transition table of a lake. If the lane may slip, an action's outcomes are, in order, the direction to its left, itself, and to its
 * right.
 * @throws InputError for an invalid map.
 */
export function lakeTransitions(id: string, map: string, successRate: number): Transitions {
  const rows = map.split('/')
  const width = rows[0]!.length
  if (!/^[SFHG/]+$/.test(map) || rows.some((row) => row.length !== width) || !map.includes('S')) {
    const expected = 'rows of one length of the letters S, F, H and G with / between them, and a start S'
    throw new InputError(`${id}.map`, show(map), expected)
  }
  const fields = rows.join('')
  if (fields.length > FIELDS_MAX) throw new InputError(`${id}.map`, `${fields.length} fields`, `at most ${FIELDS_MAX}`)
  const goTo = (field: number, action: number, probability: number) => {
    const [down, right] = MOVES[action]!
    const row = Math.min(Math.max(Math.floor(field / width) + down, 0), rows.length - 1)
    const column = Math.min(Math.max((field % width) + right, 0), width - 1)
    const next = row * width + column
    return { probability, next, reward: fields[next] === 'G' ? 1 : 0, terminated: 'GH'.includes(fields[next]!) }
  }
  const failRate = (1 - successRate) / 2
  return {
    numStates: fields.length,
    numActions: 4,
    starts: [...fields].flatMap((field, at) => (field === 'S' ? [at] : [])),
    outcomes: listOutcomes(fields.length, 4, (field, action) => {
      if ('GH'.includes(fields[field]!)) return [{ probability: 1, next: field, reward: 0, terminated: true }]
      if (successRate === 1) return [goTo(field, action, 1)]
      return [
        goTo(field, (action + 3) % 4, failRate),
        goTo(field, action, successRate),
        goTo(field, (action + 1) % 4, failRate),
      ]
    }),
  }
}
