/**
 * The HTTP protocol of Tinker, a training service: sessions with heartbeats, models with numbered requests, and futures. A long request
 * returns a future at once, which the client polls until it is done.
 *
 * If a service publishes its request schema (`/openapi.json`, as FastAPI servers do), the client checks fields against it, because the
 * service would silently ignore unknown ones. Without a schema, the service is assumed to support the whole protocol.
 */
import { setTimeout as wait } from 'node:timers/promises'
import { namedVariable } from '../../base/environment-variables.ts'
import { InputError, show } from '../../base/errors.ts'
import { type HttpAnswer, isOk, requestHttp } from '../../base/http/http-request.ts'
import { AnswerError, JsonClient, mayPassLater } from '../../base/http/json-client.ts'
import { choice, integer, number, type SettingValues, text } from '../../base/settings.ts'
import { VERSION } from '../../base/version.ts'
import { answerReader, encodeRequest, PROTOBUF } from './tinker-codec.ts'

/** Settings of the service, shared by its engine and its training backend. */
export const tinkerSettings = {
  url: text('', 'address of the service, like http://127.0.0.1:8000'),
  apiKeyVariable: text('', 'name of the environment variable that has the key; no file contains the key itself'),
  codec: choice(
    'json',
    ['json', 'protobuf'],
    'encoding of passes and of answers to passes and samples; Tinker uses protobuf, self-hosted servers JSON',
  ),
  deadline: number(600, 'seconds after which a request counts as failed', { above: 0, below: 2 ** 31 / 1000 }),
  retries: integer(3, 'retries of a temporarily refused request, with the same number', {
    min: 0,
  }),
}

export type TinkerAddress = SettingValues<typeof tinkerSettings>

export interface TinkerService {
  readonly models: readonly string[]
  /** Losses that it accepts by name. */
  readonly losses: readonly string[]
  readonly clipsGradients: boolean
  /** Whether a repeated request with the same number runs only once. */
  readonly numbersRequests: boolean
  readonly loadsWeightsAlone: boolean
  /** Maximum datums per request and maximum bytes of its body. */
  readonly chunk: { readonly datums: number; readonly bytes: number }
}

/** The protocol's losses that a loss of this library can map to. */
const PROTOCOL_LOSSES = ['cross_entropy', 'importance_sampling', 'ppo']
const CHUNK = { datums: 1024, bytes: 5_000_000 }
const HEARTBEAT_MS = 10_000
/** Seconds that a service may hold a poll of a future. */
const POLL_SECONDS = 45
/** Milliseconds between polls of a service that waits for payment. */
const BILLING_MS = 5000

/** Maximum redirects of a file download. */
const HOPS_MAX = 5

/** Explanations of status codes, added to the service's message. */
const MEANINGS: Readonly<Record<number, string>> = {
  401: 'the API key is missing or unknown',
  402: 'the service waits for payment',
  404: 'the service has no such model, session, checkpoint or future',
  409: 'another request was made under the same number or name',
  410: 'the answer expired before it was requested',
  415: 'the service uses another encoding of passes: try codec=protobuf or codec=json',
  429: 'too many requests',
}

/** Returns the API key in an environment variable. @throws InputError if it is not set. */
function keyOf(variable: string): string {
  const key = variable === '' ? '' : namedVariable(variable)
  if (key !== undefined) return key
  throw new InputError('tinker.apiKeyVariable', `${variable}, which is not set`, 'the name of an environment variable')
}

/** A client of one service. Its session starts with the first call that needs one. */
export class TinkerClient {
  /** Without a trailing slash. */
  readonly url: string
  readonly #deadline: number
  readonly #retries: number
  readonly #again: JsonClient
  readonly #once: JsonClient
  readonly #poll: JsonClient
  readonly #key: string
  readonly #codec: 'json' | 'protobuf'
  #service: Promise<TinkerService> | null = null
  #session: Promise<string> | null = null
  #heart: NodeJS.Timeout | null = null
  /** Why the session ended. */
  #lost: string | null = null

  /** @throws InputError for an invalid address and an environment variable that is not set. */
  constructor({ url, apiKeyVariable, codec, deadline, retries }: TinkerAddress) {
    const key = keyOf(apiKeyVariable)
    const options = { deadline, retries, apiKey: key, apiKeyHeader: 'x-api-key' }
    this.#again = new JsonClient(url, options)
    this.#once = new JsonClient(url, { ...options, retries: 0 })
    this.#poll = new JsonClient(url, { ...options, retries: 0, deadline: Math.min(deadline, POLL_SECONDS) })
    this.url = this.#again.url
    this.#deadline = deadline
    this.#retries = retries
    this.#key = key
    this.#codec = codec
  }

  /** Capabilities of the service, requested once. */
  service(): Promise<TinkerService> {
    this.#service ??= this.#describe().catch((error) => {
      this.#service = null // Allows a retry when the service starts later.
      throw error
    })
    return this.#service
  }

  /** Returns the session's id and starts heartbeats, one every ten seconds. */
  session(): Promise<string> {
    this.#session ??= this.#begin().catch((error) => {
      this.#session = null
      throw error
    })
    return this.#session
  }

  /** Posts a request that is answered at once. @throws AnswerError with the service's message. */
  async ask(path: string, body: object, signal?: AbortSignal): Promise<Record<string, unknown>> {
    return explained(this.#again.ask(`/api/v1/${path}`, body, signal))
  }

  /**
   * Posts a request for a future and waits until it is done. If `isRepeatable`, the request is repeated when its arrival is uncertain.
   * @throws AnswerError with the service's message, and after the deadline.
   */
  async run(path: string, body: object, isRepeatable: boolean, signal?: AbortSignal): Promise<Record<string, unknown>> {
    return (await this.submit(path, body, isRepeatable, signal))()
  }

  /** Posts a request for a future. Settles when the service has accepted it, with a function that waits until it is done. */
  async submit(
    path: string,
    body: object,
    isRepeatable: boolean,
    signal?: AbortSignal,
  ): Promise<() => Promise<Record<string, unknown>>> {
    if (this.#lost !== null) throw new AnswerError(`${this.url}: ${this.#lost}`, 0, false)
    const until = performance.now() + 1000 * this.#deadline
    const client = isRepeatable ? this.#again : this.#once
    const encoded = this.#codec === 'json' ? null : encodeRequest(path, body)
    const form = encoded === null ? null : { type: PROTOBUF, bytes: encoded.bytes }
    const { request_id: id } = await explained(client.ask(`/api/v1/${encoded?.path ?? path}`, body, signal, form))
    if (typeof id !== 'string' || id === '') {
      throw new AnswerError(`${this.url}/api/v1/${path}: got request_id ${show(id)}, expected a text`, 200, false)
    }
    return () => this.#wait(path, id, until, signal)
  }

  /** Downloads a file of the service. @throws AnswerError if there is none. */
  async download(path: string): Promise<Uint8Array> {
    const where = `${this.url}/api/v1/${path}`
    return this.#again.retry(() => this.#fetchFile(where))
  }

  /** Stops the heartbeats; the service then ends the session. */
  close(): void {
    if (this.#heart !== null) clearInterval(this.#heart)
    this.#heart = null
  }

  async #fetchFile(where: string): Promise<Uint8Array> {
    const signal = AbortSignal.timeout(Math.ceil(1000 * this.#deadline))
    const headers: Record<string, string> = this.#key === '' ? {} : { 'x-api-key': this.#key }
    try {
      // The service redirects to its files. The key is sent only to the service itself.
      let [at, hops] = [where, 0]
      let answer = await requestHttp(at, { method: 'GET', headers, signal })
      for (; isSentOn(answer) && hops < HOPS_MAX; hops++) {
        at = new URL(answer.location!, at).href
        const isOwn = new URL(at).origin === new URL(where).origin
        answer = await requestHttp(at, { method: 'GET', headers: isOwn ? headers : {}, signal })
      }
      const { status, body } = answer
      if (isOk(answer)) return body
      const words = show(body.toString('utf8', 0, 200))
      throw new AnswerError(`${where}: status ${status}, ${words}`, status, mayPassLater(status))
    } catch (error) {
      if (error instanceof AnswerError) throw error
      throw new AnswerError(`${where}: ${(error as Error).message}`, 0, !signal.aborted)
    }
  }

  async #describe(): Promise<TinkerService> {
    const { supported_models: listed } = await explained(this.#again.ask('/api/v1/get_server_capabilities', null))
    if (!Array.isArray(listed)) {
      const got = `supported_models ${show(listed)}`
      throw new AnswerError(`${this.url}: got ${got}, expected a list, as in Tinker's protocol`, 200, false)
    }
    const { fwdbwd_max_chunk_len: datums, fwdbwd_max_chunk_bytes_count: bytes } = await this.ask('client/config', {
      sdk_version: VERSION,
    }).catch(() => ({}) as Record<string, unknown>)
    const schema = await this.#schema()
    const losses = enumOf(schema, 'ForwardBackwardInput', 'loss_fn')
    const has = (name: string, property: string) => {
      const properties = propertiesOf(schema, name)
      return properties === null || Object.hasOwn(properties, property)
    }
    return {
      models: listed.map((model: { model_name?: unknown }) => String(model?.model_name)),
      losses: losses ?? PROTOCOL_LOSSES,
      clipsGradients: has('AdamParams', 'grad_clip_norm'),
      numbersRequests: has('ForwardBackwardRequest', 'seq_id') && has('OptimStepRequest', 'seq_id'),
      loadsWeightsAlone: has('LoadWeightsRequest', 'optimizer'),
      chunk: {
        datums: isSize(datums) ? datums : CHUNK.datums,
        bytes: isSize(bytes) ? bytes : CHUNK.bytes,
      },
    }
  }

  /** The published schemas by name; null if there are none. */
  async #schema(): Promise<Readonly<Record<string, Schema>> | null> {
    const published = await this.#again.ask('/openapi.json', null).catch((error: unknown) => {
      if (error instanceof AnswerError && error.status !== 0) return {} as Record<string, unknown>
      throw error
    })
    return (published.components as { schemas?: Readonly<Record<string, Schema>> } | undefined)?.schemas ?? null
  }

  async #begin(): Promise<string> {
    const body = { tags: ['colonnade'], user_metadata: {}, sdk_version: VERSION, type: 'create_session' }
    const { session_id: id } = await this.ask('create_session', body)
    if (typeof id !== 'string')
      throw new AnswerError(`${this.url}: got session ${show(id)}, expected a text`, 200, false)
    this.#heart = setInterval(() => void this.#beat(id), HEARTBEAT_MS)
    this.#heart.unref()
    return id
  }

  async #beat(id: string): Promise<void> {
    try {
      await this.#once.ask('/api/v1/session_heartbeat', { session_id: id, type: 'session_heartbeat' })
    } catch (error) {
      // A missed heartbeat is harmless. The end of a session also removes its models.
      if (error instanceof AnswerError && (error.status === 404 || error.status === 410)) {
        this.#lost = `session ${id} is gone: the service received no heartbeat for too long`
        this.close()
      }
    }
  }

  async #wait(
    path: string,
    id: string,
    until: number,
    signal: AbortSignal | undefined,
  ): Promise<Record<string, unknown>> {
    const where = `${this.url}/api/v1/${path}, future ${id}`
    const read = this.#codec === 'json' ? null : answerReader(path)
    const form = read === null ? null : { type: PROTOBUF, read }
    let state = 'not done'
    for (let [broken, pause] = [0, 100]; performance.now() < until; ) {
      let answer: Record<string, unknown>
      try {
        answer = await this.#poll.ask('/api/v1/retrieve_future', { request_id: id }, signal, form)
      } catch (error) {
        if (!(error instanceof AnswerError) || signal?.aborted) throw error
        const { status, mayPass } = error
        if (status === 408 || (status === 0 && !mayPass)) continue // The future takes longer than one poll.
        if (status === 402) await after(BILLING_MS, signal)
        else if (!mayPass || ++broken > this.#retries) throw withMeaning(error, where)
        else await after(100 * 2 ** broken, signal)
        state = error.message
        continue
      }
      broken = 0
      if (answer.type === 'try_again') {
        state = `queue ${show(answer.queue_state)}`
        await after(pause, signal)
        pause = Math.min(2 * pause, answer.queue_state === 'active' ? 1000 : 5000)
        continue
      }
      if (typeof answer.error !== 'string') return answer
      const whose = answer.category === 'user' ? 'refused' : 'failed'
      throw new AnswerError(`${where}: ${whose}, ${answer.error}`, 200, false)
    }
    throw new AnswerError(`${where}: not done in ${this.#deadline} s (${state})`, 0, false)
  }
}

interface Schema {
  readonly properties?: Readonly<Record<string, { readonly enum?: unknown }>>
}

function propertiesOf(schemas: Readonly<Record<string, Schema>> | null, name: string) {
  return schemas?.[name]?.properties ?? null
}

function enumOf(schemas: Readonly<Record<string, Schema>> | null, name: string, property: string): string[] | null {
  const values = propertiesOf(schemas, name)?.[property]?.enum
  return Array.isArray(values) ? values.map(String) : null
}

function isSentOn({ status, location }: HttpAnswer): boolean {
  return status >= 300 && status < 400 && location !== null
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0
}

/** Returns the answer, or adds the explanation of its status to the error. */
async function explained<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    throw error instanceof AnswerError ? withMeaning(error, '') : error
  }
}

function withMeaning({ message, status, mayPass }: AnswerError, where: string): AnswerError {
  const meaning = MEANINGS[status]
  const told = meaning === undefined ? message : `${message} (${meaning})`
  return new AnswerError(where === '' ? told : `${where}: ${told}`, status, mayPass)
}

/** Waits; the signal ends the wait early. */
async function after(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  await wait(milliseconds, undefined, signal ? { signal } : {}).catch((cause) => {
    throw signal?.reason ?? cause
  })
}
