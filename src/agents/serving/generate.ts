/**
 * Generates ids from ids, as vLLM (`/inference/v1/generate`) and SGLang (`/generate`) do, for clients that tokenize
 * themselves and train on the result. Each token has its log-probability under the sampled distribution and the version
 * of the weights that chose it; if a filter excluded tokens, also its candidate set.
 */
import { randomInt, randomUUID } from 'node:crypto'
import type { Body, Route, RouteAnswer } from '../../base/http/server.ts'
import { promptIds } from '../../language/tokenizers/turn-ids.ts'
import { type GeneratedToken, type Generation, type GenerationRequest, steps, whole } from './batcher.ts'
import { usageOf } from './choices.ts'
import {
  badField,
  booleanField,
  checkFields,
  drawingOf,
  idsField,
  integerField,
  keyOfSeed,
  objectField,
  textField,
  textsField,
} from './fields.ts'
import { CHANGE_FIELDS, type ChangeFields, changesOf } from './logit-changes.ts'
import { checkModel, checkRoom, MOST_CHOICES, MOST_STOPS, type Naming, versionSpans } from './naming.ts'
import type { ServedModel } from './served-model.ts'
import { TextStream } from './text-stream.ts'

const VLLM = {
  taken: ['request_id', 'token_ids', 'sampling_params', 'model', 'output_mode', 'stream'],
  // Other servers salt the cache to separate weight versions, which never share one here.
  ignored: ['cache_salt', 'return_token_ids'],
  refused: { priority: [0], stream_options: [{}], kv_transfer_params: [] },
}
const VLLM_SAMPLING = {
  taken: [
    ...['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'n', 'stop', 'logprobs'],
    ...Object.keys(CHANGE_FIELDS),
  ],
  ignored: ['detokenize', 'skip_special_tokens'],
  refused: {
    ...{ stop_token_ids: [[]], ignore_eos: [false] },
    ...{ include_stop_str_in_output: [false], prompt_logprobs: [], bad_words: [[]] },
    ...{ allowed_token_ids: [], skip_reading_prefix_cache: [false], structured_outputs: [] },
  },
}
const SGLANG = {
  taken: [
    ...['text', 'input_ids', 'sampling_params', 'return_logprob', 'top_logprobs_num', 'stream', 'rid'],
    ...['lora_path', 'return_sampling_mask', 'sampling_logprobs_mode'],
  ],
  ignored: ['return_text_in_logprobs', 'session_id'],
  refused: { logprob_start_len: [-1], token_ids_logprob: [], return_hidden_states: [false] },
}
const { min_tokens: MIN_TOKENS, ...SHARED_CHANGES } = CHANGE_FIELDS
const SGLANG_CHANGES = { ...SHARED_CHANGES, min_new_tokens: MIN_TOKENS }
const SGLANG_SAMPLING = {
  taken: [
    ...['temperature', 'top_p', 'top_k', 'min_p', 'max_new_tokens', 'sampling_seed', 'n', 'stop'],
    ...Object.keys(SGLANG_CHANGES),
  ],
  ignored: ['skip_special_tokens', 'spaces_between_special_tokens', 'no_stop_trim'],
  refused: {
    ...{ stop_token_ids: [[]], stop_regex: [[]], ignore_eos: [false] },
    ...{ json_schema: [], regex: [], ebnf: [], structural_tag: [], custom_params: [] },
  },
}

export function generateRoutes(served: ServedModel, naming: Naming): Map<string, Route> {
  return new Map<string, Route>([
    ['POST /inference/v1/generate', ({ body, signal }) => vllm(served, naming, body, signal)],
    ['POST /generate', ({ body, signal }) => sglang(served, naming, body, signal)],
    ['POST /tokenize', ({ body }) => tokenize(served, body)],
    ['POST /detokenize', ({ body }) => detokenize(served, body)],
  ])
}

/** The turns of prompts, each `n` times. */
function requestsOf(
  prompts: readonly Int32Array[],
  sampling: Body,
  names: {
    readonly maxTokens: string
    readonly initial: number
    readonly seed: string
    readonly prompt: string
    readonly changes: ChangeFields
  },
  numTop: number,
  served: ServedModel,
): GenerationRequest[] {
  const n = integerField(sampling, 'n', 1, 1, MOST_CHOICES)
  const seed = integerField(sampling, names.seed, randomInt(2 ** 47), Number.MIN_SAFE_INTEGER)
  const maxTokens = integerField(sampling, names.maxTokens, names.initial, 1)
  const drawing = {
    ...drawingOf(sampling),
    ...changesOf(sampling, names.changes, served),
    stopStrings: textsField(sampling, 'stop', MOST_STOPS),
  }
  return prompts.flatMap((ids, p) => {
    const room = checkRoom(ids, maxTokens, names.prompt, served)
    return Array.from({ length: n }, (_, i) => ({
      ...drawing,
      ...{ ids, numTop, maxTokens: room, key: keyOfSeed(seed, p * n + i) },
    }))
  })
}

async function vllm(served: ServedModel, naming: Naming, body: Body, signal: AbortSignal): Promise<RouteAnswer> {
  checkFields(body, VLLM)
  const sampling = objectField(body, 'sampling_params')
  checkFields(sampling, VLLM_SAMPLING, 'sampling_params.')
  const mode = textField(body, 'output_mode', 'tokens')
  if (mode !== 'tokens') throw badField('output_mode', mode, '"tokens"')
  const model = body.model === undefined || body.model === null ? naming.names()[0]! : checkModel(body, naming)
  const numTop = integerField(sampling, 'logprobs', null, 0, 20)
  const ids = idsField('token_ids', body.token_ids, served.vocabularySize)
  const names = { maxTokens: 'max_tokens', initial: 16, seed: 'seed', prompt: 'token_ids', changes: CHANGE_FIELDS }
  const requests = requestsOf([ids], sampling, names, numTop ?? 0, served)
  const id = textField(body, 'request_id', randomUUID())
  const isStream = booleanField(body, 'stream', false)
  const group = served.batcher.submit(requests, id)
  const head = { request_id: `generate-tokens-${id}`, model, created: Math.floor(Date.now() / 1000), output_mode: mode }
  const choiceOf = (turn: Generation, index: number, from: number, isLast: boolean) => {
    const tokens = turn.tokens.slice(from)
    return {
      ...{ index, finish_reason: isLast ? reasonOf(turn) : null, stop_reason: null },
      token_ids: tokens.map(({ id }) => id),
      logprobs:
        numTop === null
          ? null
          : {
              content: tokens.map(({ id, logprob, top }) => ({
                ...{ token_id: id, logprob },
                top_logprobs: top.map(([each, value]) => ({ token_id: each, logprob: value })),
              })),
            },
      sampling_mask: maskOf(tokens),
      ...(isLast ? { weight_versions: versionSpans(turn.tokens, naming) } : {}),
    }
  }
  if (!isStream) {
    await whole(group, signal)
    return {
      ...{ ...head, prompt_token_ids: Array.from(ids) },
      choices: group.turns.map((turn, index) => choiceOf(turn, index, 0, true)),
      usage: usageOf(group.turns.map((turn) => ({ turn, ids }))),
    }
  }
  async function* events() {
    const told = group.turns.map(() => 0)
    const isTold = group.turns.map(() => false)
    for await (const _ of steps(group, signal)) {
      for (const [index, turn] of group.turns.entries()) {
        const isLast = turn.end !== null
        if (isTold[index] || (turn.tokens.length === told[index] && !isLast)) continue
        yield { ...head, choices: [choiceOf(turn, index, told[index]!, isLast)] }
        told[index] = turn.tokens.length
        isTold[index] = isLast
      }
    }
  }
  return { events: events() }
}

async function sglang(served: ServedModel, naming: Naming, body: Body, signal: AbortSignal): Promise<RouteAnswer> {
  checkFields(body, SGLANG)
  const sampling = objectField(body, 'sampling_params')
  checkFields(sampling, SGLANG_SAMPLING, 'sampling_params.')
  const { tokenizer, vocabularySize } = served
  const adapter = textField(body, 'lora_path', null)
  if (adapter !== null) checkModel({ model: adapter }, naming)
  const wantsLogprobs = booleanField(body, 'return_logprob', false)
  const numTop = integerField(body, 'top_logprobs_num', 0, 0, 20)
  const wantsMask = booleanField(body, 'return_sampling_mask', false)
  const mode = textField(body, 'sampling_logprobs_mode', 'selected')
  if (mode !== 'selected' || (body.sampling_logprobs_mode && !wantsMask)) {
    throw badField('sampling_logprobs_mode', mode, '"selected", with return_sampling_mask')
  }
  const given = body.input_ids
  const isBatch = Array.isArray(given) && Array.isArray(given[0])
  const text = textField(body, 'text', null)
  if ((text === null) === (given === undefined || given === null))
    throw badField('text', text, 'either it or input_ids')
  const prompts =
    text !== null
      ? [Int32Array.from(promptIds(tokenizer, text))]
      : (isBatch ? (given as unknown[]) : [given]).map((each) => idsField('input_ids', each, vocabularySize))
  const names = {
    ...{ maxTokens: 'max_new_tokens', initial: 128, seed: 'sampling_seed', prompt: 'input_ids' },
    changes: SGLANG_CHANGES,
  }
  const requests = requestsOf(prompts, sampling, names, wantsLogprobs ? numTop : 0, served)
  const isStream = booleanField(body, 'stream', false)
  if (isStream && requests.length > 1) throw badField('stream', true, 'false for several answers')
  const id = textField(body, 'rid', randomUUID().replaceAll('-', ''))
  const group = served.batcher.submit(requests, id)
  const begun = performance.now()
  const answerOf = (turn: Generation, index: number) => {
    const { ids, stopStrings, changes } = requests[index]!
    const words = new TextStream(tokenizer, stopStrings, true, changes?.minTokens)
    let said = turn.tokens.map((token) => words.push(token.id)).join('')
    if (turn.end !== null) said += words.end()
    const last = turn.tokens.at(-1)
    const told = ({ id: token, logprob }: { id: number; logprob: number }) => [logprob, token, null]
    return {
      ...{ text: said, output_ids: turn.tokens.map((token) => token.id) },
      meta_info: {
        id: requests.length === 1 ? id : `${id}_${index}`,
        finish_reason: finishOf(turn, words.stopString),
        ...{ prompt_tokens: ids.length, completion_tokens: turn.tokens.length, cached_tokens: turn.numCached },
        weight_version: last === undefined ? naming.currentLabel() : naming.labelOf(last.version),
        weight_versions: versionSpans(turn.tokens, naming).map(({ version, start, end }) => [version, start, end]),
        e2e_latency: (performance.now() - begun) / 1000,
        ...(wantsLogprobs ? { output_token_logprobs: turn.tokens.map(told) } : {}),
        ...(wantsLogprobs && numTop > 0
          ? {
              output_top_logprobs: turn.tokens.map(({ top }) =>
                top.map(([token, logprob]) => told({ id: token, logprob })),
              ),
            }
          : {}),
        ...(wantsMask
          ? {
              output_token_sampling_mask: maskOf(turn.tokens),
              output_token_sampling_logprobs: turn.tokens.map(({ logprob }) => logprob),
            }
          : {}),
      },
    }
  }
  if (!isStream) {
    await whole(group, signal)
    const answers = group.turns.map(answerOf)
    return isBatch || answers.length > 1 ? answers : answers[0]!
  }
  async function* events() {
    for await (const _ of steps(group, signal)) {
      const [turn] = group.turns
      if (turn!.tokens.length > 0 || turn!.end !== null) yield answerOf(turn!, 0)
    }
  }
  return { events: events() }
}

/** vLLM's name of a turn's end. */
function reasonOf({ end }: Generation): string | null {
  return end === 'aborted' ? 'abort' : end
}

/** SGLang's record of a turn's end; null while it runs. */
function finishOf({ end, tokens }: Generation, stopString: string | null): object | null {
  if (end === null) return null
  if (end === 'length') return { type: 'length', length: tokens.length }
  if (end === 'aborted') return { type: 'abort', message: 'the request was aborted' }
  return { type: 'stop', matched: stopString ?? tokens.at(-1)!.id }
}

/** The candidate set of each token; null if no filter excluded any. */
function maskOf(tokens: readonly GeneratedToken[]): (readonly number[])[] | null {
  return tokens.some(({ candidates }) => candidates.length > 0) ? tokens.map(({ candidates }) => candidates) : null
}

/** vLLM's `/tokenize`: the ids of a text, with which a client checks that its tokenizer is the same. */
function tokenize({ tokenizer, context }: ServedModel, body: Body): object {
  checkFields(body, { taken: ['prompt', 'add_special_tokens'], ignored: ['model'], refused: {} })
  const prompt = textField(body, 'prompt', undefined)
  if (prompt === undefined) throw badField('prompt', prompt, 'a text')
  const tokens = booleanField(body, 'add_special_tokens', true)
    ? promptIds(tokenizer, prompt)
    : tokenizer.encode(prompt)
  return { tokens, count: tokens.length, max_model_len: context }
}

function detokenize({ tokenizer, vocabularySize }: ServedModel, body: Body): object {
  checkFields(body, { taken: ['tokens'], ignored: ['model'], refused: {} })
  return { prompt: tokenizer.decode(idsField('tokens', body.tokens, vocabularySize)) }
}
