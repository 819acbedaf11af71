/** A curriculum: which level a lane plays next, by what was learned from each level so far. */
import { InputError } from '../base/errors.ts'
import { Stream } from '../base/random.ts'
import { choice, fraction, integer, number } from '../base/settings.ts'
import { defineSystem } from '../world/system.ts'

/**
 * Prioritized level replay (Jiang, Grefenstette, Rocktäschel 2021), for environments with levels (`levels` of their model). When an episode
 * ends, its lane's next level is one that was not played before, or one of the others, the more likely the higher its score ranks:
 *
 *     P(replay) = min(replayMost, fraction of levels that were played); 1 when all were
 *     P(level)  = (1 − ρ) h / Σ h + ρ s / Σ s        h = 1 / rank^(1/β), s = episodes since the level was last played
 *
 * A level's score is that of its last finished episode, with A the generalized advantage estimates of its steps:
 *
 *     valueLoss   mean |A|
 *     regret      mean max(A, 0), the positive value loss (Jiang et al. 2021, "Replay-Guided Adversarial Environment Design")
 *     progress    |return − the level's return before| (Matiisen et al. 2017, "Teacher-Student Curriculum Learning", the online algorithm)
 *
 * `scoreRate` α makes it a running mean: score ← (1 − α) score + α · the episode's. Scores and probabilities change after each rollout, in
 * the order of its rows, so that they do not depend on threads. Advantages need a policy with values of states; `progress` does not.
 *
 * Recorded: `level`, that of the row.
 * @throws InputError if the environment has another number of levels.
 * @example await createWorld({ environment: maze({ levels: 200 }), policy: mlp(), numLanes: 64, systems: [prioritizedLevels({ levels: 200 })] })
 */
export const prioritizedLevels = defineSystem({
  id: 'prioritizedLevels',
  module: import.meta.url,
  settings: {
    levels: integer(200, 'levels of the environment', { min: 1, max: 1_000_000 }),
    score: choice('valueLoss', ['valueLoss', 'regret', 'progress'], 'what a level is chosen by'),
    temperature: number(
      1,
      'β: the lower, the more likely are the levels that rank first; 0.1 in the paper, with episodes that are about as long as rollouts',
      { above: 0 },
    ),
    staleness: fraction(0.3, 'ρ: weight of the episodes since a level was last played'),
    replayMost: fraction(1, 'greatest probability of a level that was played before, while others were not'),
    scoreRate: number(1, "α: weight of an episode in its level's score", { above: 0, max: 1 }),
    gamma: fraction(0.99, "discount factor of the advantages, usually the algorithm's"),
    gaeLambda: fraction(0.95, 'mixing factor of the advantages, likewise'),
  },
  state: () => ({ sum: 'f64', steps: 'f64', carry: 'f32', drawn: 'u32' }),
  shared: ({ levels }) => ({
    score: ['f64', levels],
    lastReturn: ['f64', levels],
    /** The number of the last episode of each level, counted from 1 over all; 0 before the first. */
    lastEpisode: ['f64', levels],
    /** P(level) of those that were played, and its sums up to each level. */
    probability: ['f64', levels],
    cumulative: ['f64', levels],
    /** Of the levels up to each, those that were not played. */
    others: ['f64', levels],
    numEpisodes: 'f64',
    numPlayed: 'f64',
  }),
  recorded: () => ({ level: 'i32' }),
  make: ({ levels, score, temperature, staleness, replayMost, scoreRate, gamma, gaeLambda }) => ({
    after: 'store',
    check({ levels: there }) {
      if (there === levels) return
      const got = `${levels}, and an environment with ${there ?? 'none'}`
      throw new InputError('prioritizedLevels.levels', got, there === undefined ? 'one with levels' : String(there))
    },
    run(lanes, from, to) {
      const { own, shared, recorded, terminated, truncated, valid, lane, random, level, nextLevel } = lanes
      for (let n = from; n < to; n++) {
        recorded.level[n] = level[n]!
        if (valid[n] === 0 || (terminated[n] === 0 && truncated[n] === 0)) continue
        random.draw(Stream.level, lane[n]!, own.drawn[n]!, 1)
        own.drawn[n] = own.drawn[n]! + 1
        nextLevel[n] = 1 + choose(shared, levels, replayMost, random.uniform(0), random.uniform(1))
      }
    },
    afterRollout({ rollout, own, shared, recorded, numSteps, numLanes, kernels }) {
      if (score !== 'progress') kernels.gae(rollout, own.carry, gamma, gaeLambda, numSteps, numLanes)
      const { valid, terminated, truncated, step, reward, advantage } = rollout
      for (let row = 0; row < valid.length; row++) {
        if (valid[row] === 0) continue
        const n = row % numLanes
        const a = advantage[row]!
        if (step[row] === 0) own.sum[n] = own.steps[n] = 0 // Also after a restart.
        own.sum[n] =
          own.sum[n]! + (score === 'progress' ? reward[row]! : score === 'regret' ? Math.max(a, 0) : Math.abs(a))
        own.steps[n] = own.steps[n]! + 1
        if (terminated[row] === 0 && truncated[row] === 0) continue
        const level = recorded.level[row]!
        const sum = own.sum[n]!
        const found = score === 'progress' ? Math.abs(sum - shared.lastReturn[level]!) : sum / own.steps[n]!
        if (shared.lastEpisode[level] === 0) shared.numPlayed[0] = shared.numPlayed[0]! + 1
        shared.numEpisodes[0] = shared.numEpisodes[0]! + 1
        shared.lastEpisode[level] = shared.numEpisodes[0]
        shared.lastReturn[level] = sum
        shared.score[level] = (1 - scoreRate) * shared.score[level]! + scoreRate * found
      }
      weigh(shared, levels, temperature, staleness)
    },
  }),
})

interface Shared {
  readonly score: Float64Array
  readonly lastEpisode: Float64Array
  readonly probability: Float64Array
  readonly cumulative: Float64Array
  readonly others: Float64Array
  readonly numEpisodes: Float64Array
  readonly numPlayed: Float64Array
}

/** Chooses a level by two uniform numbers in [0, 1). */
function choose(shared: Shared, levels: number, replayMost: number, first: number, second: number): number {
  const { cumulative, others } = shared
  const numPlayed = shared.numPlayed[0]!
  const numOthers = levels - numPlayed
  const isNew = numOthers > 0 && first >= Math.min(replayMost, numPlayed / levels)
  const wanted = second * (isNew ? numOthers : cumulative[levels - 1]!)
  if (numPlayed === 0) return Math.floor(wanted) // `others` is not written before the first rollout is over.
  return Math.min(levels - 1, isNew ? firstAbove(others, Math.floor(wanted)) : firstAbove(cumulative, wanted))
}

/** The place of the first of rising numbers that is above `bound`; their count if there is none. */
function firstAbove(numbers: Float64Array, bound: number): number {
  let [low, high] = [0, numbers.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (numbers[middle]! > bound) high = middle
    else low = middle + 1
  }
  return low
}

/** Writes the probabilities of all levels that were played, and the sums by which `choose` finds a level. */
function weigh(shared: Shared, levels: number, temperature: number, staleness: number): void {
  const { score, lastEpisode, probability, cumulative, others, numEpisodes } = shared
  const numPlayed = shared.numPlayed[0]!
  // Typed arrays sort numbers without a call for each pair, so that a million levels can be ranked after each rollout.
  const falling = new Float64Array(numPlayed)
  const numEqual = new Uint32Array(numPlayed + 1)
  const byRank = (rank: number) => (rank + 1) ** (-1 / temperature)
  const age = (level: number) => numEpisodes[0]! - lastEpisode[level]!
  let [count, ranks, ages] = [0, 0, 0]
  for (let level = 0; level < levels; level++) {
    if (lastEpisode[level] === 0) continue
    falling[count] = -score[level]!
    ranks += byRank(count++)
    ages += age(level)
  }
  falling.sort()
  const ofAge = ages === 0 ? 0 : staleness // A single level that was played is of no age.
  for (let level = levels - 1; level >= 0; level--) {
    if (lastEpisode[level] === 0) continue
    const after = firstAbove(falling, -score[level]!)
    numEqual[after] = numEqual[after]! + 1
    const rank = after - numEqual[after]! // Of equal scores, that of the lesser level ranks first.
    probability[level] = ((1 - ofAge) * byRank(rank)) / ranks + (ofAge === 0 ? 0 : (ofAge * age(level)) / ages)
  }
  let [sum, numOthers] = [0, 0]
  for (let level = 0; level < levels; level++) {
    if (lastEpisode[level] === 0) numOthers++
    sum += probability[level]!
    cumulative[level] = sum
    others[level] = numOthers
  }
}
