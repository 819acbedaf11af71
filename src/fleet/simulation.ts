/**
 * A training in virtual time, without a model: engines generate a number of tokens per second, answer lengths follow a distribution, and
 * a learner takes a fixed time per update. Loop and admission are the real ones, so that it shows their staleness, stragglers,
 * over-sampling and waiting; hours pass in seconds.
 *
 * It does not model engines and a learner that share cores, the prefill of prompts, or a full cache.
 */
import { InputError } from '../base/errors.ts'
import { Random, Stream } from '../base/random.ts'
import { choice, integer, number, resolveSettings, type SettingValues } from '../base/settings.ts'
import { Admission, deliveryOrders, type Ticket } from './admission.ts'
import { runLoop, type SampledGroup, type UpdateRecord } from './loop.ts'
import { VirtualTime } from './time.ts'

/** The settings of a simulation. Times are in seconds. */
export const simulationSettings = {
  engines: integer(1, 'number of engines', { min: 1 }),
  slots: integer(64, 'answers that an engine generates at the same time; more answers wait', { min: 1 }),
  tokensPerSecond: number(50, 'tokens per second of one answer in an engine with few answers', { above: 0 }),
  engineTokensPerSecond: number(2000, 'tokens per second of all answers of an engine together', { above: 0 }),
  lengthMedian: number(256, 'median of the tokens per answer, whose distribution is log-normal', { min: 1 }),
  lengthSigma: number(1, 'standard deviation of the logarithm of the tokens per answer', { min: 0 }),
  lengthMax: integer(4096, 'maximum of tokens of an answer', { min: 1 }),
  groupSize: integer(8, 'answers per prompt, which are compared with each other', { min: 1 }),
  groupsPerBatch: integer(32, 'groups per update', { min: 1 }),
  maxStaleness: integer(0, 'maximum of updates between a group’s beginning and the update that learns from it', {
    min: 0,
  }),
  overSampling: number(1, 'groups to start per group that an update needs', { min: 1 }),
  order: choice('number', deliveryOrders, 'order in which groups reach the learner: by number, or as they finish'),
  dropFraction: number(0, 'fraction of the groups that a filter drops', { min: 0, below: 1 }),
  learnerTokensPerSecond: number(20_000, 'tokens per second that the learner trains on', { above: 0 }),
  updateSeconds: number(0.5, 'seconds per update in addition to the time for its tokens', { min: 0 }),
  deliverySeconds: number(0.5, 'seconds until the engines have the new weights', { min: 0 }),
  updates: integer(30, 'updates to simulate', { min: 1 }),
  seed: integer(1, 'seed of lengths and of dropped groups', { min: 0 }),
}

/** An engine's speed, measured while it generates a number of answers at the same time. */
export interface EngineSpeed {
  readonly answers: number
  /** Of all these answers together. */
  readonly tokensPerSecond: number
}

/** Values of `simulationSettings`. */
export type SimulationSettings = SettingValues<typeof simulationSettings>

/** The results of a simulated training. Times are virtual seconds. */
export interface Simulation {
  readonly seconds: number
  readonly updates: number
  /** Trained tokens and all generated tokens. */
  readonly trainedTokens: number
  readonly sampledTokens: number
  readonly trainedTokensPerSecond: number
  /** Fraction of the time for which the learner waited for a batch. */
  readonly learnerIdle: number
  /** Fraction of the engines' slots without an answer. */
  readonly enginesIdle: number
  /** Over all trained groups. */
  readonly staleness: { readonly mean: number; readonly max: number; readonly counts: readonly number[] }
  /** Maximum number of admitted groups that waited for a later batch. */
  readonly queueMax: number
  readonly drops: Readonly<Record<string, number>>
}

/**
 * Simulates a training. With measured `lengths` in tokens, each answer gets a random one of them; otherwise lengths are log-normal.
 * With measured `speeds`, for rising numbers of answers, an engine has the interpolated speed for the answers that it has.
 * @throws InputError with the wrong setting; RolloutStarvedError if everything is dropped.
 */
export async function simulate(
  given: Partial<SimulationSettings> = {},
  lengths: readonly number[] | null = null,
  speeds: readonly EngineSpeed[] | null = null,
): Promise<Simulation> {
  const settings = resolveSettings('simulation', simulationSettings, given)
  checkLengths(given, lengths)
  checkSpeeds(given, speeds)
  const { groupSize, groupsPerBatch, maxStaleness, overSampling, order, updates } = settings
  const time = new VirtualTime()
  const engines = Array.from({ length: settings.engines }, () => new SimulatedEngine(time, settings, speeds))
  const admission = new Admission({ groupsPerBatch, groupSize, maxStaleness, overSampling, order, dropsMax: DROPS_MAX })
  const random = new Random(settings.seed)
  const records: UpdateRecord[] = []
  let trainedTokens = 0
  await time.run(() =>
    runLoop<number>(
      {
        admission,
        time,
        sample: async (ticket, signal) => {
          const tokens = lengthOf(settings, lengths, random, ticket)
          await leastBusy(engines).generate(tokens, signal)
          return tokens
        },
        judge: async (group) => ({ keep: !isDropped(settings, random, group), reason: 'filter' }),
        learn: async (batch) => {
          const tokens = tokensOf(batch)
          trainedTokens += tokens
          await time.sleep(settings.updateSeconds + tokens / settings.learnerTokensPerSecond)
        },
        deliver: () => time.sleep(settings.deliverySeconds),
        onUpdate: (record) => {
          records.push(record)
        },
      },
      { updates },
    ),
  )
  const seconds = time.now()
  const waited = records.reduce((sum, { waitSeconds }) => sum + waitSeconds, 0)
  const busy = engines.reduce((sum, engine) => sum + engine.busySeconds, 0)
  const staleness = records.flatMap((record) => record.staleness)
  const most = greatest(staleness)
  return {
    seconds,
    updates,
    trainedTokens,
    sampledTokens: engines.reduce((sum, engine) => sum + engine.tokens, 0),
    trainedTokensPerSecond: trainedTokens / seconds,
    learnerIdle: waited / seconds,
    enginesIdle: 1 - busy / (seconds * settings.engines * settings.slots),
    staleness: {
      mean: staleness.reduce((sum, each) => sum + each, 0) / staleness.length,
      max: most,
      counts: Array.from({ length: most + 1 }, (_, age) => staleness.filter((each) => each === age).length),
    },
    queueMax: greatest(records.map(({ waiting }) => waiting)),
    drops: admission.drops,
  }
}

/** Limit on drops, so that a simulation that drops nearly everything ends. */
const DROPS_MAX = 100_000

/** Remaining fraction below which a token counts as generated: sums of seconds are not exact. */
const ALMOST = 1e-9

interface Answer {
  left: number
  readonly done: () => void
}

/** Generates its answers in parallel, all at the same rate. */
class SimulatedEngine {
  /** Slot seconds with an answer. */
  busySeconds = 0
  tokens = 0
  readonly #time: VirtualTime
  readonly #settings: SimulationSettings
  readonly #speeds: readonly EngineSpeed[] | null
  readonly #running: Answer[] = []
  readonly #queue: Answer[] = []
  #since = 0
  #sleep = new AbortController()

  constructor(time: VirtualTime, settings: SimulationSettings, speeds: readonly EngineSpeed[] | null) {
    this.#time = time
    this.#speeds = speeds
    this.#settings = settings
  }

  /** Number of its answers, including those that wait for a slot. */
  get load(): number {
    return this.#running.length + this.#queue.length
  }

  generate(tokens: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const answer = { left: tokens, done: resolve }
      signal.addEventListener('abort', () => {
        this.#pass()
        for (const list of [this.#running, this.#queue]) {
          const at = list.indexOf(answer)
          if (at >= 0) list.splice(at, 1)
        }
        this.#goOn()
        resolve()
      })
      this.#pass()
      this.#queue.push(answer)
      this.#goOn()
    })
  }

  /** Tokens per second of each answer. */
  get #rate(): number {
    if (this.#speeds !== null) return speedAt(this.#speeds, this.#running.length) / this.#running.length
    const { tokensPerSecond, engineTokensPerSecond } = this.#settings
    return Math.min(tokensPerSecond, engineTokensPerSecond / this.#running.length)
  }

  /** Accounts for the time since the last change. */
  #pass(): void {
    const now = this.#time.now()
    const passed = now - this.#since
    this.#since = now
    if (this.#running.length === 0) return
    const generated = passed * this.#rate
    for (const answer of this.#running) answer.left -= generated
    this.busySeconds += passed * this.#running.length
    this.tokens += generated * this.#running.length
  }

  /** Removes finished answers, gives their slots to others, and schedules the next wake-up. */
  #goOn(): void {
    this.#sleep.abort()
    for (let i = this.#running.length - 1; i >= 0; i--) {
      if (this.#running[i]!.left <= ALMOST) this.#running.splice(i, 1)[0]!.done()
    }
    while (this.#running.length < this.#settings.slots && this.#queue.length > 0)
      this.#running.push(this.#queue.shift()!)
    if (this.#running.length === 0) return
    const sleep = new AbortController()
    this.#sleep = sleep
    const least = Math.min(...this.#running.map(({ left }) => left))
    void this.#time.sleep(least / this.#rate, sleep.signal).then(() => {
      if (sleep.signal.aborted) return
      this.#pass()
      this.#goOn()
    })
  }
}

/** The interpolated speed for a number of answers: proportional below the first measured number, constant above the last. */
function speedAt(speeds: readonly EngineSpeed[], answers: number): number {
  const above = speeds.findIndex((speed) => speed.answers >= answers)
  if (above < 0) return speeds.at(-1)!.tokensPerSecond
  const [low, high] = [speeds[above - 1] ?? { answers: 0, tokensPerSecond: 0 }, speeds[above]!]
  const part = (answers - low.answers) / (high.answers - low.answers)
  return low.tokensPerSecond + part * (high.tokensPerSecond - low.tokensPerSecond)
}

function leastBusy(engines: readonly SimulatedEngine[]): SimulatedEngine {
  return engines.reduce((best, engine) => (engine.load < best.load ? engine : best))
}

/** Rejects invalid measured lengths, and settings of the distribution that they replace. */
function checkLengths(given: Partial<SimulationSettings>, lengths: readonly number[] | null): void {
  if (lengths === null) return
  const name = (['lengthMedian', 'lengthSigma', 'lengthMax'] as const).find((each) => given[each] !== undefined)
  if (name !== undefined) throw new InputError(name, String(given[name]), 'no such setting with measured lengths')
  if (lengths.length === 0) throw new InputError('lengths', 'none', 'tokens of at least one answer')
  const wrong = lengths.find((length) => !(Number.isSafeInteger(length) && length >= 1))
  if (wrong !== undefined) throw new InputError('lengths', String(wrong), 'whole numbers ≥ 1')
}

/** Rejects invalid measured speeds, and settings that they replace. */
function checkSpeeds(given: Partial<SimulationSettings>, speeds: readonly EngineSpeed[] | null): void {
  if (speeds === null) return
  const name = (['tokensPerSecond', 'engineTokensPerSecond'] as const).find((each) => given[each] !== undefined)
  if (name !== undefined) throw new InputError(name, String(given[name]), 'no such setting with measured speeds')
  if (speeds.length === 0) throw new InputError('speeds', 'none', 'at least one')
  speeds.forEach(({ answers, tokensPerSecond }, i) => {
    const before = speeds[i - 1]?.answers ?? 0
    if (!(answers > before)) throw new InputError(`speeds[${i}].answers`, String(answers), `a number above ${before}`)
    if (tokensPerSecond > 0 && tokensPerSecond < Infinity) return
    throw new InputError(`speeds[${i}].tokensPerSecond`, String(tokensPerSecond), 'a number above 0')
  })
}

function lengthOf(
  { lengthMedian, lengthSigma, lengthMax }: SimulationSettings,
  lengths: readonly number[] | null,
  random: Random,
  ticket: Ticket,
): number {
  random.draw(Stream.step, ticket.member, ticket.group, ticket.attempt)
  if (lengths !== null) return lengths[Math.floor(random.uniform(0) * lengths.length)]!
  const tokens = Math.round(lengthMedian * Math.exp(lengthSigma * random.normal(0, 0)))
  return Math.min(lengthMax, Math.max(1, tokens))
}

function isDropped({ dropFraction }: SimulationSettings, random: Random, group: number): boolean {
  random.draw(Stream.reset, 0, group, 0)
  return random.uniform(0) < dropFraction
}

function tokensOf(batch: readonly SampledGroup<number>[]): number {
  return batch.reduce((sum, { members }) => sum + members.reduce((tokens, member) => tokens + member, 0), 0)
}

/** The maximum of numbers ≥ 0, of which there may be more than a call has room for. */
function greatest(numbers: readonly number[]): number {
  return numbers.reduce((most, each) => Math.max(most, each), 0)
}
