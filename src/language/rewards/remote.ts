/**
 * A reward model over HTTP. The request is `{ samples: [{ prompt, completion, answer? }, …] }`, the answer `{ rewards:
 * [number or null, …] }`, one per sample in order. Any failure (unreachable, timeout, broken connection, error status,
 * malformed or oversized answer) gives the affected samples null with a reason. Requests contain right answers and are
 * for this address only, so redirects count as failures.
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

/** The address and limits of a reward model over HTTP. */
export type RemoteRewardSettings = SettingValues<typeof settings>

/** Failures that a retry may fix. */
const PASSING: readonly FailureKind[] = ['hung', 'unreachable']

/** Judges a batch. Judgments are in the samples' order; each has a value or a reason why not. */
export type RemoteJudge = (inputs: readonly RewardInput[], signal?: AbortSignal) => Promise<Judgment[]>

/** Sends batches to a reward model, `batchSize` samples per request, in order. @throws InputError for bad settings. */
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

/** A reward model's value over HTTP, in batches of `batchSize` if called so. @throws InputError for a bad address. */
export const remoteReward = defineReward({
  id: 'remote',
  settings,
  make: (parameters) => judgesTogether(createRemoteRewardProcessor(parameters), parameters.batchSize),
})

function checkUrl(url: string): void {
  const isUrl = URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol)
  if (!isUrl) throw new InputError('remote.url', show(url), 'an address that begins with http:// or https://')
}

/** Sends a request, with retries where they may help. */
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

/** Sends one request, with a time limit from connecting to the last byte. */
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
    return { failure: 'refused', error: `the server redirects to ${show(location)} (status ${status})` }
  }
  const error = `the server answered with status ${status}: ${show(body)}`
  return { failure: 'refused', error, mayPass: status >= 500 || status === 429 }
}

function judgmentsOf(body: string, count: number): Judgment[] | Refusal {
  let rewards: unknown
  try {
    rewards = (JSON.parse(body) as { rewards?: unknown } | null)?.rewards
  } catch {
    return { failure: 'malformed', error: `the server's answer is not JSON: ${show(body)}` }
  }
  if (!Array.isArray(rewards))
    return { failure: 'malformed', error: `the server's answer has no rewards: ${show(body)}` }
  // The assignment of rewards to samples is unknown, so none is used.
  if (rewards.length !== count) {
    return { failure: 'malformed', error: `the server gave ${rewards.length} rewards for ${count} samples` }
  }
  return rewards.map((reward: unknown) => {
    if (typeof reward === 'number' && Number.isFinite(reward)) return { value: reward, components: {} }
    if (reward === null) return failed('unknown', 'the server gave null')
    return failed('notANumber', `the server gave ${show(reward)}, which is not a finite number`)
  })
}

/** Waits; resolves at once if aborted. */
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
