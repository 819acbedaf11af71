/**
 * The contract of rewards. A reward judges one completion: a finite number, or `value: null` with a reason. A reward
 * that throws, hangs or returns anything else gives null and is counted. Nothing replaces an unknown reward, since a
 * made-up number would be trained on like any other.
 *
 * A sum with an unknown part is unknown; its parts stay as components (`compose.ts`). A policy sets time limits,
 * retries, and whether a failure masks the sample or fails the group (`policy.ts`). A reward may judge a batch or a
 * group in one call (`judgesTogether`): a rollout calls it when enough turns are over or no lane can continue, and
 * takes all judgments of a call in one tick.
 *
 * Rewards that parse formulas or run programs have counted limits, not time limits, so the machine's load changes no
 * reward. An answer beyond a limit is wrong, with a reason and a count (`excess`). Its thread is killed only after a
 * time that nothing within the limits takes, and the reward is null then. Such rewards (`judgesInTime`) have no outer
 * time limit, which would include waiting. `docs/rewards.md` has measurements.
 */

import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import { allowListeners } from '../../base/host.ts'
import { resolveSettings, type Settings, type SettingValues } from '../../base/settings.ts'
import type { Example } from '../../environments/text.ts'

/**
 * Why a judgment has no value.
 *
 *     threw          the reward threw
 *     hung           no answer in time
 *     aborted        the caller's signal ended it
 *     notANumber     NaN, an infinity, undefined, or not a number
 *     noReference    the example lacks the reference to compare with
 *     undecided      the comparison has no result
 *     unreachable    the reward model's server was unreachable, or broke off
 *     refused        the server answered with an error
 *     malformed      the server's answer has another format
 *     died           the judging process ended
 *     unknown        the reward itself returned null without a kind
 */
export const failureKinds = [
  'threw',
  'hung',
  'aborted',
  'notANumber',
  'noReference',
  'undecided',
  'unreachable',
  'refused',
  'malformed',
  'died',
  'unknown',
] as const
/** A kind of `failureKinds`. */
export type FailureKind = (typeof failureKinds)[number]

/**
 * Which limit of its judge an answer exceeded. The limits are the same on every machine under any load. Such an answer
 * gets the value of a wrong one: were it null, exceeding would cost nothing.
 *
 *     steps      the program ran out of steps
 *     nesting    too deep nesting
 *     length     too many characters or entries
 *     number     has or makes a number too large to compute
 *     work       comparing takes too many operations
 */
export const excessKinds = ['steps', 'nesting', 'length', 'number', 'work'] as const
/** A kind of `excessKinds`. */
export type ExcessKind = (typeof excessKinds)[number]

/** A reward's return value: a finite number, or an object that can also say why there is none. */
export type RewardValue =
  | number
  | {
      readonly value: number | null
      readonly error?: string
      readonly failure?: FailureKind
      /** An explanation of the value. */
      readonly reason?: string | undefined
      readonly excess?: ExcessKind | undefined
      /** Parts of the value, by name. */
      readonly components?: Readonly<Record<string, number | null>>
    }

/** Judges a completion. `signal` asks it to stop; its result is not awaited after that. */
export type Reward = (
  prompt: string,
  completion: string,
  example: Example,
  signal?: AbortSignal,
) => RewardValue | Promise<RewardValue>

/** A checked reward: `value` is finite, or null with `error` and `failure`. */
export interface Judgment {
  readonly value: number | null
  readonly error?: string
  readonly failure?: FailureKind
  /** An explanation of a known value, if the reward gives one. */
  readonly reason?: string
  /** The limit that the answer exceeded; its value is that of a wrong one. */
  readonly excess?: ExcessKind
  /** By name; null if unknown. */
  readonly components: Readonly<Record<string, number | null>>
}

/** A prompt, its completion and its example. */
export interface RewardInput {
  readonly prompt: string
  readonly completion: string
  readonly example: Example
}

/** Makes the rewards of an id from its settings. */
export interface RewardFactory<S extends Settings = Settings> {
  (parameters?: Partial<SettingValues<S>>): Reward
  readonly id: string
  readonly settings: S
}

/** Thrown for a judgment without a value, if the policy is to fail. */
export class RewardFailure extends Error {
  override readonly name = 'RewardFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

export function failed(
  failure: FailureKind,
  error: string,
  components: Readonly<Record<string, number | null>> = {},
): Judgment {
  return { value: null, error, failure, components }
}

/** Calls a reward once. Every failure becomes a judgment, except a `RewardFailure`, which is rethrown. */
export async function judge(reward: Reward, input: RewardInput, signal?: AbortSignal): Promise<Judgment> {
  checkGiven('reward of judge', reward, 'a function')
  checkGiven('input of judge', input, ['prompt', 'completion', 'example'])
  const { prompt, completion, example } = input
  return attempt(() => reward(prompt, completion, example, signal), signal)
}

/** Runs work and checks its result. An exception becomes a judgment. */
async function attempt(work: () => unknown, signal: AbortSignal | undefined): Promise<Judgment> {
  try {
    return judgmentOf(await work())
  } catch (error) {
    if (error instanceof RewardFailure) throw error
    const message = error instanceof Error ? error.message : show(error)
    return failed(signal?.aborted ? 'aborted' : 'threw', message)
  }
}

function judgmentOf(answer: unknown): Judgment {
  if (typeof answer === 'number' && Number.isFinite(answer)) return { value: answer, components: {} }
  if (typeof answer !== 'object' || answer === null || !('value' in answer)) {
    return failed('notANumber', `the reward answered ${show(answer)}, which is not a finite number`)
  }
  const { value, error, failure, reason, excess, components } = answer as Partial<Judgment>
  const named = Object.fromEntries(Object.entries(components ?? {}).map(([name, part]) => [name, finiteOrNull(part)]))
  if (typeof value === 'number' && Number.isFinite(value)) {
    return {
      value,
      components: named,
      ...(reason !== undefined && { reason }),
      ...(excess !== undefined && { excess }),
    }
  }
  if (value === null) return failed(failure ?? 'unknown', error ?? 'the reward gave no reason', named)
  return failed('notANumber', `the reward answered the value ${show(value)}, which is not a finite number`, named)
}

function finiteOrNull(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

/**
 * Starts `work` with its own signal and settles within the time limit (null: no limit), even if the work does not; its
 * later result is ignored. This cannot stop an endless loop in this thread: untrusted code and formulas run in threads
 * that can be killed.
 */
export async function withTimeLimit(
  work: (signal: AbortSignal) => Promise<Judgment>,
  timeoutMs: number | null,
  signal: AbortSignal | undefined,
): Promise<Judgment> {
  return (await withinTime((inner) => [work(inner)], 1, timeoutMs, signal))[0]!
}

/** The same for work with `count` judgments. Those that arrived in time are kept. */
export async function withinTime(
  work: (signal: AbortSignal) => readonly Promise<Judgment>[],
  count: number,
  timeoutMs: number | null,
  signal: AbortSignal | undefined,
): Promise<Judgment[]> {
  const settled = new Array<Judgment | undefined>(count).fill(undefined)
  const others = (judgment: Judgment): Judgment[] => settled.map((known) => known ?? judgment)
  if (signal?.aborted) return others(failed('aborted', 'aborted before it began'))
  const controller = new AbortController()
  allowListeners(controller.signal) // One listener per judgment.
  let timer: ReturnType<typeof setTimeout> | undefined
  let stop = (): void => {}
  const ended = new Promise<Judgment[]>((resolve) => {
    const end = (judgment: Judgment): void => {
      resolve(others(judgment)) // Before the abort, because its consequences would otherwise settle the promise first.
      controller.abort(new Error(judgment.error))
    }
    if (timeoutMs !== null) {
      timer = setTimeout(() => end(failed('hung', `no answer within ${timeoutMs} ms`)), timeoutMs)
    }
    stop = () => end(failed('aborted', 'aborted'))
    signal?.addEventListener('abort', stop, { once: true })
  })
  const keep = async (judgment: Promise<Judgment>, i: number): Promise<Judgment> => {
    settled[i] = await judgment
    return settled[i]
  }
  try {
    return await Promise.race([ended, Promise.all(work(controller.signal).map(keep))])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
  }
}

const inTime = new WeakSet<Reward>()

/**
 * Marks a reward that ends by itself: it waits for nothing outside, and its work is limited. A policy sets no time
 * limit for it. Most of its time may be spent queueing on a loaded machine, so a time limit would make rewards depend
 * on the load.
 */
export function judgesInTime(reward: Reward): Reward {
  checkGiven('reward of judgesInTime', reward, 'a function')
  inTime.add(reward)
  return reward
}

export function isInTime(reward: Reward): boolean {
  return inTime.has(reward)
}

/** Judges completions in one call: one value each, in order; each may be a promise. `signal` asks it to stop. */
export type BatchJudge = (
  inputs: readonly RewardInput[],
  signal?: AbortSignal,
) => readonly (RewardValue | Promise<RewardValue>)[] | Promise<readonly (RewardValue | Promise<RewardValue>)[]>

/** Maximum completions per call, or those of one group. */
export type BatchSize = number | 'group'

/** The batch judge of a reward and its batch size. */
interface Batch {
  readonly judgeAll: BatchJudge
  readonly size: BatchSize
}

const together = new WeakMap<Reward, Batch>()

/**
 * A reward that judges several completions in one call: up to a number of independent ones, or a whole `group`, which
 * it may compare. Rollouts, `createAsyncBatchProcessor`, sums, verifiers and policies call it that way. Called for one
 * completion, a batch reward judges it; a group reward throws, since it has nothing to compare.
 * @throws InputError for a size that is neither a whole number ≥ 1 nor `group`.
 * @example
 * judgesTogether((inputs) => inputs.map(({ completion }) => wins(completion, inputs)), 'group')
 */
export function judgesTogether(judgeAll: BatchJudge, size: BatchSize): Reward {
  if (typeof judgeAll !== 'function') throw new InputError('judgesTogether', show(judgeAll), 'a function of inputs')
  if (size !== 'group') checkCount('size of a batch', size)
  const reward: Reward = async (prompt, completion, example, signal) => {
    if (size === 'group') throw new Error('this reward judges a whole group, but got one completion')
    return judgeCall(judgeAll, [{ prompt, completion, example }], signal)[0]!
  }
  return withBatch(reward, judgeAll, size)
}

/** Attaches the batch judge `judgeAll` to a reward. */
export function withBatch<R extends Reward>(reward: R, judgeAll: BatchJudge, size: BatchSize): R {
  together.set(reward, { judgeAll, size })
  return reward
}

const openings = new WeakMap<Reward, () => Promise<unknown>>()

/** Lets a reward read its files, such as a model, before the first conversation. */
export function withOpening<R extends Reward>(reward: R, open: () => Promise<unknown>): R {
  openings.set(reward, open)
  return reward
}

/** Reads what a reward needs. @throws InputError if it cannot be read. */
export async function opened(reward: Reward): Promise<void> {
  await openings.get(reward)?.()
}

/** A reward's batch size; null if it judges completions one by one. */
export function batchSizeOf(reward: Reward): BatchSize | null {
  return together.get(reward)?.size ?? null
}

/** One attempt of a batch call: a promise per judgment, in order. If some are missing, none can be assigned. */
export function judgeCall(
  judgeAll: BatchJudge,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment>[] {
  const called = (async () => judgeAll(inputs, signal))()
  const valueAt = async (i: number): Promise<unknown> => {
    const answers: unknown = await called
    if (Array.isArray(answers) && answers.length === inputs.length) return answers[i]
    const got = Array.isArray(answers) ? `${answers.length} values` : show(answers)
    return failed('malformed', `the reward answered ${got} for ${inputs.length} completions`)
  }
  return inputs.map((_, i) => attempt(() => valueAt(i), signal))
}

/** One attempt for several completions, in as few calls as possible: a promise per judgment, in order. */
export function judgeMany(
  reward: Reward,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment>[] {
  const batch = together.get(reward)
  if (batch === undefined) return inputs.map((input) => judge(reward, input, signal))
  return partsOf(inputs, batch.size).flatMap((part) => judgeCall(batch.judgeAll, part, signal))
}

/** Splits completions into calls. */
export function partsOf(inputs: readonly RewardInput[], size: BatchSize): (readonly RewardInput[])[] {
  if (inputs.length === 0) return []
  if (size === 'group') return [inputs]
  return Array.from({ length: Math.ceil(inputs.length / size) }, (_, i) => inputs.slice(i * size, (i + 1) * size))
}

/** Id, settings and function of a reward. */
export interface RewardOptions<S extends Settings> {
  readonly id: string
  readonly settings: S
  /** The reward ends by itself (`judgesInTime`); default false. */
  readonly inTime?: boolean
  make(parameters: SettingValues<S>): Reward
}

/** Defines a reward: id, settings, and its maker. `reward()` also registers it. @throws InputError without an id. */
export function defineReward<S extends Settings>(options: RewardOptions<S>): RewardFactory<S> {
  checkGiven('options of defineReward', options, ['id', 'settings', 'make'])
  const { inTime = false } = options
  return maker('reward', inTime ? { ...options, make: (values) => judgesInTime(options.make(values)) } : options)
}

/** Makes functions of an id from settings; `noun` names their kind in errors. */
export function maker<S extends Settings, F>(
  noun: string,
  { id, settings, make }: { id: string; settings: S; make(parameters: SettingValues<S>): F },
): { (parameters?: Partial<SettingValues<S>>): F; readonly id: string; readonly settings: S } {
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like length')
  if (typeof make !== 'function') throw new InputError(`${noun} ${id}, make`, show(make), 'a function of the settings')
  const factory = (parameters?: Partial<SettingValues<S>>): F => make(resolveSettings(id, settings, parameters))
  return Object.assign(factory, { id, settings })
}

/** Maps items with at most `limit` calls at a time. Results are in the items' order. */
export async function mapBounded<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length)
  let next = 0
  let isOver = false
  const run = async (): Promise<void> => {
    while (next < items.length && !isOver) {
      const index = next++
      results[index] = await work(items[index]!, index)
    }
  }
  try {
    await Promise.all(Array.from({ length: Math.min(limit, items.length) }, run))
  } finally {
    isOver = true // After an error nothing further begins.
  }
  return results
}
