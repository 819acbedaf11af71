/**
 * A training in virtual time, without a model: engines that generate so many tokens a second, answers as long as a distribution says, and a
 * learner that takes so long for its updates. The loop and its admission are the real ones, so what is seen of staleness,
 * stragglers, over-sampling and waiting is what they do; hours of it pass in seconds.
 *
 * What it does not know: engines and a learner that share cores, prompts' prefill, and a cache that is full.
 */
import { InputError } from '../base/errors.ts'
import { Random, Stream } from '../base/random.ts'
import { choice, integer, number, resolveSettings, type SettingValues } from '../base/settings.ts'
import { Admission, deliveryOrders, type Ticket } from './admission.ts'
import { runLoop, type SampledGroup, type UpdateRecord } from './loop.ts'
import { VirtualTime } from './time.ts'

/** The settings of a simulation, declared. Times are seconds. */
export const simulationSettings = {
  engines: integer(1, 'number of engines', { min: 1 }),
  slots: integer(64, 'answers that an engine generates at the same time; others wait', { min: 1 }),
  tokensPerSecond: number(50, 'tokens per second of one answer in an engine with few answers', { above: 0 }),
  engineTokensPerSecond: number(2000, 'tokens per second of all answers of an engine together', { above: 0 }),
  lengthMedian: number(256, "median of an answer's tokens, which are log-normally distributed", { min: 1 }),
  lengthSigma: number(1, 'standard deviation of the logarithm of an answer’s tokens', { min: 0 }),
  lengthMax: integer(4096, 'maximum of tokens of an answer', { min: 1 }),
  groupSize: integer(8, 'answers per prompt, which are compared', { min: 1 }),
  groupsPerBatch: integer(32, 'groups per update', { min: 1 }),
  maxStaleness: integer(0, 'maximum of updates between a group’s beginning and the update that learns from it', {
    min: 0,
  }),
  overSampling: number(1, 'groups to begin per needed group', { min: 1 }),
  order: choice('number', deliveryOrders, 'deliver groups by number, or in the order in which they finish'),
  dropFraction: number(0, 'fraction of the groups that a filter drops', { min: 0, below: 1 }),
  learnerTokensPerSecond: number(20_000, 'tokens per second that the learner trains on', { above: 0 }),
  updateSeconds: number(0.5, 'seconds per update besides its tokens', { min: 0 }),
  deliverySeconds: number(0.5, 'seconds until engines have new weights', { min: 0 }),
  updates: integer(30, 'updates to simulate', { min: 1 }),
  seed: integer(1, 'seed of lengths and of dropped groups', { min: 0 }),
}

/** What is simulated; each by its key in `simulationSettings`. */
export type SimulationSettings = SettingValues<typeof simulationSettings>

/** What came of a simulated training. Seconds are virtual ones. */
export interface Simulation {
  readonly seconds: number
  readonly updates: number
  /** Tokens of the groups that were learned from, and of all that were generated. */
  readonly trainedTokens: number
  readonly sampledTokens: number
  readonly trainedTokensPerSecond: number
  /** Part of the time in which the learner waited for a batch. */
  readonly learnerIdle: number
  /** Part of the engines' places that had no answer to generate. */
  readonly enginesIdle: number
  /** Over all groups that were learned from. */
  readonly staleness: { readonly mean: number; readonly max: number; readonly counts: readonly number[] }
  /** Groups that were admitted and waited for a later batch, at most. */
  readonly queueMax: number
  readonly drops: Readonly<Record<string, number>>
}

/**
 * Simulates a training. With `lengths`, tokens of answers as they were measured, each answer has one of them by chance; else lengths
 * are log-normal.
 * @throws InputError that says which setting is wrong; RolloutStarvedError where everything is dropped.
 */
export async function simulate(
  given: Partial<SimulationSettings> = {},
  lengths: readonly number[] | null = null,
): Promise<Simulation> {
  const settings = resolveSettings('simulation', simulationSettings, given)
  checkLengths(given, lengths)
  const { groupSize, groupsPerBatch, maxStaleness, overSampling, order, updates } = settings
  const time = new VirtualTime()
  const engines = Array.from({ length: settings.engines }, () => new SimulatedEngine(time, settings))
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

/** Where nearly all is dropped nobody waits for an end. */
const DROPS_MAX = 100_000

/** A token is generated when this is left of it: sums of seconds are not exact. */
const ALMOST = 1e-9

interface Answer {
  left: number
  readonly done: () => void
}

/** Generates its answers side by side, each at the same rate. */
class SimulatedEngine {
  /** Seconds of all its places in which they had an answer. */
  busySeconds = 0
  /** Tokens generated. */
  tokens = 0
  readonly #time: VirtualTime
  readonly #settings: SimulationSettings
  readonly #running: Answer[] = []
  readonly #queue: Answer[] = []
  #since = 0
  #sleep = new AbortController()

  constructor(time: VirtualTime, settings: SimulationSettings) {
    this.#time = time
    this.#settings = settings
  }

  /** Answers that it has, those that wait for a place included. */
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

  /** Tokens a second of each answer. */
  get #rate(): number {
    const { tokensPerSecond, engineTokensPerSecond } = this.#settings
    return Math.min(tokensPerSecond, engineTokensPerSecond / this.#running.length)
  }

  /** Accounts for the time since something last changed. */
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

  /** Lets answers that are done go, others take their places, and wakes when the next is done. */
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

function leastBusy(engines: readonly SimulatedEngine[]): SimulatedEngine {
  return engines.reduce((best, engine) => (engine.load < best.load ? engine : best))
}

/** Refuses measured lengths that are none, and settings of the distribution in whose place they are. */
function checkLengths(given: Partial<SimulationSettings>, lengths: readonly number[] | null): void {
  if (lengths === null) return
  const name = (['lengthMedian', 'lengthSigma', 'lengthMax'] as const).find((each) => given[each] !== undefined)
  if (name !== undefined) throw new InputError(name, String(given[name]), 'no such setting where lengths are measured')
  if (lengths.length === 0) throw new InputError('lengths', 'none', 'tokens of at least one answer')
  const wrong = lengths.find((length) => !(Number.isSafeInteger(length) && length >= 1))
  if (wrong !== undefined) throw new InputError('lengths', String(wrong), 'whole numbers ≥ 1')
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

/** The greatest of numbers ≥ 0, of which there may be more than a call has room for. */
function greatest(numbers: readonly number[]): number {
  return numbers.reduce((most, each) => Math.max(most, each), 0)
}
