/**
 * The contract of rewards. A reward judges one completion and says a number, or that it cannot tell: a reward that
 * throws, hangs, or answers with something that is no finite number gives `value: null` with the reason, and a count. A
 * number that nobody measured would be trained on like any other, so none is ever put in its place.
 *
 * A sum of rewards with an unknown part is unknown, and its parts stay as components (`compose.ts`). A policy says how long a
 * call may take, how often it is tried again, and whether the sample is masked or the group fails (`policy.ts`).
 *
 * A reward may judge a batch or a group in one call (`judgesTogether`): a rollout asks when so many turns are over or no lane
 * can go on, and takes all replies of a call in one tick.
 *
 * What reads the formulas or runs the programs of a model is limited by what is counted, never by time, so that no load
 * changes a reward. What goes beyond is wrong, with a reason and a count (`excess`). Its thread is killed only at a time
 * that nothing within the limits takes, and then the reward is null. Rewards that end by themselves (`judgesInTime`)
 * have no time limit from outside: it would count the waiting. `docs/rewards.md` has the figures.
 */
import { setMaxListeners } from 'node:events'
import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import { resolveSettings, type Settings, type SettingValues } from '../../base/settings.ts'
import type { Example } from '../../environments/text.ts'

/**
 * Why a judgment has no value.
 *
 *     threw          the reward threw
 *     hung           no answer in time
 *     aborted        the caller's signal ended it
 *     notANumber     NaN, an infinity, undefined, or no number at all
 *     noReference    the example lacks what the completion is to be compared with
 *     undecided      the comparison has no answer
 *     unreachable    the server of the reward model could not be asked, or broke off
 *     refused        the server answered with an error
 *     malformed      the server's answer is not what was agreed
 *     died           the process that judges ended
 *     unknown        the reward said null itself, and no kind
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
/** Why a judgment has no value, in one word. */
export type FailureKind = (typeof failureKinds)[number]

/**
 * What of an answer went beyond the limits of its judge, which are the same on every machine and under every load. Such
 * an answer is wrong, and its judgment has the value of a wrong one: were it null, going beyond would cost nothing.
 *
 *     steps      the program ran out of steps
 *     nesting    it is nested too deeply
 *     length     it has too many characters or too many entries
 *     number     it has or makes a number that is too large to be computed with
 *     work       comparing it takes too many operations
 */
export const excessKinds = ['steps', 'nesting', 'length', 'number', 'work'] as const
/** What of an answer went beyond the limits of its judge, in one word. */
export type ExcessKind = (typeof excessKinds)[number]

/** What a reward may answer: a finite number, or an object that can also say why there is none. */
export type RewardValue =
  | number
  | {
      readonly value: number | null
      /** Why the value is null. */
      readonly error?: string
      readonly failure?: FailureKind
      /** Why the value is what it is. */
      readonly reason?: string | undefined
      readonly excess?: ExcessKind | undefined
      /** What the value is made of, by name. */
      readonly components?: Readonly<Record<string, number | null>>
    }

/** Judges a completion. It is asked to stop by `signal`, and is not waited for after that. */
export type Reward = (
  prompt: string,
  completion: string,
  example: Example,
  signal?: AbortSignal,
) => RewardValue | Promise<RewardValue>

/** A reward's answer after checking: `value` is finite, or null with `error` and `failure`. */
export interface Judgment {
  readonly value: number | null
  readonly error?: string
  readonly failure?: FailureKind
  /** Why a known value is what it is, where the reward says so. */
  readonly reason?: string
  /** What of the answer went beyond the limits of its judge; its value is that of a wrong one. */
  readonly excess?: ExcessKind
  /** By name; null where a component is unknown. */
  readonly components: Readonly<Record<string, number | null>>
}

/** What a reward or verifier judges. */
export interface RewardInput {
  readonly prompt: string
  readonly completion: string
  readonly example: Example
}

/** Makes rewards of one id, and says which parameters they take. */
export interface RewardFactory<S extends Settings = Settings> {
  (parameters?: Partial<SettingValues<S>>): Reward
  readonly id: string
  readonly settings: S
}

/** Thrown instead of a judgment without a value, where the policy is to fail. */
export class RewardFailure extends Error {
  override readonly name = 'RewardFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

/** A judgment without a value. */
export function failed(
  failure: FailureKind,
  error: string,
  components: Readonly<Record<string, number | null>> = {},
): Judgment {
  return { value: null, error, failure, components }
}

/**
 * One attempt at a judgment; every failure becomes a value, but for a `RewardFailure`, which is meant to go through.
 */
export async function judge(reward: Reward, input: RewardInput, signal?: AbortSignal): Promise<Judgment> {
  checkGiven('reward of judge', reward, 'a function')
  checkGiven('input of judge', input, ['prompt', 'completion', 'example'])
  const { prompt, completion, example } = input
  return attempt(() => reward(prompt, completion, example, signal), signal)
}

/** What some work answers, checked, and what it throws as a judgment. */
async function attempt(work: () => unknown, signal: AbortSignal | undefined): Promise<Judgment> {
  try {
    return judgmentOf(await work())
  } catch (error) {
    if (error instanceof RewardFailure) throw error
    const message = error instanceof Error ? error.message : show(error)
    return failed(signal?.aborted ? 'aborted' : 'threw', message)
  }
}

/** What a reward answered, checked. */
function judgmentOf(answer: unknown): Judgment {
  if (typeof answer === 'number' && Number.isFinite(answer)) return { value: answer, components: {} }
  if (typeof answer !== 'object' || answer === null || !('value' in answer)) {
    return failed('notANumber', `the reward answered ${show(answer)}, which is no finite number`)
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
  return failed('notANumber', `the reward answered the value ${show(value)}, which is no finite number`, named)
}

function finiteOrNull(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

/**
 * Starts `work` with a signal of its own and settles within the time limit, whether the work does or not; null for no
 * limit. What the work
 * says later is nobody's. An endless loop in this thread cannot be ended so: what runs code or formulas of others does
 * it in a thread that can be killed.
 */
export async function withTimeLimit(
  work: (signal: AbortSignal) => Promise<Judgment>,
  timeoutMs: number | null,
  signal: AbortSignal | undefined,
): Promise<Judgment> {
  return (await withinTime((inner) => [work(inner)], 1, timeoutMs, signal))[0]!
}

/** The same for work of which `count` judgments come: those that have come by then are kept. */
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
  setMaxListeners(0, controller.signal) // As many as it judges.
  let timer: ReturnType<typeof setTimeout> | undefined
  let stop = (): void => {}
  const ended = new Promise<Judgment[]>((resolve) => {
    const end = (judgment: Judgment): void => {
      resolve(others(judgment)) // Before the abort, whose consequences would otherwise come first.
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

/** Rewards that end by themselves. */
const inTime = new WeakSet<Reward>()

/**
 * Marks a reward that ends by itself: it waits for nothing outside, and whatever it judges is bounded. A policy sets it
 * no time limit. Most of its time it may wait for its turn, behind others and under the load of the machine, and a limit
 * on that would make the rewards depend on both.
 */
export function judgesInTime(reward: Reward): Reward {
  checkGiven('reward of judgesInTime', reward, 'a function')
  inTime.add(reward)
  return reward
}

/** Whether the reward is marked as one that ends by itself. */
export function isInTime(reward: Reward): boolean {
  return inTime.has(reward)
}

/**
 * Judges completions in one call: a value for each, in their order, each of which may be a promise of its own. It is asked to
 * stop by `signal`, as a reward is.
 */
export type BatchJudge = (
  inputs: readonly RewardInput[],
  signal?: AbortSignal,
) => readonly (RewardValue | Promise<RewardValue>)[] | Promise<readonly (RewardValue | Promise<RewardValue>)[]>

/** How many completions are judged in one call: at most so many, or those of one group. */
export type BatchSize = number | 'group'

/** What judges several completions in one call. */
interface Batch {
  readonly judgeAll: BatchJudge
  readonly size: BatchSize
}

const together = new WeakMap<Reward, Batch>()

/**
 * A reward that judges several completions in one call: of a number, up to so many of them, each by itself; of `group`, a
 * whole group, which it may compare. Rollouts and `createAsyncBatchProcessor` call it so, and so do sums of rewards, verifiers
 * and policies that it is given to. By itself the first judges one completion, and the second, which has nothing to compare,
 * throws.
 * @throws InputError for a size that is neither a whole number ≥ 1 nor `group`.
 * @example
 * judgesTogether((inputs) => inputs.map(({ completion }) => wins(completion, inputs)), 'group')
 */
export function judgesTogether(judgeAll: BatchJudge, size: BatchSize): Reward {
  if (typeof judgeAll !== 'function') throw new InputError('judgesTogether', show(judgeAll), 'a function of inputs')
  if (size !== 'group') checkCount('size of a batch', size)
  const reward: Reward = async (prompt, completion, example, signal) => {
    if (size === 'group') throw new Error('this reward judges a whole group, and was given one completion')
    return judgeCall(judgeAll, [{ prompt, completion, example }], signal)[0]!
  }
  return withBatch(reward, judgeAll, size)
}

/** The reward, which judges several completions in one call by `judgeAll`. */
export function withBatch<R extends Reward>(reward: R, judgeAll: BatchJudge, size: BatchSize): R {
  together.set(reward, { judgeAll, size })
  return reward
}

/** How many completions a reward judges in one call; null where it judges each by itself. */
export function batchSizeOf(reward: Reward): BatchSize | null {
  return together.get(reward)?.size ?? null
}

/**
 * One attempt at the judgments of one call, as `judge` is at one: a promise for each, in their order. Which value belongs to
 * what is not known where some lack.
 */
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

/** One attempt at the judgments of completions, in as few calls as the reward allows: a promise for each, in their order. */
export function judgeMany(
  reward: Reward,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment>[] {
  const batch = together.get(reward)
  if (batch === undefined) return inputs.map((input) => judge(reward, input, signal))
  return partsOf(inputs, batch.size).flatMap((part) => judgeCall(batch.judgeAll, part, signal))
}

/** The completions of each call. */
export function partsOf(inputs: readonly RewardInput[], size: BatchSize): (readonly RewardInput[])[] {
  if (inputs.length === 0) return []
  if (size === 'group') return [inputs]
  return Array.from({ length: Math.ceil(inputs.length / size) }, (_, i) => inputs.slice(i * size, (i + 1) * size))
}

/** What a reward is defined by. */
export interface RewardOptions<S extends Settings> {
  readonly id: string
  readonly settings: S
  /** The reward ends by itself (`judgesInTime`); default false. */
  readonly inTime?: boolean
  make(parameters: SettingValues<S>): Reward
}

/**
 * Defines a reward: an id, the settings it declares, and what they make. `reward()` also registers it.
 * @throws InputError without an id.
 */
export function defineReward<S extends Settings>(options: RewardOptions<S>): RewardFactory<S> {
  checkGiven('options of defineReward', options, ['id', 'settings', 'make'])
  const { inTime = false } = options
  return maker('reward', inTime ? { ...options, make: (values) => judgesInTime(options.make(values)) } : options)
}

/** Makes functions of one id from settings; `noun` names their kind in errors. */
export function maker<S extends Settings, F>(
  noun: string,
  { id, settings, make }: { id: string; settings: S; make(parameters: SettingValues<S>): F },
): { (parameters?: Partial<SettingValues<S>>): F; readonly id: string; readonly settings: S } {
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like length')
  if (typeof make !== 'function') throw new InputError(`${noun} ${id}, make`, show(make), 'a function of the settings')
  const factory = (parameters?: Partial<SettingValues<S>>): F => make(resolveSettings(id, settings, parameters))
  return Object.assign(factory, { id, settings })
}

/** What runs at most `limit` at a time; results come in the order of the items, whichever is ready first. */
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
    isOver = true // After a throw nothing further begins.
  }
  return results
}
