/** A bus in this process: for a learner and actors of one program, and the reference for other buses. */
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

/** Milliseconds for which an id is remembered. */
const SAME_MS = 120_000

interface Entry {
  readonly value: Message
  deliveries: number
  /** When it may be taken, in ms; past for one that waits. */
  free: number
  /** The delivery that may acknowledge it. */
  holder: object | null
}

class MemoryQueue implements Queue {
  readonly #milliseconds: number
  readonly #entries = new Set<Entry>()
  readonly #known = new Map<string, number>()
  readonly #waiting = new Set<() => void>()

  constructor(seconds: number) {
    this.#milliseconds = 1000 * seconds
  }

  async put(id: string, value: Message): Promise<boolean> {
    const now = performance.now()
    for (const [known, since] of this.#known) {
      if (now - since < SAME_MS) break // In the order of time.
      this.#known.delete(known)
    }
    if (this.#known.has(id)) return false
    this.#known.set(id, now)
    this.#entries.add({ value: structuredClone(value), deliveries: 0, free: 0, holder: null })
    this.#tell()
    return true
  }

  #tell(): void {
    for (const wake of this.#waiting) wake()
  }

  async take({ seconds, signal }: { readonly seconds: number; readonly signal?: AbortSignal }): Promise<Item | null> {
    const end = performance.now() + 1000 * seconds
    for (;;) {
      const now = performance.now()
      const entries = [...this.#entries]
      const found = entries.find(({ free }) => free <= now)
      if (found !== undefined) return this.#give(found)
      if (now >= end || signal?.aborted) return null
      const next = Math.min(end, ...entries.map(({ free }) => free))
      await new Promise<void>((resolve) => {
        const wake = () => {
          clearTimeout(timer)
          this.#waiting.delete(wake)
          signal?.removeEventListener('abort', wake)
          resolve()
        }
        const timer = setTimeout(wake, Math.max(1, Math.ceil(next - now)))
        this.#waiting.add(wake)
        signal?.addEventListener('abort', wake)
      })
    }
  }

  #give(entry: Entry): Item {
    const holder = {}
    entry.holder = holder
    entry.deliveries++
    const extend = (milliseconds: number) => {
      if (entry.holder === holder) entry.free = performance.now() + milliseconds
    }
    extend(this.#milliseconds)
    return {
      value: structuredClone(entry.value),
      deliveries: entry.deliveries,
      acknowledge: async () => void this.#entries.delete(entry),
      extend: () => extend(this.#milliseconds),
      release: (seconds = 0) => {
        extend(1000 * seconds)
        this.#tell()
      },
    }
  }

  async size(): Promise<number> {
    return this.#entries.size
  }

  async reclaim(): Promise<void> {
    for (const entry of this.#entries) entry.free = 0
    this.#tell()
  }

  async empty(): Promise<void> {
    this.#entries.clear()
  }
}

class MemoryValues implements Values {
  readonly #milliseconds: number
  readonly #values = new Map<string, Value & { readonly since: number }>()
  readonly #watchers = new Set<Watcher>()
  #revision = 0

  constructor(seconds: number | undefined) {
    this.#milliseconds = seconds === undefined ? Number.POSITIVE_INFINITY : 1000 * seconds
  }

  #find(key: string): Value | null {
    const found = this.#values.get(key)
    if (found !== undefined && performance.now() - found.since < this.#milliseconds) return found
    this.#values.delete(key)
    return null
  }

  async get(key: string): Promise<Value | null> {
    checkKey(key)
    const found = this.#find(key)
    return found && { value: structuredClone(found.value), revision: found.revision }
  }

  async put(key: string, value: Message): Promise<number> {
    checkKey(key)
    this.#values.set(key, { value: structuredClone(value), revision: ++this.#revision, since: performance.now() })
    for (const watcher of this.#watchers) watcher(key, structuredClone(value))
    return this.#revision
  }

  async exchange(key: string, value: Message, revision: number | null): Promise<number | null> {
    checkKey(key)
    return (this.#find(key)?.revision ?? null) === revision ? this.put(key, value) : null
  }

  async remove(key: string): Promise<void> {
    checkKey(key)
    if (!this.#values.delete(key)) return
    for (const watcher of this.#watchers) watcher(key, null)
  }

  async keys(): Promise<string[]> {
    return [...this.#values.keys()].filter((key) => this.#find(key) !== null)
  }

  async watch(watcher: Watcher): Promise<() => void> {
    for (const key of await this.keys()) watcher(key, structuredClone(this.#find(key)!.value))
    this.#watchers.add(watcher)
    return () => void this.#watchers.delete(watcher)
  }
}

/** Queues and values live as long as this object, which all members of a run share. */
export class MemoryBus implements Bus {
  readonly #queues = new Map<string, Queue>()
  readonly #values = new Map<string, Values>()

  async queue(name: string, { seconds, isOwner }: QueueOptions): Promise<Queue> {
    return made('queue', this.#queues, name, isOwner, () => new MemoryQueue(seconds))
  }

  async values(name: string, { seconds, isOwner }: ValuesOptions): Promise<Values> {
    return made('values', this.#values, name, isOwner, () => new MemoryValues(seconds))
  }

  async clear(): Promise<void> {
    this.#queues.clear()
    this.#values.clear()
  }

  async close(): Promise<void> {}
}

function made<T>(noun: string, all: Map<string, T>, name: string, isOwner: boolean, make: () => T): T {
  checkName(noun, name)
  const found = all.get(name) ?? (isOwner ? make() : undefined)
  if (found === undefined) throw new NoRunError(noun, name)
  all.set(name, found)
  return found
}
