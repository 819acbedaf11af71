/** Steps a function environment with a function policy, and records episodes, each returned once when finished. */
import { checkCount, checkOptions, InputError, show } from '../base/errors.ts'
import { realTime, type Time } from '../fleet/time.ts'
import { EpisodeBuffer } from '../tables/episodes/episode-buffer.ts'
import { answerInTime } from './deadline.ts'
import { type CheckedService, checkedService, type EnvironmentService } from './environment-service.ts'
import type { PolicyFn, RolloutStrategy } from './strategy.ts'

/** How much a runner collects at a time, its deadline and its seed. */
export interface RunnerOptions {
  /** Maximum steps per collection: a whole number ≥ 1, default 1000. */
  readonly maxSteps?: number
  /** Maximum finished episodes per collection: a whole number ≥ 1, default 100. */
  readonly maxEpisodes?: number
  /** Seconds after which an answer of the environment or policy has failed; default 60. */
  readonly stepSeconds?: number
  /** The seed of the environment's first reset. */
  readonly seed?: number
  /** The clock of deadlines; default the machine's. */
  readonly time?: Time
}
const OPTIONS = ['maxSteps', 'maxEpisodes', 'stepSeconds', 'seed', 'time'] as const

/** Totals of a runner. */
export interface RunnerStatistics {
  readonly steps: number
  readonly episodes: number
  /** Episodes abandoned after a failure of the environment or policy. */
  readonly failedEpisodes: number
  /** The policy's further outputs, as means over the steps that have them; null without any. */
  readonly value: number | null
  readonly entropy: number | null
}

/** An environment of ids. An observation is the episode's ids so far, or the one that follows them. */
export type PlainService = EnvironmentService<readonly number[] | number, readonly number[]>

/**
 * Runs one environment with one policy.
 * @example
 * const runner = new RolloutRunner(createEnv(), policyFn, createStrategy('grpo'), { maxSteps: 50 })
 * const buffer = await runner.collect()
 */
export class RolloutRunner {
  readonly #environment: CheckedService<readonly number[] | number, readonly number[]>
  readonly #policy: PolicyFn
  readonly #strategy: RolloutStrategy
  readonly #options: Required<Omit<RunnerOptions, 'seed'>>
  readonly #buffer: EpisodeBuffer
  #seed: number | undefined
  /** The current observation; null if the next step begins an episode. */
  #observation: readonly number[] | null = null
  #isCollecting = false
  #isClosed = false
  readonly #told = { value: { sum: 0, count: 0 }, entropy: { sum: 0, count: 0 } }
  readonly #counts = { steps: 0, episodes: 0, failedEpisodes: 0 }

  /** @throws InputError for invalid parts and numbers. */
  constructor(environment: PlainService, policy: PolicyFn, strategy: RolloutStrategy, options: RunnerOptions = {}) {
    checkOptions('RolloutRunner', options, OPTIONS)
    const { maxSteps = 1000, maxEpisodes = 100, stepSeconds = 60, time = realTime, seed } = options
    checkCount('maxSteps', maxSteps)
    if (typeof policy !== 'function') throw new InputError('policy', show(policy), 'a function of observations')
    if (typeof strategy?.selectAction !== 'function') {
      throw new InputError('strategy', show(strategy), "one like createStrategy('grpo')")
    }
    this.#environment = checkedService(environment, { stepSeconds, time })
    this.#policy = policy
    this.#strategy = strategy
    this.#options = { maxSteps, maxEpisodes, stepSeconds, time }
    this.#buffer = new EpisodeBuffer({ maxEpisodes })
    this.#seed = seed
  }

  /** Finished episodes that were not returned yet. */
  get episodeCount(): number {
    return this.#buffer.episodeCount
  }

  /** Steps of the unfinished episode, which the next collection continues. */
  get openLength(): number {
    return this.#buffer.openLength
  }

  /**
   * Collects, and returns the finished episodes in a new buffer.
   * @throws TypeError for a step that is an array; InputError for an invalid or late step or policy answer. The episode
   * is abandoned then, and those finished before are in the next collection.
   */
  async collect(): Promise<EpisodeBuffer> {
    await this.gather()
    const buffer = new EpisodeBuffer({ maxEpisodes: this.#options.maxEpisodes })
    this.moveTo(buffer)
    return buffer
  }

  /** Collects one episode to its end, and returns it with those finished before. Throws as `collect`. */
  async collectEpisode(): Promise<EpisodeBuffer> {
    await this.#run((steps, episodes) => episodes === 0 && steps < this.#options.maxSteps)
    const buffer = new EpisodeBuffer({ maxEpisodes: this.#options.maxEpisodes })
    this.moveTo(buffer)
    return buffer
  }

  /** Collects, and keeps finished episodes until they are moved. Throws as `collect`. */
  gather(): Promise<void> {
    return this.#run((steps) => steps < this.#options.maxSteps)
  }

  /** Moves finished episodes into a buffer, the oldest first, as far as it has room; returns their number. */
  moveTo(buffer: EpisodeBuffer): number {
    return this.#buffer.moveTo(buffer)
  }

  getStatistics(): RunnerStatistics {
    const mean = ({ sum, count }: { sum: number; count: number }) => (count === 0 ? null : sum / count)
    return { ...this.#counts, value: mean(this.#told.value), entropy: mean(this.#told.entropy) }
  }

  /** Ends after the current step, and closes the environment. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#environment.close()
  }

  async #run(goesOn: (steps: number, episodes: number) => boolean): Promise<void> {
    if (this.#isCollecting) throw new InputError('collect', 'a second call at the same time', 'one call at a time')
    if (this.#isClosed) throw new InputError('collect', 'a closed runner', 'an open runner')
    this.#isCollecting = true
    const before = this.#counts.episodes
    try {
      for (let steps = 0; goesOn(steps, this.#counts.episodes - before) && !this.#isClosed; steps++) {
        if (this.#buffer.episodeCount === this.#options.maxEpisodes) return
        await this.#step()
      }
    } catch (cause) {
      this.#buffer.dropOpen()
      this.#observation = null
      this.#counts.failedEpisodes++
      throw cause
    } finally {
      this.#isCollecting = false
    }
  }

  async #step(): Promise<void> {
    const obs = this.#observation ?? (await this.#reset())
    const { stepSeconds, time } = this.#options
    const ask = (signal: AbortSignal) => this.#strategy.selectAction(this.#policy, obs, signal)
    const { action: act, logprob, version, value, entropy } = await answerInTime('policy', ask, stepSeconds, time)
    const { observation: nextObs, reward, terminated, truncated } = await this.#environment.step(act)
    if (reward !== null && typeof reward !== 'number') {
      throw new InputError('reward of a step', show(reward), 'one number, or null if unknown')
    }
    const told = Object.entries({ logprob, value, entropy }).filter(([, given]) => given !== undefined)
    const ends = { done: terminated || truncated, ...(truncated && !terminated ? { timeout: true } : {}) }
    const next = ends.done && (nextObs ?? null) === null ? null : idsOf(nextObs, [...obs, ...act])
    const transition = { obs, act, rew: reward, nextObs: next, ...ends, ...Object.fromEntries(told) }
    this.#strategy.storeTransition(this.#buffer, transition, version)
    this.#observation = ends.done ? null : next
    this.#counts.steps++
    if (ends.done) this.#counts.episodes++
    for (const [name, given] of Object.entries({ value, entropy })) {
      if (given === undefined) continue
      const sum = this.#told[name as 'value' | 'entropy']
      sum.sum += given
      sum.count++
    }
  }

  async #reset(): Promise<readonly number[]> {
    const seed = this.#seed
    const { observation } = await this.#environment.reset(seed === undefined ? {} : { seed })
    this.#seed = undefined
    return idsOf(observation, [])
  }
}

/** An observation as ids: a number is one id that follows those before it. */
function idsOf(observation: readonly number[] | number, before: readonly number[]): readonly number[] {
  if (typeof observation === 'number') return [...before, observation]
  if (Array.isArray(observation) || ArrayBuffer.isView(observation)) return observation
  throw new InputError('observation', show(observation), 'a list of ids, or one id')
}

/** Makes an environment, or a policy, for the worker with this index. */
export type WorkerFn<T> = (worker: number) => T

/** A runner that is created when started, with its own environment and policy. */
export class RolloutWorker {
  readonly #make: () => RolloutRunner
  #runner: RolloutRunner | null = null
  #collecting: Promise<void> | null = null

  /** `index` counts the workers from 0: its environment's seed is `seed + index`. */
  constructor(
    envFn: WorkerFn<PlainService>,
    policyFn: WorkerFn<PolicyFn>,
    strategy: RolloutStrategy,
    options: RunnerOptions = {},
    index = 0,
  ) {
    for (const [name, given] of Object.entries({ envFn, policyFn })) {
      if (typeof given !== 'function')
        throw new InputError(name, show(given), 'a factory, which is called once per worker')
    }
    const seeded = options.seed === undefined ? options : { ...options, seed: options.seed + index }
    this.#make = () => new RolloutRunner(envFn(index), policyFn(index), strategy, seeded)
  }

  /** Makes its environment and policy on the first call. */
  start(): void {
    this.#runner ??= this.#make()
  }

  /** Collects concurrently; `getBuffer` returns the episodes. Settles, and throws, as the runner's `gather`. */
  collectAsync(): Promise<void> {
    this.start()
    this.#collecting ??= this.#runner!.gather().finally(() => {
      this.#collecting = null
    })
    return this.#collecting
  }

  /** Whether finished episodes were not returned yet. */
  hasData(): boolean {
    return (this.#runner?.episodeCount ?? 0) > 0
  }

  /** The episodes finished since the last call; each is returned once. */
  getBuffer(): EpisodeBuffer {
    const buffer = new EpisodeBuffer({ maxEpisodes: Math.max(1, this.#runner?.episodeCount ?? 0) })
    this.moveTo(buffer)
    return buffer
  }

  /** Moves those episodes into a buffer, the oldest first, as far as it has room; returns their number. */
  moveTo(buffer: EpisodeBuffer): number {
    return this.#runner?.moveTo(buffer) ?? 0
  }

  /** Its statistics; null before it is started. */
  getStatistics(): RunnerStatistics | null {
    return this.#runner?.getStatistics() ?? null
  }

  /** Ends after the current step, and closes its environment. */
  async close(): Promise<void> {
    const collecting = this.#collecting?.catch(() => {})
    await this.#runner?.close()
    await collecting
  }
}
