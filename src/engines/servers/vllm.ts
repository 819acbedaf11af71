/** The engine for vLLM or `colonnade serve`, through vLLM's token routes. */
import { InputError, show } from '../../base/errors.ts'
import { bothErrors, type JsonClient } from '../../base/http/json-client.ts'
import type { SettingValues } from '../../base/settings.ts'
import { type Constraint, LOGIT_CHANGES } from '../../environments/text.ts'
import { defineEngineFactory } from '../define-engine-factory.ts'
import type { LogprobKind } from '../engine.ts'
import type { ClaimedTurn } from './server-answer.ts'
import {
  type DeliveredFolder,
  learningServerSettings,
  type ServerDescription,
  type ServerShapes,
  type ServerTurn,
  serverEngine,
} from './server-engine.ts'

const settings = learningServerSettings('candidates')

/** Options of `vllmEngine`. */
export type VllmOptions = Partial<SettingValues<typeof settings>>

/**
 * An engine that uses vLLM started with `--logprobs-mode processed_logprobs`, or `colonnade serve`.
 * @throws InputError for an invalid address and settings out of range.
 * @example createWorld({ environment, policy, engine: vllmEngine({ url: 'http://127.0.0.1:8000' }) })
 */
export const vllmEngine = defineEngineFactory({
  id: 'vllm',
  settings,
  make: (given) => serverEngine('vllm', given, (client) => new VllmShapes(client, given.model)),
})

/** The log-probability kinds of vLLM's `--logprobs-mode`. */
const MODES: Readonly<Record<string, LogprobKind>> = { processed_logprobs: 'candidates', raw_logprobs: 'raw' }
/** Name of the delivered adapter. */
const ADAPTER = 'colonnade'

class VllmShapes implements ServerShapes {
  readonly changes = LOGIT_CHANGES
  readonly #client: JsonClient
  #model: string

  constructor(client: JsonClient, model: string) {
    this.#client = client
    this.#model = model
  }

  async describe(): Promise<ServerDescription> {
    const subject = `engine vllm at ${this.#client.url}`
    const { data } = await this.#client.ask('/v1/models', null)
    const models = (Array.isArray(data) ? data : []) as { id?: unknown; max_model_len?: unknown }[]
    const names = models.map(({ id }) => String(id))
    if (this.#model === '' && names.length > 0) this.#model = names[0]!
    const listed = models.find(({ id }) => id === this.#model)
    if (listed === undefined) {
      throw new InputError(`${subject}, model`, show(this.#model), `one of its models: ${names.join(', ')}`)
    }
    const { max_model_len: room } = listed
    return { context: typeof room === 'number' ? room : null, logprobs: await this.#readKind(subject) }
  }

  async #readKind(subject: string): Promise<LogprobKind | null> {
    const said = (await this.#client.askIfThere('/server_info?config_format=json')) ?? {}
    // vLLM reports its whole configuration; `colonnade serve` reports this part.
    const { model_config: config } = (said.vllm_config ?? {}) as { model_config?: { logprobs_mode?: unknown } }
    const mode = said.logprobs_mode ?? config?.logprobs_mode ?? null
    if (mode === null) return null
    const kind = MODES[String(mode)]
    if (kind !== undefined) return kind
    throw new InputError(`${subject}, logprobs_mode`, show(mode), `one of ${Object.keys(MODES).join(', ')}`)
  }

  async tokenize(prompt: string): Promise<unknown> {
    return (await this.#client.ask('/tokenize', { prompt, add_special_tokens: false })).tokens
  }

  async generate(turn: ServerTurn, signal?: AbortSignal): Promise<ClaimedTurn> {
    const { id, ids, maxTokens, temperature, topP, topK, minP, seed, stop, constraint, changes, salt } = turn
    const { bias, repetition = 1, frequency = 0, presence = 0, minTokens = 0 } = changes
    const answer = await this.#client.ask(
      '/inference/v1/generate',
      {
        ...{ request_id: id, token_ids: ids, model: this.#model, output_mode: 'tokens', cache_salt: salt },
        // vLLM's defaults differ from ours, so every parameter is given.
        sampling_params: {
          ...{ temperature, top_p: topP, top_k: topK, min_p: minP, max_tokens: maxTokens, seed, stop },
          ...{ n: 1, logprobs: 0, repetition_penalty: repetition, min_tokens: minTokens },
          ...{ frequency_penalty: frequency, presence_penalty: presence },
          ...(bias === undefined ? {} : { logit_bias: bias }),
          ...{ detokenize: false, skip_special_tokens: false },
          ...(constraint === null ? {} : { structured_outputs: structured(constraint) }),
        },
      },
      signal,
    )
    if (answer.output_mode !== 'tokens') {
      throw new Error(
        `answer, output_mode: got ${show(answer.output_mode)}, expected "tokens" from a server that supports it`,
      )
    }
    const { request_id: named = null, prompt_token_ids: told = null } = answer
    const isOwn = named === null || String(named).endsWith(id)
    if (!isOwn || (told !== null && JSON.stringify(told) !== JSON.stringify(ids))) {
      throw new Error(`answer, request_id: got ${show(named)} of ids ${show(told)}, expected ${id} of ${show(ids)}`)
    }
    const [choice = {}] = (Array.isArray(answer.choices) ? answer.choices : []) as Record<string, unknown>[]
    const { content } = (choice.logprobs ?? {}) as { content?: unknown }
    const each = (key: string) =>
      Array.isArray(content) ? content.map((entry) => (entry as Record<string, unknown> | null)?.[key]) : content
    return {
      ...{ tokens: choice.token_ids, logprobs: each('logprob'), logprobTokens: each('token_id') },
      ...{ candidates: choice.sampling_mask, versions: choice.weight_versions, reason: choice.finish_reason },
    }
  }

  abort(id: string, signal: AbortSignal): Promise<void> {
    return this.#client.tell('/inference/v1/abort_requests', { request_ids: [id] }, signal)
  }

  async readVersion(): Promise<string | null> {
    const { weight_version: version } = (await this.#client.askIfThere('/weight_info')) ?? {}
    return typeof version === 'string' ? version : null
  }

  async deliver({ path, label, isAdapter }: DeliveredFolder): Promise<void> {
    await this.#client.tell('/pause?mode=keep', {}) // Open turns wait, then continue with the new weights.
    try {
      if (isAdapter) await this.#takeAdapter(path, label)
      else await this.#takeModel(path, label)
    } catch (error) {
      throw await bothErrors(error as Error, () => this.#client.tell('/resume', {}))
    }
    await this.#client.tell('/resume', {})
  }

  async #takeModel(path: string, label: string): Promise<void> {
    const start = () => this.#client.tell('/start_weight_update', {})
    const finish = () => this.#client.tell('/finish_weight_update', {})
    // An earlier update may be unfinished because its end was refused too.
    await start().catch((error) => finish().then(start, () => Promise.reject(error)))
    try {
      await this.#client.tell('/update_weights', { update_info: { path } })
      await this.#client.tell('/finish_weight_update', { weight_version: label })
    } catch (error) {
      // Without this, the server would refuse the next update.
      throw await bothErrors(error as Error, finish)
    }
  }

  async #takeAdapter(path: string, label: string): Promise<void> {
    await this.#client.tell('/v1/load_lora_adapter', { lora_name: ADAPTER, lora_path: path, load_inplace: true })
    await this.#client.tell('/update_weight_version', { new_version: label })
    this.#model = ADAPTER
  }
}

function structured(constraint: Constraint): object {
  return 'schema' in constraint ? { json: constraint.schema } : constraint
}
