import { type Random, Stream } from '../../base/random.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, withSettings } from '../environment.ts'

const SQUARES = 9
const WIDTH = 2 * SQUARES
/** A side's squares as bits of a number: bit `3 * row + column`. */
const ALL_SQUARES = 2 ** SQUARES - 1
const LINES = [0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124] // Rows, columns, diagonals.
/** 1 for every set of squares that contains a line. */
const HAS_LINE = Uint8Array.from({ length: ALL_SQUARES + 1 }, (_, squares) =>
  LINES.some((line) => (squares & line) === line) ? 1 : 0,
)

/**
 * Tic-tac-toe against an opponent that plays uniformly at random. A step is a move of the lane and the opponent's answer. The action mask
 * contains the free squares.
 *
 * - **Action space**: Discrete(9): the square, 3 · row + column. The mask allows free squares.
 * - **Observation space**: Box of 3 × 3 × 2 (row, column, side), each 0 or 1: the lane's own marks, the opponent's marks.
 * - **Rewards**: 1 for a win, −1 for a loss, otherwise 0. Random moves return 0 on average; the best play returns 0.960, and 0.995 if it
 *   begins.
 * - **Starting state**: An empty board, or, equally often, one with the opponent's first mark.
 * - **Episode end**: Terminated when one side has three marks in a line, or the board is full, after at most 5 steps, which is also the
 *   limit.
 */
export const ticTacToe = defineEnvironment({
  id: 'TicTacToe-v0',
  module: import.meta.url,
  settings: {},
  presets: [
    {
      run: { numLanes: 64, totalSteps: 500_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 2e-3,
        gamma: 1,
        entropyCoef: 0.02,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
    {
      run: { numLanes: 64, totalSteps: 500_000 },
      algorithm: withSettings('ppo', {
        numSteps: 32,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 3e-3,
        gamma: 1,
        entropyCoef: 0.02,
      }),
      policy: withSettings('recurrent', { hidden: [64], activation: 'relu', sequenceLength: 8, sharedTrunk: true }),
    },
    {
      run: { numLanes: 16, totalSteps: 500_000 },
      algorithm: withSettings('dqn', { learningRate: 1e-3, learningRateSchedule: 'linear', gamma: 1 }),
      policy: withSettings('qNetwork', {}),
    },
  ],
  state: () => ({
    own: 'i32',
    /** The opponent's squares. */
    other: 'i32',
  }),
  make: () => ({
    observationSpace: box({ low: 0, high: 1, shape: [3, 3, 2] }),
    actionSpace: discrete(SQUARES),
    actionMask: true,
    maxEpisodeSteps: 5,
    returnThreshold: null,
    reset({ state, observation, actionMask, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        const otherBegins = random.uniform(0) < 0.5
        state.own[n] = 0
        state.other[n] = otherBegins ? freeSquare(ALL_SQUARES, random, 1) : 0
        show(observation, actionMask, n, 0, state.other[n]!)
      }
    },
    step({ state, observation, actionMask, reward, terminated, action, lane, episode, step, random }, from, to) {
      for (let n = from; n < to; n++) {
        let own = state.own[n]!
        let other = state.other[n]!
        reward[n] = 0
        if (!isOver(own, other)) {
          own |= 1 << action[n]!
          if (HAS_LINE[own] === 1) reward[n] = 1
          else if ((own | other) !== ALL_SQUARES) {
            random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
            other |= freeSquare(ALL_SQUARES ^ (own | other), random, 0)
            if (HAS_LINE[other] === 1) reward[n] = -1
          }
          terminated[n] = isOver(own, other) ? 1 : 0
          state.own[n] = own
          state.other[n] = other
        }
        show(observation, actionMask, n, own, other)
      }
    },
  }),
})

function isOver(own: number, other: number): boolean {
  return HAS_LINE[own] === 1 || HAS_LINE[other] === 1 || (own | other) === ALL_SQUARES
}

/** A random square of `free`, uniform, by word `index` of the last draw. */
function freeSquare(free: number, random: Random, index: number): number {
  let numFree = 0
  for (let left = free; left !== 0; left &= left - 1) numFree++
  let left = free
  for (let skipped = Math.floor(random.uniform(index) * numFree); skipped > 0; skipped--) left &= left - 1
  return left & -left
}

function show(observation: Float32Array, actionMask: Uint8Array, n: number, own: number, other: number): void {
  for (let square = 0; square < SQUARES; square++) {
    observation[WIDTH * n + 2 * square] = (own >> square) & 1
    observation[WIDTH * n + 2 * square + 1] = (other >> square) & 1
    actionMask[SQUARES * n + square] = 1 ^ (((own | other) >> square) & 1)
  }
}
