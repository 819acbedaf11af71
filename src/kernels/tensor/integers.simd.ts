/** Products of whole numbers; the plain twin `integers.ts` says what is computed, to the bit. */
import { load4 } from '../vector.simd'

const ROUNDS: f32 = 12582912
const SMALLEST: f32 = reinterpret<f32>(0x0d800000) // 2^-100

export function quantizeInputs(input: usize, inputScale: usize, x: usize, numRows: i32, width: i32): void {
  for (; numRows > 0; numRows--) {
    for (let left = width; left > 0; left -= 32, input += 32, inputScale += 4) {
      const length = min(left, 32)
      let largest4 = f32x4.splat(0)
      let poison4 = f32x4.splat(0)
      for (let k = 0; k < length; k += 4) {
        const size = f32x4.abs(load4(x + (<usize>k << 2), length - k))
        largest4 = f32x4.pmax(largest4, size)
        poison4 = f32x4.add(poison4, f32x4.mul(size, f32x4.splat(0)))
      }
      const pair = f32x4.pmax(largest4, v128.shuffle<f32>(largest4, largest4, 2, 3, 0, 1))
      const largest = f32x4.extract_lane(f32x4.pmax(pair, v128.shuffle<f32>(pair, pair, 1, 0, 3, 2)), 0)
      const poison =
        f32x4.extract_lane(poison4, 0) +
        f32x4.extract_lane(poison4, 1) +
        (f32x4.extract_lane(poison4, 2) + f32x4.extract_lane(poison4, 3))
      const isSmall = !(largest >= SMALLEST)
      const inverse = f32x4.splat(isSmall ? 0 : 127 / largest)
      store<f32>(inputScale, (isSmall ? 0 : largest / 127) + poison)
      for (let k = 0; k < 32; k += 4) {
        const some = k < length ? load4(x + (<usize>k << 2), length - k) : f32x4.splat(0)
        const rounded = f32x4.add(f32x4.mul(some, inverse), f32x4.splat(ROUNDS))
        // The lowest byte of such a number is its whole part.
        v128.store32_lane(input + k, v128.shuffle<i8>(rounded, rounded, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), 0)
      }
      x += <usize>length << 2
    }
  }
}

/** `sum` and in each lane four products of bytes, none of them −128: two products fit into 16 bits. */
// @ts-ignore: decorator
@inline
function dot(sum: v128, a: v128, b: v128): v128 {
  const products = i16x8.add(i16x8.extmul_low_i8x16_s(a, b), i16x8.extmul_high_i8x16_s(a, b))
  return i32x4.add(sum, i32x4.extadd_pairwise_i16x8_s(products))
}

/** Of two vectors the sums of lanes 0 and 2, and of 1 and 3: a, b, a, b. */
// @ts-ignore: decorator
@inline
function addHalves(a: v128, b: v128): v128 {
  return i32x4.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7))
}

/** The whole sums of a block of `length` weights of four columns, which are `depth` bytes apart. */
// @ts-ignore: decorator
@inline
function blockSums(weights: usize, depth: usize, input: usize, length: i32): v128 {
  const second = depth
  const third = 2 * depth
  const fourth = 3 * depth
  let sum0 = i32x4.splat(0)
  let sum1 = sum0
  let sum2 = sum0
  let sum3 = sum0
  let k = 0
  for (; k + 16 <= length; k += 16) {
    const inputs = v128.load(input + k)
    sum0 = dot(sum0, v128.load(weights + k), inputs)
    sum1 = dot(sum1, v128.load(weights + second + k), inputs)
    sum2 = dot(sum2, v128.load(weights + third + k), inputs)
    sum3 = dot(sum3, v128.load(weights + fourth + k), inputs)
  }
  const low = addHalves(sum0, sum1)
  const high = addHalves(sum2, sum3)
  let sums = i32x4.add(v128.shuffle<i32>(low, high, 0, 1, 4, 5), v128.shuffle<i32>(low, high, 2, 3, 6, 7))
  for (; k < length; k++) {
    let column = i32x4.splat(<i32>load<i8>(weights + k))
    column = i32x4.replace_lane(column, 1, <i32>load<i8>(weights + second + k))
    column = i32x4.replace_lane(column, 2, <i32>load<i8>(weights + third + k))
    column = i32x4.replace_lane(column, 3, <i32>load<i8>(weights + fourth + k))
    sums = i32x4.add(sums, i32x4.mul(column, i32x4.splat(<i32>load<i8>(input + k))))
  }
  return sums
}

/** The whole sum of a block of `length` weights of one column. */
// @ts-ignore: decorator
@inline
function blockSum(weights: usize, input: usize, length: i32): f32 {
  let sum = 0
  for (let k = 0; k < length; k++) sum += <i32>load<i8>(weights + k) * <i32>load<i8>(input + k)
  return <f32>sum
}

export function matmulIntegers(
  c: usize,
  input: usize,
  inputScale: usize,
  values: usize,
  scale: usize,
  bias: usize,
  numRows: i32,
  numColumns: i32,
  depth: i32,
  accumulate: bool,
  biasLength: i32,
): void {
  const cRow = <usize>numColumns << 2
  let column = 0
  for (; column + 4 <= numColumns; column += 4, c += 16, values += 4 * depth, scale += 16) {
    const factor = v128.load(scale)
    const start = biasLength > 0 ? v128.load(bias + (<usize>column << 2)) : f32x4.splat(0)
    let to = c
    let inputs = input
    let scales = inputScale
    for (let row = 0; row < numRows; row++, to += cRow) {
      let sum = f32x4.splat(0)
      for (let left = depth, weights = values; left > 0; left -= 32, weights += 32, inputs += 32, scales += 4) {
        const whole = f32x4.convert_i32x4_s(blockSums(weights, depth, inputs, min(left, 32)))
        sum = f32x4.add(sum, f32x4.mul(v128.load32_splat(scales), whole))
      }
      v128.store(to, f32x4.add(accumulate ? v128.load(to) : start, f32x4.mul(factor, sum)))
    }
  }
  for (; column < numColumns; column++, c += 4, values += depth, scale += 4) {
    const factor = load<f32>(scale)
    const start: f32 = biasLength > 0 ? load<f32>(bias + (<usize>column << 2)) : 0
    let to = c
    let inputs = input
    let scales = inputScale
    for (let row = 0; row < numRows; row++, to += cRow) {
      let sum: f32 = 0
      for (let left = depth, weights = values; left > 0; left -= 32, weights += 32, inputs += 32, scales += 4) {
        sum += load<f32>(scales) * blockSum(weights, inputs, min(left, 32))
      }
      store<f32>(to, (accumulate ? load<f32>(to) : start) + factor * sum)
    }
  }
}
