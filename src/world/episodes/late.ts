/**
 * Lanes whose environment answers later. A waiting lane keeps its observation and its rows are invalid, like dead steps; other lanes
 * continue. When the answer arrives, the open row gets the original choice with its log-probability.
 */
import type { Action } from '../../components/action.ts'
import type { Episode } from '../../components/episode.ts'

/** The choice of a waiting lane, and the step of its episode in which it was made. */
interface LateLane {
  readonly lane: number
  readonly episode: number
  readonly step: number
  readonly choice: Float32Array | Int32Array
  readonly logprob: number
  readonly arrival: Promise<void>
}

export class LateLanes {
  readonly #action: Action
  readonly #episode: Episode
  readonly #width: number
  readonly #lanes = new Map<number, LateLane>()

  constructor(action: Action, episode: Episode, width: number) {
    this.#action = action
    this.#episode = episode
    this.#width = width
  }

  /** Number of waiting lanes. */
  get size(): number {
    return this.#lanes.size
  }

  rows(): Iterable<number> {
    return this.#lanes.keys()
  }

  has(n: number): boolean {
    return this.#lanes.has(n)
  }

  /** Promises of the answers; none rejects. */
  arrivals(): readonly Promise<void>[] {
    return Array.from(this.#lanes.values(), ({ arrival }) => arrival)
  }

  /** Lane n begins to wait for the answer to its last action. */
  add(n: number, arrival: Promise<void>): void {
    const { lane, episode, step } = this.#episode
    const choice = this.#action.chosen.slice(n * this.#width, (n + 1) * this.#width)
    const logprob = this.#action.logprob[n]!
    this.#lanes.set(n, { lane: lane[n]!, episode: episode[n]!, step: step[n]!, choice, logprob, arrival })
  }

  /** Replaces new choices of waiting lanes by their original ones, if the episode is still the same. */
  repeatChoices(): void {
    const { lane, episode, step } = this.#episode
    for (const [n, late] of this.#lanes) {
      if (late.lane !== lane[n] || late.episode !== episode[n] || late.step !== step[n]) continue
      this.#action.chosen.set(late.choice as never, n * this.#width)
      this.#action.logprob[n] = late.logprob
    }
  }

  clear(): void {
    this.#lanes.clear()
  }
}
