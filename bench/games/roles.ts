/** Predators and prey: whether both roles learn, by what early and late versions of one training catch of one another. */
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

const ID = 'PredatorPrey-v0'
/** Versions that are kept: the first is what the seed drew, the last what has learned. */
const VERSIONS = 4
/** Games between the predators of one version and the prey of one. */
const GAMES = 32

/**
 * Trains by the preset, then lets the predators of each version play the prey of each. Row i of the answer is of predators of
 * version i: prey of version j that was caught, per game of 100 steps.
 */
export async function rateRoles(seed: number, settings: Readonly<Record<string, string>> = {}): Promise<number[][]> {
  const run = await configureRun(ID, { ...settings, seed: String(seed) })
  const { environment, policy, algorithm } = run
  const { numLanes, totalSteps } = run.settings
  const world = await createWorld({ environment, policy, numLanes, seed })
  const trainer = createTrainer(world, algorithm)
  const { weights } = world.cohort()
  const versions = [Float32Array.from(weights)]
  for await (const { steps } of trainer.updates({ totalSteps })) {
    if (steps >= (totalSteps * versions.length) / (VERSIONS - 1)) versions.push(Float32Array.from(weights))
  }
  trainer.close()
  return playAll({ environment, policy }, versions, seed)
}

async function playAll(
  { environment, policy }: { readonly environment: EnvironmentDefinition; readonly policy: PolicyDefinition },
  versions: readonly Float32Array[],
  seed: number,
): Promise<number[][]> {
  const { numAgents = 1, maxEpisodeSteps } = environment
  const predators = Number(environment.parameters.predators)
  const numGames = GAMES * VERSIONS ** 2
  const numLanes = numGames * numAgents
  const world = await createWorld({ environment, policy, numLanes, weightSets: VERSIONS, seed: 1000 + seed })
  const cohort = world.cohort()
  const { lanes, weights } = cohort.league!
  for (const [version, each] of versions.entries()) weights[version]!.set(each)
  /** Of a lane the versions of its game's predators and of its prey. */
  const pairOf = (n: number) => {
    const pair = Math.floor(n / numAgents) % VERSIONS ** 2
    return [Math.floor(pair / VERSIONS), pair % VERSIONS] as const
  }
  for (let n = 0; n < numLanes; n++) lanes.policy[n] = pairOf(n)[n % numAgents < predators ? 0 : 1]
  const caught = versions.map(() => versions.map(() => 0))
  for (let t = 0; t < maxEpisodeSteps!; t++) {
    reset(world)
    infer(world)
    step(world)
    for (let n = 0; n < numLanes; n++) {
      const [i, j] = pairOf(n)
      if (n % numAgents >= predators) caught[i]![j]! -= cohort.transition.reward[n]! / GAMES
    }
    store(world)
  }
  world.close()
  return caught
}
