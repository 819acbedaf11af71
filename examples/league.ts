/**
 * A league: a race of two, learned against earlier versions. Both players of a game are lanes of one cohort, whose
 * policy has several sets of weights: the first learns, the others are opponents. A column assigns opponents between
 * rollouts: strong ones play more often, and sometimes the learner's weights replace the opponent that it beats most.
 * If the oldest may be replaced and all play equally often, `selfPlay` of `createWorld` does this by itself, with
 * ratings.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { box, createTrainer, createWorld, defineEnvironment, discrete, mlp, ppo, Stream } from 'colonnade'
import { integer } from 'colonnade/settings'

/** Probabilities that a leap of 1, 2 or 3 cells succeeds. */
const CHANCES = [1, 0.6, 0.45]

export const race = defineEnvironment({
  id: 'Race-v0',
  module: import.meta.url, // Lets other threads make it.
  settings: { length: integer(12, 'cells to the goal', { min: 1 }) },
  state: () => ({ cell: 'i32' }),
  make: ({ length }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [2] }), // The positions of the player and the other.
    actionSpace: discrete(3), // A leap of 1, 2 or 3 cells
    numPlayers: 2, // Lanes 2g and 2g + 1 play game g.
    maxEpisodeSteps: null,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (let i = 0; i < count; i++) {
        state.cell[rows[i]!] = 0
        observation.fill(0, 2 * rows[i]!, 2 * rows[i]! + 2)
      }
    },
    step({ state, observation, action, reward, terminated, lane, episode, step, random }, from, to) {
      for (let n = from; n < to; n++) {
        random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
        if (random.uniform(0) < CHANCES[action[n]!]!) state.cell[n] = Math.min(length, state.cell[n]! + action[n]! + 1)
      }
      for (let n = from; n < to; n++) {
        const other = n ^ 1
        const [mine, theirs] = [state.cell[n]!, state.cell[other]!]
        observation[2 * n] = mine / length
        observation[2 * n + 1] = theirs / length
        terminated[n] = mine === length || theirs === length ? 1 : 0
        reward[n] = terminated[n] === 0 ? 0 : Math.sign(mine - theirs)
      }
    },
  }),
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const numLanes = 128
  const world = await createWorld({
    ...{ environment: race(), policy: mlp({ hidden: [32] }), numLanes, weightSets: 4, seed: 1 },
  })
  const settings = { learningRate: 3e-3, learningRateSchedule: 'constant', entropyCoef: 0.005, gamma: 1 } as const
  const trainer = createTrainer(world, ppo({ numSteps: 64, ...settings }))
  const cohort = world.cohort()
  const { lanes, weights, acted } = cohort.league!
  // In each game the even lane is the learner's; opponent 1 keeps its initial weights, for comparison.
  for (let n = 0; n < numLanes; n++) lanes.policy[n] = n % 2 === 0 ? 0 : 1 + ((n >> 1) % 3)

  for await (const { update } of trainer.updates({ totalSteps: 50 * 64 * numLanes })) {
    const { terminated, reward } = cohort.rollout
    const [games, wins] = [new Float64Array(4), new Float64Array(4)]
    for (let row = 0; row < reward.length; row += 2) {
      if (terminated[row] === 0) continue
      const opponent = acted[row + 1]!
      games[opponent]!++
      wins[opponent]! += (1 + reward[row]!) / 2 // A draw counts half.
    }
    const rates = Array.from(wins, (won, opponent) => won / Math.max(1, games[opponent]!))
    if (update % 10 === 0) {
      console.log(
        `update ${update}: wins ${rates
          .slice(1)
          .map((rate) => rate.toFixed(2))
          .join(' ')} against 1, 2, 3`,
      )
      weights[rates[2]! > rates[3]! ? 2 : 3]!.set(weights[0]!)
    }
    // Opponents that are beaten less play more often.
    const shares = rates.slice(1).map((rate) => 1.1 - rate)
    const total = shares.reduce((sum, share) => sum + share)
    for (let game = 0; game < numLanes / 2; game++) {
      let [opponent, place] = [1, ((game + 0.5) / (numLanes / 2)) * total]
      while (opponent < 3 && place > shares[opponent - 1]!) place -= shares[opponent++ - 1]!
      lanes.policy[2 * game + 1] = opponent
    }
  }
}
