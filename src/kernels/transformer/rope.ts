/**
 * Rotary position embedding (Su et al. 2021, in the halves' form of GPT-NeoX and Hugging Face), in place: element k of a
 * head's first half and element k of its second turn together by the angle of `position`.
 *
 *     x₁' = x₁ cos − x₂ sin        x₂' = x₂ cos + x₁ sin
 *
 * x is numRows × (numHeads · headWidth), cosine and sine are positions × headWidth / 2. `inverse` rotates back, which
 * is also the gradient.
 */
export function rope(
  x: Float32Array,
  cosine: Float32Array,
  sine: Float32Array,
  position: Int32Array,
  numRows: number,
  numHeads: number,
  headWidth: number,
  inverse: boolean,
): void {
  const half = headWidth / 2
  for (let row = 0; row < numRows; row++) {
    const angles = position[row]! * half
    for (let head = 0; head < numHeads; head++) {
      const at = (row * numHeads + head) * headWidth
      for (let k = 0; k < half; k++) {
        const cos = cosine[angles + k]!
        const sin = inverse ? -sine[angles + k]! : sine[angles + k]!
        const first = x[at + k]!
        const second = x[at + half + k]!
        x[at + k] = first * cos - second * sin
        x[at + half + k] = second * cos + first * sin
      }
    }
  }
}

/**
 * Rotates only the first `rotaryWidth` elements of each head: one element of each half together, or, with `neighbors`, elements 2k and 2k +
 * 1 (as in GLM). cosine and sine are positions × rotaryWidth / 2.
 */
export function ropePart(
  x: Float32Array,
  cosine: Float32Array,
  sine: Float32Array,
  position: Int32Array,
  numRows: number,
  numHeads: number,
  headWidth: number,
  rotaryWidth: number,
  neighbors: boolean,
  inverse: boolean,
): void {
  const half = rotaryWidth / 2
  const [step, apart] = neighbors ? [2, 1] : [1, half]
  for (let row = 0; row < numRows; row++) {
    const angles = position[row]! * half
    for (let head = 0; head < numHeads; head++) {
      const at = (row * numHeads + head) * headWidth
      for (let k = 0; k < half; k++) {
        const cos = cosine[angles + k]!
        const sin = inverse ? -sine[angles + k]! : sine[angles + k]!
        const place = at + k * step
        const first = x[place]!
        const second = x[place + apart]!
        x[place] = first * cos - second * sin
        x[place + apart] = second * cos + first * sin
      }
    }
  }
}
