import { Stream } from '../../base/random.ts'
import { boolean } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, withSettings } from '../environment.ts'

const SUMS = 32
const CARDS = 11
const WIDTH = SUMS + CARDS + 2
/** The dealer draws at most ten cards, in draws of four words. */
const DRAWS = 3
const STICK = 0
/** The longest hand: 21 aces and one more card. */
const STEPS_MOST = 22

/**
 * Blackjack-v1 with Gymnasium's rules: get closer to 21 than the dealer without exceeding it (Sutton and Barto, "Reinforcement Learning:
 * An Introduction", example 5.1). Cards are drawn with replacement. An ace is 1, or 11 if the sum stays within 21 (a usable ace); face
 * cards are 10. The dealer draws until they have 17 or more.
 *
 * - **Action space**: Discrete(2): 0 sticks, 1 hits (draws a card).
 * - **Observation space**: Box of 45, each 0 or 1: the player's sum (32), the dealer's visible card (11; 1 is an ace), whether the player
 *   has a usable ace (no, yes).
 * - **Rewards**: 1 for a win, −1 for a loss, 0 for a draw and before the end. With `natural`, and not `sab`, a win with an ace and a ten
 *   pays 1.5.
 * - **Starting state**: Two cards each.
 * - **Episode end**: Terminated when the player sticks or exceeds 21.
 * - **Arguments**: `sab` (true): an ace and a ten win against everything but the same, as in the book, and `natural` has no effect.
 *   `natural` (false).
 */
export const blackjack = defineEnvironment({
  id: 'Blackjack-v1',
  module: import.meta.url,
  settings: {
    sab: boolean(true, 'rules of Sutton and Barto: a natural (an ace and a ten) wins against every other hand'),
    natural: boolean(false, 'whether a natural pays 1.5; only without sab'),
  },
  presets: [
    {
      run: { numLanes: 256, totalSteps: 600_000 },
      algorithm: withSettings('ppo', {
        numSteps: 16,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 2e-3,
        gamma: 1,
        entropyCoef: 0.005,
      }),
      policy: withSettings('mlp', {}),
    },
  ],
  state: () => ({
    /** The player's cards: their sum with aces as 1, whether one is an ace, and their number. */
    sum: 'u8',
    hasAce: 'u8',
    numCards: 'u8',
    /** The dealer's visible and hidden card. */
    shown: 'u8',
    hidden: 'u8',
  }),
  make: ({ sab, natural }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [WIDTH] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: STEPS_MOST,
    returnThreshold: null,
    /** Draws bars for the player's sum, orange with an ace that counts 11, and the dealer's card; 21 is marked. */
    draw({ sum, hasAce, shown }, n) {
      const columns = 31
      const fields = new Uint8Array(5 * columns)
      for (let row = 0; row < 5; row++) fields[row * columns + 20] = 9
      const isUsable = hasAce[n] === 1 && sum[n]! + 10 <= 21
      fields.fill(isUsable ? 2 : 1, columns, columns + Math.min(columns, sum[n]! + (isUsable ? 10 : 0)))
      fields.fill(3, 3 * columns, 3 * columns + shown[n]!)
      return { rows: 5, columns, fields }
    },
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        state.shown[n] = cardOf(random.uniform(0))
        state.hidden[n] = cardOf(random.uniform(1))
        const [one, other] = [cardOf(random.uniform(2)), cardOf(random.uniform(3))]
        state.sum[n] = one + other
        state.hasAce[n] = one === 1 || other === 1 ? 1 : 0
        state.numCards[n] = 2
        show(observation, n, state.sum[n]!, state.hasAce[n]!, state.shown[n]!)
      }
    },
    step({ state, observation, reward, terminated, action, lane, episode, step, random }, from, to) {
      const { sum, hasAce, numCards, shown, hidden } = state
      for (let n = from; n < to; n++) {
        const isStuck = action[n] === STICK
        random.draw(Stream.step, lane[n]!, episode[n]!, DRAWS * step[n]!)
        if (!isStuck && sum[n]! <= 21) {
          const card = cardOf(random.uniform(0))
          sum[n] = sum[n]! + card
          if (card === 1) hasAce[n] = 1
          numCards[n] = numCards[n]! + 1
        }
        const isBust = sum[n]! > 21
        reward[n] = isBust ? -1 : 0
        terminated[n] = isStuck || isBust ? 1 : 0
        if (isStuck && !isBust) {
          let dealt = shown[n]! + hidden[n]!
          let hasDealtAce = shown[n] === 1 || hidden[n] === 1 ? 1 : 0
          for (let k = 0; bestOf(dealt, hasDealtAce) < 17; k++) {
            if (k > 0 && k % 4 === 0) random.draw(Stream.step, lane[n]!, episode[n]!, DRAWS * step[n]! + k / 4)
            const card = cardOf(random.uniform(k % 4))
            dealt += card
            if (card === 1) hasDealtAce = 1
          }
          const own = bestOf(sum[n]!, hasAce[n]!)
          const theirs = dealt > 21 ? 0 : bestOf(dealt, hasDealtAce)
          const isNatural = numCards[n] === 2 && own === 21
          const isDealersNatural = shown[n]! + hidden[n]! === 11 && (shown[n] === 1 || hidden[n] === 1)
          reward[n] = Math.sign(own - theirs)
          if (sab && isNatural && !isDealersNatural) reward[n] = 1
          else if (!sab && natural && isNatural && reward[n] === 1) reward[n] = 1.5
        }
        show(observation, n, sum[n]!, hasAce[n]!, shown[n]!)
      }
    },
  }),
})

/** A card from a number in [0, 1): 1 to 9 with probability 1/13 each, 10 with 4/13. */
function cardOf(drawn: number): number {
  return Math.min(1 + Math.floor(drawn * 13), 10)
}

/** The value of a hand, with one ace as 11 if the sum stays within 21. */
function bestOf(sum: number, hasAce: number): number {
  return hasAce === 1 && sum <= 11 ? sum + 10 : sum
}

function show(observation: Float32Array, n: number, sum: number, hasAce: number, shown: number): void {
  const row = n * WIDTH
  const isUsable = hasAce === 1 && sum <= 11
  observation.fill(0, row, row + WIDTH)
  observation[row + (isUsable ? sum + 10 : sum)] = 1
  observation[row + SUMS + shown] = 1
  observation[row + SUMS + CARDS + (isUsable ? 1 : 0)] = 1
}
