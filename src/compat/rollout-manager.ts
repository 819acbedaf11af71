/**
 * Batches of samples from a buffer of prompts and a generate function, over the admission and its loop. A request
 * starts the missing groups, times the over-sampling factor. A group is generated, rewarded, filtered, and delivered or
 * dropped as a whole, once. Groups are delivered in the order of their prompts, whichever finishes first. Surplus
 * groups go into the next batch.
 */
import { checkCount, checkOptions, InputError, show } from '../base/errors.ts'
import { Admission, type DeliveryOrder, type FailurePolicy, type Ticket } from '../fleet/admission.ts'
import { type RunningLoop, type SampledGroup, type SavedLoop, startLoop } from '../fleet/loop.ts'
import { realTime, type Time } from '../fleet/time.ts'
import type { DataBuffer, DealtPrompt, SavedBufferState } from '../language/datasets/data-buffer.ts'
import type { FilterDecision } from '../language/rewards/filters.ts'
import { convertToBatch, type RolloutBatch } from '../tables/episodes/rollout-batch.ts'
import type { Sample } from '../tables/trajectories/sample.ts'
import { type GeneratedSample, type SamplePlace, sampleOf } from './generated-sample.ts'

/** Answers a group's prompts (one repeated) with samples, in order; `places` has each one's group and member. */
export type GenerateFn<P> = (
  prompts: readonly P[],
  signal: AbortSignal,
  places: readonly SamplePlace[],
) => readonly GeneratedSample[] | Promise<readonly GeneratedSample[]>

/** A sample's reward; null if unknown. An exception makes it unknown, with the reason. */
export type SampleRewardFn = (sample: Sample) => number | null | Promise<number | null>

/** Whether to learn from a group of samples. False drops it without a specific reason. */
export type SampleFilterFn = (
  group: readonly Sample[],
) => boolean | FilterDecision | Promise<boolean> | Promise<FilterDecision>

/** Options of `AsyncRolloutManager`. */
export interface RolloutConfig<P> {
  /** Prompts per batch, each with a group of samples: a whole number ≥ 1. */
  readonly batchSize: number
  /** Samples per group; default 1. */
  readonly nSamplesPerPrompt?: number
  /** Groups started per missing one: a number ≥ 1, default 1. More compensate for dropped ones. */
  readonly overSamplingFactor?: number
  readonly generateFn: GenerateFn<P>
  /** Called for every sample; default: its reward from `generateFn`. */
  readonly rewardFn?: SampleRewardFn
  /** Called for every group with rewards; default: all are kept. */
  readonly filterFn?: SampleFilterFn
  /** Seconds after which `generateFn` with its rewards has failed; default 300. */
  readonly generateSeconds?: number
  /** How to treat a group whose generation failed; default: `generateBatch` throws. */
  readonly failure?: FailurePolicy
  /** Maximum groups dropped per batch; default ten times the batch. */
  readonly dropsMax?: number
  /** Maximum concurrent groups; default all that were started. */
  readonly maxConcurrent?: number
  /** Maximum batches delivered while a group runs or waits; an older group is dropped. Default: no limit. */
  readonly maxStaleness?: number
  /** Whether a batch has the groups whose prompts came first (`number`, the default), or those that finished first. */
  readonly order?: DeliveryOrder
  /** The clock of deadlines; default the machine's. */
  readonly time?: Time
}
const CONFIG_KEYS = [
  ...['batchSize', 'nSamplesPerPrompt', 'overSamplingFactor', 'generateFn', 'rewardFn', 'filterFn', 'generateSeconds'],
  ...['failure', 'dropsMax', 'maxConcurrent', 'maxStaleness', 'order', 'time'],
]

/** A manager's state, as plain JSON. */
export interface SavedRolloutManager {
  readonly buffer: SavedBufferState
  /** Unfinished and waiting groups with their samples; null before the first batch. */
  readonly loop: SavedLoop<SavedSample> | null
  /** The prompts of those groups. */
  readonly prompts: readonly (Omit<DealtPrompt<never>, 'prompt'> & { readonly number: number })[]
}

/** A sample with lists; null replaces NaN. */
export type SavedSample = Omit<Sample, 'rolloutLogProbs' | 'turnReward'> & {
  readonly rolloutLogProbs: readonly (number | null)[]
  readonly turnReward?: readonly (number | null)[]
}

interface Member {
  readonly ticket: Ticket
  readonly signal: AbortSignal
  resolve(sample: Sample): void
  reject(cause: unknown): void
}

interface Request {
  resolve(batch: RolloutBatch): void
  reject(cause: unknown): void
}

/**
 * Generates batches of samples on request.
 * @example
 * const buffer = new DataBuffer(['What is 2+2?', 'Calculate 5*7'])
 * const manager = new AsyncRolloutManager(buffer, { batchSize: 32, generateFn })
 * const batch = await manager.generateBatch({ rewardFn: (sample) => Number(sample.response === '4') })
 * await manager.close()
 */
export class AsyncRolloutManager<P> {
  readonly buffer: DataBuffer<P>
  readonly #config: RolloutConfig<P>
  readonly #admission: Admission
  readonly #time: Time
  /** Prompts of groups that are neither delivered nor dropped, by the admission's number. */
  readonly #prompts = new Map<number, DealtPrompt<P>>()
  /** Members started together, by group: each list becomes one call of `generateFn` in the next microtask. */
  readonly #calls = new Map<number, Member[]>()
  #running: RunningLoop<Sample> | null = null
  /** Settles when the loop has ended; never fails. */
  #ended: Promise<void> = Promise.resolve()
  #saved: SavedLoop<Sample> | null = null
  #abort = new AbortController()
  #request: Request | null = null
  /** Called for the samples of this batch and of later ones started with it. */
  #rewardFn: SampleRewardFn | undefined
  /** Resumes the loop when a batch is requested. */
  #want = () => {}
  #isClosed = false

  /** @throws InputError for an incomplete config, or one with unknown keys. */
  constructor(buffer: DataBuffer<P>, config: RolloutConfig<P>) {
    checkOptions('AsyncRolloutManager', config, CONFIG_KEYS)
    const { batchSize, nSamplesPerPrompt = 1, overSamplingFactor = 1, generateSeconds = 300 } = config
    if (typeof buffer?.getPrompts !== 'function') throw new InputError('buffer', show(buffer), 'a DataBuffer')
    if (typeof config.generateFn !== 'function') {
      throw new InputError('generateFn', show(config.generateFn), 'a function of prompts that returns samples')
    }
    for (const name of ['rewardFn', 'filterFn'] as const) checkFunction(name, config[name])
    if (!(generateSeconds > 0)) throw new InputError('generateSeconds', show(generateSeconds), 'a number above 0')
    for (const [name, value] of Object.entries({ batchSize, nSamplesPerPrompt })) checkCount(name, value)
    if (!(overSamplingFactor >= 1 && Number.isFinite(overSamplingFactor))) {
      throw new InputError('overSamplingFactor', show(overSamplingFactor), 'a number ≥ 1')
    }
    const { maxConcurrent, maxStaleness = Number.POSITIVE_INFINITY, order, failure, time = realTime } = config
    this.buffer = buffer
    this.#config = config
    this.#time = time
    this.#admission = new Admission({
      ...{ groupsPerBatch: batchSize, groupSize: nSamplesPerPrompt, overSampling: overSamplingFactor },
      ...{ ahead: 0, maxStaleness, dropsMax: config.dropsMax ?? 10 * batchSize },
      ...(maxConcurrent === undefined ? {} : { maxConcurrent }),
      ...(order === undefined ? {} : { order }),
      ...(failure === undefined ? {} : { failure }),
    })
  }

  /** Dropped groups, by reason. */
  get drops(): Readonly<Record<string, number>> {
    return { ...this.#admission.drops }
  }

  /** Batches that were delivered. */
  get numBatches(): number {
    return this.#admission.version
  }

  /** Complete groups that wait for a later batch. */
  get numWaiting(): number {
    return this.#admission.waiting
  }

  /**
   * The next batch. `rewardFn` replaces the config's for all samples generated from now on.
   *
   * After any failure the next call continues: finished groups are kept, and running members are generated again.
   * @throws InputError for a second call before the first has settled, and if generating fails or takes too long;
   * RolloutStarvedError if too many groups are dropped; errors of `generateFn` or `filterFn`; an AbortError after
   * `requestAbort`.
   */
  generateBatch(options: { readonly rewardFn?: SampleRewardFn } = {}): Promise<RolloutBatch> {
    return new Promise((resolve, reject) => {
      checkOptions('generateBatch', options, ['rewardFn'])
      checkFunction('rewardFn', options.rewardFn)
      if (this.#isClosed) throw new InputError('generateBatch', 'a closed manager', 'an open manager')
      if (this.#running !== null && this.#abort.signal.aborted) {
        return resolve(this.#ended.then(() => this.generateBatch(options)))
      }
      if (this.#request !== null)
        throw new InputError('generateBatch', 'a second call at the same time', 'one call at a time')
      this.#rewardFn = options.rewardFn ?? this.#config.rewardFn
      this.#request = { resolve, reject }
      if (this.#running === null) this.#ended = this.#start()
      else this.#want()
    })
  }

  /** Aborts all running work, also for later batches; waiting calls reject with an AbortError. */
  requestAbort(): void {
    this.#abort.abort()
    this.#want()
  }

  /** Aborts running work and waits until it has ended. No batch can be requested afterwards. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.requestAbort()
    await this.#ended
  }

  /** The manager's state, as plain JSON: the buffer, and the started groups. */
  async stateDict(): Promise<SavedRolloutManager> {
    const loop = this.#running?.saved() ?? this.#saved
    const prompts = [...this.#prompts].map(([number, { prompt: _, ...dealt }]) => ({ number, ...dealt }))
    const buffer = await this.buffer.saveState()
    if (loop === null) return { buffer, loop, prompts }
    const members = loop.members.map((member) => ({ ...member, sampled: savedSample(member.sampled) }))
    return structuredClone({ buffer, loop: { ...loop, members }, prompts })
  }

  /** Restores a manager's state. @throws InputError for other prompts, and while a batch is awaited. */
  async loadStateDict({ buffer, loop, prompts }: SavedRolloutManager): Promise<void> {
    if (this.#request !== null)
      throw new InputError('loadStateDict', 'a call while a batch is generated', 'a call between batches')
    await this.buffer.loadState(buffer)
    if (this.#running !== null) {
      this.requestAbort()
      await this.#ended
    }
    this.#prompts.clear()
    for (const { number, ...dealt } of prompts) {
      this.#prompts.set(number, { ...dealt, prompt: this.buffer.prompts[dealt.promptId]! })
    }
    const members = loop?.members.map((member) => ({ ...member, sampled: takenSample(member.sampled) })) ?? []
    this.#saved = loop === null ? null : { ...loop, members }
    if (loop !== null) this.#admission.restore(loop.admission)
  }

  async #start(): Promise<void> {
    this.#abort = new AbortController()
    const { signal } = this.#abort
    let batch: RolloutBatch | null = null
    const running = startLoop<Sample>(
      {
        admission: this.#admission,
        time: this.#time,
        wanted: () => this.#wanted(signal),
        sample: (ticket, aborted) => this.#sample(ticket, aborted),
        judge: (_, members) => this.#judge(members),
        learn: async (groups) => {
          batch = this.#batchOf(groups)
        },
        deliver: async () => {},
        onUpdate: () => this.#deliver(batch!),
      },
      {
        updates: Number.POSITIVE_INFINITY,
        sampleSeconds: this.#config.generateSeconds ?? 300,
        signal,
        ...(this.#saved === null ? {} : { from: this.#saved }),
      },
    )
    this.#running = running
    const cause = await running.done.then(
      () => signal.reason,
      (failure: unknown) => failure,
    )
    this.#saved = running.saved()
    this.#running = null
    const request = this.#request
    this.#request = null
    request?.reject(cause)
  }

  /** Settles when a batch is requested, or the signal aborts. */
  #wanted(signal: AbortSignal): Promise<void> {
    if (this.#request !== null || signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      this.#want = resolve
    })
  }

  #batchOf(groups: readonly SampledGroup<Sample>[]): RolloutBatch {
    const samples = groups.flatMap(({ members }) => members)
    return convertToBatch(samples, { epochId: this.buffer.epochId, stepId: this.#admission.version })
  }

  #deliver(batch: RolloutBatch): void {
    for (const number of this.#prompts.keys()) if (!this.#admission.has(number)) this.#prompts.delete(number)
    const request = this.#request!
    this.#request = null
    request.resolve(batch)
  }

  async #judge(members: readonly Sample[]): Promise<FilterDecision> {
    const decision = (await this.#config.filterFn?.(members)) ?? true
    if (typeof decision === 'boolean') return { keep: decision }
    if (typeof decision?.keep === 'boolean') return decision
    throw new InputError('filterFn', show(decision), 'true, false, or { keep, reason }')
  }

  #sample(ticket: Ticket, signal: AbortSignal): Promise<Sample> {
    const { group } = ticket
    return new Promise((resolve, reject) => {
      const member = { ticket, signal, resolve, reject }
      const others = this.#calls.get(group)
      if (others !== undefined) return void others.push(member)
      const members = [member]
      const prompt = this.#promptOf(group)
      this.#calls.set(group, members)
      queueMicrotask(() => {
        this.#calls.delete(group)
        this.#generate(prompt, members).catch((cause) => {
          for (const { reject } of members) reject(cause)
        })
      })
    })
  }

  #promptOf(group: number): DealtPrompt<P> {
    const known = this.#prompts.get(group)
    if (known !== undefined) return known
    const [dealt] = this.buffer.getPrompts(1)
    this.#prompts.set(group, dealt!)
    return dealt!
  }

  async #generate(dealt: DealtPrompt<P>, members: readonly Member[]): Promise<void> {
    const { generateFn } = this.#config
    const rewardFn = this.#rewardFn
    const prompts = members.map(() => dealt.prompt)
    const { epoch, promptId, group } = dealt
    const places = members.map(({ ticket: { member } }) => ({ epoch, promptId, group, member }))
    const answer = await generateFn(prompts, whenAll(members.map(({ signal }) => signal)), places)
    if (!Array.isArray(answer) || answer.length !== prompts.length) {
      const got = Array.isArray(answer) ? `${answer.length} samples` : show(answer)
      throw new InputError('generateFn(prompts)', got, `${prompts.length}, one for each prompt`)
    }
    for (const [i, { resolve, reject }] of members.entries()) {
      Promise.resolve()
        .then(() => sampleOf(answer[i], places[i]!, dealt.prompt))
        .then((sample) => (rewardFn === undefined ? sample : rewarded(sample, rewardFn)))
        .then(resolve, reject)
    }
  }
}

/**
 * Endless batches, each generated on request.
 * @example for await (const batch of generateRolloutBatches(buffer, { batchSize: 32, generateFn })) await learn(batch)
 */
export async function* generateRolloutBatches<P>(
  buffer: DataBuffer<P>,
  config: RolloutConfig<P>,
): AsyncGenerator<RolloutBatch, never, void> {
  const manager = new AsyncRolloutManager(buffer, config)
  try {
    for (;;) yield await manager.generateBatch()
  } finally {
    await manager.close()
  }
}

async function rewarded(sample: Sample, rewardFn: SampleRewardFn): Promise<Sample> {
  try {
    const reward = await rewardFn(sample)
    if (reward === null) return { ...sample, reward, error: 'rewardFn gave null' }
    if (Number.isFinite(reward)) return { ...sample, reward, error: null }
    throw new InputError('rewardFn', show(reward), 'a finite number, or null if unknown')
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    return { ...sample, reward: null, error: String((cause as Error)?.message ?? cause) }
  }
}

function whenAll(signals: readonly AbortSignal[]): AbortSignal {
  const all = new AbortController()
  let left = signals.length
  for (const signal of signals) signal.addEventListener('abort', () => --left === 0 && all.abort())
  return all.signal
}

function checkFunction(name: string, given: unknown): void {
  if (given === undefined || typeof given === 'function') return
  throw new InputError(name, show(given), 'a function')
}

const nullOf = (values: ArrayLike<number>) => Array.from(values, (value) => (Number.isNaN(value) ? null : value))
const nanOf = (values: readonly (number | null)[]) => Array.from(values, (value) => value ?? Number.NaN)

function savedSample({ turnReward, ...sample }: Sample): SavedSample {
  const lists = ['tokens', 'lossMask', 'weightVersions', 'turn', 'candidateCount', 'candidateIds'] as const
  const plain = lists.flatMap((name) => (sample[name] === undefined ? [] : [[name, Array.from(sample[name]!)]]))
  return {
    ...sample,
    ...Object.fromEntries(plain),
    rolloutLogProbs: nullOf(sample.rolloutLogProbs),
    ...(turnReward === undefined ? {} : { turnReward: nullOf(turnReward) }),
  }
}

function takenSample({ turnReward, rolloutLogProbs, ...sample }: SavedSample): Sample {
  const rewards = turnReward === undefined ? {} : { turnReward: nanOf(turnReward) }
  return { ...sample, rolloutLogProbs: nanOf(rolloutLogProbs), ...rewards }
}
