import { boolean, integer } from '../../base/settings.ts'
import { defineEnvironment, STEPS_MAX, withSettings } from '../environment.ts'
import type { Picture } from '../picture.ts'
import { listOutcomes, TRANSITION_STATE, type Transitions, transitionModel } from './transitions.ts'

const SIDE = 5
const NUM_STATES = 500
/** Red, green, yellow, blue: row and column. */
const PLACES = [
  [0, 0],
  [0, 4],
  [4, 0],
  [4, 3],
] as const
const ABOARD = PLACES.length
/** Separators between a column and the next one in each row: `|` is a wall. */
const BETWEEN = [':|::', ':|::', '::::', '|:|:', '|:|:']

/**
 * Taxi-v3 with Gymnasium's transition table, which Taxi-v4 has too: pick up a passenger at one of four places and bring them to another,
 * on a walled grid of 5 × 5 fields (Dietterich, "Hierarchical Reinforcement Learning with the MAXQ Value Function Decomposition", 2000).
 * Gymnasium's options of rain and fickle passengers are not supported.
 *
 * - **Action space**: Discrete(6): 0 south, 1 north, 2 east, 3 west, 4 picks the passenger up, 5 sets them down. With `actionMask` only
 *   actions that change the state are legal, as in Gymnasium's `info["action_mask"]`; otherwise all are, as in its `step`.
 * - **Observation space**: Box of 19, each 0 or 1: the taxi's row (5) and column (5), the passenger's place (red, green, yellow, blue, in
 *   the taxi), the destination (4). Gymnasium has them as one number, ((row · 5 + column) · 5 + passenger) · 4 + destination.
 * - **Rewards**: −1 for every step, 20 for delivering the passenger, −10 for an impossible pick-up or set-down. Solved at a mean return
 *   of 8.
 * - **Starting state**: Uniform over 300 states: any taxi position, and a passenger at a place other than the destination.
 * - **Episode end**: Terminated when the passenger is at the destination. Truncated after `maxEpisodeSteps` (200) steps.
 * - **Arguments**: `actionMask` (true).
 */
export const taxi = defineEnvironment({
  id: 'Taxi-v3',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: integer(200, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
    actionMask: boolean(true, 'whether actions without an effect are illegal'),
  },
  presets: [
    {
      // Without the mask it does not learn: lanes stop picking anybody up and return −200.
      run: { numLanes: 64, totalSteps: 800_000 },
      algorithm: withSettings('ppo', {
        numSteps: 64,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 3e-3,
        gamma: 0.99,
        entropyCoef: 0.02,
        valueCoef: 0.1,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  state: () => TRANSITION_STATE,
  make: ({ maxEpisodeSteps, actionMask }) => {
    const { legal, ...transitions } = taxiTransitions()
    const model = transitionModel(actionMask ? { ...transitions, legal } : transitions, {
      digits: [SIDE, SIDE, ABOARD + 1, PLACES.length],
      maxEpisodeSteps,
      returnThreshold: 8,
    })
    return { ...model, draw: ({ at }, n) => drawTaxi(at[n]!) }
  },
})

const encode = (row: number, column: number, passenger: number, destination: number) =>
  ((row * SIDE + column) * (ABOARD + 1) + passenger) * PLACES.length + destination

function decode(state: number) {
  const [destination, rest] = [state % PLACES.length, Math.floor(state / PLACES.length)]
  const [passenger, field] = [rest % (ABOARD + 1), Math.floor(rest / (ABOARD + 1))]
  return { row: Math.floor(field / SIDE), column: field % SIDE, passenger, destination }
}

/** Draws places in gray, the destination in green, the waiting passenger in pink, and the taxi in orange, yellow with the passenger. */
function drawTaxi(state: number): Picture {
  const { row, column, passenger, destination } = decode(state)
  const columns = 2 * SIDE - 1
  const fields = new Uint8Array(SIDE * columns)
  for (const [y, walls] of BETWEEN.entries()) {
    for (const [x, wall] of [...walls].entries()) if (wall === '|') fields[y * columns + 2 * x + 1] = 9
  }
  for (const [place, [y, x]] of PLACES.entries()) {
    fields[y * columns + 2 * x] = place === passenger ? 7 : place === destination ? 5 : 3
  }
  fields[row * columns + 2 * column] = passenger === ABOARD ? 6 : 2
  return { rows: SIDE, columns, fields }
}

/** The transition table of a taxi: one outcome per action, and whether it changes the state. */
export function taxiTransitions(): Transitions & { readonly legal: readonly boolean[] } {
  const states = Array.from({ length: NUM_STATES }, (_, state) => decode(state))
  const outcomes = listOutcomes(NUM_STATES, 6, (state, action) => {
    const { row, column, passenger, destination } = states[state]!
    const place = PLACES.findIndex(([there, across]) => row === there && column === across)
    const to = (next: number, reward: number, terminated = false) => [{ probability: 1, next, reward, terminated }]
    if (action === 0) return to(encode(Math.min(row + 1, SIDE - 1), column, passenger, destination), -1)
    if (action === 1) return to(encode(Math.max(row - 1, 0), column, passenger, destination), -1)
    if (action === 2) {
      const isOpen = BETWEEN[row]![column] === ':'
      return to(encode(row, isOpen ? column + 1 : column, passenger, destination), -1)
    }
    if (action === 3) {
      const isOpen = BETWEEN[row]![column - 1] === ':'
      return to(encode(row, isOpen ? column - 1 : column, passenger, destination), -1)
    }
    if (action === 4) {
      const isHere = passenger !== ABOARD && passenger === place
      return isHere ? to(encode(row, column, ABOARD, destination), -1) : to(state, -10)
    }
    if (passenger !== ABOARD || place < 0) return to(state, -10)
    const isArrived = place === destination
    return to(encode(row, column, place, destination), isArrived ? 20 : -1, isArrived)
  })
  return {
    numStates: NUM_STATES,
    numActions: 6,
    starts: states.flatMap(({ passenger, destination }, state) =>
      passenger !== ABOARD && passenger !== destination ? [state] : [],
    ),
    outcomes,
    legal: outcomes.map(([only], i) => only!.next !== Math.floor(i / 6)),
  }
}
