/** Addresses of fleets and stores: `nats://host:4222/name`, a folder, `http://host:8100`, `s3://bucket/prefix`. */
import { resolve } from 'node:path'
import { InputError, show } from '../base/errors.ts'
import { isThere } from '../base/files/files.ts'
import { type Bus, checkName } from './bus/bus.ts'
import type { Wait } from './bus/nats-bus.ts'
import { FolderStore } from './store/folder-store.ts'
import { HttpStore } from './store/http-store.ts'
import { openS3 } from './store/s3-store.ts'
import type { Store } from './store/store.ts'

/** How actors reach a store. */
export type StoreAddress =
  | { readonly kind: 'folder'; readonly path: string }
  | { readonly kind: 'http'; readonly url: string; readonly key: string }
  | { readonly kind: 's3'; readonly url: string }

/** The server and the run's name of a fleet's address. @throws InputError for others, and for one with a password. */
export function parseFleet(address: string): { readonly server: string; readonly name: string } {
  const expected = 'an address like nats://host:4222/name'
  const [, server, host, name] = /^((?:nats|tls):\/\/([^/]+))\/([^/]+)$/.exec(address) ?? []
  if (server === undefined || name === undefined) throw new InputError('fleet', show(address), expected)
  if (host!.includes('@')) {
    const secret = 'an address without credentials, which are read from COLONNADE_NATS_… variables'
    throw new InputError('fleet', 'an address with credentials', secret)
  }
  checkName('name of the fleet', name)
  return { server, name }
}

/** Connects to the bus of a fleet's address; with `wait`, waits for its server. @throws InputError as `connectNats` does. */
export async function connectFleet(address: string, signal?: AbortSignal, wait?: Wait): Promise<Bus> {
  const { server, name } = parseFleet(address)
  const { connectNats } = await import('./bus/nats-bus.ts')
  return connectNats(server, name, undefined, signal, wait)
}

/** Opens the store of a run for an actor. @throws InputError if it cannot be reached from here. */
export async function openStore(address: StoreAddress): Promise<Store> {
  if (address.kind === 'http') return new HttpStore(address.url, address.key)
  if (address.kind === 's3') return openS3(address.url)
  const path = resolve(address.path)
  if (await isThere(path)) return new FolderStore(path)
  throw new InputError(
    'store of the fleet',
    `${path}, which does not exist`,
    "the learner's folder, mounted on this machine",
  )
}
