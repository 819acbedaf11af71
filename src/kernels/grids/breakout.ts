/** Breakout of MinAtar 1.0.15 on a 10 × 10 grid (`environments/minatar/breakout.ts` has its rules), over observations of bytes. */
import { type Random, Stream } from '../../base/random.ts'
import type { GridLanes, NewLanes } from './lanes.ts'

const SIDE = 10
const CHANNELS = 4
const WIDTH = SIDE * SIDE * CHANNELS
const Channel = { paddle: 0, ball: 1, trail: 2, brick: 3 } as const
const Act = { none: 0, left: 1, right: 2 } as const

/** Bricks are in rows 1 to 3: bit `10 * (row - 1) + column` of a lane's bricks. */
const ALL_BRICKS = 2 ** (3 * SIDE) - 1
/** The paddle's row. A ball in it is lost; a ball that the paddle hits stays in the row above. */
const LAST_ROW = SIDE - 1

/** The state of each lane; `environments/minatar/breakout.ts` says what the columns are. */
export interface BreakoutState {
  readonly ballX: Uint8Array
  readonly ballY: Uint8Array
  readonly direction: Uint8Array
  readonly trailX: Uint8Array
  readonly trailY: Uint8Array
  readonly paddle: Uint8Array
  readonly bricks: Uint32Array
  readonly strike: Uint8Array
  readonly lastAction: Uint8Array
}

/** Begins an episode in the lanes rows[0 … count). */
export function breakoutReset(
  state: BreakoutState,
  lanes: NewLanes,
  random: Random,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    random.draw(Stream.reset, lanes.lane[n]!, lanes.episode[n]!, 0)
    const isLeft = random.uniform(0) < 1 / 2
    state.ballX[n] = isLeft ? 0 : SIDE - 1
    state.ballY[n] = 3
    state.direction[n] = isLeft ? 2 : 3
    state.trailX[n] = state.ballX[n]!
    state.trailY[n] = 3
    state.paddle[n] = 4
    state.bricks[n] = ALL_BRICKS
    state.strike[n] = 0
    state.lastAction[n] = Act.none
    draw(lanes.observation, state, n)
  }
}

/** A step of lanes `from` to `to`. A lane repeats its last action with probability `sticky`. */
export function breakoutStep(
  state: BreakoutState,
  lanes: GridLanes,
  random: Random,
  sticky: number,
  from: number,
  to: number,
): void {
  const { ballX, ballY, direction, trailX, trailY, paddle, bricks, strike, lastAction } = state
  const { observation, reward, terminated, action, lane, episode, step } = lanes
  for (let n = from; n < to; n++) {
    const x = ballX[n]!
    const y = ballY[n]!
    reward[n] = 0
    if (y === LAST_ROW) {
      draw(observation, state, n)
      continue // The ball is lost: the episode is over.
    }
    let act = action[n]!
    if (sticky > 0) {
      random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
      if (random.uniform(0) < sticky) act = lastAction[n]!
    }
    lastAction[n] = act
    let at = paddle[n]!
    if (act === Act.left && at > 0) at--
    else if (act === Act.right && at < SIDE - 1) at++

    let turned = direction[n]!
    let nextX = x + (turned === 1 || turned === 2 ? 1 : -1)
    let nextY = y + (turned < 2 ? -1 : 1)
    if (nextX < 0 || nextX >= SIDE) {
      nextX = x
      turned ^= 1 // Left becomes right.
    }
    let left = bricks[n]!
    let hasStruck = 0
    if (nextY < 0) {
      nextY = 0
      turned ^= 3 // Up becomes down.
    } else if (nextY >= 1 && nextY <= 3 && (left >>> (SIDE * (nextY - 1) + nextX)) & 1) {
      hasStruck = 1
      if (strike[n] === 0) {
        reward[n] = 1
        left ^= 1 << (SIDE * (nextY - 1) + nextX)
        nextY = y
        turned ^= 3
      }
    } else if (nextY === LAST_ROW) {
      if (left === 0) left = ALL_BRICKS
      if (x === at) {
        nextY = y
        turned ^= 3
      } else if (nextX === at) {
        nextY = y
        turned ^= 2 // Hit from the side: reverses.
      } else terminated[n] = 1
    }
    ballX[n] = nextX
    ballY[n] = nextY
    direction[n] = turned
    trailX[n] = x
    trailY[n] = y
    paddle[n] = at
    bricks[n] = left
    strike[n] = hasStruck
    draw(observation, state, n)
  }
}

/** Writes row n of the observation. */
function draw(observation: Uint8Array, { ballX, ballY, trailX, trailY, paddle, bricks }: BreakoutState, n: number) {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * LAST_ROW + paddle[n]!) + Channel.paddle] = 1
  observation[row + CHANNELS * (SIDE * ballY[n]! + ballX[n]!) + Channel.ball] = 1
  observation[row + CHANNELS * (SIDE * trailY[n]! + trailX[n]!) + Channel.trail] = 1
  const firstBrick = row + CHANNELS * SIDE + Channel.brick
  for (let left = bricks[n]!; left !== 0; left &= left - 1) {
    observation[firstBrick + CHANNELS * (31 - Math.clz32(left & -left))] = 1
  }
}
