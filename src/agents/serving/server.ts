/** Serves a language model over HTTP, with the APIs of common inference servers. */
import { checkGiven, checkOptions, InputError } from '../../base/errors.ts'
import { admitting, checkedSecret, keyCheck, type Secret } from '../../base/http/keys.ts'
import { type Listening, listen, RequestError, type Route } from '../../base/http/server.ts'
import { VERSION } from '../../base/version.ts'
import { Hints } from '../dialects/hints.ts'
import { modelRoutes, stranger } from '../dialects/routes.ts'
import type { Batcher } from './batcher.ts'
import { controlRoutes } from './control.ts'
import { type FaultOptions, type FaultRecord, Faults } from './faults.ts'
import { generateRoutes } from './generate.ts'
import { openServedModel, type ServedModelOptions } from './served-model.ts'

/** Options of `serveModel`. */
export interface ServeOptions extends ServedModelOptions {
  /** The model's name in requests; default `model`. */
  readonly name?: string
  /** The address to listen on; default 127.0.0.1, which other machines cannot reach. */
  readonly host?: string
  /** Default 0: any free port. */
  readonly port?: number
  /** Maximum bytes of a request's body; default 4 MiB. */
  readonly maxBodyBytes?: number
  /** Adds the control routes for trainers: pause, resume, abort, weights and adapters from folders; default false. */
  readonly control?: boolean
  /** The clients' key, at least 16 characters; default none, which is only allowed on a local address. */
  readonly apiKey?: string
  /** The key of the control routes, at least 16 characters; also valid as `apiKey`. Default: none, like `apiKey`. */
  readonly controlKey?: string
  /** Serves only TLS, with this certificate and private key in PEM; default plain HTTP. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Refuses unknown request fields; default false: they are hints, which are counted. */
  readonly strict?: boolean
  /** Injects faults, for tests of clients; default never. */
  readonly faults?: FaultOptions
}

const SERVE_OPTIONS: readonly (keyof ServeOptions)[] = [
  ...(['policy', 'weights', 'adapter', 'environment', 'seed', 'slots', 'queue', 'context'] as const),
  ...(['name', 'host', 'port', 'maxBodyBytes', 'control', 'faults', 'apiKey', 'controlKey', 'tls', 'strict'] as const),
]

/** A running model server. */
export interface ModelServer {
  /** Like `http://127.0.0.1:8000`, without a trailing slash. */
  readonly url: string
  readonly name: string
  /** Maximum tokens of a prompt and its answer. */
  readonly context: number
  /** Tensors that were left out, one sentence each. */
  readonly notes: readonly string[]
  /** The records of injected faults, from a number on; null without faults. */
  readonly faultRecords: ((from?: number) => FaultRecord[]) | null
  /** Refuses new turns, lets running and waiting ones end, and stops; with `now` aborts them. */
  close(options?: { readonly now?: boolean }): Promise<void>
}

/**
 * Serves a language model over HTTP: OpenAI's `/v1/models`, `/v1/completions` and `/v1/chat/completions`, vLLM's
 * `/inference/v1/generate` and SGLang's `/generate`. Turns of all clients are decoded together.
 * @throws InputError if options, model and weights do not fit, or the address is not available.
 * @example
 * const server = await serveModel({ policy: languageModel({ folder: 'model' }), port: 8000 })
 * const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' })
 */
export async function serveModel(options: ServeOptions): Promise<ModelServer> {
  checkGiven('options of serveModel', options, ['policy'])
  checkOptions('serveModel', options, SERVE_OPTIONS)
  const {
    name = 'model',
    host = '127.0.0.1',
    port = 0,
    maxBodyBytes = 4 * 2 ** 20,
    control = false,
    faults,
    strict = false,
    tls = null,
    apiKey,
    controlKey,
    ...rest
  } = options
  const keys = keysOf({ host, apiKey, control, controlKey })
  const hints = new Hints(strict)
  const served = await openServedModel(name, rest)
  const { batcher, weights } = served
  const load = () => ({ state: batcher.state, running: batcher.numRunning, waiting: batcher.numWaiting })
  const info = () => ({
    ...{ server: 'colonnade', version: VERSION, model_path: name, served_model_name: weights.names()[0] },
    ...{ weight_version: weights.currentLabel(), logprobs_mode: 'processed_logprobs', is_generation: true },
    ...{ max_model_len: served.context, tokenizer: served.tokenizer.id, vocabulary_size: served.vocabularySize },
    ...{ max_running_requests: batcher.numSlots, max_queued_requests: batcher.queueLength, ...load() },
    hints: hints.counts,
  })
  const model = () => ({ served, naming: weights, hints })
  const information: [string, Route][] = [
    ['GET /weight_info', () => ({ weight_version: weights.currentLabel() })],
    ['GET /server_info', info],
    ['GET /model_info', info],
    ['GET /get_model_info', info],
  ]
  const asked = [...modelRoutes({ host: model, asker: () => stranger(model()) }), ...generateRoutes(served, weights)]
  const routes = new Map<string, Route>([
    ...admitting([...asked, ...information], keys.admitClient),
    ...admitting(control ? controlRoutes(served, weights) : [], keys.admitController),
    [
      'GET /health',
      () => {
        if (batcher.state === 'stopping') throw new RequestError(503, 'the server is stopping', { code: 'stopping' })
        return { status: 'ok', ...load() }
      },
    ],
    ['GET /version', () => ({ version: VERSION })],
  ])
  const wrong = faults === undefined ? null : new Faults(faults, batcher, weights)
  if (wrong !== null) {
    const told = admitting([['GET /faults', () => ({ records: wrong.records() })]], keys.admitController)
    for (const [key, route] of told) routes.set(key, route)
  }
  const listening = await listen(wrong?.over(routes) ?? routes, { host, port, maxBodyBytes, tls })
  return {
    ...{ url: listening.url, name, context: served.context, notes: [...served.notes, ...plainNote(host, tls)] },
    faultRecords: wrong === null ? null : (from) => wrong.records(from),
    close: closing(listening, batcher),
  }
}

/** Addresses that other machines cannot reach. */
export const LOOPBACK = /^(127(\.\d{1,3}){3}|localhost|::1)$/

/** A warning for a server that other machines reach without TLS. */
export function plainNote(host: string, tls: ServeOptions['tls'] | null): readonly string[] {
  if (LOOPBACK.test(host) || (tls ?? null) !== null) return []
  return [`keys and text are sent unencrypted: give tls, or put a TLS proxy in front of ${host}`]
}

/** Checks keys. @throws InputError if other machines could connect without a key, or control has none. */
function keysOf({
  host,
  apiKey,
  control,
  controlKey,
}: Pick<ServeOptions, 'apiKey' | 'controlKey'> & { host: string; control: boolean }) {
  const clients = apiKey === undefined ? null : checkedSecret('apiKey', apiKey)
  const controllers = controlKey === undefined ? null : checkedSecret('controlKey', controlKey)
  if (clients === null && !LOOPBACK.test(host)) {
    const expected = 'apiKey, or a local address like 127.0.0.1'
    throw new InputError('host', `${host} without apiKey`, expected)
  }
  if (control && clients !== null && controllers === null) {
    throw new InputError('control', 'true, without controlKey', 'controlKey, so that clients cannot change the model')
  }
  const admit = (secrets: readonly (Secret | null)[], expected: string) => {
    const known = secrets.filter((secret) => secret !== null)
    return known.length === 0 ? () => {} : keyCheck(known, expected)
  }
  return {
    admitClient: clients === null ? () => {} : admit([clients, controllers], 'this requires the server key'),
    admitController: admit([controllers ?? clients], 'this requires the control key of the server'),
  }
}

/** Closes a server after its turns, or with `now` aborts them. Closes the engine last, if the server owns it. */
export function closing(
  listening: Listening,
  batcher: Batcher,
  { ownsEngine = true }: { readonly ownsEngine?: boolean } = {},
): ModelServer['close'] {
  let closed: Promise<void> | null = null
  return ({ now = false } = {}) => {
    if (now) batcher.abortAll()
    batcher.set('stopping')
    closed ??= (async () => {
      await batcher.idle()
      const ended = listening.close()
      await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 1000).unref())])
      listening.closeConnections() // Connections that clients keep open or do not read.
      await ended
      if (ownsEngine) batcher.engine.close()
    })()
    return closed
  }
}
