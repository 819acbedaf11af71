import { checkOptions, InputError, show } from '../base/errors.ts'
import { EpisodeBuffer, type StepColumns, type StepSequences } from '../tables/episodes/episode-buffer.ts'
import type { TrajectoryColumns } from '../tables/trajectories/trajectories.ts'

/** A source of finished episodes, each moved once. */
export interface EpisodeSource {
  moveTo(buffer: EpisodeBuffer): number
}

/** Collects workers' episodes in one buffer, worker by worker; those without room stay with their worker. */
export class BufferAggregator {
  readonly buffer: EpisodeBuffer
  readonly #workers: EpisodeSource[] = []

  /** `maxEpisodes` is its capacity: a whole number ≥ 1. */
  constructor(options: { readonly maxEpisodes: number }) {
    checkOptions('BufferAggregator', options, ['maxEpisodes'])
    this.buffer = new EpisodeBuffer(options)
  }

  /** Adds a worker, and returns its index. @throws InputError for an invalid source. */
  addWorker(worker: EpisodeSource): number {
    if (typeof worker?.moveTo !== 'function') throw new InputError('worker', show(worker), 'a RolloutWorker')
    return this.#workers.push(worker) - 1
  }

  /** Moves one worker's episodes; returns their number. @throws InputError for an unknown index. */
  consumeFromWorker(index: number): number {
    const worker = this.#workers[index]
    if (worker !== undefined) return worker.moveTo(this.buffer)
    throw new InputError('worker', show(index), `a number from 0 to ${this.#workers.length - 1}`)
  }

  /** Moves all workers' episodes; returns their number. */
  consumeAll(): number {
    return this.#workers.reduce((sum, worker) => sum + worker.moveTo(this.buffer), 0)
  }

  get episodeCount(): number {
    return this.buffer.episodeCount
  }

  /** Whether it holds at least this many. */
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

  /** Clears the buffer; workers keep theirs. */
  clear(): void {
    this.buffer.clear()
  }
}
