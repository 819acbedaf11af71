/** The engine for SGLang or `colonnade serve`, through SGLang's token routes. */
import { InputError, show } from '../../base/errors.ts'
import { bothErrors, type JsonClient } from '../../base/http/json-client.ts'
import { type SettingValues, text } from '../../base/settings.ts'
import { type Constraint, LOGIT_CHANGES } from '../../environments/text.ts'
import { defineEngineFactory } from '../define-engine-factory.ts'
import type { LogprobKind } from '../engine.ts'
import { checkZstd } from '../weight-deltas.ts'
import type { ClaimedTurn } from './server-answer.ts'
import {
  type DeliveredFolder,
  learningServerSettings,
  type ServerDescription,
  type ServerShapes,
  type ServerTurn,
  serverEngine,
} from './server-engine.ts'

const settings = {
  ...learningServerSettings('tempered'),
  deltas: text(
    '',
    "folder of the server in which it keeps a whole model and applies deltas (/pull_weights of slime's SGLang); empty: whole models are delivered",
  ),
}

/** Options of `sglangEngine`. */
export type SglangOptions = Partial<SettingValues<typeof settings>>

/**
 * An engine that uses SGLang or `colonnade serve`. Log-probabilities are after temperature (`tempered`). With `logprobs: 'candidates'`
 * they are renormalized over the candidate sets of top-k, top-p and min-p, which the server returns too.
 * @throws InputError for an invalid address and settings out of range.
 * @example createWorld({ environment, policy, engine: sglangEngine({ url: 'http://127.0.0.1:30000' }) })
 */
export const sglangEngine = defineEngineFactory({
  id: 'sglang',
  settings,
  make(given) {
    const { model, logprobs, deltas, weights } = given
    if (deltas !== '') {
      checkZstd('sglang.deltas')
      if (weights === '') throw new InputError('sglang.weights', "''", 'the folder that receives deltas')
    }
    if (logprobs !== 'raw') {
      return serverEngine('sglang', given, (client) => new SglangShapes(client, { model, logprobs, deltas }))
    }
    const expected = 'tempered, candidates or none: SGLang reports log-probabilities after temperature'
    throw new InputError('sglang.logprobs', show(logprobs), expected)
  },
})

/** Prefix of a delivered adapter's name, before its version. */
const ADAPTER = 'colonnade-'

class SglangShapes implements ServerShapes {
  readonly changes = LOGIT_CHANGES
  readonly #client: JsonClient
  readonly #model: string
  readonly #kind: LogprobKind
  /** The server's own folder for a whole model. */
  readonly #local: string
  /** The adapter named in requests; null before the first. */
  #adapter: string | null = null

  constructor(
    client: JsonClient,
    { model, logprobs, deltas }: { readonly model: string; readonly logprobs: LogprobKind; readonly deltas: string },
  ) {
    this.#client = client
    this.#model = model
    this.#kind = logprobs
    this.#local = deltas
  }

  /** Requests name no model, so a configured model must be the served one. */
  async describe(): Promise<ServerDescription> {
    const { served_model_name: name, model_path: path } = await this.#info()
    if (this.#model !== '' && this.#model !== name && this.#model !== path) {
      const expected = `the served model: ${show(name ?? path)}`
      throw new InputError(`engine sglang at ${this.#client.url}, model`, show(this.#model), expected)
    }
    const { max_model_len: room } = await this.#client.ask('/tokenize', { prompt: 'a', add_special_tokens: false })
    return { context: typeof room === 'number' && room > 0 ? room : null, logprobs: null }
  }

  async tokenize(prompt: string): Promise<unknown> {
    return (await this.#client.ask('/tokenize', { prompt, add_special_tokens: false })).tokens
  }

  async generate(turn: ServerTurn, signal?: AbortSignal): Promise<ClaimedTurn> {
    const { id, ids, maxTokens, temperature, topP, topK, minP, seed, stop, constraint, changes } = turn
    const { bias, repetition = 1, frequency = 0, presence = 0, minTokens = 0 } = changes
    const wantsSets = this.#kind === 'candidates'
    const answer = await this.#client.ask(
      '/generate',
      {
        ...{ rid: id, input_ids: ids, return_logprob: this.#kind !== 'none' && !wantsSets },
        ...(wantsSets ? { return_sampling_mask: true, sampling_logprobs_mode: 'selected' } : {}),
        ...(this.#adapter === null ? {} : { lora_path: this.#adapter }),
        sampling_params: {
          ...{ temperature, top_p: topP, top_k: topK === 0 ? -1 : topK, min_p: minP, max_new_tokens: maxTokens },
          ...{ sampling_seed: seed, stop, n: 1, repetition_penalty: repetition, min_new_tokens: minTokens },
          ...{ frequency_penalty: frequency, presence_penalty: presence, skip_special_tokens: false },
          ...(bias === undefined ? {} : { logit_bias: bias }),
          ...(constraint === null ? {} : structured(constraint)),
        },
      },
      signal,
    )
    const meta = (answer.meta_info ?? {}) as Record<string, unknown>
    const { id: named = null } = meta
    if (named !== null && named !== id) {
      throw new Error(`answer, meta_info.id: got ${show(named)}, expected ${show(id)}, as asked`)
    }
    const { output_token_logprobs: entries, weight_versions: spans, finish_reason: finish } = meta
    const each = (i: number) =>
      Array.isArray(entries) ? entries.map((entry) => (entry as unknown[] | null)?.[i]) : entries
    return {
      tokens: answer.output_ids,
      logprobs: wantsSets ? meta.output_token_sampling_logprobs : each(0),
      logprobTokens: wantsSets ? null : each(1),
      candidates: meta.output_token_sampling_mask,
      versions: Array.isArray(spans)
        ? spans.map((span) => {
            const [version, start, end] = Array.isArray(span) ? span : []
            return { version, start, end }
          })
        : spans,
      reason: (finish as { type?: unknown } | null | undefined)?.type,
    }
  }

  abort(id: string, signal: AbortSignal): Promise<void> {
    return this.#client.tell('/abort_request', { rid: id }, signal)
  }

  async readVersion(): Promise<string | null> {
    const { weight_version: version } = await this.#info()
    return typeof version === 'string' ? version : null
  }

  /** The server's description, from the current route or its predecessor. */
  async #info(): Promise<Record<string, unknown>> {
    return (await this.#client.askIfThere('/model_info')) ?? this.#client.ask('/get_model_info', null)
  }

  async deliver({ path, number, label, isAdapter }: DeliveredFolder): Promise<void> {
    if (number !== null) {
      // Generation continues during the pull.
      const pulled = { local_checkpoint_dir: this.#local, source_dir: path, target_version: number }
      await this.#client.tell('/pull_weights', pulled)
    }
    const folder = number === null ? path : this.#local
    // Open turns continue with new whole weights and recompute their keys and values. A request keeps the adapter that it began with,
    // so such turns are aborted and requested again with the new adapter.
    await this.#client.tell('/pause_generation', { mode: isAdapter ? 'abort' : 'retract' })
    const former = this.#adapter
    try {
      if (isAdapter) await this.#takeAdapter(folder, label)
      else await this.#succeed('/update_weights_from_disk', { model_path: folder, weight_version: label })
    } catch (error) {
      throw await bothErrors(error as Error, () => this.#client.tell('/continue_generation', {}))
    }
    await this.#client.tell('/continue_generation', {})
    if (former === null || former === this.#adapter) return
    // `colonnade serve` has one adapter, and the new one has already replaced it.
    await this.#client.tell('/unload_lora_adapter', { lora_name: former }).catch((error) => {
      if ((error as { status?: number }).status !== 404) throw error
    })
  }

  async #takeAdapter(path: string, label: string): Promise<void> {
    const name = `${ADAPTER}${label}`
    const load = () => this.#succeed('/load_lora_adapter', { lora_name: name, lora_path: path })
    await load().catch(async (error: Error) => {
      // An earlier run may have left an adapter with this name.
      await this.#client.tell('/unload_lora_adapter', { lora_name: name }).then(load, () => {
        throw error
      })
    })
    await this.#succeed('/update_weight_version', { new_version: label, abort_all_requests: true })
    this.#adapter = name
  }

  /** Posts a request whose failure is reported in the body of the answer. */
  async #succeed(path: string, body: object): Promise<void> {
    const { success, message, error_message: reason = message } = await this.#client.ask(path, body)
    if (success !== true) throw new Error(`${this.#client.url}${path}: success ${show(success)}, ${show(reason)}`)
  }
}

function structured(constraint: Constraint): object {
  if ('schema' in constraint) return { json_schema: JSON.stringify(constraint.schema) }
  return 'grammar' in constraint ? { ebnf: constraint.grammar } : constraint
}
