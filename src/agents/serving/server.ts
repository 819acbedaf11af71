/** A language model of ours behind HTTP, in the shapes that clients of inference servers know. */
import { checkGiven, checkOptions, InputError } from '../../base/errors.ts'
import { type Listening, listen, RequestError, type Route } from '../../base/http/server.ts'
import { VERSION } from '../../base/version.ts'
import { Hints } from '../dialects/hints.ts'
import { modelRoutes, stranger } from '../dialects/routes.ts'
import type { Batcher } from './batcher.ts'
import { controlRoutes } from './control.ts'
import { type FaultOptions, type FaultRecord, Faults } from './faults.ts'
import { generateRoutes } from './generate.ts'
import { admitting, checkedSecret, keyCheck, type Secret } from './keys.ts'
import { openServedModel, type ServedModelOptions } from './served-model.ts'

/** What `serveModel` is told. */
export interface ServeOptions extends ServedModelOptions {
  /** What requests call the model; default `model`. */
  readonly name?: string
  /** Where it listens; default 127.0.0.1, which other machines do not reach. */
  readonly host?: string
  /** Default 0: any that is free. */
  readonly port?: number
  /** Bytes of a request's body, at most; default 4 MiB. */
  readonly maxBodyBytes?: number
  /** Also take what whoever trains asks: pause, resume and abort, weights and adapters from folders; default false. */
  readonly control?: boolean
  /** What clients show, at least 16 characters; default nothing, which only an address of this machine may have. */
  readonly apiKey?: string
  /** What shows who controls the server, at least 16 characters; it lets in wherever `apiKey` does. Default: `control` has no key where clients have none. */
  readonly controlKey?: string
  /** Answer over TLS alone, with this certificate and its private key, in PEM; default plain HTTP. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Refuse fields of requests that are not known; default false: they are hints, which are counted. */
  readonly strict?: boolean
  /** Go wrong on purpose, for tests of clients; default never. */
  readonly faults?: FaultOptions
}

const SERVE_OPTIONS: readonly (keyof ServeOptions)[] = [
  ...(['policy', 'weights', 'adapter', 'environment', 'seed', 'slots', 'queue', 'context'] as const),
  ...(['name', 'host', 'port', 'maxBodyBytes', 'control', 'faults', 'apiKey', 'controlKey', 'tls', 'strict'] as const),
]

/** A model that is served. */
export interface ModelServer {
  /** Like `http://127.0.0.1:8000`, without an end slash. */
  readonly url: string
  readonly name: string
  /** Tokens of a prompt and its answer. */
  readonly context: number
  /** What of the model's files was left out, a sentence each. */
  readonly notes: readonly string[]
  /** What was asked, went wrong, and was truly generated, from a record's number on; null where nothing goes wrong on purpose. */
  readonly faultRecords: ((from?: number) => FaultRecord[]) | null
  /** Refuses new turns, lets those that run or wait end, and stops; with `now` those are broken off. */
  close(options?: { readonly now?: boolean }): Promise<void>
}

/**
 * Serves a language model over HTTP: OpenAI's `/v1/models`, `/v1/completions` and `/v1/chat/completions`, vLLM's
 * `/inference/v1/generate` and SGLang's `/generate`. Turns of all clients are decoded together.
 * @throws InputError where options, model and weights do not fit, or nothing can listen there.
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

/** Addresses that other machines do not reach. */
const LOOPBACK = /^(127(\.\d{1,3}){3}|localhost|::1)$/

/** What is said of a server that other machines reach without TLS. */
export function plainNote(host: string, tls: ServeOptions['tls'] | null): readonly string[] {
  if (LOOPBACK.test(host) || (tls ?? null) !== null) return []
  return [`keys and words go over the network as they are: give tls, or let a proxy with TLS stand before ${host}`]
}

/** Who is let in. @throws InputError where strangers of other machines would be, or who controls needs a key and has none. */
function keysOf({
  host,
  apiKey,
  control,
  controlKey,
}: Pick<ServeOptions, 'apiKey' | 'controlKey'> & { host: string; control: boolean }) {
  const clients = apiKey === undefined ? null : checkedSecret('apiKey', apiKey)
  const controllers = controlKey === undefined ? null : checkedSecret('controlKey', controlKey)
  if (clients === null && !LOOPBACK.test(host)) {
    const expected = 'apiKey, or an address of this machine alone, like 127.0.0.1'
    throw new InputError('host', `${host} without apiKey`, expected)
  }
  if (control && clients !== null && controllers === null) {
    throw new InputError('control', 'true with apiKey alone', 'controlKey too: clients may not change what is served')
  }
  const admit = (secrets: readonly (Secret | null)[], expected: string) => {
    const known = secrets.filter((secret) => secret !== null)
    return known.length === 0 ? () => {} : keyCheck(known, expected)
  }
  return {
    admitClient: clients === null ? () => {} : admit([clients, controllers], 'this takes the key of the server'),
    admitController: admit([controllers ?? clients], 'this takes the key of who controls the server'),
  }
}

/**
 * What closes a server: new turns are refused, those that run or wait end, and then it stops listening; with `now` they are broken
 * off. The engine is closed last, unless it is another's.
 */
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
      listening.closeConnections() // Of clients that keep theirs open, or do not read.
      await ended
      if (ownsEngine) batcher.engine.close()
    })()
    return closed
  }
}
