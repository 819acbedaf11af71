/** Joins a fleet by its address: as its learner, as an actor, or to show and end its members. */
import { randomBytes } from 'node:crypto'
import { join, resolve } from 'node:path'
import { shareCounts } from '../../algorithms/shared-gradient.ts'
import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import { makeFolder } from '../../base/files/files.ts'
import { connectFleet, parseFleet, type StoreAddress } from '../../fleet/address.ts'
import type { Bus } from '../../fleet/bus/bus.ts'
import { FolderStore } from '../../fleet/store/folder-store.ts'
import { serveStore } from '../../fleet/store/http-store.ts'
import { openS3, parseS3 } from '../../fleet/store/s3-store.ts'
import type { FleetStatus } from '../../telemetry/fleet-record.ts'
import type { CollectorDefinition } from '../loop/collector.ts'
import type { CrewDefinition } from '../threads/crew.ts'
import type { Acknowledgement } from './acknowledgement.ts'
import { type ActorOptions, type ActorSummary, runActor } from './fleet-actor.ts'
import { fleetCrew } from './fleet-crew.ts'
import { fleetCollector } from './fleet-groups.ts'
import { type HelperSummary, runHelper } from './fleet-helper.ts'
import type { FleetOptions, OpenedFleet } from './fleet-learner.ts'
import { statusReader } from './fleet-status.ts'

/** Options of a fleet's learner. */
export interface JoinFleetOptions {
  /** `nats://host:4222/name`, or `tls://…`: a NATS server with JetStream, and the name of the run. */
  readonly address: string
  /**
   * Where rollouts and weights are kept: a folder that all machines mount, a bucket (`s3://bucket/prefix`), or `http://host:port`, where
   * this process serves them.
   */
  readonly store: string
  /** When rows of a rollout are removed: `checkpoint`, after a checkpoint contains their update, or `update`, after the update. */
  readonly acknowledge?: Acknowledgement
  /** Seconds without news after which a part goes to another actor. Default 20. */
  readonly seconds?: number
  /**
   * Shares of each gradient: 1, 2, 4, 8 or 16. With 2 or more, helpers (`runFleetHelper`) compute gradients with the learner. Default 1.
   */
  readonly learners?: number
  /** Of a language model: parts of an update's groups that are collected at once. Default 1. */
  readonly actors?: number
  /** Called when the run is ordered to stop. */
  onStop?(): void
  /** Called every two seconds, and at the end, with the fleet's state. An error ends nothing: the user is warned once. */
  onStatus?(status: FleetStatus): Promise<void>
  /** Receives messages for the user; default: standard error. */
  tell?(message: string): void
}

/**
 * Lets actors in other processes collect for a trainer. Pass the result to `createTrainer` as `crew`, with `actors`, the number of parts of
 * a rollout that may be collected at once; for a language model pass its `collector`. The connection keeps the process alive until the
 * trainer is closed.
 * @throws InputError for a wrong address or store.
 * @example
 * const crew = joinFleet({ address: 'nats://10.0.0.1:4222/cart', store: '/shared/cart' })
 * const trainer = createTrainer(world, ppo({ maxStaleness: 1 }), { actors: 8, crew })
 */
export function joinFleet(options: JoinFleetOptions): CrewDefinition & { readonly collector: CollectorDefinition } {
  checkGiven('options of joinFleet', options, ['address', 'store'])
  const { address, store, acknowledge = 'checkpoint', seconds = 20, learners = 1, actors = 1 } = options
  const { onStop, onStatus, tell = tellUser } = options
  checkCount('actors', actors)
  if (!(shareCounts as readonly number[]).includes(learners)) {
    throw new InputError('learners', show(learners), `one of ${shareCounts.join(', ')}`)
  }
  const { name } = parseFleet(address)
  const storeOf = storeOpener(store, name)
  const open = async (signal: AbortSignal, begin?: AbortSignal): Promise<OpenedFleet> => {
    const bus = await connectFleet(address, signal, { tell, signal: begin })
    try {
      const opened = await storeOf()
      const close = async () => {
        await opened.close()
        await bus.close()
      }
      return { bus, ...opened, close }
    } catch (error) {
      await bus.close()
      throw error
    }
  }
  const given: FleetOptions = {
    open,
    acknowledge,
    seconds,
    learners,
    tell,
    ...(onStop && { onStop }),
    ...(onStatus && { onStatus }),
  }
  return Object.assign(fleetCrew(given), { collector: fleetCollector(actors, given) })
}

function tellUser(message: string): void {
  console.error(`colonnade: ${message}`)
}

/** The learner's side of a store. @throws InputError for an invalid one. */
function storeOpener(store: string, name: string): () => Promise<Omit<OpenedFleet, 'bus'>> {
  const expected =
    'a folder that all machines mount, s3://bucket/prefix, or http://host:port, where this process serves it'
  if (typeof store !== 'string' || store === '') throw new InputError('store', show(store), expected)
  if (!/^\w+:\/\//.test(store)) {
    const path = join(resolve(store), name)
    const storeAddress: StoreAddress = { kind: 'folder', path }
    return async () => ({ store: new FolderStore(path), storeAddress, close: async () => {} })
  }
  if (store.startsWith('s3://')) {
    parseS3(store)
    const url = `${store.replace(/\/$/, '')}/${name}`
    return async () => {
      const own = await openS3(url)
      return { store: own, storeAddress: { kind: 's3', url }, close: () => own.close() }
    }
  }
  if (!/^http:\/\/[^/@]+:\d+\/?$/.test(store) || !URL.canParse(store)) {
    throw new InputError('store', show(store.replace(/\/\/.*@/, '//…@')), expected)
  }
  const { hostname, port } = new URL(store)
  return async () => {
    const folder = resolve('runs', `${name}.blobs`)
    await makeFolder(folder)
    const key = randomBytes(24).toString('hex')
    const own = new FolderStore(folder)
    const host = hostname.replace(/^\[|\]$/g, '')
    const served = await serveStore(own, { key, listening: { host, port: Number(port) } })
    const close = async () => {
      served.closeConnections()
      await served.close()
    }
    return { store: own, storeAddress: { kind: 'http', url: served.url, key }, close }
  }
}

/**
 * Collects rollouts for the run at a fleet's address, until it ends or the actors are drained. Environment, policy and
 * settings come from the run's description, code only from Colonnade and the given modules.
 * @throws InputError if the run is of another version, of other code or columns, or its store cannot be reached from here.
 */
export async function runFleetActor(address: string, options: ActorOptions = {}): Promise<ActorSummary> {
  return withBus(address, (bus) => runActor(bus, options), options)
}

/**
 * Computes shares of the gradients of the run at a fleet's address, whose learner has `learners` 2 or more, until it ends or is drained.
 * @throws InputError as `runFleetActor` does, and for a learner without helpers.
 */
export async function runFleetHelper(address: string, options: ActorOptions = {}): Promise<HelperSummary> {
  return withBus(address, (bus) => runHelper(bus, options), options)
}

async function withBus<T>(
  address: string,
  use: (bus: Bus) => Promise<T>,
  { signal, tell }: Pick<ActorOptions, 'signal' | 'tell'> = {},
): Promise<T> {
  const bus = await connectFleet(address, signal, tell && { tell, signal })
  try {
    return await use(bus)
  } finally {
    await bus.close()
  }
}

/** The state of the run at a fleet's address. @throws InputError if there is none. */
export function fleetStatus(address: string): Promise<FleetStatus> {
  return withBus(address, async (bus) => (await statusReader(bus))())
}

/** Orders for a fleet: `drain` ends the actors after their rollouts; `stop` ends the learner with a checkpoint, and then the actors. */
export const fleetOrders = ['drain', 'stop'] as const

/** Sends an order to all members of a fleet. It holds until the learner starts again. @throws InputError for other orders. */
export async function orderFleet(address: string, order: (typeof fleetOrders)[number]): Promise<void> {
  if (!fleetOrders.includes(order)) throw new InputError('order', show(order), fleetOrders.join(' or '))
  await withBus(address, async (bus) => {
    await (await bus.values('run', { isOwner: false })).put('order', { order })
  })
}
