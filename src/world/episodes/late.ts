/**
 * Lanes whose environment answers later. While one waits its rows are nobody's, as dead steps are, and it goes on seeing what it saw;
 * other lanes go on. When the answer is there, the row that is open then has the choice that was asked for, with its log-probability.
 */
import type { Action } from '../../components/action.ts'
import type { Episode } from '../../components/episode.ts'

/** The choice that a lane waits for an answer to, and the step of its episode in which it was made. */
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
  /** Elements of an action. */
  readonly #width: number
  readonly #lanes = new Map<number, LateLane>()

  constructor(action: Action, episode: Episode, width: number) {
    this.#action = action
    this.#episode = episode
    this.#width = width
  }

  /** How many lanes wait. */
  get size(): number {
    return this.#lanes.size
  }

  /** The rows of the lanes that wait. */
  rows(): Iterable<number> {
    return this.#lanes.keys()
  }

  /** Whether the lane of row n waits. */
  has(n: number): boolean {
    return this.#lanes.has(n)
  }

  /** What they wait for; none of it fails. */
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

  /** Puts their choices in the place of those that were made anew, in lanes whose episode is still the same. */
  repeatChoices(): void {
    const { lane, episode, step } = this.#episode
    for (const [n, late] of this.#lanes) {
      if (late.lane !== lane[n] || late.episode !== episode[n] || late.step !== step[n]) continue
      this.#action.chosen.set(late.choice as never, n * this.#width)
      this.#action.logprob[n] = late.logprob
    }
  }

  /** Nobody waits. */
  clear(): void {
    this.#lanes.clear()
  }
}
