/**
 * A bus on NATS with JetStream (`nats-server -js`): its queues are work-queue streams and its values key-value buckets,
 * on the server's disk. The client's packages are optional peers. It reconnects for as long as the server is away, and
 * repeats unconfirmed messages; the server recognizes a message by its id.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { environmentVariable } from '../../base/environment-variables.ts'
import { InputError, show } from '../../base/errors.ts'
import { disk } from '../../base/files/files.ts'
import { importPackage } from '../../base/files/packages.ts'
import {
  type Bus,
  checkKey,
  checkName,
  type Item,
  type Message,
  NoRunError,
  type Queue,
  type QueueOptions,
  type Value,
  type Values,
  type ValuesOptions,
  type Watcher,
} from './bus.ts'
import { hearServer } from './hear-server.ts'

const PACKAGES = '@nats-io/transport-node @nats-io/jetstream @nats-io/kv'
/** Milliseconds for a request, and between attempts while the server is unreachable. */
const [REQUEST_MS, AGAIN_MS] = [5000, 500]
/** Seconds for which a message, and an acknowledgment, is repeated before that is an error. */
const [PATIENCE, ACKNOWLEDGE_SECONDS] = [600, 6]
/** Seconds for which a member that ends waits for a server that is away. */
const LAST_SECONDS = 10
/** JetStream's numbers, in nanoseconds. */
const SECOND = 1e9
/** The consumer of a queue, which all takers share. */
const CONSUMER = 'work'
/** The client's names of permission errors. */
const FORBIDDEN = ['PermissionViolationError', 'AuthorizationError']
/** The client's names of errors of a server that is not there. */
const UNREACHABLE = ['ConnectionError', 'TimeoutError']
const NO_RESPONDERS = 503
const [NO_STREAM, NO_CONSUMER, WRONG_REVISION, WRONG_REVISION_TOO] = [10_059, 10_014, 10_071, 10_164]

interface Connection {
  request(subject: string, data: string, options: { timeout: number }): Promise<unknown>
  close(): Promise<void>
  isClosed(): boolean
}

/** The used part of `@nats-io/transport-node`. */
interface Transport {
  connect(options: object): Promise<Connection>
  credsAuthenticator(credentials: Uint8Array): object
}

interface JetMessage {
  readonly data: Uint8Array
  readonly info: { readonly deliveryCount: number }
  /** Where its acknowledgment goes. */
  readonly reply: string
  working(): void
  nak(milliseconds?: number): void
}

interface Consumer {
  next(options: { expires: number }): Promise<JetMessage | null>
}

interface Jet {
  publish(subject: string, data: Uint8Array, options: object): Promise<{ readonly duplicate: boolean }>
  readonly consumers: {
    get(stream: string, name: string): Promise<Consumer>
  }
}

interface JetManager {
  readonly streams: {
    add(config: object): Promise<unknown>
    info(name: string): Promise<{ readonly state: { readonly messages: number } }>
    purge(name: string): Promise<unknown>
    delete(name: string): Promise<unknown>
  }
  readonly consumers: {
    add(stream: string, config: object): Promise<unknown>
    info(stream: string, name: string): Promise<unknown>
    delete(stream: string, name: string): Promise<unknown>
  }
}

/** The used part of `@nats-io/jetstream`. */
interface JetStream {
  jetstream(connection: Connection, options: object): Jet
  jetstreamManager(connection: Connection, options?: object): Promise<JetManager>
}

interface Entry {
  readonly key: string
  readonly value: Uint8Array
  readonly revision: number
  readonly operation: 'PUT' | 'DEL' | 'PURGE'
}

interface Bucket {
  get(key: string): Promise<Entry | null>
  put(key: string, data: Uint8Array): Promise<number>
  create(key: string, data: Uint8Array): Promise<number>
  update(key: string, data: Uint8Array, revision: number): Promise<number>
  purge(key: string): Promise<void>
  keys(): Promise<AsyncIterable<string>>
  watch(): Promise<AsyncIterable<Entry> & { stop(): void }>
}

/** The used part of `@nats-io/kv`. */
interface KeyValue {
  readonly Kvm: new (
    jet: Jet,
  ) => { create(name: string, options: object): Promise<Bucket>; open(name: string): Promise<Bucket> }
}

/** How to wait for a server that is not there yet. */
export interface Wait {
  /** Gets a message at first. */
  tell(message: string): void
  /** Ends the wait with an error. */
  readonly signal?: AbortSignal | undefined
}

interface Parts {
  readonly connection: Connection
  readonly jet: Jet
  readonly manager: JetManager
  readonly buckets: InstanceType<KeyValue['Kvm']>
  /** Time at which waiting for an unreachable server ends, on the clock of `performance`. */
  readonly last: { time: number }
}

/**
 * Connects to the server of an address like `nats://host:4222` (or `tls://…`), for the run of this name. Credentials are
 * read from environment variables (`COLONNADE_NATS_…`), never from the address. `signal`: when aborted, pending
 * messages wait only seconds for an unreachable server, not minutes. `places`: where the packages are. With `wait` it waits for a server
 * that is not there yet.
 * @throws InputError if a package is missing, or the server cannot be reached, refuses, or has no JetStream.
 */
export async function connectNats(
  address: string,
  name: string,
  places?: readonly string[],
  signal?: AbortSignal,
  wait?: Wait,
): Promise<Bus> {
  checkName('name of the fleet', name)
  const find = <T>(specifier: string) =>
    importPackage<T>(specifier, PACKAGES, places).catch((cause: Error) => {
      throw new InputError('fleet', cause.message, `the client of NATS: npm install ${PACKAGES}`, { cause })
    })
  const [transport, { jetstream, jetstreamManager }, { Kvm }] = await Promise.all([
    find<Transport>('@nats-io/transport-node'),
    find<JetStream>('@nats-io/jetstream'),
    find<KeyValue>('@nats-io/kv'),
  ])
  const connect = async () => {
    const credentials = await credentialsOf(transport, address)
    const options = {
      servers: address,
      name: `colonnade ${name}`,
      maxReconnectAttempts: -1,
      reconnectTimeWait: AGAIN_MS,
    }
    return transport.connect({ ...options, ...credentials })
  }
  const connection = await untilThere(connect, address, wait)
  try {
    const jet = jetstream(connection, { checkAPI: false })
    const manager = await jetstreamManager(connection, { timeout: REQUEST_MS, checkAPI: false })
    const last = { time: Number.POSITIVE_INFINITY }
    const onAbort = () => {
      last.time = performance.now() + 1000 * LAST_SECONDS
    }
    if (signal?.aborted) onAbort()
    signal?.addEventListener('abort', onAbort, { once: true })
    return new NatsBus(name, { connection, jet, manager, buckets: new Kvm(jet), last })
  } catch (error) {
    await connection.close()
    throw error
  }
}

async function untilThere(connect: () => Promise<Connection>, address: string, wait?: Wait): Promise<Connection> {
  for (let isTold = false; ; isTold = true) {
    try {
      await hearServer(address, wait?.signal)
      return await connect()
    } catch (cause) {
      if (cause instanceof InputError) throw cause
      const { message, name } = cause as Error
      if (wait === undefined || wait.signal?.aborted || !UNREACHABLE.includes(name)) {
        const expected = FORBIDDEN.includes(name)
          ? 'credentials that the server accepts, in COLONNADE_NATS_… variables'
          : 'a NATS server that can be reached'
        throw new InputError('fleet', `${address} (${message})`, expected, { cause })
      }
      if (!isTold) wait.tell(`waits for the NATS server at ${address} (${message})`)
      await sleep(AGAIN_MS)
    }
  }
}

async function credentialsOf(transport: Transport, address: string): Promise<object> {
  const file = environmentVariable('COLONNADE_NATS_CREDENTIALS')
  const user = environmentVariable('COLONNADE_NATS_USER')
  const pass = environmentVariable('COLONNADE_NATS_PASSWORD')
  const token = environmentVariable('COLONNADE_NATS_TOKEN')
  const ca = environmentVariable('COLONNADE_NATS_CA')
  const credentials =
    file === undefined
      ? undefined
      : await disk.read(file, 2 ** 16, true).catch((cause: Error) => {
          throw new InputError('COLONNADE_NATS_CREDENTIALS', cause.message, 'a file of credentials', { cause })
        })
  return {
    ...(credentials === undefined ? {} : { authenticator: transport.credsAuthenticator(credentials) }),
    ...(user === undefined ? {} : { user, pass }),
    ...(token === undefined ? {} : { token }),
    ...(ca === undefined && !address.startsWith('tls:') ? {} : { tls: ca === undefined ? {} : { caFile: ca } }),
  }
}

function isCode(error: unknown, ...codes: readonly number[]): boolean {
  return codes.includes((error as { code?: number } | null)?.code ?? -1)
}

function isForbidden(error: unknown): boolean {
  const { name, cause } = error as Error
  return [name, (cause as Error | undefined)?.name].some((each) => FORBIDDEN.includes(String(each)))
}

/** Whether repeating is useless: the server has answered with an error, or the caller made one. */
function isLasting(error: unknown): boolean {
  if (error instanceof InputError) return true
  const { code, message } = error as { code?: unknown; message?: string }
  // A server that ends in order says so; while its connections are still open, requests have no responders.
  return typeof code === 'number' && code !== NO_RESPONDERS && !/server shutdown|leadership change/i.test(message ?? '')
}

/** Repeats a request while the server is away. */
async function insistent<T>({ connection, last }: Parts, work: () => Promise<T>, seconds = PATIENCE): Promise<T> {
  const end = performance.now() + 1000 * seconds
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (isForbidden(error)) {
        const expected = 'credentials that may do that (colonnade fleet … permissions=true)'
        throw new InputError('fleet', (error as Error).message, expected, { cause: error })
      }
      if (isLasting(error)) throw error
      if (connection.isClosed() || performance.now() > last.time) {
        await connection.close() // So that nothing else waits in its turn.
        throw new InputError('fleet', (error as Error).message, 'a NATS server that can be reached', { cause: error })
      }
      if (performance.now() > end) throw error
      await sleep(AGAIN_MS)
    }
  }
}

const encode = (value: Message) => new TextEncoder().encode(JSON.stringify(value))
const decode = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes)) as Message

class NatsQueue implements Queue {
  readonly #parts: Parts
  readonly #stream: string
  readonly #subject: string
  readonly #seconds: number
  #consumer: Consumer | null = null

  constructor(parts: Parts, stream: string, subject: string, seconds: number) {
    this.#parts = parts
    this.#stream = stream
    this.#subject = subject
    this.#seconds = seconds
  }

  async make(): Promise<void> {
    const { streams, consumers } = this.#parts.manager
    const config = {
      ...{ name: this.#stream, subjects: [this.#subject], retention: 'workqueue', storage: 'file' },
      duplicate_window: 120 * SECOND,
    }
    await streams.add(config)
    await consumers.info(this.#stream, CONSUMER).catch(async (error) => {
      if (!isCode(error, NO_CONSUMER)) throw error
      await this.#addConsumer()
    })
  }

  async #addConsumer(): Promise<void> {
    const config = { durable_name: CONSUMER, ack_policy: 'explicit', ack_wait: this.#seconds * SECOND }
    await this.#parts.manager.consumers.add(this.#stream, { ...config, max_ack_pending: -1, max_waiting: 8192 })
  }

  put(id: string, value: Message): Promise<boolean> {
    const options = { msgID: id, timeout: REQUEST_MS }
    return insistent(this.#parts, async () => {
      const { duplicate } = await this.#parts.jet.publish(this.#subject, encode(value), options)
      return !duplicate
    })
  }

  async take({ seconds, signal }: { readonly seconds: number; readonly signal?: AbortSignal }): Promise<Item | null> {
    const end = performance.now() + 1000 * seconds
    for (;;) {
      const left = end - performance.now()
      if (signal?.aborted || left <= 0) return null
      // The server waits at least a second. A short wait notices the signal.
      const next = async () => {
        this.#consumer ??= await this.#parts.jet.consumers.get(this.#stream, CONSUMER)
        return this.#consumer.next({ expires: Math.ceil(Math.min(2000, Math.max(1000, left))) }).catch((error) => {
          this.#consumer = null // The next attempt tells whether it is still there.
          throw error
        })
      }
      const message = await insistent(this.#parts, next, left / 1000).catch((error) => {
        if (isLasting(error) || this.#parts.connection.isClosed()) throw error
        return null // The server is away, so no message arrives.
      })
      if (message === null) continue
      return {
        value: decode(message.data),
        deliveries: message.info.deliveryCount,
        acknowledge: () => this.#acknowledge(message.reply),
        extend: () => message.working(),
        release: (seconds = 0) => message.nak(1000 * seconds),
      }
    }
  }

  /** Not by the message's own method, which sends once. A server that was killed may not know that it was taken. */
  async #acknowledge(reply: string): Promise<void> {
    const { connection } = this.#parts
    const send = () => connection.request(reply, '+ACK', { timeout: REQUEST_MS })
    await insistent(this.#parts, send, ACKNOWLEDGE_SECONDS).catch((error) => {
      if ((error as Error).name !== 'TimeoutError') throw error // After a timeout, another taker gets the item again.
    })
  }

  async size(): Promise<number> {
    return (await insistent(this.#parts, () => this.#parts.manager.streams.info(this.#stream))).state.messages
  }

  async reclaim(): Promise<void> {
    this.#consumer = null
    await insistent(this.#parts, () => this.#parts.manager.consumers.delete(this.#stream, CONSUMER))
    await insistent(this.#parts, () => this.#addConsumer())
  }

  async empty(): Promise<void> {
    await insistent(this.#parts, () => this.#parts.manager.streams.purge(this.#stream))
  }
}

class NatsValues implements Values {
  readonly #parts: Parts
  readonly #bucket: Bucket

  constructor(parts: Parts, bucket: Bucket) {
    this.#parts = parts
    this.#bucket = bucket
  }

  async get(key: string): Promise<Value | null> {
    checkKey(key)
    const found = await insistent(this.#parts, () => this.#bucket.get(key))
    if (found === null || found.operation !== 'PUT') return null
    return { value: decode(found.value), revision: found.revision }
  }

  async put(key: string, value: Message): Promise<number> {
    checkKey(key)
    return insistent(this.#parts, () => this.#bucket.put(key, encode(value)))
  }

  async exchange(key: string, value: Message, revision: number | null): Promise<number | null> {
    checkKey(key)
    const bytes = encode(value)
    return insistent(this.#parts, () =>
      revision === null ? this.#bucket.create(key, bytes) : this.#bucket.update(key, bytes, revision),
    ).catch((error) => {
      if (isCode(error, WRONG_REVISION, WRONG_REVISION_TOO)) return null
      throw error
    })
  }

  async remove(key: string): Promise<void> {
    checkKey(key)
    await insistent(this.#parts, () => this.#bucket.purge(key))
  }

  keys(): Promise<string[]> {
    return insistent(this.#parts, async () => {
      const found: string[] = []
      for await (const key of await this.#bucket.keys()) found.push(key)
      return found
    })
  }

  async watch(watcher: Watcher): Promise<() => void> {
    const entries = await insistent(this.#parts, () => this.#bucket.watch())
    const follow = async () => {
      for await (const { key, value, operation } of entries) watcher(key, operation === 'PUT' ? decode(value) : null)
    }
    follow().catch((error: Error) =>
      console.error(`colonnade: values of the fleet are no longer watched: ${error.message}`),
    )
    return () => entries.stop()
  }
}

class NatsBus implements Bus {
  readonly #name: string
  readonly #parts: Parts
  readonly #made = new Set<string>()

  constructor(name: string, parts: Parts) {
    this.#name = name
    this.#parts = parts
  }

  async queue(name: string, { seconds, isOwner }: QueueOptions): Promise<Queue> {
    checkName('queue', name)
    const stream = `colonnade_${this.#name}_${name}`
    const queue = new NatsQueue(this.#parts, stream, `colonnade.${this.#name}.${name}`, seconds)
    if (isOwner) await this.#own(stream, () => queue.make())
    else await this.#expect(() => this.#parts.manager.consumers.info(stream, CONSUMER))
    return queue
  }

  async values(name: string, { seconds, isOwner }: ValuesOptions): Promise<Values> {
    checkName('values', name)
    const bucket = `colonnade_${this.#name}_${name}`
    const { buckets, manager } = this.#parts
    const options = { history: 1, ...(seconds === undefined ? {} : { ttl: 1000 * seconds }) }
    const stream = `KV_${bucket}`
    if (isOwner) return new NatsValues(this.#parts, await this.#own(stream, () => buckets.create(bucket, options)))
    await this.#expect(() => manager.streams.info(stream))
    return new NatsValues(this.#parts, await insistent(this.#parts, () => buckets.open(bucket)))
  }

  async #own<T>(stream: string, make: () => Promise<T>): Promise<T> {
    this.#made.add(stream)
    try {
      return await insistent(this.#parts, make)
    } catch (cause) {
      const { message, code } = cause as Error & { code?: unknown }
      const expected = 'a NATS server with JetStream (nats-server -js), and permission to make streams'
      throw new InputError('fleet', `${message}${code === undefined ? '' : ` (${show(code)})`}`, expected, { cause })
    }
  }

  async #expect(look: () => Promise<unknown>): Promise<void> {
    await insistent(this.#parts, look).catch((error) => {
      if (isCode(error, NO_STREAM, NO_CONSUMER)) throw new NoRunError('fleet', this.#name)
      throw error
    })
  }

  async clear(): Promise<void> {
    for (const stream of this.#made) {
      await insistent(this.#parts, () => this.#parts.manager.streams.delete(stream)).catch((error) => {
        if (!isCode(error, NO_STREAM)) throw error
      })
    }
  }

  async close(): Promise<void> {
    await this.#parts.connection.close()
  }
}
