/**
 * An engine that is a server: vLLM, or `colonnade serve`, by vLLM's token routes. Ids go in; ids, log-probabilities, candidate sets and
 * versions come out, and nothing is tokenized there. At the start the server is asked for the ids of a text and for the kind of its
 * log-probabilities, so that one with another tokenizer, or of another kind than declared, is refused before anything is trained on it.
 *
 * Weights go through a folder that both see. They are not used before the server has named their version and its log-probabilities
 * after a fixed prompt are the learner's own.
 */
import { checkOptions, InputError, show } from '../errors.ts'
import { removeWhole } from '../files.ts'
import { type DecoderColumns, decoderPlan, TransformerDecoder } from '../policies/transformer/decoder.ts'
import { deliverFolder } from '../policies/transformer/delivery.ts'
import { saveTransformer } from '../policies/transformer/folder.ts'
import { saveLora } from '../policies/transformer/lora-folder.ts'
import { philox4x32 } from '../random.ts'
import { defineEngine, type OpenTurn } from './define-engine.ts'
import type { EngineContext, EngineDefinition, LogprobKind, TurnRequest, WeightsDelivery } from './engine.ts'
import { AnswerError, JsonClient } from './json-client.ts'

/** What `vllmEngine` is told. */
export interface VllmOptions {
  /** Where the server is, like `http://127.0.0.1:8000`. */
  readonly url: string
  /** What requests call the model; default the first that the server lists. */
  readonly model?: string
  /**
   * Of which distribution the server's log-probabilities are; default `candidates`. Held to what the server says of itself; one
   * without `/server_info` says nothing, and what is given here is trusted.
   */
  readonly logprobs?: LogprobKind
  /** Seconds after which a turn has failed; default 600. */
  readonly deadline?: number
  /** How often a request is made again that was refused for the moment, with the same request id; default 3. */
  readonly retries?: number
  readonly apiKey?: string
  /** A folder for weights, which the server sees under the same path. Without it weights cannot be delivered. */
  readonly weights?: string
  /** How far the server's log-probabilities may be from the learner's after a delivery, in nats; default 1e-4. */
  readonly tolerance?: number
}

const VLLM_OPTIONS: readonly (keyof VllmOptions)[] = [
  ...(['url', 'model', 'logprobs', 'deadline', 'retries', 'apiKey', 'weights', 'tolerance'] as const),
]

/** What vLLM's `--logprobs-mode` is in our words. */
const MODES: Readonly<Record<string, LogprobKind>> = { processed_logprobs: 'candidates', raw_logprobs: 'raw' }
/** Ids of the prompt, and of what follows, that weights are proved by. */
const PROBE_PROMPT = 8
const PROBE_TOKENS = 8
/** What an adapter is called that was delivered. */
const ADAPTER = 'colonnade'

/**
 * An engine that asks a server for its turns, vLLM or `colonnade serve`.
 * @throws InputError for an address that is none, and numbers out of range.
 * @example createWorld({ environment, policy, engine: vllmEngine({ url: 'http://127.0.0.1:8000' }) })
 */
export function vllmEngine(options: VllmOptions): EngineDefinition {
  checkOptions('vllmEngine', options, VLLM_OPTIONS)
  const { url, model = '', logprobs = 'candidates', weights = '', tolerance = 1e-4 } = options
  const { deadline = 600, retries = 3, apiKey = '' } = options
  const client = new JsonClient(url, { deadline, retries, apiKey })
  const definition = defineEngine('vllm', (context) => {
    const server = new VllmServer(client, context, { model, logprobs, weights, tolerance })
    return {
      logprobs,
      begin: (turn) => server.generate(turn),
      setWeights: (delivery) => server.deliver(delivery),
    }
  })
  return {
    ...definition,
    plan: ({ model, adapter, isQuantized }) => ({
      probe: decoderPlan(model, 1, PROBE_PROMPT + PROBE_TOKENS, adapter, isQuantized),
    }),
  }
}

/** What a server says of a token. */
interface SaidToken {
  readonly token: number
  readonly logprob: number
  readonly candidates: readonly number[]
  readonly version: number
}

/** An answer of the server, checked. */
interface SaidTurn {
  readonly tokens: readonly SaidToken[]
  readonly reason: string
}

class VllmServer {
  readonly #client: JsonClient
  readonly #context: EngineContext
  readonly #options: {
    readonly model: string
    readonly logprobs: LogprobKind
    readonly weights: string
    readonly tolerance: number
  }
  #model: string
  #ready: Promise<void> | null = null
  /** Folders of weights that were delivered. */
  readonly #delivered: string[] = []
  readonly #words = new Uint32Array(4)

  constructor(
    client: JsonClient,
    context: EngineContext,
    options: { model: string; logprobs: LogprobKind; weights: string; tolerance: number },
  ) {
    this.#client = client
    this.#context = context
    this.#options = options
    this.#model = options.model
  }

  /** Asks for a turn, and adds what came of it. What the server does wrong is the turn's failure. */
  async generate(turn: OpenTurn): Promise<void> {
    const { request, signal } = turn
    await this.#checked()
    const { ids, maxTokens, sampling, explore, stopStrings } = request
    const seed = this.#seedOf(request)
    const said = await this.#ask(
      Array.from(ids),
      {
        ...(explore
          ? { temperature: sampling.temperature, top_p: sampling.topP, top_k: sampling.topK, min_p: sampling.minP }
          : { temperature: 0, top_p: 1, top_k: 0, min_p: 0 }),
        ...{ max_tokens: maxTokens, seed, stop: stopStrings },
      },
      `${seed.toString(36)}-${ids.length}`,
      signal,
    )
    for (const { token, logprob, candidates, version } of said.tokens) turn.add(token, logprob, candidates, version)
    if (!turn.isOpen) return
    if (said.reason === 'stop') turn.end('stop')
    else if (said.reason === 'abort') turn.end('aborted')
    else turn.fail(`${said.tokens.length} tokens of ${maxTokens}, and ${said.reason} as the reason`)
  }

  /** Gives the server weights, and proves that it has them. @throws InputError where it does not. */
  async deliver({ version, weights }: WeightsDelivery): Promise<number> {
    const { model, adapter } = this.#context
    const { weights: folder } = this.#options
    const subject = `weights of engine vllm at ${this.#client.url}`
    if (folder === '') {
      throw new InputError(
        subject,
        'no folder to deliver them by',
        'the option weights, a folder that the server sees too',
      )
    }
    await this.#checked()
    const path = `${folder}/${adapter === null ? 'model' : 'adapter'}-${version}`
    await deliverFolder(path, version, (temporary) =>
      adapter === null ? saveTransformer(temporary, model, weights) : saveLora(temporary, adapter.lora, weights),
    )
    const label = String(version)
    await this.#client.ask('/pause?mode=keep', {}) // Turns under way wait, and go on with the new weights.
    try {
      if (adapter === null) {
        await this.#client.ask('/start_weight_update', {})
        await this.#client.ask('/update_weights', { update_info: { path } }).catch(async (error: Error) => {
          // Else the server would refuse the next update.
          await this.#client.ask('/finish_weight_update', {}).catch((second: Error) => {
            throw new Error(`${error.message}; and then ${second.message}`, { cause: error })
          })
          throw error
        })
        await this.#client.ask('/finish_weight_update', { weight_version: label })
      } else {
        await this.#client.ask('/v1/load_lora_adapter', { lora_name: ADAPTER, lora_path: path, load_inplace: true })
        await this.#client.ask('/update_weight_version', { new_version: label })
        this.#model = ADAPTER
      }
    } finally {
      await this.#client.ask('/resume', {})
    }
    const { weight_version: echoed } = await this.#client.ask('/weight_info', null)
    if (echoed !== label) throw new InputError(subject, `version ${show(echoed)}`, `${show(label)}, as delivered`)
    await this.#prove(subject, version)
    this.#delivered.push(path)
    // The last one stays, since some servers read it again, and the one before it for who wants to look.
    if (this.#delivered.length > 2) await removeWhole(this.#delivered.shift()!)
    return version
  }

  /** Holds the server's log-probabilities of the most probable tokens after a prompt to the learner's own. */
  async #prove(subject: string, version: number): Promise<void> {
    const { model, weights, kernels, random, adapter } = this.#context
    const columns = (this.#context.columns as { probe: DecoderColumns }).probe
    const decoder = new TransformerDecoder(model, weights, columns, kernels, random, adapter)
    const { vocabularySize } = model.shape
    const prompt = Array.from({ length: PROBE_PROMPT }, (_, i) => (7 + 31 * i) % vocabularySize)
    const sampling = { temperature: 0, top_p: 1, top_k: 0, min_p: 0, max_tokens: PROBE_TOKENS, seed: 0, stop: [] }
    const { tokens } = await this.#ask(prompt, sampling, `probe-${version}`)
    const ids = [...prompt, ...tokens.map(({ token }) => token)]
    let most = 0
    for (const [position, id] of ids.slice(0, -1).entries()) {
      columns.slot[0] = 0
      columns.forward.token[0] = id
      columns.forward.position[0] = position
      decoder.advance(1, {}, false)
      const said = tokens[position + 1 - PROBE_PROMPT]
      if (said === undefined) continue
      const { logits, chosen, forward } = columns
      const own = forward.logprob[0]! + logits[said.token]! - logits[chosen[0]!]!
      most = Math.max(most, Math.abs(own - said.logprob))
      if (said.version !== version) {
        throw new InputError(subject, `tokens of version ${said.version} after the delivery`, `version ${version}`)
      }
    }
    const { tolerance } = this.#options
    if (most <= tolerance) return
    const got = `log-probabilities ${most.toPrecision(3)} nats from the learner's, of version ${version}`
    throw new InputError(subject, got, `at most ${tolerance}`)
  }

  /** Looks once whether the server is the one that was meant. */
  #checked(): Promise<void> {
    this.#ready ??= this.#check().catch((error) => {
      this.#ready = null // It may come up later.
      throw error
    })
    return this.#ready
  }

  async #check(): Promise<void> {
    const { tokenizer, context } = this.#context
    const subject = `engine vllm at ${this.#client.url}`
    const { data } = await this.#client.ask('/v1/models', null)
    const models = (Array.isArray(data) ? data : []) as { id?: unknown; max_model_len?: unknown }[]
    const names = models.map(({ id }) => String(id))
    if (this.#model === '' && names.length > 0) this.#model = names[0]!
    const listed = models.find(({ id }) => id === this.#model)
    if (listed === undefined) {
      throw new InputError(`${subject}, model`, show(this.#model), `one that it serves: ${names.join(', ')}`)
    }
    const room = listed.max_model_len
    if (typeof room === 'number' && room < context) {
      throw new InputError(`${subject}, context`, `${room} tokens`, `at least ${context}, as the policy has`)
    }
    const { logprobs } = this.#options
    const { logprobs_mode: mode = null } = await this.#client.ask('/server_info', null).catch((error) => {
      if (error instanceof AnswerError && error.status === 404) return {} as Record<string, unknown> // It has no such route.
      throw error
    })
    if (mode !== null && MODES[String(mode)] !== logprobs) {
      throw new InputError(
        `${subject}, logprobs`,
        show(mode),
        `a server whose are ${show(logprobs)}, or the option logprobs`,
      )
    }
    const letters = Array.from({ length: Math.min(256, tokenizer.vocabularySize) }, (_, id) => id)
    const prompt = tokenizer.decode(letters, { skipSpecial: true }).replaceAll(/[\u{fffd}\p{C}]/gu, '')
    const own = tokenizer.encode(prompt)
    const { tokens } = await this.#client.ask('/tokenize', { prompt, add_special_tokens: false })
    if (JSON.stringify(tokens) === JSON.stringify(own)) return
    throw new InputError(
      `${subject}, tokenizer`,
      `ids ${show(tokens)} of a probe text`,
      `${show(own)}, as the policy has`,
    )
  }

  async #ask(ids: number[], sampling: object, id: string, signal?: AbortSignal): Promise<SaidTurn> {
    const answer = await this.#client.ask(
      '/inference/v1/generate',
      {
        ...{ request_id: id, token_ids: ids, model: this.#model, output_mode: 'tokens' },
        sampling_params: {
          ...{ ...sampling, n: 1, logprobs: 0, repetition_penalty: 1, min_tokens: 0 },
          ...{ detokenize: false, skip_special_tokens: false },
        },
      },
      signal,
    )
    return readAnswer(answer, this.#context.model.shape.vocabularySize, this.#options.logprobs)
  }

  /** A hash of what keys a turn, so that no two share a seed; a turn that is submitted again has its own once more. */
  #seedOf({ key: [group, member, tokensBefore] }: TurnRequest): number {
    const { key0, key1 } = this.#context.random
    philox4x32(this.#words, group, member, tokensBefore, 0, key0, key1)
    return this.#words[0]! * 2 ** 21 + (this.#words[1]! >>> 11)
  }
}

/** What an answer says, or throws where it cannot be what the server chose. */
function readAnswer(answer: Record<string, unknown>, vocabularySize: number, kind: LogprobKind): SaidTurn {
  const wrong = (what: string, got: unknown, expected: string) =>
    new Error(`answer, ${what}: got ${show(got)}, expected ${expected}`)
  if (answer.output_mode !== 'tokens')
    throw wrong('output_mode', answer.output_mode, '"tokens": a server that knows it')
  const [choice] = (Array.isArray(answer.choices) ? answer.choices : []) as Record<string, unknown>[]
  const ids = choice?.token_ids
  const isId = (id: unknown) => Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < vocabularySize
  if (!Array.isArray(ids) || !ids.every(isId)) throw wrong('token_ids', ids, `ids below ${vocabularySize}`)
  const { content } = (choice!.logprobs ?? {}) as { content?: unknown }
  if (kind !== 'none' && !(Array.isArray(content) && content.length === ids.length)) {
    throw wrong('logprobs', content, `${ids.length} of them`)
  }
  const masks = choice!.sampling_mask ?? null
  if (masks !== null && !(Array.isArray(masks) && masks.length === ids.length)) {
    throw wrong('sampling_mask', masks, `${ids.length} sets`)
  }
  const versions = versionsOf(choice!.weight_versions ?? null, ids.length)
  if (versions === null) throw wrong('weight_versions', choice!.weight_versions, `spans from 0 to ${ids.length}`)
  const tokens = ids.map((token: number, i: number) => {
    const { logprob, token_id: id } = ((content as unknown[] | undefined)?.[i] ?? {}) as {
      logprob?: unknown
      token_id?: unknown
    }
    if (kind !== 'none' && !(typeof logprob === 'number' && logprob <= 1e-5 && (id === undefined || id === token))) {
      throw wrong(`log-probability ${i}`, { token_id: id, logprob }, `a number ≤ 0 of token ${token}`)
    }
    const candidates = ((masks as number[][] | null)?.[i] ?? []) as number[]
    if (candidates.length > 0 && !candidates.includes(token))
      throw wrong(`sampling_mask ${i}`, candidates, `${token} in it`)
    return {
      ...{ token, version: versions[i]! },
      logprob: kind === 'none' ? Number.NaN : (logprob as number),
      candidates: candidates.toSorted((a, b) => a - b),
    }
  })
  return { tokens, reason: String(choice!.finish_reason) }
}

/** The version of each token by spans of them, −1 where it is no number; null where they do not fit. */
function versionsOf(spans: unknown, length: number): number[] | null {
  if (spans === null) return new Array<number>(length).fill(-1)
  if (!Array.isArray(spans)) return null
  const versions: number[] = []
  for (const { version, start, end } of spans as { version?: unknown; start?: unknown; end?: unknown }[]) {
    if (start !== versions.length || !Number.isSafeInteger(end) || (end as number) <= versions.length) return null
    if ((end as number) > length) return null
    const number = /^\d+$/.test(String(version)) ? Number(version) : -1
    while (versions.length < (end as number)) versions.push(number)
  }
  return versions.length === length ? versions : null
}
