/**
 * A training service in this process, which clients of Tinker's protocol (its SDK 0.38, and the `tinker` backend here) use as they use
 * the hosted one.
 */
import { checkGiven, checkOptions, InputError } from '../../base/errors.ts'
import { listen } from '../../base/http/server.ts'
import { admitting, checkedSecret, keyCheck } from '../serving/keys.ts'
import { LOOPBACK, plainNote } from '../serving/server.ts'
import { TinkerService, type TinkerServiceOptions } from './tinker-service.ts'

/** What `serveTinker` is told. */
export interface TinkerServeOptions extends TinkerServiceOptions {
  /** Default 127.0.0.1, which other machines do not reach. */
  readonly host?: string
  /** Default 0: any that is free. */
  readonly port?: number
  /** What clients show, at least 16 characters; default nothing, which only an address of this machine may have. */
  readonly apiKey?: string
  /** Answer over TLS alone, with this certificate and its private key, in PEM; default plain HTTP. */
  readonly tls?: { readonly cert: string; readonly key: string }
}

const OPTIONS: readonly (keyof TinkerServeOptions)[] = [
  ...(['model', 'name', 'folder', 'host', 'port', 'context', 'slots', 'apiKey', 'tls'] as const),
]

/** A training service that listens. */
export interface TinkerServer {
  /** Like `http://127.0.0.1:8000`: the base URL of clients. */
  readonly url: string
  readonly name: string
  /** What of the model's files was left out, a sentence each. */
  readonly notes: readonly string[]
  close(): Promise<void>
}

/** Bytes of a request's body: the client of the protocol cuts batches to parts of 5 MB. */
const MAX_BODY = 2 ** 25
/**
 * Serves a language model as a training service of Tinker's protocol.
 * @throws InputError where options and model do not fit, or nothing can listen there.
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
    apiKey === undefined ? () => {} : keyCheck([checkedSecret('apiKey', apiKey)], 'this takes the key of the service')
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
