/** Charges each thread's time between marks to kinds of work; with a trace buffer (`profile`) keeps every interval. */
import { memoryInUse } from './host.ts'
import { sharedBytes } from './shared.ts'

/** Kinds of work, in the order of an update. */
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
  /** For other threads, and for replies of text environments. */
  waiting: 13,
} as const

export type WorkName = keyof typeof Work

export const workNames = Object.keys(Work) as WorkName[]

/** The call after the start and after each kind of work, indexed by kind + 1; learning if it is not here. */
const AFTER_WORK: readonly string[] = ['reset', 'infer', 'step', 'store', 'reset']

/** The calls in which a thread can be, indexed by its beat's last word + 1: after each kind of work, then promises. */
export function callsOf(promises: readonly string[]): string[] {
  return [...Array.from({ length: workNames.length + 1 }, (_, i) => AFTER_WORK[i] ?? 'learning'), ...promises]
}

/** Words of a thread's beat: number of marks, and the last one (−1 start, −2 rest, above the kinds: promises). */
export const BEAT_WORDS = 2
const RESTING = -2

/** Shared memory for the beats of the threads. */
export function createBeats(threads: number): Int32Array {
  return new Int32Array(sharedBytes(4 * BEAT_WORDS * threads)).fill(RESTING)
}

/** Maximum untimed ticks in a row (minimum half), and their total ms. On Node 20 a clock read allocates 16 bytes. */
const [UNTIMED_TICKS, UNTIMED_MS] = [24, 50]

/** Numbers per event in a trace buffer: kind of work, start and end in ms since the epoch. */
const EVENT_NUMBERS = 3

/** A buffer for one thread's events; its first number counts them. Events beyond its size are dropped. */
export function traceBuffer(events = 200_000): Float64Array {
  return new Float64Array(sharedBytes(8 * (1 + EVENT_NUMBERS * events)))
}

export class Clock {
  /** Milliseconds of each kind of work since `start`. */
  readonly milliseconds = new Float64Array(workNames.length)
  /** Keeps every interval while it has room. */
  trace: Float64Array | undefined
  /** Shows progress to other threads; absent if no thread watches. */
  beat: Int32Array | undefined
  /** Time of the last mark, in ms. An array, since a number field would be reallocated at each mark. */
  readonly #last = new Float64Array(1)
  /** Recent milliseconds per kind of work in timed ticks; and the start of the last one. */
  readonly #ofTicks = new Float64Array(workNames.length)
  readonly #tickBegan = new Float64Array(1)
  /** Untimed ticks to come, and ticks since the last timed one, inclusive. */
  #untimed = 0
  #ticks = 1
  /** Random distances between timed ticks, to avoid resonance with the length of turns. */
  #chance = 1
  /** Whether untimed ticks follow the last mark. */
  #isUntimed = false

  start(): void {
    this.milliseconds.fill(0)
    for (let work = 0; work < this.#ofTicks.length; work++) this.#ofTicks[work] = this.#ofTicks[work]! / 2
    this.#isUntimed = false
    this.#last[0] = performance.now()
    this.#beat(-1)
  }

  /** The thread waits for others and does not count as stuck until the next mark or start. */
  rest(): void {
    this.#beat(RESTING)
  }

  /** Continues after a rest, without a mark. */
  wake(): void {
    this.#beat(-1)
  }

  /** The thread awaits a promise, by its index in `callsOf`. */
  await(promise: number): void {
    this.#beat(workNames.length + promise)
  }

  #beat(work: number): void {
    const { beat } = this
    if (beat === undefined) return
    beat[1] = work
    beat[0] = beat[0]! + 1
  }

  /** Begins a tick of conversations. Most short ones are untimed, and charged in proportion. Returns whether timed. */
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

  /** Charges the time of untimed ticks up to now; the next one is timed. */
  endTicks(): void {
    this.charge(Work.waiting)
    this.#untimed = 0
  }

  /** The last clock read, in milliseconds since the process started. */
  get lastRead(): number {
    return this.#last[0]!
  }

  /** Charges the time since the last mark to a kind of work, and shows progress. */
  mark(work: number): void {
    if (!this.#isUntimed) {
      const before = this.milliseconds[work]!
      this.charge(work)
      this.#ofTicks[work] = this.#ofTicks[work]! + this.milliseconds[work]! - before
    }
    this.#beat(work)
  }

  /** Charges the time since the last mark to a kind of work; that of untimed ticks to all, as in `beginTick`. */
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

  /** Seconds of each kind of work since `start`, by name. */
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

/** The process's memory at a time, in bytes. */
export interface MemorySample {
  /** In ms since the epoch. */
  readonly time: number
  readonly heap: number
  readonly arrayBuffers: number
  readonly resident: number
}

export function sampleMemory(): MemorySample {
  return { time: performance.timeOrigin + performance.now(), ...memoryInUse() }
}

/** Trace events for Chrome and Perfetto; thread i is tid i, memory is a counter. Times in µs from the first event. */
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
