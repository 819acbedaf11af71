/** Root-mean-square norms, four elements of a row at a time; the plain twin `norm.ts` says what is computed. */
import { load4, madd, store4, sum4 } from '../vector.simd'

export function rmsNormForward(
  y: usize,
  inverseRms: usize,
  x: usize,
  weight: usize,
  epsilon: f32,
  numRows: i32,
  width: i32,
): void {
  for (; numRows > 0; numRows--, inverseRms += 4) {
    let squares = f32x4.splat(0)
    for (let left = width, at = x; left > 0; left -= 4, at += 16) {
      const v = load4(at, left)
      squares = madd(v, v, squares)
    }
    const inverse = <f32>1 / sqrt<f32>(sum4(squares) / <f32>width + epsilon)
    store<f32>(inverseRms, inverse)
    const scale = f32x4.splat(inverse)
    for (let left = width, w = weight; left > 0; left -= 4, w += 16) {
      store4(y, f32x4.mul(f32x4.mul(load4(x, left), scale), load4(w, left)), left)
      const bytes = <usize>min(left, 4) << 2
      x += bytes
      y += bytes
    }
  }
}

export function rmsNormBackward(
  dx: usize,
  dWeight: usize,
  dy: usize,
  x: usize,
  weight: usize,
  inverseRms: usize,
  numRows: i32,
  width: i32,
  accumulate: bool,
): void {
  const row = <usize>width << 2
  const kept = i32x4.splat(accumulate ? -1 : 0)
  for (; numRows > 0; numRows--, inverseRms += 4, dx += row, dy += row, x += row) {
    let projected = f32x4.splat(0)
    for (let left = width, at: usize = 0; left > 0; left -= 4, at += 16) {
      projected = madd(f32x4.mul(load4(dy + at, left), load4(weight + at, left)), load4(x + at, left), projected)
    }
    const inverse = load<f32>(inverseRms)
    const scale = f32x4.splat(inverse)
    const common = f32x4.splat((sum4(projected) / <f32>width) * inverse * inverse)
    for (let left = width, at: usize = 0; left > 0; left -= 4, at += 16) {
      const output = load4(dy + at, left)
      const input = load4(x + at, left)
      const into = v128.and(load4(dx + at, left), kept)
      const straight = f32x4.sub(f32x4.mul(output, load4(weight + at, left)), f32x4.mul(input, common))
      store4(dx + at, madd(scale, straight, into), left)
      store4(dWeight + at, madd(f32x4.mul(output, input), scale, load4(dWeight + at, left)), left)
    }
  }
}
