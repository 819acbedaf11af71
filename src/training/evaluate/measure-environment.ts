/** Measures how fast an environment steps, is played and trains, by lanes and threads, and where time goes. */
import { ppo } from '../../algorithms/on-policy/ppo.ts'
import { Work, type WorkName } from '../../base/clock.ts'
import { checkGiven, checkOptions, InputError, show } from '../../base/errors.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import { mlp } from '../../policies/mlp.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { createWorld } from '../../world/world.ts'
import { createTrainer, type Trainer } from '../loop/trainer.ts'

/** Minimum rows of a rollout: few lanes take more steps each. */
const ROWS = 4096
const STEPS_MIN = 8
/** More lanes pay off if they are faster by more than this fraction of the fastest. */
const TOLERANCE = 0.1

/** Options of `measureEnvironment`. */
export interface MeasureOptions {
  /** Numbers of lanes, each in its own world, in whole games. Default 16, 64, 256, 1024 and 4096. */
  readonly numLanes?: readonly number[]
  /** Numbers of threads, each measured with every number of lanes; default 1. */
  readonly threads?: readonly number[]
  /** The policy, which learns by PPO; default `mlp()`. */
  readonly policy?: PolicyDefinition
  /** Minimum seconds per measurement; default 0.5. */
  readonly seconds?: number
}

/** The speed with a number of lanes and threads. Steps are those of all lanes. */
export interface EnvironmentSpeed {
  readonly numLanes: number
  readonly threads: number
  /** Steps per second of the environment alone, with resets and checks. */
  readonly environmentStepsPerSecond: number
  /** Steps per second of rollouts, which include the policy. */
  readonly rolloutStepsPerSecond: number
  /** Steps per second of training, which includes rollouts and learning. */
  readonly trainingStepsPerSecond: number
  /** Fractions of the total time that the caller's thread spent on each kind of work. */
  readonly shares: Readonly<Record<WorkName, number>>
}

/** The result of `measureEnvironment`. */
export interface EnvironmentMeasurement {
  readonly environment: string
  readonly measured: readonly EnvironmentSpeed[]
  /** The fewest lanes whose rollouts are within a tenth of the fastest. */
  readonly recommendedNumLanes: number
}

/** Measures training with all numbers of lanes and threads. @throws InputError for wrong options. */
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
  const { numPlayers = 1 } = environment
  const measured: EnvironmentSpeed[] = []
  for (const count of threads) {
    for (const lanes of numLanes) {
      measured.push(await measure(environment, policy, Math.ceil(lanes / numPlayers) * numPlayers, count, seconds))
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
  /** Seconds of each update: environment steps, rollout, and total. */
  const updates: [stepping: number, rollout: number, whole: number][] = []
  let whole = 0
  let trainer: Trainer<EpisodeCohort> | undefined
  try {
    trainer = createTrainer(world, ppo({ numSteps, learningRateSchedule: 'constant' }), { threads })
    for await (const { update, rolloutSeconds, updateSeconds, phaseSeconds } of trainer.updates({
      totalSteps: Number.MAX_SAFE_INTEGER,
    })) {
      if (update === 1) continue // It includes the compiler's work.
      updates.push([stepSeconds(phaseSeconds, rolloutSeconds, threads), rolloutSeconds, rolloutSeconds + updateSeconds])
      for (const [work, s] of Object.entries(phaseSeconds)) spent.set(work, (spent.get(work) ?? 0) + s)
      whole += rolloutSeconds + updateSeconds
      if (whole >= seconds) break
    }
  } finally {
    trainer?.close()
    world.close()
  }
  /** The median over updates, since other programs may slow some down. */
  const rate = (k: 0 | 1 | 2) => {
    const sorted = updates.map((update) => update[k]).sort((x, y) => x - y)
    return (numSteps * numLanes) / sorted[Math.floor(sorted.length / 2)]!
  }
  const total = [...spent.values()].reduce((sum, s) => sum + s, 0)
  const shares = Object.fromEntries(Object.keys(Work).map((work) => [work, (spent.get(work) ?? 0) / total]))
  return {
    numLanes,
    threads,
    environmentStepsPerSecond: rate(0),
    rolloutStepsPerSecond: rate(1),
    trainingStepsPerSecond: rate(2),
    shares: shares as Record<WorkName, number>,
  }
}

/**
 * Seconds of environment steps in a rollout. Threads take lanes as they get free, so with several of them the seconds of one are
 * not those of all: then it is the part of the rollout that this thread's steps are of its work.
 */
export function stepSeconds(
  { reset, infer, step, store }: Readonly<Record<'reset' | 'infer' | 'step' | 'store', number>>,
  rolloutSeconds: number,
  threads: number,
): number {
  const stepping = reset + step + store
  return threads === 1 ? stepping : (rolloutSeconds * stepping) / (stepping + infer)
}

/** The fewest lanes whose rollouts are within a tenth of the fastest. Takes seconds; default `mlp()`, one thread. */
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
