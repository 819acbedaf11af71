/** The common part of character tasks: examples that depend on their number only, and a reward for each right place. */
import { Random, Stream } from '../../base/random.ts'
import type { Reply } from '../text.ts'

/** Consecutive random whole numbers that depend on an example's seed and number. */
export class ExampleNumbers {
  readonly #random: Random
  readonly #index: number
  #drawn = 0

  constructor(seed: number, index: number) {
    this.#random = new Random(seed)
    this.#index = index
  }

  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    if (this.#drawn % 4 === 0) this.#random.draw(Stream.reset, this.#index, 0, this.#drawn / 4)
    return low + Math.floor(this.#random.uniform(this.#drawn++ % 4) * (high - low + 1))
  }

  text(alphabet: string, length: number): string {
    return Array.from({ length }, () => alphabet[this.between(0, alphabet.length - 1)]).join('')
  }
}

/**
 * The reward of an answer compared with the right one: half for an exact match, half for the fraction of places (of the longer text) with
 * the same character, so that an almost right answer also has a reward.
 */
export function partlyRight(completion: string, answer: string): Reply {
  let right = 0
  for (let i = 0; i < answer.length; i++) if (completion[i] === answer[i]) right++
  const places = right / Math.max(answer.length, completion.length)
  const exact = completion === answer ? 1 : 0
  return { reward: (exact + places) / 2, components: { exact, places } }
}
