/** Serves a training service of Tinker's protocol over HTTP, for the SDK 0.38 and for the `tinker` backend. */
import { checkGiven, checkOptions, InputError } from '../../base/errors.ts'
import { admitting, checkedSecret, keyCheck } from '../../base/http/keys.ts'
import { listen } from '../../base/http/server.ts'
import { LOOPBACK, plainNote } from '../serving/server.ts'
import { TinkerService, type TinkerServiceOptions } from './tinker-service.ts'

/** Options of `serveTinker`. */
export interface TinkerServeOptions extends TinkerServiceOptions {
  /** Default 127.0.0.1, which other machines cannot reach. */
  readonly host?: string
  /** Default 0: any free port. */
  readonly port?: number
  /** The key that clients send, at least 16 characters. Required if other machines can reach the host. */
  readonly apiKey?: string
  /** Certificate and private key in PEM, for TLS only; default plain HTTP. */
  readonly tls?: { readonly cert: string; readonly key: string }
}

const OPTIONS: readonly (keyof TinkerServeOptions)[] = [
  ...(['model', 'name', 'folder', 'host', 'port', 'context', 'slots', 'apiKey', 'tls'] as const),
]

/** A running training service. */
export interface TinkerServer {
  /** The base URL for clients, like `http://127.0.0.1:8000`. */
  readonly url: string
  readonly name: string
  /** Notes on model files that were ignored. */
  readonly notes: readonly string[]
  close(): Promise<void>
}

/** Maximum bytes of a request body: the SDK splits batches into parts of 5 MB. */
const MAX_BODY = 2 ** 25
/**
 * Serves a language model as a training service of Tinker's protocol.
 * @throws InputError for invalid options or a model that does not fit, and if the port is taken.
 * @example
 * const server = await serveTinker({ model: 'Qwen3-0.6B', port: 8000 })
 * // Python: tinker.ServiceClient(base_url="http://127.0.0.1:8000", api_key="tml-local")
 */
export async function serveTinker(options: TinkerServeOptions): Promise<TinkerServer> {
  checkGiven('options of serveTinker', options, ['model'])
  checkOptions('serveTinker', options, OPTIONS)
  const { host = '127.0.0.1', port = 0, tls, apiKey } = options
  if (apiKey === undefined && !LOOPBACK.test(host)) {
    const expected = 'apiKey, or an address of this machine alone, like 127.0.0.1'
    throw new InputError('host', `${host} without apiKey`, expected)
  }
  const service = await TinkerService.open(options)
  const admit =
    apiKey === undefined ? () => {} : keyCheck([checkedSecret('apiKey', apiKey)], 'this needs the key of the service')
  const routes = new Map(admitting(service.routes(), admit))
  const listening = await listen(routes, { host, port, maxBodyBytes: MAX_BODY, tls: tls ?? null })
  return {
    ...{ url: listening.url, name: service.name, notes: [...service.notes, ...plainNote(host, tls)] },
    async close() {
      service.close()
      const ended = listening.close()
      listening.closeConnections()
      await ended
    },
  }
}
