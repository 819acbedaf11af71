/** Sampling sessions of a training service, and the weights that they keep in memory. */
import { show } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'
import type { AdapterHost } from './adapter-host.ts'
import type { KnownRequest } from './known-requests.ts'
import type { TinkerCheckpoints } from './tinker-checkpoints.ts'

/** Number of adapters that a session's samplers keep in memory. */
const KEPT_SAMPLERS = 16

/** A sampling session. Its id begins with that of its session and a colon. */
export interface Sampler {
  readonly id: string
  readonly host: AdapterHost
  /** Null: not in memory, to be loaded from the path. */
  weights: Promise<Float32Array> | null
  readonly path: string | null
  readonly known: Map<number, KnownRequest>
  clients: number
}

export type NewSampler = Pick<Sampler, 'id' | 'host' | 'weights' | 'path'>

export class TinkerSamplers {
  /** The weights of the base model: an adapter of zeros, which is always in memory. */
  readonly base: Promise<Float32Array>
  readonly #checkpoints: TinkerCheckpoints
  /** The last used is the last. */
  readonly #samplers = new Map<string, Sampler>()

  constructor(checkpoints: TinkerCheckpoints, base: Float32Array) {
    this.#checkpoints = checkpoints
    this.base = Promise.resolve(base)
  }

  add(sampler: NewSampler): void {
    this.#samplers.set(sampler.id, { ...sampler, known: new Map(), clients: 0 })
    this.#dropWeights(sampler.id.split(':')[0]!)
  }

  endSession(id: string): void {
    for (const key of this.#samplers.keys()) if (key.startsWith(`${id}:`)) this.#samplers.delete(key)
  }

  /** Keeps the weights of a session's last used samplers. The others are loaded again, or end if they were not saved. */
  #dropWeights(sessionId: string): void {
    const held = [...this.#samplers.values()].filter(
      ({ id, weights }) => id.startsWith(`${sessionId}:`) && weights !== null && weights !== this.base,
    )
    for (const sampler of held.slice(0, -KEPT_SAMPLERS)) {
      sampler.weights = null
      if (sampler.path === null) this.#samplers.delete(sampler.id)
    }
  }

  /** The weights of a sampler, which are loaded again if they are not in memory. */
  weightsOf(sampler: NewSampler): Promise<Float32Array> {
    if (sampler.weights !== null) return sampler.weights
    const load = async () => {
      const { folder } = await this.#checkpoints.find(sampler.path)
      return (await sampler.host.load(folder, false)).weights
    }
    const weights = load()
    sampler.weights = weights
    weights.catch(() => {
      sampler.weights = null // The sample reports it.
    })
    this.#dropWeights(sampler.id.split(':')[0]!)
    return weights
  }

  /** @throws RequestError 404 if the sampler has ended. */
  of(id: unknown): Sampler {
    const sampler = typeof id === 'string' ? this.#samplers.get(id) : undefined
    if (sampler === undefined) {
      const expected = `one of a session that goes on, saved or one of its last ${KEPT_SAMPLERS}`
      throw new RequestError(404, `sampling_session_id: got ${show(id)}, expected ${expected}`)
    }
    this.#samplers.delete(sampler.id) // The last used is the last.
    this.#samplers.set(sampler.id, sampler)
    return sampler
  }
}
