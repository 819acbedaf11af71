/** Short lists of numbers in a few arrays: an array per list would take more memory than the list. */

/** Maximum length of an array for several lists. */
const MOST = 4096
/** Minimum length. */
const FEWEST = 256

/** A list: the numbers of `chunk` from `begin` on. */
export interface Piece<T> {
  readonly chunk: T
  readonly begin: number
}

/** Memory for lists that are kept. */
export class Pieces<T extends Int32Array | Float32Array> {
  readonly #make: (length: number) => T
  #chunk: T
  #used = 0
  #total = 0

  constructor(make: (length: number) => T) {
    this.#make = make
    this.#chunk = make(0)
  }

  /** Allocates a list of `length` numbers. */
  take(length: number): Piece<T> {
    if (this.#used + length > this.#chunk.length) {
      this.#chunk = this.#make(Math.max(length, Math.min(MOST, Math.max(FEWEST, this.#total))))
      this.#used = 0
    }
    const begin = this.#used
    this.#used += length
    this.#total += length
    return { chunk: this.#chunk, begin }
  }
}
