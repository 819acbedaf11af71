/** Asterix of MinAtar 1.0.15 on a 10 × 10 grid (`environments/minatar/asterix.ts` has its rules), over observations of bytes. */
import { type Random, Stream } from '../../base/random.ts'
import type { GridLanes, NewLanes } from './lanes.ts'

const SIDE = 10
const CHANNELS = 4
const WIDTH = SIDE * SIDE * CHANNELS
const Channel = { player: 0, enemy: 1, trail: 2, gold: 3 } as const
const Act = { none: 0, left: 1, up: 2, right: 3, down: 4 } as const
/** Number of rows, from 1 to 8, in which enemies and gold move. */
const ROWS = 8
const Kind = { none: 0, enemy: 1, gold: 2 } as const
const SPAWN_STEPS = 10
const MOVE_STEPS = 5
const RAMP_STEPS = 100

/** The state of each lane; `environments/minatar/asterix.ts` says what the columns are. */
export interface AsterixState {
  readonly x: Uint8Array
  readonly y: Uint8Array
  readonly kind: Uint8Array
  readonly column: Uint8Array
  readonly isRightward: Uint8Array
  readonly spawnSteps: Uint8Array
  readonly moveSteps: Uint8Array
  readonly spawnTimer: Uint8Array
  readonly moveTimer: Uint8Array
  readonly rampTimer: Int32Array
  readonly ramps: Int32Array
  readonly lastAction: Uint8Array
  readonly isOver: Uint8Array
}

/** Begins an episode in the lanes rows[0 … count). */
export function asterixReset(
  state: AsterixState,
  lanes: Pick<NewLanes, 'observation'>,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    state.x[n] = 5
    state.y[n] = 5
    for (const column of [state.kind, state.column, state.isRightward]) column.fill(0, n * ROWS, (n + 1) * ROWS)
    state.spawnSteps[n] = SPAWN_STEPS
    state.spawnTimer[n] = SPAWN_STEPS
    state.moveSteps[n] = MOVE_STEPS
    state.moveTimer[n] = MOVE_STEPS
    state.rampTimer[n] = RAMP_STEPS
    state.ramps[n] = 0
    state.lastAction[n] = Act.none
    state.isOver[n] = 0
    draw(lanes.observation, n, state)
  }
}

/** A step of lanes `from` to `to`. A lane repeats its last action with probability `sticky`. */
export function asterixStep(
  state: AsterixState,
  lanes: GridLanes,
  random: Random,
  sticky: number,
  from: number,
  to: number,
): void {
  const { x, y, kind, column, isRightward, spawnSteps, moveSteps, spawnTimer, moveTimer, rampTimer } = state
  const { observation, reward, terminated, action, lane, episode, step } = lanes
  for (let n = from; n < to; n++) {
    reward[n] = 0
    if (state.isOver[n] === 1) {
      draw(observation, n, state)
      continue
    }
    random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
    const act = random.uniform(0) < sticky ? state.lastAction[n]! : action[n]!
    state.lastAction[n] = act
    const first = n * ROWS
    if (spawnTimer[n] === 0) {
      const row = freeRow(kind, first, random.uniform(3))
      if (row >= 0) {
        isRightward[first + row] = random.uniform(1) < 1 / 2 ? 1 : 0
        kind[first + row] = random.uniform(2) < 1 / 3 ? Kind.gold : Kind.enemy
        column[first + row] = isRightward[first + row] === 1 ? 0 : SIDE - 1
      }
      spawnTimer[n] = spawnSteps[n]!
    }
    if (act === Act.left && x[n]! > 0) x[n] = x[n]! - 1
    else if (act === Act.right && x[n]! < SIDE - 1) x[n] = x[n]! + 1
    else if (act === Act.up && y[n]! > 1) y[n] = y[n]! - 1
    else if (act === Act.down && y[n]! < ROWS) y[n] = y[n]! + 1

    // Only the content of the player's own row can meet it: before all move, and after.
    const own = first + y[n]! - 1
    const before = meet(kind, column, own, x[n]!)
    let after: number = Kind.none
    if (moveTimer[n] === 0) {
      moveTimer[n] = moveSteps[n]!
      for (let each = first; each < first + ROWS; each++) {
        if (kind[each] === Kind.none) continue
        const next = column[each]! + (isRightward[each] === 1 ? 1 : -1)
        if (next < 0 || next >= SIDE) kind[each] = Kind.none
        else column[each] = next
      }
      after = meet(kind, column, own, x[n]!)
    }
    reward[n] = (before === Kind.gold ? 1 : 0) + (after === Kind.gold ? 1 : 0)
    const isOver = before === Kind.enemy || after === Kind.enemy
    spawnTimer[n] = spawnTimer[n]! - 1
    moveTimer[n] = moveTimer[n]! - 1
    if (spawnSteps[n]! > 1 || moveSteps[n]! > 1) {
      if (rampTimer[n]! >= 0) rampTimer[n] = rampTimer[n]! - 1
      else {
        if (moveSteps[n]! > 1 && state.ramps[n]! % 2 === 1) moveSteps[n] = moveSteps[n]! - 1
        if (spawnSteps[n]! > 1) spawnSteps[n] = spawnSteps[n]! - 1
        state.ramps[n] = state.ramps[n]! + 1
        rampTimer[n] = RAMP_STEPS
      }
    }
    terminated[n] = isOver ? 1 : 0
    state.isOver[n] = terminated[n]!
    draw(observation, n, state)
  }
}

/** A random empty row, by a number in [0, 1); −1 if there is none. */
function freeRow(kind: Uint8Array, first: number, part: number): number {
  let numFree = 0
  for (let row = 0; row < ROWS; row++) if (kind[first + row] === Kind.none) numFree++
  if (numFree === 0) return -1
  let row = 0
  for (let skipped = Math.floor(part * numFree); skipped > 0 || kind[first + row] !== Kind.none; row++) {
    if (kind[first + row] === Kind.none) skipped--
  }
  return row
}

/** What the player in column x meets in its row; gold disappears. */
function meet(kind: Uint8Array, column: Uint8Array, own: number, x: number): number {
  const met = kind[own]!
  if (met === Kind.none || column[own] !== x) return Kind.none
  if (met === Kind.gold) kind[own] = Kind.none
  return met
}

/** Writes row n of the observation. */
function draw(observation: Uint8Array, n: number, state: AsterixState): void {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * state.y[n]! + state.x[n]!) + Channel.player] = 1
  for (let i = 0; i < ROWS; i++) {
    const each = n * ROWS + i
    const kind = state.kind[each]!
    if (kind === Kind.none) continue
    const line = row + CHANNELS * SIDE * (i + 1)
    const column = state.column[each]!
    const behind = column + (state.isRightward[each] === 1 ? -1 : 1)
    observation[line + CHANNELS * column + (kind === Kind.gold ? Channel.gold : Channel.enemy)] = 1
    if (behind >= 0 && behind < SIDE) observation[line + CHANNELS * behind + Channel.trail] = 1
  }
}
