/**
 * Adam with moments in 8 bits (after Dettmers et al. 2022): 256 neighbors share a scale, which is their largest
 * magnitude. A moment is a small float relative to it with 3 bits of mantissa: a mean has a sign and 4 bits of
 * exponent, a square 5 bits of exponent. Moments are rounded up or down at random, so that small changes add up; the
 * random numbers depend only on the step, the place and the block's scales. Parameters
 * of fewer than 4,096 elements have moments in f32.
 */
import { sizeOf } from '../../language/transformer/parameters.ts'
import { adam } from './adam.ts'
import { defineOptimizer, type TensorStep } from './define-optimizer.ts'

const BLOCK = 256
const LEAST = 4096
const step = adam().step

/** A block's scale and its codes, in elements of f32: the scales of all blocks come first. */
const BLOCK_ELEMENTS = 1 + BLOCK / 4

export const adam8 = defineOptimizer({
  id: 'adam8',
  takes: ['beta1', 'beta2'],
  powersOf: ['beta1', 'beta2'],
  moments(parameter) {
    const size = sizeOf(parameter)
    const kept = size < LEAST ? size : Math.ceil(size / BLOCK) * BLOCK_ELEMENTS
    return [kept, kept]
  },
  step(given) {
    if (given.length < LEAST) step(given)
    else stepBlocks(given)
  },
})

/** Mantissa bits below the three that are kept. */
const CUT = 20
const ALL_CUT = 2 ** CUT - 1
/** The upper bits of 1 as a float: the largest code. */
const TOP = 127 << 3

/** The f32 with these bits, and back. */
const float = new Float32Array(1)
const word = new Int32Array(float.buffer)

/** Values of codes below `count`, relative to the block's largest. */
function valuesOf(count: number): Float32Array {
  const words = Int32Array.from({ length: count }, (_, code) => (code === 0 ? 0 : (code - (count - 1) + TOP) << CUT))
  return new Float32Array(words.buffer)
}
const [MEANS, SQUARES] = [valuesOf(128), valuesOf(256)]

/** The code, below `count`, of a number from 0 to 1, rounded up or down by 20 random bits. */
function codeOf(x: number, random: number, count: number): number {
  float[0] = x
  const code = ((word[0]! + (random & ALL_CUT)) >> CUT) - TOP + (count - 1)
  return code < 0 ? 0 : code > count - 1 ? count - 1 : code
}

/** A hash of 32 bits (Wellons' lowbias32). */
function hash(x: number): number {
  let h = Math.imul(x ^ (x >>> 16), 0x7feb352d)
  h = Math.imul(h ^ (h >>> 15), 0x846ca68b)
  return h ^ (h >>> 16)
}

const mean = new Float32Array(BLOCK)
const square = new Float32Array(BLOCK)
const seedFloat = new Float64Array(1)
const seedWords = new Int32Array(seedFloat.buffer)

function stepBlocks({ moment, squareMoment, parameter, powers, ...given }: TensorStep): void {
  const { weights, gradient, gradientScale, learningRate, settings, length } = given
  const { beta1, beta2, epsilon, weightDecay } = settings
  const [correction1, correction2] = [1 - powers[0]!, 1 - powers[1]!]
  seedFloat[0] = powers[1]!
  const seed = hash(seedWords[0]! ^ hash(seedWords[1]! ^ parameter.offset))
  const numBlocks = moment.length / BLOCK_ELEMENTS
  const codesOf = (column: Float32Array) =>
    new Uint8Array(column.buffer, column.byteOffset + 4 * numBlocks, numBlocks * BLOCK)
  const [means, squares] = [codesOf(moment), codesOf(squareMoment)]
  for (let block = 0; block < numBlocks; block++) {
    const from = block * BLOCK
    const count = Math.min(BLOCK, length - from)
    const [meanScale, squareScale] = [moment[block]!, squareMoment[block]!]
    let [meanMost, squareMost] = [0, 0]
    for (let i = 0; i < count; i++) {
      const g = gradient[from + i]! * gradientScale
      const code = means[from + i]!
      const former = code < 128 ? MEANS[code]! : -MEANS[code - 128]!
      mean[i] = beta1 * former * meanScale + (1 - beta1) * g
      square[i] = beta2 * SQUARES[squares[from + i]!]! * squareScale + (1 - beta2) * g * g
      const size = Math.abs(mean[i]!)
      if (size > meanMost) meanMost = size
      if (square[i]! > squareMost) squareMost = square[i]!
      const direction = mean[i]! / correction1 / (Math.sqrt(square[i]! / correction2) + epsilon)
      weights[from + i] = weights[from + i]! - learningRate * (direction + weightDecay * weights[from + i]!)
    }
    moment[block] = meanMost
    squareMoment[block] = squareMost
    // The power of a small β₂ comes to 0 in a long training; scales still change.
    float[0] = meanMost
    const scaleWord = word[0]!
    float[0] = squareMost
    const ofBlock = hash(seed ^ hash(scaleWord ^ hash(word[0]!)))
    for (let i = 0; i < count; i++) {
      const random = hash(ofBlock ^ (from + i))
      const m = mean[i]!
      const code = meanMost > 0 ? codeOf(Math.abs(m) / meanMost, random, 128) : 0
      means[from + i] = m < 0 ? code + 128 : code
      // No square of 0 beside a mean that is not: the step would have no divisor.
      const own = squareMost > 0 ? codeOf(square[i]! / squareMost, random >> 12, 256) : 0
      squares[from + i] = square[i]! > 0 && own === 0 ? 1 : own
    }
  }
}
