/**
 * The loop of sampling and learning: members of groups are sampled, each by an asynchronous function, groups are judged,
 * and an update is made whenever a batch is there. How far sampling runs ahead of learning is the admission's maxStaleness: 0 is
 * the synchronous loop, in which nobody samples while an update is made. Everything waits in the `Time` that it is given.
 *
 * Every wait has a deadline and a name: a member that takes too long has failed, and a learner that waits too long for a batch ends
 * the loop with a list of those who are still sampled, and since when.
 */
import { checkGiven, InputError } from '../base/errors.ts'
import type { Admission, Delivery, SavedAdmission, Ticket } from './admission.ts'
import type { Time } from './time.ts'

/** What the loop is made of. `S` is what a sampled member comes to. */
export interface LoopParts<S> {
  readonly admission: Admission
  readonly time: Time
  /** Settles when another batch is wanted; until then nobody begins, and those who began go on. Default: at once. */
  wanted?(): Promise<void>
  /** Samples a member. Once the signal is aborted nobody waits for it any longer. */
  sample(ticket: Ticket, signal: AbortSignal): Promise<S>
  /** Whether a group is learned from; its members in order, without those that failed. */
  judge(group: number, members: readonly S[]): Promise<{ readonly keep: boolean; readonly reason?: string }>
  /** Makes an update of a batch: its groups in order. */
  learn(batch: readonly SampledGroup<S>[]): Promise<void>
  /** Gives the weights of that version to those who sample; settles when they have confirmed it. */
  deliver(version: number): Promise<void>
  /** Called after each update; `saved` gives what a checkpoint has to keep of the loop at this moment. */
  onUpdate?(record: UpdateRecord, saved: () => SavedLoop<S>): void
}

/** What a checkpoint keeps of a loop: plain JSON where members are. */
export interface SavedLoop<S> {
  readonly admission: SavedAdmission
  /** Members that are done, of groups that wait or are not whole yet. */
  readonly members: readonly { readonly group: number; readonly member: number; readonly sampled: S }[]
}

/** How long the loop goes on, and how long it waits. */
export interface LoopOptions<S> {
  /** The version at which the loop ends. */
  readonly updates: number
  /** Seconds after which sampling a member counts as failed. Default: it may take as long as it wants. */
  readonly sampleSeconds?: number
  /** Seconds after which a learner that waits for a batch ends the loop. Default: it waits as long as it takes. */
  readonly batchSeconds?: number
  /** Once it is aborted the loop ends after the update that is being made; members under way are aborted. */
  readonly signal?: AbortSignal
  /** Where to go on: what was saved of a loop that ended after it, or was killed. Members that were under way are sampled again. */
  readonly from?: SavedLoop<S>
}

/** A group that is learned from. */
export interface SampledGroup<S> {
  readonly group: number
  readonly members: readonly S[]
  /** Updates between its beginning and the one that learns from it. */
  readonly staleness: number
}

/** An update, in seconds of the loop's time. */
export interface UpdateRecord {
  /** The version of the weights that it made. */
  readonly version: number
  /** How long the learner waited for its batch, learned, and delivered the weights. */
  readonly waitSeconds: number
  readonly learnSeconds: number
  readonly deliverSeconds: number
  /** When it was done. */
  readonly at: number
  readonly staleness: readonly number[]
  /** Groups that were admitted and wait for a later batch. */
  readonly waiting: number
  /** Groups that are being sampled. */
  readonly sampling: number
  /** Groups that became too old by it. */
  readonly stale: number
}

/** A member that is being sampled. */
interface UnderWay {
  readonly ticket: Ticket
  readonly since: number
  readonly abort: AbortController
}

/**
 * Samples and learns until so many updates are made. Settles when nobody is sampling any longer.
 * @throws InputError where a batch is late; RolloutStarvedError where too many groups are dropped; what a member failed with, where the
 * admission throws failures; what judging, learning or delivering failed with.
 */
export function runLoop<S>(parts: LoopParts<S>, options: LoopOptions<S>): Promise<void> {
  checkGiven('parts of runLoop', parts, ['admission', 'time', 'sample', 'judge'])
  checkGiven('options of runLoop', options, ['updates'])
  return startLoop(parts, options).done
}

/** A loop that was started. */
export interface RunningLoop<S> {
  /** Settles as `runLoop` does. */
  readonly done: Promise<void>
  /** What has to be kept to go on from here, also after the loop has ended, whatever ended it. */
  saved(): SavedLoop<S>
}

/** The same for a caller who asks in between what is to be kept. */
export function startLoop<S>(parts: LoopParts<S>, options: LoopOptions<S>): RunningLoop<S> {
  const loop = new Loop(parts, options)
  return { done: loop.run(), saved: () => loop.saved() }
}

class Loop<S> {
  readonly #parts: LoopParts<S>
  readonly #options: LoopOptions<S>
  readonly #underWay = new Map<Ticket, UnderWay>()
  readonly #tasks = new Set<Promise<void>>()
  /** Members that are done, by group. */
  readonly #members = new Map<number, Map<number, S>>()
  #failure: { readonly cause: unknown } | null = null
  #isOver = false
  /** Whether a batch is wanted. */
  #isWanted = false
  /** Wakes the learner: something has changed. */
  #wake = () => {}

  constructor(parts: LoopParts<S>, options: LoopOptions<S>) {
    this.#parts = parts
    this.#options = options
  }

  async run(): Promise<void> {
    const { admission } = this.#parts
    const { updates, signal, from } = this.#options
    const wake = () => this.#wake()
    signal?.addEventListener('abort', wake)
    if (from !== undefined) this.#takeUp(from)
    try {
      while (admission.version < updates) {
        if (this.#parts.wanted !== undefined) {
          this.#isWanted = false
          await this.#parts.wanted()
        }
        this.#isWanted = true
        const waitedSince = this.#parts.time.now()
        const batch = await this.#nextBatch()
        if (batch === null) return
        await this.#update(batch, waitedSince)
      }
    } finally {
      signal?.removeEventListener('abort', wake)
      this.#isOver = true
      for (const { abort } of this.#underWay.values()) abort.abort()
      await Promise.all(this.#tasks)
    }
  }

  #takeUp({ admission: saved, members }: SavedLoop<S>): void {
    const { admission } = this.#parts
    admission.restore(saved)
    for (const { group, member, sampled } of members) this.#keep(group, member, sampled)
    for (const group of admission.unjudged) this.#start(this.#judge(group))
  }

  saved(): SavedLoop<S> {
    const members = [...this.#members].flatMap(([group, sampled]) =>
      [...sampled].map(([member, each]) => ({ group, member, sampled: each })),
    )
    return { admission: this.#parts.admission.saved(), members }
  }

  /** Null where the loop is to end. */
  async #nextBatch(): Promise<SampledGroup<S>[] | null> {
    const { admission, time } = this.#parts
    const { signal, batchSeconds = Number.POSITIVE_INFINITY } = this.#options
    const deadline = time.now() + batchSeconds
    for (;;) {
      this.#fill()
      if (this.#failure !== null) throw this.#failure.cause
      if (signal?.aborted) return null
      const batch = admission.take()
      if (batch !== null) return this.#takeMembers(batch) // At once: nobody else may see that the groups are gone.
      if (time.now() >= deadline) throw this.#late(batchSeconds)
      const over = new AbortController()
      const changed = new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      if (deadline < Number.POSITIVE_INFINITY) {
        await Promise.race([changed, time.sleep(deadline - time.now(), over.signal)])
      } else await changed
      over.abort()
    }
  }

  #takeMembers({ groups, staleness }: Delivery): SampledGroup<S>[] {
    const batch = groups.map((group, i) => ({ group, members: this.#membersOf(group), staleness: staleness[i]! }))
    for (const group of groups) this.#members.delete(group)
    return batch
  }

  async #update(batch: readonly SampledGroup<S>[], waitedSince: number): Promise<void> {
    const { admission, time, learn, deliver, onUpdate } = this.#parts
    const began = time.now()
    await learn(batch)
    const learned = time.now()
    await deliver(admission.version + 1)
    const stale = new Set(admission.advance())
    for (const group of stale) this.#members.delete(group)
    for (const { ticket, abort } of this.#underWay.values()) if (stale.has(ticket.group)) abort.abort()
    const at = time.now()
    const record = {
      version: admission.version,
      waitSeconds: began - waitedSince,
      learnSeconds: learned - began,
      deliverSeconds: at - learned,
      at,
      staleness: batch.map(({ staleness }) => staleness),
      waiting: admission.waiting,
      sampling: admission.sampling,
      stale: stale.size,
    }
    onUpdate?.(record, () => this.saved())
  }

  /** Begins all that may begin. */
  #fill(): void {
    if (this.#isOver || !this.#isWanted || this.#options.signal?.aborted) return
    const { admission, time } = this.#parts
    for (let ticket = admission.begin(); ticket !== null; ticket = admission.begin()) {
      const abort = new AbortController()
      this.#underWay.set(ticket, { ticket, since: time.now(), abort })
      this.#start(this.#follow(ticket, abort))
    }
  }

  /** Lets something go on beside the learner; when it is done, others may begin. */
  #start(work: Promise<void>): void {
    const task = work
      .catch((cause) => {
        this.#failure ??= { cause }
      })
      .then(() => {
        this.#tasks.delete(task)
        this.#fill()
        this.#wake()
      })
    this.#tasks.add(task)
  }

  /** Follows a member until it is done, has failed, or nobody waits for it any longer; judges the group that it makes whole. */
  async #follow(ticket: Ticket, abort: AbortController): Promise<void> {
    const { group } = ticket
    if (await this.#sampled(ticket, abort)) await this.#judge(group)
    if (!this.#parts.admission.has(group)) this.#members.delete(group)
  }

  async #judge(group: number): Promise<void> {
    const { admission, judge } = this.#parts
    const decision = await judge(group, this.#membersOf(group))
    if (this.#isOver || !admission.has(group)) return // It became too old while it was judged.
    admission.judge(group, decision)
    if (!decision.keep) this.#members.delete(group)
  }

  /** Returns whether the member's group is whole now. */
  async #sampled(ticket: Ticket, abort: AbortController): Promise<boolean> {
    const { admission } = this.#parts
    const { group, member } = ticket
    try {
      const sampled = await this.#inTime(ticket, abort)
      if (this.#isOver) return false
      this.#keep(group, member, sampled)
      return admission.finish(ticket)
    } catch (cause) {
      if (this.#isOver) return false
      return admission.fail(ticket, cause)
    } finally {
      this.#underWay.delete(ticket)
    }
  }

  /** Samples a member until its deadline, or until it is aborted, whatever the sampler does then. */
  async #inTime(ticket: Ticket, abort: AbortController): Promise<S> {
    const { time, sample } = this.#parts
    const { sampleSeconds = Number.POSITIVE_INFINITY } = this.#options
    const over = new AbortController()
    const aborted = new Promise<never>((_, reject) => {
      abort.signal.addEventListener('abort', () => reject(new Error('aborted')))
    })
    const waits: Promise<S>[] = [sample(ticket, abort.signal), aborted]
    if (sampleSeconds < Number.POSITIVE_INFINITY) {
      waits.push(
        time.sleep(sampleSeconds, over.signal).then(() => {
          throw new InputError(nameOf(ticket), `nothing in ${sampleSeconds} s`, 'an answer, or a longer sampleSeconds')
        }),
      )
    }
    try {
      return await Promise.race(waits)
    } finally {
      over.abort()
      abort.abort() // Whoever still samples it may stop.
      for (const wait of waits) wait.catch(() => {}) // What comes after the first is nobody's.
    }
  }

  #keep(group: number, member: number, sampled: S): void {
    const members = this.#members.get(group) ?? new Map<number, S>()
    this.#members.set(group, members.set(member, sampled))
  }

  #membersOf(group: number): S[] {
    return [...this.#members.get(group)!].sort(([a], [b]) => a - b).map(([, member]) => member)
  }

  #late(seconds: number): InputError {
    const { time } = this.#parts
    const oldest = [...this.#underWay.values()].sort((a, b) => a.since - b.since).slice(0, 3)
    const words = oldest.map(({ ticket, since }) => `${nameOf(ticket)} since ${(time.now() - since).toFixed(1)} s`)
    const under = words.length === 0 ? 'nobody is sampled' : `${this.#underWay.size} are sampled, ${words.join(', ')}`
    return new InputError('batch', `none in ${seconds} s: ${under}`, 'one, or a longer batchSeconds')
  }
}

function nameOf({ group, member, attempt }: Ticket): string {
  return `member ${member} of group ${group}${attempt === 0 ? '' : `, attempt ${attempt + 1},`}`
}
