/**
 * The contract of buses: small messages between machines. A queue gives each item to one taker until somebody
 * acknowledges it; values are the newest state by key, which others watch. Bulk goes to a store, and a message has its
 * hash. Every carrier passes `tests/fleet/bus-suite.ts`.
 */
import { InputError, show } from '../../base/errors.ts'

/** A message: plain JSON, at most 1 MB as text. */
export type Message = Readonly<Record<string, unknown>>

/** An item of a queue that this process has taken. */
export interface Item {
  readonly value: Message
  /** How often it was given to somebody, this time included. */
  readonly deliveries: number
  /**
   * The work is done: nobody gets it again, unless a bus is killed before this is on its disk. So a taker knows by an
   * item's content what it has done already.
   */
  acknowledge(): Promise<void>
  /** The work goes on: the queue's time begins again. */
  extend(): void
  /** Gives it back, for the next taker after `seconds`. */
  release(seconds?: number): void
}

export interface Queue {
  /** Adds an item. False if one with this id was put within the last two minutes: it is not added again. */
  put(id: string, value: Message): Promise<boolean>
  /** The next item; null if none comes within the seconds, or when the signal is aborted. */
  take(options: { readonly seconds: number; readonly signal?: AbortSignal }): Promise<Item | null>
  /** The number of items that nobody has acknowledged. */
  size(): Promise<number>
  /** Gives all items that others have taken to the next takers. For the owner, when the former one is gone. */
  reclaim(): Promise<void>
  /** Removes all items. */
  empty(): Promise<void>
}

export interface QueueOptions {
  /** Seconds after which a taken item, of which nothing was heard, goes to another taker. */
  readonly seconds: number
  /** Whether it is made if it is not there; otherwise that is an error. */
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
  /** Puts a value if the key's revision is this one, or, for null, if there is none. The new revision; null if not. */
  exchange(key: string, value: Message, revision: number | null): Promise<number | null>
  remove(key: string): Promise<void>
  keys(): Promise<string[]>
  /** Watches all keys. Values that expire are not told. The result ends it. */
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
  /** Removes the queues and values of this run, with everything in them. */
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

/** Nobody has begun a run of this name on the bus. */
export class NoRunError extends InputError {
  constructor(subject: string, name: string) {
    super(subject, `${name}, which nobody has made`, 'the name of a run whose learner has begun')
  }
}
