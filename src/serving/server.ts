/** A language model of ours behind HTTP, in the shapes that clients of inference servers know. */
import { checkOptions } from '../errors.ts'
import { VERSION } from '../version.ts'
import { listen, RequestError, type Route } from './http.ts'
import type { Naming } from './naming.ts'
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
}

const SERVE_OPTIONS: readonly (keyof ServeOptions)[] = [
  ...(['policy', 'weights', 'adapter', 'environment', 'seed', 'slots', 'queue', 'context'] as const),
  ...(['name', 'host', 'port', 'maxBodyBytes'] as const),
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
  /** Refuses new turns, lets those that run or wait end, and stops; with `now` those are broken off. */
  close(options?: { readonly now?: boolean }): Promise<void>
}

/**
 * Serves a language model over HTTP: OpenAI's `/v1/models`, `/v1/completions` and `/v1/chat/completions`. Turns of all clients are
 * decoded together.
 * @throws InputError where options, model and weights do not fit, or nothing can listen there.
 * @example
 * const server = await serveModel({ policy: languageModel({ folder: 'model' }), port: 8000 })
 * const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' })
 */
export async function serveModel(options: ServeOptions): Promise<ModelServer> {
  checkOptions('serveModel', options, SERVE_OPTIONS)
  const { name = 'model', host = '127.0.0.1', port = 0, maxBodyBytes = 4 * 2 ** 20, ...rest } = options
  const served = await openServedModel(name, rest)
  const { batcher } = served
  const naming: Naming = { names: () => [name], labelOf: () => 'default', currentLabel: () => 'default' }
  const load = () => ({ state: batcher.state, running: batcher.numRunning, waiting: batcher.numWaiting })
  const routes = new Map<string, Route>([
    ...openaiRoutes(served, naming),
    [
      'GET /health',
      () => {
        if (batcher.state === 'stopping') throw new RequestError(503, 'the server is stopping', { code: 'stopping' })
        return { status: 'ok', ...load() }
      },
    ],
    ['GET /version', () => ({ version: VERSION })],
  ])
  const listening = await listen(routes, { host, port, maxBodyBytes })
  let closing: Promise<void> | null = null
  return {
    ...{ url: listening.url, name, context: served.context, notes: served.notes },
    close({ now = false } = {}) {
      batcher.set('stopping')
      if (now) batcher.abortAll()
      closing ??= (async () => {
        await batcher.idle()
        const closed = listening.close()
        await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 1000).unref())])
        listening.closeConnections() // Of clients that keep theirs open, or do not read.
        await closed
        batcher.engine.close()
      })()
      return closing
    },
  }
}
