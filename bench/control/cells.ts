/** What `npm run control` trains: an algorithm on an environment with a seed, the settings of each, and what others came to with them. */
import { InputError, unknownWord } from '../../src/base/errors.ts'

export const ENVIRONMENTS = ['HalfCheetah-v5', 'Hopper-v5', 'Walker2d-v5'] as const
export const ALGORITHMS = ['td3', 'sac', 'ppo'] as const
export type Environment = (typeof ENVIRONMENTS)[number]
export type Algorithm = (typeof ALGORITHMS)[number]

/** One training. */
export interface Cell {
  readonly algorithm: Algorithm
  readonly environment: Environment
  readonly seed: number
}

/** What the run does. */
export interface Plan {
  /** The folder of the runs and of `record.json`. */
  readonly out: string
  readonly totalSteps: number
  /** Fresh episodes, played without exploration after the training. */
  readonly episodes: number
  readonly cells: readonly Cell[]
}

/**
 * Mean and standard deviation over the episodes of one trained agent after 1M steps, as rl-baselines3-zoo publishes them (`benchmark.md`,
 * commit 0088472b): of the -v3 environments, whose rewards of Hopper and Walker2d differ slightly from -v5.
 */
export const ZOO: Readonly<Record<Algorithm, Readonly<Record<Environment, readonly [mean: number, std: number]>>>> = {
  td3: { 'HalfCheetah-v5': [9655.666, 969.916], 'Hopper-v5': [3606.39, 4.027], 'Walker2d-v5': [4717.823, 46.303] },
  sac: { 'HalfCheetah-v5': [9535.451, 100.47], 'Hopper-v5': [2325.547, 1129.676], 'Walker2d-v5': [3863.203, 254.347] },
  ppo: { 'HalfCheetah-v5': [5819.099, 663.53], 'Hopper-v5': [2410.435, 10.026], 'Walker2d-v5': [3478.798, 821.708] },
}

/** Random actions first, then as many gradient steps as environment steps, of four lanes. */
const OFF_POLICY = { batchSize: 256, learningStarts: 10_000, replayRows: 1_000_000, learningRate: 3e-4 }
const PACE = {
  td3: { numSteps: 1, gradientSteps: 4, checkpointEvery: 5000 },
  sac: { numSteps: 16, gradientSteps: 64, checkpointEvery: 500 },
}

/** PPO's tuned settings of the Zoo (`hyperparams/ppo.yml`), one lane of 512 steps. */
const PPO = {
  'HalfCheetah-v5': {
    ...{ numMinibatches: 8, gamma: 0.98, learningRate: 2.0633e-5, entropyCoef: 0.000401762, clipCoef: 0.1 },
    ...{ updateEpochs: 20, gaeLambda: 0.92, maxGradNorm: 0.8, valueCoef: 0.58096 },
  },
  'Hopper-v5': {
    ...{ numMinibatches: 16, gamma: 0.999, learningRate: 9.80828e-5, entropyCoef: 0.00229519, clipCoef: 0.2 },
    ...{ updateEpochs: 5, gaeLambda: 0.99, maxGradNorm: 0.7, valueCoef: 0.835671 },
  },
  'Walker2d-v5': {
    ...{ numMinibatches: 16, gamma: 0.99, learningRate: 5.05041e-5, entropyCoef: 0.000585045, clipCoef: 0.1 },
    ...{ updateEpochs: 20, gaeLambda: 0.95, maxGradNorm: 1, valueCoef: 0.871923 },
  },
} as const

/** The settings of a training besides its environment, budget and seed, as keys of `colonnade train`. */
export function settingsOf({
  algorithm,
  environment,
}: Pick<Cell, 'algorithm' | 'environment'>): Record<string, string> {
  if (algorithm !== 'ppo') {
    const { checkpointEvery, ...pace } = PACE[algorithm]
    return texts({ numLanes: 4, algorithm, checkpointEvery, ...prefixed(algorithm, { ...pace, ...OFF_POLICY }) })
  }
  const own = { numSteps: 512, learningRateSchedule: 'constant', ...PPO[environment] }
  const network = { hidden: '256,256', activation: 'relu', logStd: -2, normalizeObservations: true }
  const common = { numLanes: 1, algorithm, systems: 'normalizeRewards', checkpointEvery: 100 }
  return texts({ ...common, ...prefixed('ppo', own), ...prefixed('mlp', network) })
}

const prefixed = (id: string, settings: object) =>
  Object.fromEntries(Object.entries(settings).map(([name, value]) => [`${id}.${name}`, value]))

const texts = (settings: object) =>
  Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, String(value)]))

/** Reads the words of the command line, `key=value` each. @throws InputError for unknown keys and values. */
export function planOf(words: readonly string[]): Plan {
  const usual = {
    out: 'runs/control',
    steps: '1000000',
    episodes: '20',
    seeds: '1,2,3',
    algorithms: ALGORITHMS.join(','),
    environments: ENVIRONMENTS.join(','),
  }
  const given: Partial<Record<string, string>> = Object.fromEntries(
    words.map((word) => [word.split('=', 1)[0]!, word.slice(word.indexOf('=') + 1)]),
  )
  for (const key of Object.keys(given))
    if (!Object.hasOwn(usual, key)) throw unknownWord('key', key, Object.keys(usual))
  const told = { ...usual, ...given }
  const algorithms = listOf('algorithms', told.algorithms, ALGORITHMS)
  const environments = listOf('environments', told.environments, ENVIRONMENTS)
  const seeds = told.seeds.split(',').map((seed) => wholeNumber('seeds', seed))
  // Seed by seed, so that a run that was stopped has something of everything.
  const cells = seeds.flatMap((seed) =>
    environments.flatMap((environment) => algorithms.map((algorithm) => ({ algorithm, environment, seed }))),
  )
  return {
    out: told.out,
    totalSteps: wholeNumber('steps', told.steps),
    episodes: wholeNumber('episodes', told.episodes),
    cells,
  }
}

function listOf<const W extends string>(key: string, text: string, words: readonly W[]): W[] {
  return text.split(',').map((word) => {
    const found = words.find((each) => each === word)
    if (found === undefined) throw unknownWord(key, word, words)
    return found
  })
}

function wholeNumber(key: string, text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) throw new InputError(key, text, 'whole numbers ≥ 1')
  return value
}
