/** Operations of low-rank adapters other than matrix products. Every build uses the plain bodies, on arrays in any memory. */
import { philox4x32, Stream, unitFromWord } from '../../base/random.ts'

/** x · factor, in place, of `length` elements. */
export function scaleElements(x: Float32Array, factor: number, length: number): void {
  for (let i = 0; i < length; i++) x[i] = x[i]! * factor
}

/**
 * Dropout (Srivastava et al. 2014): out = x / (1 − rate) where an element is kept, and 0 where it is dropped, with the
 * probability `rate`; or added to out. The choice depends only on the key, the row's sequence and position, the place
 * in the network and the element, so that the backward pass makes the same choice. x and out are numRows × width.
 */
export function dropElements(
  out: Float32Array,
  x: Float32Array,
  words: Uint32Array,
  sequence: Uint32Array,
  position: Int32Array,
  rate: number,
  place: number,
  key0: number,
  key1: number,
  numRows: number,
  width: number,
  accumulate: boolean,
): void {
  const factor = 1 / (1 - rate)
  const blocks = Math.ceil(width / 4)
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      if (k % 4 === 0) {
        philox4x32(words, place * blocks + k / 4, position[row]!, sequence[row]!, Stream.dropout, key0, key1)
      }
      const at = row * width + k
      const kept = unitFromWord(words[k % 4]!) < rate ? 0 : x[at]! * factor
      out[at] = accumulate ? out[at]! + kept : kept
    }
  }
}
