/**
 * Where does the time go? Each thread has a clock that charges the time since its last mark to a kind of work. Nothing
 * between two marks is lost, so the kinds add up to the whole. With a trace buffer it also keeps every interval.
 *
 * `profile` writes the intervals for Chrome's tracing view.
 */

/** Kinds of work, in the order in which an update comes by them. */
export const Work = {
  reset: 0,
  infer: 1,
  step: 2,
  store: 3,
  bootstrap: 4,
  /** Episode returns, and whether the environment is solved. */
  account: 5,
  advantage: 6,
  shuffle: 7,
  gather: 8,
  forward: 9,
  loss: 10,
  backward: 11,
  optimizer: 12,
  /** For the other threads, and for what environments of text reply. */
  waiting: 13,
} as const

/** The name of a kind of work. */
export type WorkName = keyof typeof Work

/** The kinds of work by number. */
export const workNames = Object.keys(Work) as WorkName[]

/** What comes after the start and after each kind of work, by its number + 1; learning, where it is not here. */
const AFTER_WORK: readonly string[] = ['reset', 'infer', 'step', 'store', 'reset']

/**
 * The calls in which a thread can be, by the last word of its beat + 1: what comes after each kind of work, then the
 * promises that it may wait for.
 */
export function callsOf(promises: readonly string[]): string[] {
  return [...Array.from({ length: workNames.length + 1 }, (_, i) => AFTER_WORK[i] ?? 'learning'), ...promises]
}

/**
 * Words of a thread's beat: how many marks it made, and its last one; −1 at the start, −2 while it rests. Above the kinds of
 * work are the promises that it waits for.
 */
export const BEAT_WORDS = 2
const RESTING = -2

/** Room for the beats of so many threads, which all of them see. */
export function createBeats(threads: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(4 * BEAT_WORDS * threads)).fill(RESTING)
}

/**
 * Ticks of conversations between two that are timed, at most (and half as many at least), and the ms that they may take together. On Node 20 each reading of
 * the runtime's clock allocates 16 bytes.
 */
const [UNTIMED_TICKS, UNTIMED_MS] = [24, 50]

/** Numbers an event takes in a trace buffer: kind of work, start and end in ms since the epoch. */
const EVENT_NUMBERS = 3

/** Room for the events of one thread; the first number counts them. When it is full, later ones are not kept. */
export function traceBuffer(events = 200_000): Float64Array {
  return new Float64Array(new SharedArrayBuffer(8 * (1 + EVENT_NUMBERS * events)))
}

export class Clock {
  /** Milliseconds of each kind of work since `start`. */
  readonly milliseconds = new Float64Array(workNames.length)
  /** Keeps every interval while it has room. */
  trace: Float64Array | undefined
  /** Shows other threads that this thread makes progress; absent if no thread watches. */
  beat: Int32Array | undefined
  /** When the last mark was, in ms. An array, for a number of its own would be allocated anew at each mark. */
  readonly #last = new Float64Array(1)
  /** Milliseconds of each kind of work in ticks that were timed, of late; and when the last of them began. */
  readonly #ofTicks = new Float64Array(workNames.length)
  readonly #tickBegan = new Float64Array(1)
  /** Ticks to come that are not timed, and ticks since the last one that was timed began, with it. */
  #untimed = 0
  #ticks = 1
  /** Ticks are timed at distances of chance, which do not fall in with the length of turns. */
  #chance = 1
  /** Whether ticks that were not timed lie behind the last mark. */
  #isUntimed = false

  /** Begins anew. */
  start(): void {
    this.milliseconds.fill(0)
    for (let work = 0; work < this.#ofTicks.length; work++) this.#ofTicks[work] = this.#ofTicks[work]! / 2
    this.#isUntimed = false
    this.#last[0] = performance.now()
    this.#beat(-1)
  }

  /** The thread waits for others: until the next mark or start it is not the one that is stuck. */
  rest(): void {
    this.#beat(RESTING)
  }

  /** The thread continues after a rest, without a mark. */
  wake(): void {
    this.#beat(-1)
  }

  /** The thread waits for one of the promises that `callsOf` was told of, by its number. */
  await(promise: number): void {
    this.#beat(workNames.length + promise)
  }

  #beat(work: number): void {
    const { beat } = this
    if (beat === undefined) return
    beat[1] = work
    beat[0] = beat[0]! + 1
  }

  /**
   * Begins a tick of conversations. Of short ones only some are timed, unless a trace is kept; what the others take is charged to
   * the kinds of work by their shares in those. Returns whether this one is timed: then `lastRead` says when it began.
   */
  beginTick(): boolean {
    if (this.#untimed > 0) {
      this.#untimed--
      this.#ticks++
      this.#isUntimed = true
      return false
    }
    this.charge(Work.waiting)
    const milliseconds = (this.#last[0]! - this.#tickBegan[0]!) / this.#ticks
    this.#chance = (Math.imul(this.#chance, 1103515245) + 12345) & 0x7fffffff
    const most = UNTIMED_TICKS - ((this.#chance >>> 16) % (UNTIMED_TICKS / 2))
    this.#untimed = this.trace === undefined && milliseconds * most <= UNTIMED_MS ? most : 0
    this.#tickBegan[0] = this.#last[0]!
    this.#ticks = 1
    return true
  }

  /** Charges what ticks took that were not timed, up to now; the next one is timed. */
  endTicks(): void {
    this.charge(Work.waiting)
    this.#untimed = 0
  }

  /** Milliseconds from the start of the process to the last time that the clock was read. */
  get lastRead(): number {
    return this.#last[0]!
  }

  /** Charges the time since the last mark to a kind of work, and shows that the thread makes progress. */
  mark(work: number): void {
    if (!this.#isUntimed) {
      const before = this.milliseconds[work]!
      this.charge(work)
      this.#ofTicks[work] = this.#ofTicks[work]! + this.milliseconds[work]! - before
    }
    this.#beat(work)
  }

  /** Charges the time since the last mark to a kind of work; that of ticks that were not timed to all, as `beginTick` says. */
  charge(work: number): void {
    const now = performance.now()
    const last = this.#last[0]!
    if (this.#isUntimed) this.#shareOut(now - last)
    else this.milliseconds[work] = this.milliseconds[work]! + (now - last)
    if (this.trace !== undefined) keep(this.trace, work, last, now)
    this.#last[0] = now
  }

  #shareOut(milliseconds: number): void {
    this.#isUntimed = false
    let whole = 0
    for (let work = 0; work < this.#ofTicks.length; work++) whole += this.#ofTicks[work]!
    for (let work = 0; work < this.#ofTicks.length; work++) {
      const share = whole === 0 ? (work === Work.infer ? 1 : 0) : this.#ofTicks[work]! / whole
      this.milliseconds[work] = this.milliseconds[work]! + milliseconds * share
    }
  }

  /** Seconds of each kind of work since `start`, by its name. */
  seconds(): Record<WorkName, number> {
    const seconds = workNames.map((name, work) => [name, this.milliseconds[work]! / 1000])
    return Object.fromEntries(seconds) as Record<WorkName, number>
  }
}

function keep(trace: Float64Array, work: number, start: number, end: number): void {
  const count = trace[0]!
  const place = 1 + EVENT_NUMBERS * count
  if (place + EVENT_NUMBERS > trace.length) return
  trace[place] = work
  trace[place + 1] = performance.timeOrigin + start
  trace[place + 2] = performance.timeOrigin + end
  trace[0] = count + 1
}

/** What the process took of the memory at a time, in bytes. */
export interface MemorySample {
  /** In ms since the epoch. */
  readonly time: number
  readonly heap: number
  readonly arrayBuffers: number
  readonly resident: number
}

/** What the process takes of the memory now. */
export function sampleMemory(): MemorySample {
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage()
  return { time: performance.timeOrigin + performance.now(), heap: heapUsed, arrayBuffers, resident: rss }
}

/**
 * Trace events as Chrome's tracing view and Perfetto read them; thread i is tid i, and the memory a counter. Times in µs from
 * the first event.
 */
export function chromeTrace(threads: readonly Float64Array[], memory: readonly MemorySample[] = []): string {
  const starts = threads.filter((trace) => trace[0]! > 0).map((trace) => trace[2]!)
  const first = Math.min(...starts)
  const events: object[] = []
  for (const [tid, trace] of threads.entries()) {
    events.push({ name: 'thread_name', ph: 'M', pid: 1, tid, args: { name: tid === 0 ? 'caller' : `worker ${tid}` } })
    for (let i = 0; i < trace[0]!; i++) {
      const [work, start, end] = trace.subarray(1 + EVENT_NUMBERS * i, 1 + EVENT_NUMBERS * (i + 1))
      const [ts, dur] = [1000 * (start! - first), 1000 * (end! - start!)].map((us) => Math.round(us * 1000) / 1000)
      events.push({ name: workNames[work!], ph: 'X', pid: 1, tid, ts, dur })
    }
  }
  for (const { time, ...args } of memory) {
    events.push({ name: 'memory', ph: 'C', pid: 1, ts: Math.max(0, Math.round(1000 * (time - first))), args })
  }
  return JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' })
}
