/**
 * llama.cpp's server, through `/completion`, for baselines and comparisons. It accepts no weights over HTTP, so it cannot train a policy.
 * It reports no log-probability for a token inside a character; then those of the whole turn are unknown.
 */
import { InputError, show } from '../../base/errors.ts'
import type { JsonClient } from '../../base/http/json-client.ts'
import { integers, type SettingValues } from '../../base/settings.ts'
import type { Constraint } from '../../environments/text.ts'
import { grammarOf } from '../../language/grammars/grammars.ts'
import { defineEngineFactory } from '../define-engine-factory.ts'
import type { LogprobKind } from '../engine.ts'
import type { ClaimedTurn } from './server-answer.ts'
import {
  type ServerDescription,
  type ServerShapes,
  type ServerTurn,
  serverEngine,
  serverSettings,
} from './server-engine.ts'

const settings = {
  ...serverSettings('raw'),
  adapters: integers([], "ids (of /lora-adapters) of the server's adapters to apply", 0),
}

/** Options of `llamaCppEngine`. */
export type LlamaCppOptions = Partial<SettingValues<typeof settings>>

/**
 * An engine that uses llama.cpp's server. Log-probabilities are at temperature 1 (`raw`), or after temperature and filters (`tempered`).
 * @throws InputError for an invalid address and settings out of range.
 * @example createWorld({ environment, policy, engine: llamaCppEngine({ url: 'http://127.0.0.1:8080' }) })
 */
export const llamaCppEngine = defineEngineFactory({
  id: 'llama-cpp',
  settings,
  make(given) {
    if (given.logprobs === 'candidates') {
      const expected = 'raw, tempered or none: it returns no candidate sets'
      throw new InputError('llama-cpp.logprobs', show(given.logprobs), expected)
    }
    const noTraining = `engine llama-cpp at ${given.url} accepts no weights over HTTP`
    return serverEngine('llama-cpp', given, (client) => new LlamaCppShapes(client, given), noTraining)
  },
})

/** Seeds have 32 bits; the largest means a random seed. */
const SEEDS = 2 ** 32 - 1

class LlamaCppShapes implements ServerShapes {
  /** llama.cpp counts the prompt's tokens for the other penalties, and has no minimum number of tokens. */
  readonly changes = ['bias', 'repetition'] as const
  readonly #client: JsonClient
  readonly #model: string
  readonly #kind: LogprobKind
  readonly #adapters: readonly number[]

  constructor(client: JsonClient, { model, logprobs, adapters }: SettingValues<typeof settings>) {
    this.#client = client
    this.#model = model
    this.#kind = logprobs
    this.#adapters = adapters
  }

  async describe(): Promise<ServerDescription> {
    const subject = `engine llama-cpp at ${this.#client.url}`
    const {
      default_generation_settings: slot,
      model_alias: alias,
      model_path: path,
    } = await this.#client.ask('/props', null)
    if (this.#model !== '' && this.#model !== alias && this.#model !== path) {
      throw new InputError(`${subject}, model`, show(this.#model), `the served model: ${show(alias ?? path)}`)
    }
    if (this.#adapters.length > 0) await this.#checkAdapters(subject)
    const { n_ctx: room } = (slot ?? {}) as { n_ctx?: unknown }
    return { context: typeof room === 'number' ? room : null, logprobs: null }
  }

  async #checkAdapters(subject: string): Promise<void> {
    const listed: unknown = await this.#client.ask('/lora-adapters', null)
    const ids = (Array.isArray(listed) ? listed : []).map((each) => (each as { id?: unknown } | null)?.id)
    const absent = this.#adapters.find((id) => !ids.includes(id))
    if (absent === undefined) return
    throw new InputError(`${subject}, adapters`, String(absent), `ids of its adapters: ${ids.join(', ') || 'none'}`)
  }

  async tokenize(content: string): Promise<unknown> {
    return (await this.#client.ask('/tokenize', { content, add_special: false, parse_special: false })).tokens
  }

  async generate(turn: ServerTurn, signal?: AbortSignal): Promise<ClaimedTurn> {
    const { ids, maxTokens, temperature, topP, topK, minP, seed, stop, constraint, changes } = turn
    const { bias, repetition = 1 } = changes
    const answer = await this.#client.ask(
      '/completion',
      {
        ...{ prompt: ids, n_predict: maxTokens, stop, seed: seed % SEEDS, return_tokens: true, cache_prompt: true },
        // Its defaults (penalties, top-k 40, min-p 0.05) differ from ours, so every sampler is named.
        ...{ samplers: [...(repetition === 1 ? [] : ['penalties']), 'temperature', 'top_k', 'top_p', 'min_p'] },
        ...{ temperature, top_k: topK, top_p: topP, min_p: minP, repeat_penalty: repetition },
        ...(repetition === 1 ? {} : { repeat_last_n: -1, frequency_penalty: 0, presence_penalty: 0 }),
        ...(bias === undefined ? {} : { logit_bias: Object.entries(bias).map(([id, value]) => [Number(id), value]) }),
        ...(constraint === null ? {} : structured(constraint)),
        ...(this.#kind === 'none' ? {} : { n_probs: 1, post_sampling_probs: this.#kind === 'tempered' }),
        ...(this.#adapters.length === 0 ? {} : { lora: this.#adapters.map((id) => ({ id, scale: 1 })) }),
      },
      signal,
    )
    const { tokens, completion_probabilities: entries, stop_type: reason } = answer
    // The server omits tokens inside a character without saying which ones.
    const isShort = Array.isArray(tokens) && Array.isArray(entries) && entries.length < tokens.length
    const each = (key: string): unknown => {
      if (isShort) return tokens.map(() => (key === 'id' ? null : Number.NaN))
      return Array.isArray(entries) ? entries.map((entry) => (entry as Record<string, unknown> | null)?.[key]) : entries
    }
    return {
      tokens,
      logprobs: this.#kind === 'tempered' ? logarithms(each('prob')) : each('logprob'),
      logprobTokens: each('id'),
      ...{ candidates: null, versions: null },
      reason: reason === 'eos' || reason === 'word' ? 'stop' : reason === 'limit' ? 'length' : reason,
    }
  }

  /** The server aborts a request when its connection closes. */
  async abort(): Promise<void> {}

  /** Its weights have no version name. */
  async readVersion(): Promise<null> {
    return null
  }
}

function structured(constraint: Constraint): object {
  return 'schema' in constraint ? { json_schema: constraint.schema } : { grammar: grammarOf(constraint) }
}

function logarithms(probabilities: unknown): unknown {
  if (!Array.isArray(probabilities)) return probabilities
  return probabilities.map((each) => (typeof each === 'number' ? Math.log(each) : each))
}
