/** How fast an environment steps, is played and trains, measured on the spot: by lanes and threads, with where the time goes. */
import { ppo } from '../../algorithms/on-policy/ppo.ts'
import { Work, type WorkName } from '../../base/clock.ts'
import { checkGiven, checkOptions, InputError, show } from '../../base/errors.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import { mlp } from '../../policies/mlp.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { createWorld } from '../../world/world.ts'
import { createTrainer, type Trainer } from '../loop/trainer.ts'

/** Rows of a rollout, at least: few lanes make more steps of each. */
const ROWS = 4096
const STEPS_MIN = 8
/** More lanes are worth it if they are faster by more than this share of the fastest. */
const TOLERANCE = 0.1

/** What is measured. */
export interface MeasureOptions {
  /** How many lanes, each in a world of its own; rounded up to whole games. Default 16, 64, 256, 1024 and 4096. */
  readonly numLanes?: readonly number[]
  /** How many threads, each with every number of lanes. Default 1. */
  readonly threads?: readonly number[]
  /** What acts, and learns by PPO. Default: `mlp()`. */
  readonly policy?: PolicyDefinition
  /** Seconds of each measurement, at least. Default 0.5. */
  readonly seconds?: number
}

/** What a number of lanes and threads came to. Steps are those of all lanes. */
export interface EnvironmentSpeed {
  readonly numLanes: number
  readonly threads: number
  /** Steps a second of the environment alone, its resets and what is checked of it included. */
  readonly environmentStepsPerSecond: number
  /** Steps a second of rollouts: with the policy that chooses. */
  readonly rolloutStepsPerSecond: number
  /** Steps a second of training: rollouts, and learning from them. */
  readonly trainingStepsPerSecond: number
  /** The share of the whole time that the caller's thread spent on each kind of work. */
  readonly shares: Readonly<Record<WorkName, number>>
}

/** What was measured of an environment. */
export interface EnvironmentMeasurement {
  readonly environment: string
  readonly measured: readonly EnvironmentSpeed[]
  /** The fewest lanes whose rollouts are within a tenth of the fastest. */
  readonly recommendedNumLanes: number
}

/**
 * Trains on an environment for some time with each number of lanes and threads, and says how fast that went.
 * @throws InputError for options that are wrong, and where threads cannot make the environment again.
 */
export async function measureEnvironment(
  environment: EnvironmentDefinition,
  options: MeasureOptions = {},
): Promise<EnvironmentMeasurement> {
  checkGiven('environment of measureEnvironment', environment, ['state'])
  checkOptions('measureEnvironment', options, ['numLanes', 'threads', 'policy', 'seconds'])
  const { numLanes = [16, 64, 256, 1024, 4096], threads = [1], policy = mlp(), seconds = 0.5 } = options
  if (!(Number.isFinite(seconds) && seconds > 0)) throw new InputError('seconds', show(seconds), 'more than 0')
  for (const [name, counts] of Object.entries({ numLanes, threads })) {
    if (Array.isArray(counts) && counts.length > 0 && counts.every((n) => Number.isSafeInteger(n) && n >= 1)) continue
    throw new InputError(name, show(counts), 'a list of whole numbers ≥ 1')
  }
  const { numAgents = 1 } = environment
  const measured: EnvironmentSpeed[] = []
  for (const count of threads) {
    for (const lanes of numLanes) {
      measured.push(await measure(environment, policy, Math.ceil(lanes / numAgents) * numAgents, count, seconds))
    }
  }
  return { environment: environment.id, measured, recommendedNumLanes: fewestLanes(measured) }
}

async function measure(
  environment: EnvironmentDefinition,
  policy: PolicyDefinition,
  numLanes: number,
  threads: number,
  seconds: number,
): Promise<EnvironmentSpeed> {
  const world = await createWorld({ environment, policy, numLanes })
  const numSteps = Math.max(STEPS_MIN, Math.ceil(ROWS / numLanes))
  const spent = new Map<string, number>()
  /** Seconds that each update spent on steps of the environment, on its rollout, and in all. */
  const updates: [stepping: number, rollout: number, whole: number][] = []
  let whole = 0
  let trainer: Trainer<EpisodeCohort> | undefined
  try {
    trainer = createTrainer(world, ppo({ numSteps, learningRateSchedule: 'constant' }), { threads })
    for await (const { update, rolloutSeconds, updateSeconds, phaseSeconds } of trainer.updates({
      totalSteps: Number.MAX_SAFE_INTEGER,
    })) {
      if (update === 1) continue // The compiler's own work is in it.
      const { reset, step, store } = phaseSeconds
      updates.push([reset + step + store, rolloutSeconds, rolloutSeconds + updateSeconds])
      for (const [work, s] of Object.entries(phaseSeconds)) spent.set(work, (spent.get(work) ?? 0) + s)
      whole += rolloutSeconds + updateSeconds
      if (whole >= seconds) break
    }
  } finally {
    trainer?.close()
    world.close()
  }
  /** The median of the updates: other programs on the machine make some of them slower. */
  const rate = (k: 0 | 1 | 2) => {
    const sorted = updates.map((update) => update[k]).sort((x, y) => x - y)
    return (numSteps * numLanes) / sorted[Math.floor(sorted.length / 2)]!
  }
  const total = [...spent.values()].reduce((sum, s) => sum + s, 0)
  const shares = Object.fromEntries(Object.keys(Work).map((work) => [work, (spent.get(work) ?? 0) / total]))
  return {
    numLanes,
    threads,
    // All threads step at the same time: the seconds of the caller's are those of all.
    environmentStepsPerSecond: rate(0),
    rolloutStepsPerSecond: rate(1),
    trainingStepsPerSecond: rate(2),
    shares: shares as Record<WorkName, number>,
  }
}

/**
 * How many lanes an environment should have here: the fewest whose rollouts are within a tenth of the fastest. Measured on the spot, in some
 * seconds, with `mlp()` and one thread unless told otherwise.
 */
export async function recommendedNumLanes(
  environment: EnvironmentDefinition,
  options: MeasureOptions = {},
): Promise<number> {
  checkGiven('environment of recommendedNumLanes', environment, ['state'])
  return (await measureEnvironment(environment, options)).recommendedNumLanes
}

/** The fewest lanes whose rollouts are within a tenth of the fastest. */
export function fewestLanes(measured: readonly EnvironmentSpeed[]): number {
  const fastest = Math.max(...measured.map(({ rolloutStepsPerSecond }) => rolloutStepsPerSecond))
  const near = measured.filter(({ rolloutStepsPerSecond }) => rolloutStepsPerSecond >= (1 - TOLERANCE) * fastest)
  return Math.min(...near.map(({ numLanes }) => numLanes))
}
