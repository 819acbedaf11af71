/** Space invaders of MinAtar 1.0.15 on a 10 × 10 grid (`environments/minatar/space-invaders.ts` has their rules), over observations of bytes. */
import { type Random, Stream } from '../../base/random.ts'
import type { GridLanes, NewLanes } from './lanes.ts'

const SIDE = 10
const CHANNELS = 6
const WIDTH = SIDE * SIDE * CHANNELS
const Channel = { cannon: 0, alien: 1, left: 2, right: 3, shot: 4, bomb: 5 } as const
const Act = { none: 0, left: 1, right: 2, fire: 3 } as const
const LAST_ROW = SIDE - 1
/** Rows of a wave, which fills columns 2 to 7 of rows 0 to 3. */
const WAVE_ROWS = 4
const WAVE = 0b0011111100
const LEFT_EDGE = 1
const RIGHT_EDGE = 1 << (SIDE - 1)
const SHOT_STEPS = 5
const BOMB_STEPS = 10
/** Steps between two moves of a full wave: of the first and of the fastest wave. */
const MOVE_STEPS = 12
const MOVE_STEPS_LEAST = 6

/** The state of each lane; `environments/minatar/space-invaders.ts` says what the columns are. */
export interface SpaceInvadersState {
  readonly cannon: Uint8Array
  readonly aliens: Int32Array
  readonly shots: Int32Array
  readonly bombs: Int32Array
  readonly isRightward: Uint8Array
  readonly moveSteps: Uint8Array
  readonly moveTimer: Uint8Array
  readonly bombTimer: Uint8Array
  readonly shotTimer: Uint8Array
  readonly lastAction: Uint8Array
  readonly isOver: Uint8Array
}

/** Begins an episode in the lanes rows[0 … count). */
export function spaceInvadersReset(
  state: SpaceInvadersState,
  lanes: Pick<NewLanes, 'observation'>,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    state.cannon[n] = 5
    state.aliens.fill(0, n * SIDE, (n + 1) * SIDE)
    state.aliens.fill(WAVE, n * SIDE, n * SIDE + WAVE_ROWS)
    state.shots.fill(0, n * SIDE, (n + 1) * SIDE)
    state.bombs.fill(0, n * SIDE, (n + 1) * SIDE)
    state.isRightward[n] = 0
    state.moveSteps[n] = MOVE_STEPS
    state.moveTimer[n] = MOVE_STEPS
    state.bombTimer[n] = BOMB_STEPS
    state.shotTimer[n] = 0
    state.lastAction[n] = Act.none
    state.isOver[n] = 0
    draw(lanes.observation, n, state)
  }
}

/** A step of lanes `from` to `to`. A lane repeats its last action with probability `sticky`. */
export function spaceInvadersStep(
  state: SpaceInvadersState,
  lanes: GridLanes,
  random: Random,
  sticky: number,
  from: number,
  to: number,
): void {
  const { observation, reward, terminated, action, lane, episode, step } = lanes
  const { cannon, aliens, shots, bombs, isRightward, moveSteps, moveTimer, bombTimer, shotTimer } = state
  for (let n = from; n < to; n++) {
    reward[n] = 0
    if (state.isOver[n] === 1) {
      draw(observation, n, state)
      continue
    }
    let act = action[n]!
    if (sticky > 0) {
      random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
      if (random.uniform(0) < sticky) act = state.lastAction[n]!
    }
    state.lastAction[n] = act
    const first = n * SIDE
    const last = first + LAST_ROW
    if (act === Act.fire && shotTimer[n] === 0) {
      shots[last] = shots[last]! | (1 << cannon[n]!)
      shotTimer[n] = SHOT_STEPS
    } else if (act === Act.left && cannon[n]! > 0) cannon[n] = cannon[n]! - 1
    else if (act === Act.right && cannon[n]! < SIDE - 1) cannon[n] = cannon[n]! + 1
    const here = 1 << cannon[n]!

    shots.copyWithin(first, first + 1, last + 1)
    shots[last] = 0
    bombs.copyWithin(first + 1, first, last)
    bombs[first] = 0
    let isOver = ((bombs[last]! | aliens[last]!) & here) !== 0

    if (moveTimer[n] === 0) {
      moveTimer[n] = Math.min(countAliens(aliens, first), moveSteps[n]!)
      const edge = isRightward[n] === 1 ? RIGHT_EDGE : LEFT_EDGE
      if (touches(aliens, first, edge)) {
        isRightward[n] = 1 - isRightward[n]!
        const lowest = aliens[last]!
        if (lowest !== 0) isOver = true
        aliens.copyWithin(first + 1, first, last)
        aliens[first] = lowest
      } else {
        for (let row = first; row <= last; row++) {
          aliens[row] = isRightward[n] === 1 ? aliens[row]! << 1 : aliens[row]! >> 1
        }
      }
      if ((aliens[last]! & here) !== 0) isOver = true
    }
    if (bombTimer[n] === 0) {
      bombTimer[n] = BOMB_STEPS
      dropBomb(aliens, bombs, first, cannon[n]!)
    }
    for (let row = first; row <= last; row++) {
      const hits = aliens[row]! & shots[row]!
      for (let left = hits; left !== 0; left &= left - 1) reward[n] = reward[n]! + 1
      aliens[row] = aliens[row]! ^ hits
      shots[row] = shots[row]! ^ hits
    }

    if (shotTimer[n]! > 0) shotTimer[n] = shotTimer[n]! - 1
    moveTimer[n] = moveTimer[n]! - 1
    bombTimer[n] = bombTimer[n]! - 1
    if (countAliens(aliens, first) === 0) {
      if (moveSteps[n]! > MOVE_STEPS_LEAST) moveSteps[n] = moveSteps[n]! - 1
      aliens.fill(WAVE, first, first + WAVE_ROWS)
    }
    terminated[n] = isOver ? 1 : 0
    state.isOver[n] = terminated[n]!
    draw(observation, n, state)
  }
}

function countAliens(aliens: Int32Array, first: number): number {
  let count = 0
  for (let row = first; row < first + SIDE; row++) for (let left = aliens[row]!; left !== 0; left &= left - 1) count++
  return count
}

function touches(aliens: Int32Array, first: number, columns: number): boolean {
  for (let row = first; row < first + SIDE; row++) if ((aliens[row]! & columns) !== 0) return true
  return false
}

/** Drops a bomb from the lowest alien of the column nearest to the cannon; of two equally near columns, the left one. */
function dropBomb(aliens: Int32Array, bombs: Int32Array, first: number, cannon: number): void {
  for (let far = 0; far < SIDE; far++) {
    for (let side = -1; side <= 1; side += 2) {
      const column = cannon + side * far
      if (column < 0 || column >= SIDE) continue
      for (let row = first + LAST_ROW; row >= first; row--) {
        if (((aliens[row]! >> column) & 1) === 0) continue
        bombs[row] = bombs[row]! | (1 << column)
        return
      }
    }
  }
}

/** Writes row n of the observation. */
function draw(observation: Uint8Array, n: number, state: SpaceInvadersState): void {
  const row = n * WIDTH
  const way = state.isRightward[n] === 1 ? Channel.right : Channel.left
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * LAST_ROW + state.cannon[n]!) + Channel.cannon] = 1
  for (let y = 0; y < SIDE; y++) {
    const at = row + CHANNELS * SIDE * y
    mark(observation, at + Channel.alien, state.aliens[n * SIDE + y]!)
    mark(observation, at + way, state.aliens[n * SIDE + y]!)
    mark(observation, at + Channel.shot, state.shots[n * SIDE + y]!)
    mark(observation, at + Channel.bomb, state.bombs[n * SIDE + y]!)
  }
}

/** Marks the columns of a row whose bits are set; `at` is the channel's element in column 0. */
function mark(observation: Uint8Array, at: number, columns: number): void {
  for (let left = columns; left !== 0; left &= left - 1) {
    observation[at + CHANNELS * (31 - Math.clz32(left & -left))] = 1
  }
}
