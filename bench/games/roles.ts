/** Predators and prey with a policy of each: whether both roles learn, by what frozen versions of one training do to one another. */
import {
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  infer,
  type PolicyDefinition,
  reset,
  step,
  store,
} from '../../src/index.ts'
import { type Training, trainingOf } from '../learning/learn.ts'
import { ratingsOf } from './ratings.ts'

const ID = 'PredatorPrey-v0'
/** Versions that are kept: the first is what the seed drew, the last what has learned. */
const VERSIONS = 7
/** Games between the predators of one version and the prey of one. */
const GAMES = 32

/** What frozen versions of both roles do to one another. */
export interface Roles {
  /** Steps of the training after which each version was kept. */
  readonly steps: readonly number[]
  /** Row i is of predators of version i: prey of version j that was caught, per game of 100 steps. */
  readonly caught: readonly (readonly number[])[]
  /** Elo ratings of each version of a role; those of the first two have the mean 1000. */
  readonly predators: readonly number[]
  readonly prey: readonly number[]
  readonly training: Training
}

/** Whose policy acts in each lane of a game: that of the predators, set 0, or that of the prey, set 1. */
function roleOf(n: number, { numPlayers = 1, parameters }: EnvironmentDefinition): 0 | 1 {
  return n % numPlayers < Number(parameters.predators) ? 0 : 1
}

/** Trains both roles at once by the preset, each with weights of its own, then lets the predators of each version play the prey of each. */
export async function rateRoles(seed: number, settings: Readonly<Record<string, string>> = {}): Promise<Roles> {
  const run = await configureRun(ID, { ...settings, seed: String(seed) })
  const { environment, policy, algorithm } = run
  const { numLanes, totalSteps } = run.settings
  const world = await createWorld({ environment, policy, numLanes, weightSets: 2, learningSets: 2, seed })
  const trainer = createTrainer(world, algorithm)
  const { lanes, weights } = world.cohort().league!
  for (let n = 0; n < numLanes; n++) lanes.policy[n] = roleOf(n, environment)
  const keep = () => weights.map((each) => Float32Array.from(each))
  const versions = [keep()]
  const steps = [0]
  const start = performance.now()
  for await (const metrics of trainer.updates({ totalSteps })) {
    if (metrics.steps < (totalSteps * versions.length) / (VERSIONS - 1)) continue
    versions.push(keep())
    steps.push(metrics.steps)
  }
  const training = trainingOf(run, trainer.steps, start)
  trainer.close()
  return { steps, training, ...(await playAll({ environment, policy }, versions, seed)) }
}

async function playAll(
  { environment, policy }: { readonly environment: EnvironmentDefinition; readonly policy: PolicyDefinition },
  versions: readonly (readonly Float32Array[])[],
  seed: number,
): Promise<Omit<Roles, 'steps' | 'training'>> {
  const { numPlayers = 1, maxEpisodeSteps } = environment
  const numGames = GAMES * VERSIONS ** 2
  const numLanes = numGames * numPlayers
  const world = await createWorld({ environment, policy, numLanes, weightSets: 2 * VERSIONS, seed: 1000 + seed })
  const cohort = world.cohort()
  const { lanes, weights } = cohort.league!
  for (const [version, roles] of versions.entries()) {
    for (const [role, each] of roles.entries()) weights[2 * version + role]!.set(each)
  }
  /** Of a game the versions of its predators and of its prey. */
  const pairOf = (game: number) => [Math.floor(game / VERSIONS) % VERSIONS, game % VERSIONS] as const
  for (let n = 0; n < numLanes; n++) {
    const role = roleOf(n, environment)
    lanes.policy[n] = 2 * pairOf(Math.floor(n / numPlayers))[role] + role
  }
  const caught = new Float64Array(numGames)
  for (let t = 0; t < maxEpisodeSteps!; t++) {
    reset(world)
    infer(world)
    step(world)
    for (let n = 0; n < numLanes; n++) {
      if (roleOf(n, environment) === 1) caught[Math.floor(n / numPlayers)]! -= cohort.transition.reward[n]!
    }
    store(world)
  }
  world.close()
  const mean = (games: readonly number[]) => games.reduce((sum, game) => sum + caught[game]!, 0) / games.length
  const games = Array.from({ length: numGames }, (_, game) => game)
  const table = versions.map((_, i) =>
    versions.map((_, j) => mean(games.filter((game) => pairOf(game)[0] === i && pairOf(game)[1] === j))),
  )
  // Predators win a game in which they catch more than is caught in the mean of all games.
  const usual = mean(games)
  const results = games.map((game) => {
    const [predators, prey] = pairOf(game)
    return { first: predators, second: VERSIONS + prey, score: caught[game]! > usual ? 1 : 0 }
  })
  const ratings = ratingsOf(results, 2 * VERSIONS)
  const shift = 1000 - (ratings[0]! + ratings[VERSIONS]!) / 2
  const shifted = ratings.map((rating) => rating + shift)
  return { caught: table, predators: shifted.slice(0, VERSIONS), prey: shifted.slice(VERSIONS) }
}
