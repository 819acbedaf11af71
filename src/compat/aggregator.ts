/** One buffer of the episodes of several workers. */
import { checkOptions, InputError, show } from '../base/errors.ts'
import { EpisodeBuffer, type StepColumns, type StepSequences } from '../tables/episodes/episode-buffer.ts'
import type { TrajectoryColumns } from '../tables/trajectories/trajectories.ts'

/** Whoever has episodes that have ended, and moves each of them once. */
export interface EpisodeSource {
  moveTo(buffer: EpisodeBuffer): number
}

/**
 * Takes over what workers have collected: worker after worker, each one's episodes from the oldest on, whoever was done first.
 * What has no room stays with the worker until there is some. Samplers are those of its buffer.
 */
export class BufferAggregator {
  /** What was taken over. */
  readonly buffer: EpisodeBuffer
  readonly #workers: EpisodeSource[] = []

  /** `maxEpisodes` that it holds: a whole number ≥ 1. */
  constructor(options: { readonly maxEpisodes: number }) {
    checkOptions('BufferAggregator', options, ['maxEpisodes'])
    this.buffer = new EpisodeBuffer(options)
  }

  /** Adds a worker, and returns its number. @throws InputError for what has no episodes to give. */
  addWorker(worker: EpisodeSource): number {
    if (typeof worker?.moveTo !== 'function') throw new InputError('worker', show(worker), 'a RolloutWorker')
    return this.#workers.push(worker) - 1
  }

  /** Takes over the episodes of one worker; returns how many. @throws InputError for a number that no worker has. */
  consumeFromWorker(index: number): number {
    const worker = this.#workers[index]
    if (worker !== undefined) return worker.moveTo(this.buffer)
    throw new InputError('worker', show(index), `a number from 0 to ${this.#workers.length - 1}`)
  }

  /** Takes over the episodes of all workers; returns how many. */
  consumeAll(): number {
    return this.#workers.reduce((sum, worker) => sum + worker.moveTo(this.buffer), 0)
  }

  /** Episodes that it holds. */
  get episodeCount(): number {
    return this.buffer.episodeCount
  }

  /** True if it holds so many. */
  ready(minEpisodes = 1): boolean {
    return this.buffer.ready(minEpisodes)
  }

  /** As those of `EpisodeBuffer`. */
  sample(): TrajectoryColumns {
    return this.buffer.sample()
  }

  sampleEpisodes(...given: Parameters<EpisodeBuffer['sampleEpisodes']>): TrajectoryColumns {
    return this.buffer.sampleEpisodes(...given)
  }

  sampleLatestSteps(n: number): StepColumns {
    return this.buffer.sampleLatestSteps(n)
  }

  sampleSequences(...given: Parameters<EpisodeBuffer['sampleSequences']>): StepSequences {
    return this.buffer.sampleSequences(...given)
  }

  /** Forgets what it holds; what workers hold stays with them. */
  clear(): void {
    this.buffer.clear()
  }
}
