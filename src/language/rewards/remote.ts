/**
 * A reward model behind HTTP. It is sent `{ samples: [{ prompt, completion, answer? }, …] }` and answers `{ rewards:
 * [number or null, …] }`, one for each sample in their order. Whatever it fails in (it cannot be reached, hangs, breaks
 * off, answers with an error, with something else, or with more than it may) gives null with the reason for the samples
 * concerned. What it is sent, right answers among it, is for that address alone: a server that sends the request on to
 * another one has failed.
 */
import { InputError, show } from '../../base/errors.ts'
import { type HttpAnswer, LongAnswerError, requestHttp } from '../../base/http/http-request.ts'
import { integer, number, resolveSettings, type SettingValues, text } from '../../base/settings.ts'
import { defineReward, type FailureKind, failed, type Judgment, judgesTogether, type RewardInput } from './reward.ts'

const settings = {
  url: text('', 'address of the reward model, http:// or https://'),
  timeoutMs: number(30_000, 'maximum of milliseconds of one request', { above: 0, max: 2 ** 31 - 1 }),
  retries: integer(2, 'retries after a failed connection or a server error', {
    min: 0,
  }),
  retryDelayMs: number(250, 'milliseconds before the first retry; they double for each further one', { min: 0 }),
  batchSize: integer(32, 'samples per request', { min: 1 }),
  maxAnswerBytes: integer(1 << 20, 'maximum of bytes of an answer', { min: 100, max: 2 ** 30 }),
}

/** A reward model behind HTTP, its address and its limits. */
export type RemoteRewardSettings = SettingValues<typeof settings>

/** Failures that another attempt may not meet. */
const PASSING: readonly FailureKind[] = ['hung', 'unreachable']

/** Judges a batch. Judgments come in the order of the samples, and each has a value or a reason why not. */
export type RemoteJudge = (inputs: readonly RewardInput[], signal?: AbortSignal) => Promise<Judgment[]>

/**
 * Asks a reward model for whole batches, `batchSize` samples a request, one request after the other.
 * @throws InputError if the address is none, or a setting is out of its range.
 */
export function createRemoteRewardProcessor(parameters: Partial<RemoteRewardSettings>): RemoteJudge {
  const resolved = resolveSettings('remote', settings, parameters)
  checkUrl(resolved.url)
  return async (inputs, signal) => {
    const judged: Judgment[] = []
    for (let from = 0; from < inputs.length; from += resolved.batchSize) {
      judged.push(...(await ask(resolved, inputs.slice(from, from + resolved.batchSize), signal)))
    }
    return judged
  }
}

/**
 * The value that a reward model behind HTTP gives. Rollouts and `createAsyncBatchProcessor` ask for `batchSize` samples in one
 * request; by itself it makes one for each.
 * @throws InputError if the address is none.
 */
export const remoteReward = defineReward({
  id: 'remote',
  settings,
  make: (parameters) => judgesTogether(createRemoteRewardProcessor(parameters), parameters.batchSize),
})

function checkUrl(url: string): void {
  const isUrl = URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol)
  if (!isUrl) throw new InputError('remote.url', show(url), 'an address that begins with http:// or https://')
}

/** One request, and again where it may help. */
async function ask(
  settings: RemoteRewardSettings,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment[]> {
  const { retries, retryDelayMs } = settings
  for (let attempt = 0; ; attempt++) {
    const answer = await request(settings, inputs, signal)
    if (Array.isArray(answer)) return answer
    const mayPass = PASSING.includes(answer.failure) || answer.mayPass === true
    if (attempt >= retries || !mayPass || signal?.aborted) {
      return inputs.map(() => failed(answer.failure, answer.error))
    }
    await pause(retryDelayMs * 2 ** attempt, signal)
  }
}

interface Refusal {
  readonly failure: FailureKind
  readonly error: string
  readonly mayPass?: boolean
}

/** One request, with its own time limit over the whole of it, from connecting to the last byte. */
async function request(
  { url, timeoutMs, maxAnswerBytes }: RemoteRewardSettings,
  inputs: readonly RewardInput[],
  signal: AbortSignal | undefined,
): Promise<Judgment[] | Refusal> {
  if (signal?.aborted) return { failure: 'aborted', error: 'aborted before it began' }
  const samples = inputs.map(({ prompt, completion, example }) => ({ prompt, completion, answer: example.answer }))
  const late = AbortSignal.timeout(Math.ceil(timeoutMs))
  let answer: HttpAnswer
  try {
    answer = await requestHttp(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ samples }),
      signal: signal === undefined ? late : AbortSignal.any([signal, late]),
      maxBytes: maxAnswerBytes,
    })
  } catch (error) {
    if (signal?.aborted) return { failure: 'aborted', error: 'aborted' }
    if (late.aborted) return { failure: 'hung', error: `no answer within ${timeoutMs} ms` }
    const { message, code } = error as Error & { code?: string }
    return {
      failure: error instanceof LongAnswerError ? 'malformed' : 'unreachable',
      error: message || (code ?? 'no connection'),
    }
  }
  const { status, location } = answer
  const body = answer.body.toString()
  if (status === 200) return judgmentsOf(body, inputs.length)
  if (status >= 300 && status < 400) {
    return { failure: 'refused', error: `the server sends the request on to ${show(location)} (status ${status})` }
  }
  const error = `the server answered with status ${status}: ${show(body)}`
  return { failure: 'refused', error, mayPass: status >= 500 || status === 429 }
}

function judgmentsOf(body: string, count: number): Judgment[] | Refusal {
  let rewards: unknown
  try {
    rewards = (JSON.parse(body) as { rewards?: unknown } | null)?.rewards
  } catch {
    return { failure: 'malformed', error: `the server's answer is no JSON: ${show(body)}` }
  }
  if (!Array.isArray(rewards))
    return { failure: 'malformed', error: `the server's answer has no rewards: ${show(body)}` }
  // Which reward belongs to which sample is not known any more, so none is used.
  if (rewards.length !== count) {
    return { failure: 'malformed', error: `the server gave ${rewards.length} rewards for ${count} samples` }
  }
  return rewards.map((reward: unknown) => {
    if (typeof reward === 'number' && Number.isFinite(reward)) return { value: reward, components: {} }
    if (reward === null) return failed('unknown', 'the server gave null')
    return failed('notANumber', `the server gave ${show(reward)}, which is no finite number`)
  })
}

/** Waits; at once over where it is aborted. */
function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, milliseconds)
    signal?.addEventListener('abort', end, { once: true })
    if (signal?.aborted) end()
  })
}
