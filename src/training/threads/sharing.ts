/**
 * How threads share work in parts (`base/parted.ts`). Thread 0 publishes a run in shared memory; a free thread claims
 * the next part by an atomic counter. Thread 0 claims too, and then waits only for parts that were begun, so a late
 * thread delays nothing. Work can also be assigned: each thread does the part of its own number, such as the lanes whose environment is in its heap.
 */
import { type Clock, Work } from '../../base/clock.ts'
import { doParts, type PartedWork, type SharedWork, type ShareWork, toldNumbers } from '../../base/parted.ts'
import { canSleep, sharedBytes } from '../../base/shared.ts'
import { Aborted, type SharingColumns } from './orders.ts'

/** The words, in cache lines of their own where all threads write. */
export const SharingWord = {
  run: 0,
  claim: 16,
  done: 32,
  aborted: 48,
  work: 49,
  numParts: 50,
  from: 51,
  end: 52,
  dealt: 53,
  asleep: 64,
} as const
const NUM_WORDS = 80

/** A claim has the low bits of the run's number, then the next part. */
const PART_BITS = 12
const PARTS_MAX = 2 ** PART_BITS - 1
const RUN_MASK = 2 ** 19 - 1

/** Checks before a thread sleeps; none if threads outnumber cores, since spinning delays others. */
const SPINS = 20_000
/** Milliseconds that thread 0 waits before its event loop runs. */
const BLOCKING_MS = 20

export function sharingColumns(): SharingColumns {
  const told = toldNumbers()
  return { words: new Int32Array(sharedBytes(4 * NUM_WORDS)), told: new Float64Array(sharedBytes(told.byteLength)) }
}

/** Ends all waiting. References nothing but the columns, so a team that keeps it does not keep its trainer. */
export function aborting({ words }: SharingColumns): () => void {
  return () => {
    Atomics.store(words, SharingWord.aborted, 1)
    Atomics.notify(words, SharingWord.run)
    Atomics.notify(words, SharingWord.done)
  }
}

/** Thread 0's handle of dealt work. */
export interface DealtWork {
  readonly told: Float64Array
  /** Lets threads `from` to `end` begin their parts; thread 0 does its own itself. */
  begin(from: number, end: number): void
  /** All dealt parts are done when it returns, or when its promise resolves. */
  finish(): void | Promise<void>
}

export class Sharing {
  readonly columns: SharingColumns
  readonly #index: number
  readonly #spins: number
  readonly #clock: Clock
  readonly #works: PartedWork[] = []
  /** The run's numbers, read whole. */
  readonly #told = toldNumbers()
  /** The last run that this thread has seen. */
  #run: number
  #numDealt = 0
  /** Thread 0: how many threads share the next runs, itself included. */
  team = 1
  /** Thread 0: whether it waits for others, its event loop running. */
  isWaiting = false

  constructor(columns: SharingColumns, index: number, count: number, cores: number, clock: Clock) {
    this.columns = columns
    this.#index = index
    this.#spins = count <= cores ? SPINS : 0
    this.#clock = clock
    this.#run = Atomics.load(columns.words, SharingWord.run)
  }

  readonly share: ShareWork = (work): SharedWork => {
    const id = this.#works.push(work) - 1
    const told = toldNumbers()
    return {
      told,
      run: (numParts) => {
        work.open(told)
        // Helpers could not claim more parts than a claim can count.
        if (this.team === 1 || numParts < 2 || numParts > PARTS_MAX) return doParts(work, 0, numParts)
        this.#publish(id, told, numParts, 1, this.team, false)
        this.#claim(work, numParts, PARTS_MAX)
        return this.#settle(numParts)
      },
    }
  }

  deal(work: PartedWork): DealtWork {
    const id = this.#works.push(work) - 1
    const told = toldNumbers()
    return {
      told,
      begin: (from, end) => {
        this.#numDealt = Math.max(0, end - from)
        if (this.#numDealt > 0) this.#publish(id, told, 0, from, end, true)
      },
      finish: () => (this.#numDealt === 0 ? undefined : this.#settle(this.#numDealt)),
    }
  }

  /** For a new team. No thread may be at work. */
  restart(): void {
    Atomics.store(this.columns.words, SharingWord.aborted, 0)
    Atomics.store(this.columns.words, SharingWord.asleep, 0)
  }

  #check(): void {
    if (Atomics.load(this.columns.words, SharingWord.aborted) !== 0) throw new Aborted('another thread failed')
  }

  #publish(id: number, told: Float64Array, numParts: number, from: number, end: number, isDealt: boolean): void {
    this.#check()
    const { words, told: shared } = this.columns
    this.#run = (this.#run + 1) & 0x3fffffff
    const claim = (this.#run & RUN_MASK) << PART_BITS
    Atomics.store(words, SharingWord.claim, claim | PARTS_MAX) // A late thread that reads what follows sees that it is another run's.
    shared.set(told)
    words[SharingWord.work] = id
    words[SharingWord.numParts] = numParts
    words[SharingWord.from] = from
    words[SharingWord.end] = end
    words[SharingWord.dealt] = isDealt ? 1 : 0
    Atomics.store(words, SharingWord.done, 0)
    Atomics.store(words, SharingWord.claim, claim)
    Atomics.store(words, SharingWord.run, this.#run)
    if (Atomics.load(words, SharingWord.asleep) > 0) Atomics.notify(words, SharingWord.run)
  }

  /** Does at most `most` unclaimed parts. */
  #claim(work: PartedWork, numParts: number, most: number, before?: () => void): void {
    const { words } = this.columns
    const run = this.#run & RUN_MASK
    for (let left = most; left > 0; ) {
      const claim = Atomics.load(words, SharingWord.claim)
      const next = claim & PARTS_MAX
      if (claim >> PART_BITS !== run || next >= numParts) return
      before?.()
      before = undefined
      if (Atomics.compareExchange(words, SharingWord.claim, claim, claim + 1) !== claim) continue
      void work.part(next) // No promise: a policy that answers later has one thread.
      this.#finish()
      left--
    }
  }

  #finish(): void {
    const { words } = this.columns
    Atomics.add(words, SharingWord.done, 1)
    if (this.#index > 0) Atomics.notify(words, SharingWord.done)
  }

  /** Waits until so many parts are done. */
  #settle(numDone: number): void | Promise<void> {
    const { words } = this.columns
    for (let i = 0; i <= this.#spins; i++) if (Atomics.load(words, SharingWord.done) === numDone) return this.#settled()
    const until = performance.now() + BLOCKING_MS
    for (;;) {
      const done = Atomics.load(words, SharingWord.done)
      if (done === numDone) return this.#settled()
      this.#check()
      const left = until - performance.now()
      if (left <= 0 || !canSleep) return this.#settleLater(numDone)
      Atomics.wait(words, SharingWord.done, done, left)
    }
  }

  async #settleLater(numDone: number): Promise<void> {
    const { words } = this.columns
    this.isWaiting = true
    for (;;) {
      const done = Atomics.load(words, SharingWord.done)
      this.#check()
      if (done === numDone) break
      await Atomics.waitAsync(words, SharingWord.done, done).value
    }
    this.isWaiting = false
    this.#settled()
  }

  #settled(): void {
    this.#check()
    this.#clock.mark(Work.waiting)
  }

  /** A helper's life. Only its team ends it. */
  serve(): never {
    for (;;) {
      this.#sleep()
      this.help()
    }
  }

  /** Sleeps until there is a run that this thread has not seen. */
  #sleep(): void {
    const { words } = this.columns
    for (let i = 0; i < this.#spins; i++) if (Atomics.load(words, SharingWord.run) !== this.#run) return
    Atomics.add(words, SharingWord.asleep, 1)
    while (Atomics.load(words, SharingWord.run) === this.#run) {
      this.#check()
      Atomics.wait(words, SharingWord.run, this.#run)
    }
    Atomics.sub(words, SharingWord.asleep, 1)
  }

  /** Helps with the newest run: with at most `most` of its parts. */
  help(most: number = PARTS_MAX): void {
    this.#clock.mark(Work.waiting)
    this.#help(most)
    this.#clock.rest()
  }

  #help(most: number): void {
    const { words, told } = this.columns
    let [id, numParts, from, end, dealt] = [0, 0, 0, 0, 0]
    for (;;) {
      this.#check()
      this.#run = Atomics.load(words, SharingWord.run)
      this.#told.set(told)
      id = words[SharingWord.work]!
      numParts = words[SharingWord.numParts]!
      from = words[SharingWord.from]!
      end = words[SharingWord.end]!
      dealt = words[SharingWord.dealt]!
      // Otherwise thread 0 has begun to publish the next run.
      const isOfRun = Atomics.load(words, SharingWord.claim) >> PART_BITS === (this.#run & RUN_MASK)
      if (isOfRun && Atomics.load(words, SharingWord.run) === this.#run) break
    }
    if (this.#index < from || this.#index >= end) return
    const work = this.#works[id]!
    if (dealt === 0) {
      this.#claim(work, numParts, most, () => work.open(this.#told))
      return
    }
    work.open(this.#told)
    void work.part(this.#index)
    this.#finish()
  }
}
