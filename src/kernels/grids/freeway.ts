/** Freeway of MinAtar 1.0.15 on a 10 × 10 grid (`environments/minatar/freeway.ts` has its rules), over observations of bytes. */
import { type Random, Stream } from '../../base/random.ts'
import type { GridLanes, NewLanes } from './lanes.ts'

const SIDE = 10
const CHANNELS = 7
const WIDTH = SIDE * SIDE * CHANNELS
/** Channel 1 + s has the trails of cars that move about every s steps. */
const Channel = { chicken: 0, car: 1 } as const
const Act = { none: 0, up: 1, down: 2 } as const
/** Number of cars, one in each of the rows 1 to 8. */
const CARS = 8
const SPEEDS = 5
const COLUMN = 4
const LAST_ROW = SIDE - 1
const MOVE_STEPS = 3
/** Draws of four random numbers per step: for the sticky action and each car's speed. */
const BLOCKS = 3

/** The state of each lane; `environments/minatar/freeway.ts` says what the columns are. */
export interface FreewayState {
  readonly chicken: Uint8Array
  readonly moveTimer: Uint8Array
  readonly column: Uint8Array
  readonly timer: Uint8Array
  readonly wait: Uint8Array
  readonly isRightward: Uint8Array
  readonly lastAction: Uint8Array
}

/** Begins an episode in the lanes rows[0 … count). */
export function freewayReset(
  state: FreewayState,
  lanes: NewLanes,
  random: Random,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    state.column.fill(0, n * CARS, (n + 1) * CARS)
    driveAnew(state, n, random, Stream.reset, lanes.lane[n]!, lanes.episode[n]!, 0)
    state.chicken[n] = LAST_ROW
    state.moveTimer[n] = MOVE_STEPS
    state.lastAction[n] = Act.none
    draw(lanes.observation, n, state)
  }
}

/** A step of lanes `from` to `to`. A lane repeats its last action with probability `sticky`. */
export function freewayStep(
  state: FreewayState,
  lanes: Omit<GridLanes, 'terminated'>,
  random: Random,
  sticky: number,
  from: number,
  to: number,
): void {
  const { observation, reward, action, lane, episode, step } = lanes
  const { column, timer, wait, isRightward } = state
  for (let n = from; n < to; n++) {
    let act = action[n]!
    if (sticky > 0) {
      random.draw(Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]!)
      if (random.uniform(0) < sticky) act = state.lastAction[n]!
    }
    state.lastAction[n] = act
    let at = state.chicken[n]!
    if (act !== Act.none && state.moveTimer[n] === 0) {
      state.moveTimer[n] = MOVE_STEPS
      at = act === Act.up ? at - 1 : Math.min(LAST_ROW, at + 1)
    }
    reward[n] = 0
    if (at === 0) {
      reward[n] = 1
      driveAnew(state, n, random, Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]! + 1)
      at = LAST_ROW
    }
    for (let i = 0; i < CARS; i++) {
      const car = n * CARS + i
      if (at === i + 1 && column[car] === COLUMN) at = LAST_ROW
      if (timer[car]! > 0) timer[car] = timer[car]! - 1
      else {
        timer[car] = wait[car]!
        column[car] = (column[car]! + (isRightward[car] === 1 ? 1 : SIDE - 1)) % SIDE
        if (at === i + 1 && column[car] === COLUMN) at = LAST_ROW
      }
    }
    if (state.moveTimer[n]! > 0) state.moveTimer[n] = state.moveTimer[n]! - 1
    state.chicken[n] = at
    draw(observation, n, state)
  }
}

/** Gives the cars of lane n new speeds and directions, by two draws from `block` on. */
function driveAnew(
  { timer, wait, isRightward }: FreewayState,
  n: number,
  random: Random,
  stream: number,
  lane: number,
  episode: number,
  block: number,
): void {
  for (let i = 0; i < CARS; i++) {
    if (i % 4 === 0) random.draw(stream, lane, episode, block + i / 4)
    const drawn = Math.floor(random.uniform(i % 4) * 2 * SPEEDS)
    const car = n * CARS + i
    wait[car] = 1 + (drawn % SPEEDS)
    timer[car] = wait[car]!
    isRightward[car] = drawn < SPEEDS ? 0 : 1
  }
}

function draw(observation: Uint8Array, n: number, { chicken, column, wait, isRightward }: FreewayState): void {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * chicken[n]! + COLUMN) + Channel.chicken] = 1
  for (let i = 0; i < CARS; i++) {
    const car = n * CARS + i
    const behind = (column[car]! + (isRightward[car] === 1 ? SIDE - 1 : 1)) % SIDE
    const line = row + CHANNELS * SIDE * (i + 1)
    observation[line + CHANNELS * column[car]! + Channel.car] = 1
    observation[line + CHANNELS * behind + Channel.car + wait[car]!] = 1
  }
}
