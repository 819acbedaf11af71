/**
 * Gradients that a learner computes together with the helpers of its fleet (`colonnade actor … role=learn`). The learner puts the inputs
 * into the store, and a task that names who computes which shares into the values `gradients`; a helper puts its results into the store
 * and their hashes into the same values.
 *
 * A share depends only on its inputs, so it has the same bits wherever it is computed. The learner computes a share itself if it has no
 * helper, and if its helper fails or falls silent.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import {
  fillColumns,
  type GradientPool,
  type NamedColumns,
  type SharedGradient,
} from '../../algorithms/shared-gradient.ts'
import { decodeSafetensors, encodeSafetensors, tensorOf, tensorValues } from '../../base/files/safetensors.ts'
import type { Column } from '../../components/column.ts'
import type { Message, Values } from '../../fleet/bus/bus.ts'
import { BlobError, type OwnStore } from '../../fleet/store/store.ts'

/** The values by which a learner and its helpers work on gradients. */
export const GRADIENTS = 'gradients'

/** A gradient to compute together. */
export interface GradientTask {
  readonly id: string
  /** The helper of each share; null: the learner. */
  readonly helpers: readonly (string | null)[]
  /** Hashes of the inputs. */
  readonly inputs: Readonly<Record<string, string>>
  readonly numbers: readonly number[]
}

/** The prefix of helpers' keys. */
export const HELPER = 'helper.'

/** The report of a helper, at least once a second: its last task, with the hashes of its results by share. */
export interface HelperReport {
  readonly session: string
  readonly task: string
  readonly results: Readonly<Record<string, string>>
  /** Of this task; null without one. */
  readonly error: string | null
  readonly host: string
  /** Shares that it has computed, and tasks that failed, so far. */
  readonly shares: number
  readonly failures: number
}

export function columnsToBytes(columns: NamedColumns): Uint8Array {
  return Buffer.concat(encodeSafetensors(Object.entries(columns).map(([name, column]) => tensorOf(name, column))))
}

export function columnsFromBytes(subject: string, bytes: Uint8Array): NamedColumns {
  const { tensors } = decodeSafetensors(subject, bytes)
  return Object.fromEntries([...tensors].map(([name, tensor]) => [name, tensorValues(tensor) as Column]))
}

export class FleetPool implements GradientPool {
  readonly shareCount: number
  readonly #session: string
  readonly #milliseconds: number
  readonly #tell: (message: string) => void
  readonly #helpers = new Map<string, { heard: number; report: HelperReport }>()
  /** The inputs in the store, by name. */
  readonly #inputs = new Map<string, { readonly version: string; readonly hash: string }>()
  #opened: { readonly values: Values; readonly store: OwnStore; unwatch(): void } | null = null
  #tasks = 0
  /** Whether a task is on its way to the helpers. */
  #isAsking = false
  #isRefused = false
  #wake: () => void = () => {}

  /** A helper that is silent for so many seconds counts as gone. */
  constructor(shareCount: number, session: string, seconds: number, tell: (message: string) => void) {
    this.shareCount = shareCount
    this.#session = session
    this.#milliseconds = 1000 * seconds
    this.#tell = tell
  }

  async open(values: Values, store: OwnStore): Promise<void> {
    this.#helpers.clear()
    this.#inputs.clear()
    const unwatch = await values.watch((key, value) => this.#hear(key, value))
    this.#opened = { values, store, unwatch }
  }

  close(): void {
    this.#opened?.unwatch()
    this.#opened = null
    this.#wake()
  }

  /** The blobs that it needs. */
  live(): string[] {
    return [...this.#inputs.values()].map(({ hash }) => hash)
  }

  #hear(key: string, value: Message | null): void {
    if (!key.startsWith(HELPER)) return
    const report = value as unknown as HelperReport | null
    if (report === null || report.session !== this.#session) this.#helpers.delete(key)
    else this.#helpers.set(key, { heard: performance.now(), report })
    this.#wake()
  }

  #isAlive(helper: string): boolean {
    const known = this.#helpers.get(helper)
    return this.#opened !== null && known !== undefined && performance.now() - known.heard < this.#milliseconds
  }

  async compute(gradient: SharedGradient): Promise<void> {
    // A task that is still on its way would take the place of the next one.
    const workers = [null, ...(this.#isAsking ? [] : this.#alive())]
    const helpers = Array.from({ length: gradient.numShares }, (_, share) => workers[share % workers.length]!)
    const id = `${this.#session}.${this.#tasks++}`
    const isAsked = helpers.some((helper) => helper !== null) && (await this.#ask(id, helpers, gradient))
    for (const [share, helper] of helpers.entries()) if (helper === null || !isAsked) await gradient.compute(share)
    for (const [share, helper] of helpers.entries()) {
      if (helper === null || !isAsked || (await this.#take(id, share, helper, gradient))) continue
      await gradient.compute(share)
    }
  }

  #alive(): string[] {
    return [...this.#helpers.keys()].filter((helper) => this.#isAlive(helper)).sort()
  }

  /** False if the learner must compute all: the store refuses the inputs, or the bus is away until all helpers are silent. */
  async #ask(id: string, helpers: GradientTask['helpers'], gradient: SharedGradient): Promise<boolean> {
    const { values, store } = this.#opened!
    const names = Object.entries(gradient.inputs)
    try {
      await Promise.all(
        names.map(async ([name, { version, columns }]) => {
          const former = this.#inputs.get(name)
          if (former?.version === version) return
          const hash = await store.put(columnsToBytes(columns))
          this.#inputs.set(name, { version, hash })
          if (former !== undefined && !this.live().includes(former.hash)) await store.drop(former.hash)
        }),
      )
      this.#isRefused = false
    } catch (error) {
      if (!this.#isRefused) this.#tell(`${(error as Error).message}: gradients are computed without helpers`)
      this.#isRefused = true
      return false
    }
    const inputs = Object.fromEntries(names.map(([name]) => [name, this.#inputs.get(name)!.hash]))
    this.#isAsking = true
    const task: GradientTask = { id, helpers, inputs, numbers: gradient.numbers }
    const asked = values.put('task', { ...task }).then(
      () => true,
      (error: Error) => error,
    )
    void asked.finally(() => {
      this.#isAsking = false
    })
    while (this.#alive().length > 0) {
      const answer = await Promise.race([asked, this.#news()])
      if (answer instanceof Error) throw answer
      if (answer === true) return true
    }
    this.#tell('the helpers cannot be reached: gradients are computed here')
    return false
  }

  /** Waits for a share's results, and writes them into their columns; false if the learner must compute it. */
  async #take(id: string, share: number, helper: string, gradient: SharedGradient): Promise<boolean> {
    while (this.#isAlive(helper)) {
      const { task, results, error } = this.#helpers.get(helper)!.report
      if (task === id && error !== null) {
        this.#tell(`${helper}: ${error}: its share is computed here`)
        return false
      }
      const hash = task === id ? results[share] : undefined
      if (hash !== undefined) return this.#takeFrom(hash, share, helper, gradient)
      await this.#news()
    }
    if (this.#opened !== null) this.#tell(`${helper} is silent: its share is computed here`)
    return false
  }

  async #takeFrom(hash: string, share: number, helper: string, gradient: SharedGradient): Promise<boolean> {
    const { store } = this.#opened!
    try {
      const subject = `share ${share} by ${helper}`
      fillColumns(subject, columnsFromBytes(subject, await store.get(hash)), gradient.results(share))
    } catch (error) {
      if (!(error instanceof BlobError)) throw error
      this.#tell(`${error.message}: share ${share} of the gradient is computed again`)
      return false
    }
    await store.drop(hash)
    return true
  }

  /** Settles at a helper's next report, or when a silent one must be noticed. */
  async #news(): Promise<void> {
    const over = new AbortController()
    const told = new Promise<void>((resolve) => {
      this.#wake = resolve
    })
    await Promise.race([told, sleep(this.#milliseconds / 4, undefined, { signal: over.signal }).catch(() => {})])
    over.abort()
  }
}
