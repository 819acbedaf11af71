/**
 * The loop of sampling and learning: asynchronous functions sample group members, groups are judged, and each complete batch makes an
 * update. The admission's maxStaleness says how far sampling runs ahead; 0 is the synchronous loop, without sampling during an update.
 * All waits use the given `Time`.
 *
 * Every wait has a deadline and a name: a member that takes too long has failed, and a learner that waits too long for a batch ends the
 * loop with a list of the members in progress and their start times.
 */
import { checkGiven, InputError } from '../base/errors.ts'
import type { Admission, Delivery, SavedAdmission, Ticket } from './admission.ts'
import type { Time } from './time.ts'

/** The functions of a loop. `S` is a sampled member. */
export interface LoopParts<S> {
  readonly admission: Admission
  readonly time: Time
  /** Settles when another batch is needed; until then no member begins, and those in progress continue. Default: at once. */
  wanted?(): Promise<void>
  /** Samples a member. Its result is ignored once the signal has aborted. */
  sample(ticket: Ticket, signal: AbortSignal): Promise<S>
  /** Decides whether to learn from a group, given its members in order, without failed ones. */
  judge(group: number, members: readonly S[]): Promise<{ readonly keep: boolean; readonly reason?: string }>
  /** Makes an update with a batch, its groups in order. */
  learn(batch: readonly SampledGroup<S>[]): Promise<void>
  /** Delivers the weights of that version to the samplers; settles when they have confirmed it. */
  deliver(version: number): Promise<void>
  /** Called after each update; `saved` returns the loop's current state for a checkpoint. */
  onUpdate?(record: UpdateRecord, saved: () => SavedLoop<S>): void
}

/** The state of a loop in a checkpoint: plain JSON if members are. */
export interface SavedLoop<S> {
  readonly admission: SavedAdmission
  /** Finished members of groups that wait or are incomplete. */
  readonly members: readonly { readonly group: number; readonly member: number; readonly sampled: S }[]
}

/** Limits and start of a loop. */
export interface LoopOptions<S> {
  /** The version at which the loop ends. */
  readonly updates: number
  /** Seconds after which sampling a member counts as failed. Default: no limit. */
  readonly sampleSeconds?: number
  /** Seconds after which a learner that waits for a batch ends the loop. Default: no limit. */
  readonly batchSeconds?: number
  /** After an abort the loop ends with the current update; members in progress are aborted. */
  readonly signal?: AbortSignal
  /** A saved state to continue from. Members that were in progress are sampled again. */
  readonly from?: SavedLoop<S>
}

/** A group to learn from. */
export interface SampledGroup<S> {
  readonly group: number
  readonly members: readonly S[]
  /** Updates between its start and the one that learns from it. */
  readonly staleness: number
}

/** An update; times are in seconds of the loop's `Time`. */
export interface UpdateRecord {
  /** The version of the weights that it made. */
  readonly version: number
  /** How long the learner waited for the batch, learned, and delivered the weights. */
  readonly waitSeconds: number
  readonly learnSeconds: number
  readonly deliverSeconds: number
  /** When it was done. */
  readonly at: number
  readonly staleness: readonly number[]
  /** Number of admitted groups that wait for a later batch. */
  readonly waiting: number
  /** Number of groups in progress. */
  readonly sampling: number
  /** Number of groups that it made too old. */
  readonly stale: number
}

/** A member in progress. */
interface UnderWay {
  readonly ticket: Ticket
  readonly since: number
  readonly abort: AbortController
}

/**
 * Samples and learns until the number of updates is reached. Settles when no member is in progress.
 * @throws InputError if a batch is late; RolloutStarvedError if too many groups are dropped; the error of a member, with failure policy
 * `throw`; errors of judging, learning and delivering.
 */
export function runLoop<S>(parts: LoopParts<S>, options: LoopOptions<S>): Promise<void> {
  checkGiven('parts of runLoop', parts, ['admission', 'time', 'sample', 'judge'])
  checkGiven('options of runLoop', options, ['updates'])
  return startLoop(parts, options).done
}

export interface RunningLoop<S> {
  /** Settles as `runLoop` does. */
  readonly done: Promise<void>
  /** The state to continue from, also after the loop has ended for any reason. */
  saved(): SavedLoop<S>
}

/** Like `runLoop`, for a caller that needs the state in between. */
export function startLoop<S>(parts: LoopParts<S>, options: LoopOptions<S>): RunningLoop<S> {
  const loop = new Loop(parts, options)
  return { done: loop.run(), saved: () => loop.saved() }
}

class Loop<S> {
  readonly #parts: LoopParts<S>
  readonly #options: LoopOptions<S>
  readonly #underWay = new Map<Ticket, UnderWay>()
  readonly #tasks = new Set<Promise<void>>()
  /** Finished members, by group. */
  readonly #members = new Map<number, Map<number, S>>()
  #failure: { readonly cause: unknown } | null = null
  #isOver = false
  /** Whether a batch is needed. */
  #isWanted = false
  /** Wakes the learner after a change. */
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

  /** The next batch; null if the loop must end. */
  async #nextBatch(): Promise<SampledGroup<S>[] | null> {
    const { admission, time } = this.#parts
    const { signal, batchSeconds = Number.POSITIVE_INFINITY } = this.#options
    const deadline = time.now() + batchSeconds
    for (;;) {
      this.#fill()
      if (this.#failure !== null) throw this.#failure.cause
      if (signal?.aborted) return null
      const batch = admission.take()
      if (batch !== null) return this.#takeMembers(batch) // At once, before other code sees that the groups are gone.
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

  /** Begins all members that may begin. */
  #fill(): void {
    if (this.#isOver || !this.#isWanted || this.#options.signal?.aborted) return
    const { admission, time } = this.#parts
    for (let ticket = admission.begin(); ticket !== null; ticket = admission.begin()) {
      const abort = new AbortController()
      this.#underWay.set(ticket, { ticket, since: time.now(), abort })
      this.#start(this.#follow(ticket, abort))
    }
  }

  /** Runs work in parallel with the learner; after it, other members may begin. */
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

  /** Follows a member until it is done, failed or aborted, and judges the group that it completes. */
  async #follow(ticket: Ticket, abort: AbortController): Promise<void> {
    const { group } = ticket
    if (await this.#sampled(ticket, abort)) await this.#judge(group)
    if (!this.#parts.admission.has(group)) this.#members.delete(group)
  }

  async #judge(group: number): Promise<void> {
    const { admission, judge } = this.#parts
    const decision = await judge(group, this.#membersOf(group))
    if (this.#isOver || !admission.has(group)) return // It became too old during judgment.
    admission.judge(group, decision)
    if (!decision.keep) this.#members.delete(group)
  }

  /** Samples a member and returns whether its group is now complete. */
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

  /** Samples a member until its deadline or an abort, even if the sampler does not stop. */
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
          const expected = 'an answer, or a longer sampleSeconds'
          throw new InputError(nameOf(ticket), `no answer in ${sampleSeconds} s`, expected)
        }),
      )
    }
    try {
      return await Promise.race(waits)
    } finally {
      over.abort()
      abort.abort() // Signals the sampler to stop.
      for (const wait of waits) wait.catch(() => {}) // Later results are ignored.
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
    const under =
      words.length === 0 ? 'no member in progress' : `${this.#underWay.size} in progress, ${words.join(', ')}`
    return new InputError('batch', `none in ${seconds} s: ${under}`, 'a batch, or a longer batchSeconds')
  }
}

function nameOf({ group, member, attempt }: Ticket): string {
  return `member ${member} of group ${group}${attempt === 0 ? '' : `, attempt ${attempt + 1},`}`
}
