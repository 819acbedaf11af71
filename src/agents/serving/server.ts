/** A language model of ours behind HTTP, in the shapes that clients of inference servers know. */
import { checkGiven, checkOptions } from '../../base/errors.ts'
import { type Listening, listen, RequestError, type Route } from '../../base/http/server.ts'
import { VERSION } from '../../base/version.ts'
import type { Batcher } from './batcher.ts'
import { controlRoutes } from './control.ts'
import { type FaultOptions, type FaultRecord, Faults } from './faults.ts'
import { generateRoutes } from './generate.ts'
import { openaiRoutes } from './openai.ts'
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
  /** Go wrong on purpose, for tests of clients; default never. */
  readonly faults?: FaultOptions
}

const SERVE_OPTIONS: readonly (keyof ServeOptions)[] = [
  ...(['policy', 'weights', 'adapter', 'environment', 'seed', 'slots', 'queue', 'context'] as const),
  ...(['name', 'host', 'port', 'maxBodyBytes', 'control', 'faults'] as const),
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
    ...rest
  } = options
  const served = await openServedModel(name, rest)
  const { batcher, weights } = served
  const load = () => ({ state: batcher.state, running: batcher.numRunning, waiting: batcher.numWaiting })
  const info = () => ({
    ...{ server: 'colonnade', version: VERSION, model_path: name, served_model_name: weights.names()[0] },
    ...{ weight_version: weights.currentLabel(), logprobs_mode: 'processed_logprobs', is_generation: true },
    ...{ max_model_len: served.context, tokenizer: served.tokenizer.id, vocabulary_size: served.vocabularySize },
    ...{ max_running_requests: batcher.numSlots, max_queued_requests: batcher.queueLength, ...load() },
  })
  const routes = new Map<string, Route>([
    ...openaiRoutes(served, weights),
    ...generateRoutes(served, weights),
    ...(control ? controlRoutes(served, weights) : []),
    [
      'GET /health',
      () => {
        if (batcher.state === 'stopping') throw new RequestError(503, 'the server is stopping', { code: 'stopping' })
        return { status: 'ok', ...load() }
      },
    ],
    ['GET /version', () => ({ version: VERSION })],
    ['GET /weight_info', () => ({ weight_version: weights.currentLabel() })],
    ['GET /server_info', info],
    ['GET /model_info', info],
    ['GET /get_model_info', info],
  ])
  const wrong = faults === undefined ? null : new Faults(faults, batcher, weights)
  if (wrong !== null) routes.set('GET /faults', () => ({ records: wrong.records() }))
  const listening = await listen(wrong?.over(routes) ?? routes, { host, port, maxBodyBytes })
  return {
    ...{ url: listening.url, name, context: served.context, notes: served.notes },
    faultRecords: wrong === null ? null : (from) => wrong.records(from),
    close: closing(listening, batcher),
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
