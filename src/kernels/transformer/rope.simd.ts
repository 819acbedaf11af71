/** Rotary position embedding, four pairs at a time; the plain twin `rope.ts` says what is computed. */
import { load4, store4 } from '../vector.simd'

export function rope(
  x: usize,
  cosine: usize,
  sine: usize,
  position: usize,
  numRows: i32,
  numHeads: i32,
  headWidth: i32,
  inverse: bool,
): void {
  const half = headWidth >> 1
  const halfRow = <usize>half << 2
  const sign = i32x4.splat(inverse ? 0x80000000 : 0)
  for (; numRows > 0; numRows--, position += 4) {
    const angles = <usize>load<i32>(position) * halfRow
    for (let head = 0; head < numHeads; head++, x += 2 * halfRow) {
      for (let left = half, at: usize = 0; left > 0; left -= 4, at += 16) {
        const cos = load4(cosine + angles + at, left)
        const sin = v128.xor(load4(sine + angles + at, left), sign)
        const first = load4(x + at, left)
        const second = load4(x + halfRow + at, left)
        store4(x + at, f32x4.sub(f32x4.mul(first, cos), f32x4.mul(second, sin)), left)
        store4(x + halfRow + at, f32x4.add(f32x4.mul(second, cos), f32x4.mul(first, sin)), left)
      }
    }
  }
}
