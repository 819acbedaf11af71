/** Samples answers to requests of Tinker's protocol. */
import { randomInt } from 'node:crypto'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { Generation } from '../serving/batcher.ts'
import { badField, integerField, keyOfSeed, numberField, objectField } from '../serving/fields.ts'
import type { AdapterHost } from './adapter-host.ts'
import { tokensOf } from './tinker-datums.ts'
import type { FutureAnswer } from './tinker-futures.ts'

/** Samples answers to a prompt. Log-probabilities are at temperature 1 over the whole vocabulary for all sampling parameters. */
export async function sampled(
  { host, weights }: { readonly host: AdapterHost; readonly weights: Float32Array },
  body: Body,
  count: number,
  signal: AbortSignal,
): Promise<FutureAnswer> {
  const parameters = objectField(body, 'sampling_params')
  const prompt = Int32Array.from(tokensOf('prompt', body.prompt, host.vocabularySize))
  const room = host.context - prompt.length
  if (room < 1) throw badField('prompt', `${prompt.length} tokens`, `at most ${host.context - 1}`)
  const temperature = numberField(parameters, 'temperature', 1, 0, 100)
  const topK = integerField(parameters, 'top_k', -1, -1)
  const topP = numberField(parameters, 'top_p', 1, 0, 1)
  const explore = temperature > 0
  const sampling = { temperature: explore ? temperature : 1, topK: topK === -1 ? 0 : topK, topP, minP: 0 }
  const isPlain = sampling.temperature === 1 && sampling.topK === 0 && topP === 1
  const numTop = integerField(body, 'topk_sample_logprobs', 0, 0, 20)
  if (numTop > 0 && !isPlain) throw badField('topk_sample_logprobs', numTop, '0, or temperature 1 over all tokens')
  const numPromptTop = integerField(body, 'topk_prompt_logprobs', 0, 0, 20)
  const { stop = null } = parameters as { stop?: string | readonly (string | number)[] | null }
  const stops = typeof stop === 'string' ? [stop] : (stop ?? [])
  const isStop = (each: unknown) => typeof each === 'string' || Number.isSafeInteger(each)
  if (!Array.isArray(stops) || !stops.every(isStop)) throw badField('stop', stop, 'a text, or a list of texts or ids')
  const stopIds = new Set(stops.filter((each) => typeof each === 'number'))
  const seed = integerField(parameters, 'seed', randomInt(2 ** 47), Number.MIN_SAFE_INTEGER)
  const maxTokens = Math.min(room, integerField(parameters, 'max_tokens', room, 1))
  const requests = Array.from({ length: count }, (_, i) => ({
    ...{ ids: prompt, maxTokens, sampling, explore, numTop, key: keyOfSeed(seed, i) },
    stopStrings: stops.filter((each) => typeof each === 'string'),
    ...(numPromptTop > 0 && i === 0 ? { numPromptTop } : {}),
  }))
  const ends = { isOver: (id: number) => stopIds.has(id), ignoresEnd: stop !== null && stops.length === 0 }
  const turns = await host.sample(weights, requests, ends, signal)
  for (const { error, end } of turns) {
    if (end === 'failed') throw new RequestError(error === null ? 500 : 400, error ?? 'the engine failed')
    if (end === 'aborted') throw new RequestError(400, 'the request was cancelled')
  }
  const logprobs = isPlain
    ? turns.map(({ tokens }) => tokens.map(({ logprob }) => logprob))
    : await rawLogprobs(host, weights, prompt, turns)
  return {
    sequences: turns.map(({ tokens, end }, i) => ({
      ...{ stop_reason: end, tokens: tokens.map(({ id }) => id), logprobs: logprobs[i] },
      ...(numTop > 0 ? { topk_logprobs: tokens.map(({ top }) => top) } : {}),
    })),
    ...(body.prompt_logprobs === true ? { prompt_logprobs: await promptLogprobs(host, weights, prompt, body) } : {}),
    ...(numPromptTop > 0
      ? {
          topk_prompt_logprobs: scored(
            turns[0]!.prompt!.map(({ top }) => top),
            prompt.length,
            body,
          ),
        }
      : {}),
    type: 'sample',
  }
}

async function rawLogprobs(
  host: AdapterHost,
  weights: Float32Array,
  prompt: Int32Array,
  turns: readonly Generation[],
): Promise<number[][]> {
  const sequences = turns.map(({ tokens }) => [...prompt, ...tokens.map(({ id }) => id)])
  const targeted = sequences.map((ids) => ({ input: ids.slice(0, -1), targets: ids.slice(1) }))
  const said = await host.pass({ weights }, targeted, null)
  return said.map((logprob) => Array.from(logprob.subarray(prompt.length - 1)))
}

/** Log-probabilities of the prompt. */
async function promptLogprobs(
  host: AdapterHost,
  weights: Float32Array,
  prompt: Int32Array,
  body: Body,
): Promise<(number | null)[]> {
  const ids = Array.from(prompt)
  if (ids.length < 2) return ids.map(() => null)
  const [said] = await host.pass({ weights }, [{ input: ids.slice(0, -1), targets: ids.slice(1) }], null)
  return scored(Array.from(said!), ids.length, body)
}

/** The reported values of the prompt's tokens except the first; null for the first and those before the last `prompt_logprobs_last_n`. */
function scored<T>(told: readonly T[], length: number, body: Body): (T | null)[] {
  if (length < 2) return Array.from({ length }, () => null)
  const last = integerField(body, 'prompt_logprobs_last_n', length - 1, 1, length - 1)
  return [null, ...told].map((value, i) => (i < length - last ? null : value))
}
