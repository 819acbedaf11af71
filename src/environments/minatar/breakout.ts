import { Stream } from '../../base/random.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

const CHANNELS = 4
const WIDTH = SIDE * SIDE * CHANNELS
const Channel = { paddle: 0, ball: 1, trail: 2, brick: 3 } as const
const Act = { none: 0, left: 1, right: 2 } as const

/** Bricks are in rows 1 to 3: bit `10 * (row - 1) + column` of a lane's bricks. */
const ALL_BRICKS = 2 ** (3 * SIDE) - 1
/** The paddle's row. A ball in it is lost; a ball that the paddle hits stays in the row above. */
const LAST_ROW = SIDE - 1

/**
 * Breakout on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and
 * Reproducible Reinforcement Learning Experiments", 2019), under gymnax's id. A paddle in the last row keeps a ball in play that breaks
 * three rows of bricks; when all are broken and the ball comes down, there are three new rows. It differs from MinAtar in three points:
 * actions are its minimal set, numbered from 0; a sticky first step repeats no action, not the previous episode's last one; and there is
 * a time limit.
 *
 * - **Action space**: Discrete(3): 0 does nothing, 1 moves the paddle one column to the left, 2 to the right. With
 *   `stickyActionProbability` (0.1, as in MinAtar; gymnax has none) the lane repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 4 (row from the top, column, channel), each 0 or 1: the paddle, the ball, its trail (the
 *   ball's previous position, which gives its direction), the bricks.
 * - **Rewards**: 1 for every broken brick. Random actions return 0.38 on average.
 * - **Starting state**: The paddle in column 4, all bricks, the ball in row 3 at the left edge moving down and right or, equally often,
 *   at the right edge moving down and left.
 * - **Episode end**: Terminated when the ball passes the paddle. Truncated after `maxEpisodeSteps` (1000, where gymnax ends it) steps.
 */
export const breakout = defineEnvironment({
  id: 'Breakout-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 5e-3,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
    {
      run: { numLanes: 64, totalSteps: 1_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 3,
        learningRate: 6e-3, // With 2e-3 it stays at 6, as the perceptron does.
        clipCoef: 0.1,
        gamma: 0.98,
        entropyCoef: 0.01,
      }),
      policy: withSettings('convolutional', { filters: [16], hidden: [64] }),
      reached: { episodeReturn: 15.2, reached: 2, seeds: 3 },
    },
  ],
  state: () => ({
    ballX: 'u8',
    ballY: 'u8',
    /** 0 up and left, 1 up and right, 2 down and right, 3 down and left. */
    direction: 'u8',
    trailX: 'u8',
    trailY: 'u8',
    paddle: 'u8',
    bricks: 'u32',
    /** 1 if the last step broke or met a brick: a ball that meets a brick in the very next step passes through it. */
    strike: 'u8',
    lastAction: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, CHANNELS] }),
    actionSpace: discrete(3),
    maxEpisodeSteps,
    returnThreshold: null,
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        const isLeft = random.uniform(0) < 0.5
        const x = isLeft ? 0 : SIDE - 1
        state.ballX[n] = x
        state.ballY[n] = 3
        state.direction[n] = isLeft ? 2 : 3
        state.trailX[n] = x
        state.trailY[n] = 3
        state.paddle[n] = 4
        state.bricks[n] = ALL_BRICKS
        state.strike[n] = 0
        state.lastAction[n] = Act.none
        draw(observation, n, x, 3, x, 3, 4, ALL_BRICKS)
      }
    },
    step({ state, observation, reward, terminated, action, lane, episode, step, random }, from, to) {
      const { ballX, ballY, direction, trailX, trailY, paddle, bricks, strike, lastAction } = state
      for (let n = from; n < to; n++) {
        const x = ballX[n]!
        const y = ballY[n]!
        reward[n] = 0
        if (y === LAST_ROW) {
          draw(observation, n, x, y, trailX[n]!, trailY[n]!, paddle[n]!, bricks[n]!)
          continue // The ball is lost: the episode is over.
        }
        let act = action[n]!
        if (stickyActionProbability > 0) {
          random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
          if (random.uniform(0) < stickyActionProbability) act = lastAction[n]!
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
        draw(observation, n, nextX, nextY, x, y, at, left)
      }
    },
  }),
})

/** Writes row n of the observation. */
function draw(
  observation: Float32Array,
  n: number,
  ballX: number,
  ballY: number,
  trailX: number,
  trailY: number,
  paddle: number,
  bricks: number,
): void {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  observation[row + CHANNELS * (SIDE * LAST_ROW + paddle) + Channel.paddle] = 1
  observation[row + CHANNELS * (SIDE * ballY + ballX) + Channel.ball] = 1
  observation[row + CHANNELS * (SIDE * trailY + trailX) + Channel.trail] = 1
  const firstBrick = row + CHANNELS * SIDE + Channel.brick
  for (let left = bricks; left !== 0; left &= left - 1) {
    observation[firstBrick + CHANNELS * (31 - Math.clz32(left & -left))] = 1
  }
}
