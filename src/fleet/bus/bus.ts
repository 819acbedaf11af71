/**
 * The contract of buses: small messages between machines. A queue gives each item to one taker at a time, until the item is acknowledged.
 * Values hold the newest state by key, and others can watch them. Large data goes to a store, and a message has its hash. Every bus passes
 * `bus-suite.ts` of the tests.
 */
import { InputError, show } from '../../base/errors.ts'

/** A message: plain JSON, at most 1 MB as text. */
export type Message = Readonly<Record<string, unknown>>

/** An item of a queue that this process has taken. */
export interface Item {
  readonly value: Message
  /** How often the item was given to a taker, this time included. */
  readonly deliveries: number
  /**
   * The work is done: the item is not delivered again, unless the bus is killed before the acknowledgment is on its disk. So a taker must
   * recognize, by its content, an item that it has already done.
   */
  acknowledge(): Promise<void>
  /** The work continues: the queue's time limit starts again. */
  extend(): void
  /** Gives the item back to the next taker, after `seconds`. */
  release(seconds?: number): void
}

export interface Queue {
  /** Adds an item. Returns false, and adds nothing, if an item with this id was added within the last two minutes. */
  put(id: string, value: Message): Promise<boolean>
  /** The next item; null if none comes within the seconds, or when the signal is aborted. */
  take(options: { readonly seconds: number; readonly signal?: AbortSignal }): Promise<Item | null>
  /** The number of items that are not acknowledged. */
  size(): Promise<number>
  /** Gives all items that others have taken to the next takers. For the owner, when the former owner is gone. */
  reclaim(): Promise<void>
  /** Removes all items. */
  empty(): Promise<void>
}

export interface QueueOptions {
  /** Seconds without news after which a taken item goes to another taker. */
  readonly seconds: number
  /** Whether to create it if it does not exist; otherwise that is an error. */
  readonly isOwner: boolean
}

export interface Value {
  readonly value: Message
  /** Grows with each change of any key. */
  readonly revision: number
}

/** Called for each key with its value, at first and at each change; null when it was removed. */
export type Watcher = (key: string, value: Message | null) => void

/** The newest value of each key. Keys have letters, digits and `-_=.`. */
export interface Values {
  get(key: string): Promise<Value | null>
  put(key: string, value: Message): Promise<number>
  /** Puts a value if the key has this revision, or, for null, no value. Returns the new revision, or null if the value was not put. */
  exchange(key: string, value: Message, revision: number | null): Promise<number | null>
  remove(key: string): Promise<void>
  keys(): Promise<string[]>
  /** Watches all keys; expired values are not reported. The result ends the watch. */
  watch(watcher: Watcher): Promise<() => void>
}

export interface ValuesOptions {
  /** Seconds after which a value is removed unless it is put again; undefined: never. */
  readonly seconds?: number
  readonly isOwner: boolean
}

/** The messages of one run. */
export interface Bus {
  queue(name: string, options: QueueOptions): Promise<Queue>
  values(name: string, options: ValuesOptions): Promise<Values>
  /** Removes the queues and values of this run with their contents. */
  clear(): Promise<void>
  close(): Promise<void>
}

/** @throws InputError for a name that is not letters, digits, `-` and `_`. */
export function checkName(subject: string, name: string): void {
  if (typeof name === 'string' && /^[\w-]{1,64}$/.test(name)) return
  throw new InputError(subject, show(name), 'at most 64 letters, digits, - and _')
}

/** @throws InputError for a key that a bus cannot have. */
export function checkKey(key: string): void {
  if (/^[\w=-]+(\.[\w=-]+)*$/.test(key)) return
  throw new InputError('key', show(key), 'letters, digits and -_= with dots between')
}

/** The error for a run that no learner has begun on the bus. */
export class NoRunError extends InputError {
  constructor(subject: string, name: string) {
    super(subject, `${name}, which does not exist`, 'the name of a run whose learner has begun')
  }
}
