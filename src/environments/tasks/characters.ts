/** What the tasks on characters share: examples that are functions of their number, and a reward for each right place. */
import { Random, Stream } from '../../random.ts'

/** Whole numbers that an example's seed and number give, one after another. */
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

  /** A text of `length` characters of the alphabet. */
  text(alphabet: string, length: number): string {
    return Array.from({ length }, () => alphabet[this.between(0, alphabet.length - 1)]).join('')
  }
}

/** The part of the places, of the longer of both texts, at which they have the same character: 1 for the right answer. */
export function placesRight(completion: string, answer: string): number {
  let right = 0
  for (let i = 0; i < answer.length; i++) if (completion[i] === answer[i]) right++
  return right / Math.max(answer.length, completion.length)
}
