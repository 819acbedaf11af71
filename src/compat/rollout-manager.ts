/**
 * Batches of samples from a buffer of prompts and a function that generates: a view of the admission and its loop. A batch is
 * asked for; then as many groups begin as it lacks, times the over-sampling factor. A group is generated, rewarded, filtered, and
 * delivered or dropped whole, and each one once. Groups are delivered in the order in which their prompts were dealt, whoever is
 * done first. Groups that are more than the batch has room for go into the next one.
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

/**
 * Answers each prompt with a sample, in the order of the prompts, which are those of one group: the same prompt, as often as the
 * group has members. Once the signal is aborted nobody waits for the answer any longer. `places` says which member of which group
 * each answer is.
 */
export type GenerateFn<P> = (
  prompts: readonly P[],
  signal: AbortSignal,
  places: readonly SamplePlace[],
) => readonly GeneratedSample[] | Promise<readonly GeneratedSample[]>

/** What a sample is worth; null where that cannot be told. What it throws is the reason for a reward that cannot be told. */
export type SampleRewardFn = (sample: Sample) => number | null | Promise<number | null>

/** Whether a group of samples is learned from; false is a drop without a reason of its own. */
export type SampleFilterFn = (
  group: readonly Sample[],
) => boolean | FilterDecision | Promise<boolean> | Promise<FilterDecision>

/** How batches are made. */
export interface RolloutConfig<P> {
  /** Prompts of a batch, each with a group of samples: a whole number ≥ 1. */
  readonly batchSize: number
  /** Samples of a group; default 1. */
  readonly nSamplesPerPrompt?: number
  /** Groups begun for each that a batch lacks: a number ≥ 1, default 1. More make up for those that are dropped. */
  readonly overSamplingFactor?: number
  readonly generateFn: GenerateFn<P>
  /** Asked for every sample that was generated; without it a sample has the reward that `generateFn` gave it. */
  readonly rewardFn?: SampleRewardFn
  /** Asked for every group whose samples have their rewards; without it all are kept. */
  readonly filterFn?: SampleFilterFn
  /** Seconds after which an answer of `generateFn` and its rewards count as failed. Default 300. */
  readonly generateSeconds?: number
  /** What becomes of a group where generating failed. Default: the failure is thrown by `generateBatch`. */
  readonly failure?: FailurePolicy
  /** Groups dropped for one batch, at most. Default: ten times the batch. */
  readonly dropsMax?: number
  /** Groups under way at once, at most. Default: all that begin. */
  readonly maxConcurrent?: number
  /** Batches that may be delivered while a group is under way or waits; one that is older is dropped. Default: no limit. */
  readonly maxStaleness?: number
  /** Whether a batch has the groups whose prompts were dealt first (`number`, the default), or those that were done first. */
  readonly order?: DeliveryOrder
  /** What deadlines wait in; default the machine's. */
  readonly time?: Time
}
const CONFIG_KEYS = [
  ...['batchSize', 'nSamplesPerPrompt', 'overSamplingFactor', 'generateFn', 'rewardFn', 'filterFn', 'generateSeconds'],
  ...['failure', 'dropsMax', 'maxConcurrent', 'maxStaleness', 'order', 'time'],
]

/** Where a manager stands, as JSON can keep it. */
export interface SavedRolloutManager {
  readonly buffer: SavedBufferState
  /** Groups that were begun and are neither delivered nor dropped, and their samples; null before the first batch. */
  readonly loop: SavedLoop<SavedSample> | null
  /** The prompts of those groups. */
  readonly prompts: readonly (Omit<DealtPrompt<never>, 'prompt'> & { readonly number: number })[]
}

/** A sample with lists; null stands for NaN. */
export type SavedSample = Omit<Sample, 'rolloutLogProbs' | 'turnReward'> & {
  readonly rolloutLogProbs: readonly (number | null)[]
  readonly turnReward?: readonly (number | null)[]
}

/** A member that is generated, and who waits for it. */
interface Member {
  readonly ticket: Ticket
  readonly signal: AbortSignal
  resolve(sample: Sample): void
  reject(cause: unknown): void
}

/** Who waits for a batch. */
interface Request {
  resolve(batch: RolloutBatch): void
  reject(cause: unknown): void
}

/**
 * Generates batches of samples, a batch whenever it is asked for one.
 * @example
 * const buffer = new DataBuffer(['What is 2+2?', 'Calculate 5*7'])
 * const manager = new AsyncRolloutManager(buffer, { batchSize: 32, generateFn })
 * const batch = await manager.generateBatch({ rewardFn: (sample) => Number(sample.response === '4') })
 * await manager.close()
 */
export class AsyncRolloutManager<P> {
  /** Where its prompts come from. */
  readonly buffer: DataBuffer<P>
  readonly #config: RolloutConfig<P>
  readonly #admission: Admission
  readonly #time: Time
  /** Prompts of groups that are neither delivered nor dropped, by the admission's number. */
  readonly #prompts = new Map<number, DealtPrompt<P>>()
  /** Members that were begun at once, by group: each list becomes one call of `generateFn` in the next microtask. */
  readonly #calls = new Map<number, Member[]>()
  #running: RunningLoop<Sample> | null = null
  /** Settles when that loop has ended; never fails. */
  #ended: Promise<void> = Promise.resolve()
  #saved: SavedLoop<Sample> | null = null
  #abort = new AbortController()
  #request: Request | null = null
  /** Asked for every sample of this batch and of those after it that begin with it. */
  #rewardFn: SampleRewardFn | undefined
  /** Lets the loop go on that waits until a batch is wanted. */
  #want = () => {}
  #isClosed = false

  /** @throws InputError for a config that lacks something, or has what nobody knows. */
  constructor(buffer: DataBuffer<P>, config: RolloutConfig<P>) {
    checkOptions('AsyncRolloutManager', config, CONFIG_KEYS)
    const { batchSize, nSamplesPerPrompt = 1, overSamplingFactor = 1, generateSeconds = 300 } = config
    if (typeof buffer?.getPrompts !== 'function') throw new InputError('buffer', show(buffer), 'a DataBuffer')
    if (typeof config.generateFn !== 'function') {
      throw new InputError('generateFn', show(config.generateFn), 'a function of prompts that gives samples')
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

  /** Groups that were dropped, by reason. */
  get drops(): Readonly<Record<string, number>> {
    return { ...this.#admission.drops }
  }

  /** Batches that were delivered. */
  get numBatches(): number {
    return this.#admission.version
  }

  /** Groups that are whole, were kept, and wait for a later batch. */
  get numWaiting(): number {
    return this.#admission.waiting
  }

  /**
   * The next batch. `rewardFn` stands for the config's, for all samples that are generated from now on.
   *
   * After any failure the next call goes on where this one ended: groups that are done are kept, and members that were under way
   * are generated again.
   * @throws InputError for a second call before the first has settled, and where generating fails or takes too long;
   * RolloutStarvedError where too many groups are dropped; what `generateFn` or `filterFn` failed with; an AbortError after
   * `requestAbort`.
   */
  generateBatch(options: { readonly rewardFn?: SampleRewardFn } = {}): Promise<RolloutBatch> {
    return new Promise((resolve, reject) => {
      checkOptions('generateBatch', options, ['rewardFn'])
      checkFunction('rewardFn', options.rewardFn)
      if (this.#isClosed) throw new InputError('generateBatch', 'a manager that is closed', 'one that is open')
      if (this.#running !== null && this.#abort.signal.aborted) {
        return resolve(this.#ended.then(() => this.generateBatch(options)))
      }
      if (this.#request !== null) throw new InputError('generateBatch', 'a second call', 'one after another')
      this.#rewardFn = options.rewardFn ?? this.#config.rewardFn
      this.#request = { resolve, reject }
      if (this.#running === null) this.#ended = this.#start()
      else this.#want()
    })
  }

  /** Aborts all that is under way, also that of groups for later batches; who waits for a batch is told by an AbortError. */
  requestAbort(): void {
    this.#abort.abort()
    this.#want()
  }

  /** Aborts what is under way and waits until it has ended. No batch can be asked for then. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.requestAbort()
    await this.#ended
  }

  /** Where the manager stands, as JSON can keep it: the buffer, and the groups that were begun. */
  async stateDict(): Promise<SavedRolloutManager> {
    const loop = this.#running?.saved() ?? this.#saved
    const prompts = [...this.#prompts].map(([number, { prompt: _, ...dealt }]) => ({ number, ...dealt }))
    const buffer = await this.buffer.saveState()
    if (loop === null) return { buffer, loop, prompts }
    const members = loop.members.map((member) => ({ ...member, sampled: savedSample(member.sampled) }))
    return structuredClone({ buffer, loop: { ...loop, members }, prompts })
  }

  /**
   * Goes on where another manager with the same prompts stood. What was under way there is generated again.
   * @throws InputError while a batch is awaited, and for a state of other prompts.
   */
  async loadStateDict({ buffer, loop, prompts }: SavedRolloutManager): Promise<void> {
    if (this.#request !== null) throw new InputError('loadStateDict', 'a batch that is awaited', 'a manager at rest')
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

  /** Settles when somebody waits for a batch, or nobody will. */
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
 * Batches without end, one for each time that it is asked.
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
    throw new InputError('rewardFn', show(reward), 'a finite number, or null where it cannot be told')
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    return { ...sample, reward: null, error: String((cause as Error)?.message ?? cause) }
  }
}

/** Aborted when all of them are. */
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
