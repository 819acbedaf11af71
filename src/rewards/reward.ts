/**
 * The contract of rewards. A reward judges one completion and says a number, or that it cannot tell: a reward that
 * throws, hangs, or answers with something that is no finite number gives `value: null` with the reason, and a count. A
 * number that nobody measured would be trained on like any other, so none is ever put in its place.
 *
 * A sum of rewards with an unknown part is unknown, and its parts stay as components. A policy says how long a call may
 * take, how often it is tried again, and whether the sample is masked or the group fails.
 *
 * A reward may judge a batch or a group in one call (`judgesTogether`): a rollout asks when so many turns are over or no lane
 * can go on, and takes all replies of a call in one tick.
 *
 * What reads the formulas or runs the programs of a model is limited by what is counted, never by time, so that no load
 * changes a reward. What goes beyond is wrong, with a reason and a count (`excess`). Its thread is killed only at a time
 * that nothing within the limits takes, and then the reward is null. Rewards that end by themselves (`judgesInTime`)
 * have no time limit from outside: it would count the waiting. `docs/rewards.md` has the figures.
 */
import type { Example } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import { choice, integer, number, resolveSettings, type Settings, type SettingValues } from '../settings.ts'

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

/** Calls of a reward and how they ended; `attempts` counts retries too. */
export class RewardCounts {
  calls = 0
  attempts = 0
  /** Answers that went beyond the limits of their judge, by kind. */
  readonly excesses = Object.fromEntries(excessKinds.map((kind) => [kind, 0])) as Record<ExcessKind, number>
  /** Attempts that failed, by kind. */
  readonly failures = Object.fromEntries(failureKinds.map((kind) => [kind, 0])) as Record<FailureKind, number>
}

/**
 * One attempt at a judgment; every failure becomes a value, but for a `RewardFailure`, which is meant to go through.
 */
export async function judge(reward: Reward, input: RewardInput, signal?: AbortSignal): Promise<Judgment> {
  const { prompt, completion, example } = input
  let answer: unknown
  try {
    answer = await reward(prompt, completion, example, signal)
  } catch (error) {
    if (error instanceof RewardFailure) throw error
    const message = error instanceof Error ? error.message : show(error)
    return signal?.aborted ? failed('aborted', message) : failed('threw', message)
  }
  return judgmentOf(answer)
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
  return withinTime(work, (judgment) => judgment, timeoutMs, signal)
}

/** The same for work of any kind; `unless` makes its result where there is none in time. */
export async function withinTime<T>(
  work: (signal: AbortSignal) => Promise<T>,
  unless: (judgment: Judgment) => T,
  timeoutMs: number | null,
  signal: AbortSignal | undefined,
): Promise<T> {
  if (signal?.aborted) return unless(failed('aborted', 'aborted before it began'))
  const controller = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  let stop = (): void => {}
  const ended = new Promise<T>((resolve) => {
    const end = (judgment: Judgment): void => {
      resolve(unless(judgment)) // Before the abort, whose consequences would otherwise come first.
      controller.abort(new Error(judgment.error))
    }
    if (timeoutMs !== null) {
      timer = setTimeout(() => end(failed('hung', `no answer within ${timeoutMs} ms`)), timeoutMs)
    }
    stop = () => end(failed('aborted', 'aborted'))
    signal?.addEventListener('abort', stop, { once: true })
  })
  try {
    return await Promise.race([ended, work(controller.signal)])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
  }
}

export const policySettings = {
  timeoutMs: number(30_000, 'milliseconds that one attempt may take', { above: 0, max: 2 ** 31 - 1 }),
  retries: integer(0, 'further attempts after one that failed', { min: 0 }),
  onFailure: choice(
    'mask',
    ['mask', 'fail'],
    'what a failure ends in: a value of null, which leaves the sample out, or a RewardFailure, for the group to fail',
  ),
}

/** How the failures of a reward are dealt with. */
export type RewardPolicy = SettingValues<typeof policySettings>

/** Rewards that end by themselves. */
const inTime = new WeakSet<Reward>()

/**
 * Marks a reward that ends by itself: it waits for nothing outside, and whatever it judges is bounded. A policy sets it
 * no time limit. Most of its time it may wait for its turn, behind others and under the load of the machine, and a limit
 * on that would make the rewards depend on both.
 */
export function judgesInTime(reward: Reward): Reward {
  inTime.add(reward)
  return reward
}

/** Whether the reward is marked as one that ends by itself. */
export function isInTime(reward: Reward): boolean {
  return inTime.has(reward)
}

/**
 * The reward under a policy for its failures. Every attempt has its own time limit, unless the reward ends by itself, and
 * every failure is counted by kind in `counts`. After the last attempt the answer is `value: null`, or a RewardFailure is thrown where the policy
 * says so. What the caller aborts is not tried again.
 */
export function withPolicy(
  reward: Reward,
  policy: Partial<RewardPolicy> = {},
): Reward & { readonly counts: RewardCounts } {
  const { timeoutMs, retries, onFailure } = resolveSettings('reward policy', policySettings, policy)
  const limitMs = isInTime(reward) ? null : timeoutMs
  const counts = new RewardCounts()
  const policed: Reward = async (prompt, completion, example, signal) => {
    counts.calls++
    const input = { prompt, completion, example }
    for (let attempt = 0; ; attempt++) {
      counts.attempts++
      const judgment = await withTimeLimit((inner) => judge(reward, input, inner), limitMs, signal)
      const { failure, excess } = judgment
      if (excess !== undefined) counts.excesses[excess]++
      if (failure === undefined) return judgment
      counts.failures[failure]++
      if (attempt < retries && failure !== 'aborted') continue
      if (onFailure === 'fail') throw new RewardFailure(failure, judgment.error!)
      return judgment
    }
  }
  return Object.assign(policed, { counts })
}

/** Judges completions in one call: a value for each, in their order. It is asked to stop by `signal`, as a reward is. */
export type BatchJudge = (
  inputs: readonly RewardInput[],
  signal?: AbortSignal,
) => readonly RewardValue[] | Promise<readonly RewardValue[]>

/** How many completions are judged in one call: at most so many, or those of one group. */
export type BatchSize = number | 'group'

/** What judges several completions in one call. */
export interface Batch {
  readonly judgeAll: BatchJudge
  readonly size: BatchSize
}

const together = new WeakMap<Reward, Batch>()

/**
 * A reward that judges several completions in one call: of a number, up to so many of them, each by itself; of `group`, a
 * whole group, which it may compare. Rollouts and `createAsyncBatchProcessor` call it so. By itself the first judges one
 * completion, and the second, which has nothing to compare, throws.
 * @throws InputError for a size that is neither a whole number ≥ 1 nor `group`.
 * @example
 * judgesTogether((inputs) => inputs.map(({ completion }) => wins(completion, inputs)), 'group')
 */
export function judgesTogether(judgeAll: BatchJudge, size: BatchSize): Reward {
  if (typeof judgeAll !== 'function') throw new InputError('judgesTogether', show(judgeAll), 'a function of inputs')
  if (size !== 'group') checkCount('size of a batch', size)
  const reward: Reward = async (prompt, completion, example, signal) => {
    if (size === 'group') throw new Error('this reward judges a whole group, and was given one completion')
    const [judgment] = await attemptAll(judgeAll, [{ prompt, completion, example }], signal)
    return judgment!
  }
  together.set(reward, { judgeAll, size })
  return reward
}

/** How a reward judges several completions in one call; undefined where it judges each by itself. */
export function batchOf(reward: Reward): Batch | undefined {
  return together.get(reward)
}

/** How many completions a reward judges in one call; null where it judges each by itself. */
export function batchSizeOf(reward: Reward): BatchSize | null {
  return together.get(reward)?.size ?? null
}

/** One attempt at the judgments of a batch, as `judge` is at one. Which value belongs to what is not known where some lack. */
export async function attemptAll(
  judgeAll: BatchJudge,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment[]> {
  let answers: unknown
  try {
    answers = await judgeAll(inputs, signal)
  } catch (error) {
    if (error instanceof RewardFailure) throw error
    const message = error instanceof Error ? error.message : show(error)
    return inputs.map(() => failed(signal?.aborted ? 'aborted' : 'threw', message))
  }
  if (!Array.isArray(answers) || answers.length !== inputs.length) {
    const got = Array.isArray(answers) ? `${answers.length} values` : show(answers)
    return inputs.map(() => failed('malformed', `the reward answered ${got} for ${inputs.length} completions`))
  }
  return answers.map(judgmentOf)
}

/** A part of a composed reward; its weight is 1 where none is given. */
export type RewardPart = Reward | { readonly reward: Reward; readonly weight?: number }

/**
 * The weighted sum of rewards. Their values, without weights, are kept as components under their names, and their own
 * components as `name/component`. Where a part has no value there is no sum, unless its weight is 0: such a part is
 * only recorded.
 * @throws InputError if there is no part, or a weight is not finite.
 */
export function composeRewards(parts: Readonly<Record<string, RewardPart>>): Reward {
  const list = Object.entries(parts).map(([name, part]) => {
    const { reward, weight = 1 } = typeof part === 'function' ? { reward: part } : part
    if (!Number.isFinite(weight)) throw new InputError(`weight of reward ${name}`, show(weight), 'a finite number')
    if (typeof reward !== 'function') throw new InputError(`reward ${name}`, show(reward), 'a reward')
    return { name, reward, weight }
  })
  if (list.length === 0) throw new InputError('composeRewards', 'no reward', 'at least one')
  const composed: Reward = async (prompt, completion, example, signal) => {
    const input = { prompt, completion, example }
    const judgments = await Promise.all(list.map(({ reward }) => judge(reward, input, signal)))
    const components: Record<string, number | null> = {}
    const errors: string[] = []
    const reasons: string[] = []
    let excess: ExcessKind | undefined
    let failure: FailureKind | undefined
    let sum = 0
    for (const [i, judgment] of judgments.entries()) {
      const { name, weight } = list[i]!
      components[name] = judgment.value
      for (const [inner, value] of Object.entries(judgment.components)) components[`${name}/${inner}`] = value
      if (judgment.reason !== undefined) reasons.push(`${name}: ${judgment.reason}`)
      excess ??= judgment.excess
      if (judgment.value !== null) sum += weight * judgment.value
      else if (weight !== 0) {
        failure ??= judgment.failure
        errors.push(`${name}: ${judgment.error}`)
      }
    }
    if (failure !== undefined) return failed(failure, errors.join('; '), components)
    return { value: sum, components, reason: reasons.length > 0 ? reasons.join('; ') : undefined, excess }
  }
  return list.every((part) => isInTime(part.reward)) ? judgesInTime(composed) : composed
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
  const { inTime = false } = options
  return maker('reward', inTime ? { ...options, make: (values) => judgesInTime(options.make(values)) } : options)
}

/** Makes functions of one id from settings; `noun` names their kind in errors. */
export function maker<S extends Settings, F>(
  noun: string,
  { id, settings, make }: { id: string; settings: S; make(parameters: SettingValues<S>): F },
): { (parameters?: Partial<SettingValues<S>>): F; readonly id: string; readonly settings: S } {
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like length')
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

/** Throws an InputError unless `count` is a whole number ≥ 1. */
export function checkCount(subject: string, count: number): void {
  if (!(Number.isSafeInteger(count) && count >= 1)) throw new InputError(subject, show(count), 'a whole number ≥ 1')
}
