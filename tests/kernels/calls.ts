/**
 * Calls of kernels for tests: columns laid out in one memory between guards, so that a body that writes beyond shows. Plain
 * bodies get columns that throw where an element is read or written that is not there.
 */
import type { Kernels } from '../../src/kernels/kernels.ts'
import { type BenchBuild, kernelsOf } from '../support/builds.ts'

export type Column = Float32Array | Float64Array | Int32Array | Uint32Array | Uint16Array | Uint8Array
export type Argument = Column | number | boolean

/** What a call left: its columns, in the order of the arguments (undefined for a number), and what it returned. */
export interface Outcome {
  readonly columns: readonly (Column | undefined)[]
  readonly result: unknown
}

/** Bytes before and after each column; all ones, which is NaN in f32 and f64, so that reading them shows too. */
const GUARD_BYTES = 64
const GUARD = 0xff

/** Elements of all columns of a call up to which plain bodies get strict columns, which are slow. */
const STRICT_LENGTH_MAX = 1000

/** A column that throws a RangeError where an element is read or written that it does not have. */
function strictColumn<T extends Column>(column: T): T {
  const check = (key: string | symbol): void => {
    if (typeof key === 'string' && String(Number(key)) === key && !Reflect.has(column, key)) {
      throw new RangeError(`element ${key} of a column of ${column.length}`)
    }
  }
  return new Proxy(column, {
    get(_, key) {
      check(key)
      if (key === 'subarray') return (...range: number[]) => strictColumn(column.subarray(...range))
      const value: unknown = Reflect.get(column, key)
      return typeof value === 'function' ? value.bind(column) : value
    },
    set(_, key, value) {
      check(key)
      return Reflect.set(column, key, value)
    },
  })
}

function strictArgument(argument: unknown): unknown {
  if (typeof argument !== 'object' || argument === null || Array.isArray(argument)) return argument
  if (ArrayBuffer.isView(argument)) return strictColumn(argument as Column)
  return Object.fromEntries(Object.entries(argument).map(([name, part]) => [name, strictArgument(part)]))
}

/** A plain body, or what else takes columns: they throw a RangeError where it reads or writes beyond them, in groups too. */
export function strict<Given extends readonly unknown[], Result>(
  body: (...given: Given) => Result,
): (...given: Given) => Result {
  return (...given) => body(...(given.map(strictArgument) as unknown as Given))
}

type Grouped = (given: readonly Argument[]) => readonly unknown[]

const attention: Grouped = (given) => [...given.slice(0, -4), shapeOf(given.slice(-3)), given.at(-4)]
const shapeOf = ([numHeads, numKeyHeads, headWidth]: readonly Argument[]) => ({ numHeads, numKeyHeads, headWidth })
const geometryOf = ([height, width, channels, outHeight, outWidth, filterHeight, filterWidth, ...rest]: Argument[]) => {
  const [strideHeight, strideWidth, dilationHeight, dilationWidth, padTop, padLeft] = rest
  const sizes = { height, width, channels, outHeight, outWidth, filterHeight, filterWidth }
  return { ...sizes, strideHeight, strideWidth, dilationHeight, dilationWidth, padTop, padLeft }
}
const patches: Grouped = ([into, from, count, ...rest]) => [into, from, geometryOf(rest), count]
const imageOf = ([height, width, channels, filters, kernelSize]: readonly Argument[]) => {
  return { height, width, channels, filters, kernelSize }
}
/** Columns, then the sizes of images, and other numbers. */
const convolution =
  (columns: number): Grouped =>
  (given) => [...given.slice(0, columns), imageOf(given.slice(columns)), ...given.slice(columns + 5)]
const cell =
  (at: number): Grouped =>
  (given) => {
    const [recorded, continues, carried] = given.slice(at)
    return [...given.slice(0, at), { recorded, continues, carried }, ...given.slice(at + 3)]
  }

/** Kernels whose parameters group columns or numbers: what they take, from a list of them all. */
const GROUPED: { readonly [name in keyof Kernels]?: Grouped } = {
  adamStep: (given) => {
    const [beta1, beta2, epsilon, weightDecay] = given.slice(6)
    return [...given.slice(0, 6), { beta1, beta2, epsilon, weightDecay }, ...given.slice(10)]
  },
  addDepthwise: ([y, x, weight, into, multiplier, count, ...rest]) => {
    return [y, x, weight, geometryOf(rest), into, multiplier, count]
  },
  attentionForward: attention,
  attentionOfHalves: attention,
  attentionBackward: (given) => {
    const [dq, dk, dv, dOut, attended, query, key, value, logSum, ...rest] = attention(given)
    return [dq, dk, dv, dOut, { attended, query, key, value, logSum }, ...rest]
  },
  a2cLoss: ([dLogprob, dEntropy, dValue, sums, logprob, entropy, value, advantage, returns, ...rest]) => {
    const [advantageMean, advantageScale, entropyCoef, valueCoef, weight, ...numbers] = rest
    return [
      { dLogprob, dEntropy, dValue },
      sums,
      { logprob, entropy, value },
      { advantage, return: returns },
      { advantageMean, advantageScale, entropyCoef, valueCoef, weight },
      ...numbers,
    ]
  },
  closeRow: ([lane, episode, step, episodeReturn, version, nextValue, ...rest]) => {
    const [laneStep, laneReturn, phase, laneLane, laneEpisode, reward, terminated, truncated, valid, ...numbers] = rest
    const row = { lane, episode, step, episodeReturn, version, nextValue, reward, terminated, truncated, valid }
    const lanes = { lane: laneLane, episode: laneEpisode, step: laneStep, episodeReturn: laneReturn, phase }
    return [row, lanes, ...numbers]
  },
  convolutionBackwardInput: convolution(5),
  convolutionBackwardWeights: convolution(5),
  convolutionForward: convolution(5),
  discountedReturns: ([returns, carry, reward, nextValue, terminated, truncated, valid, ...numbers]) => {
    return [{ return: returns, reward, nextValue, terminated, truncated, valid }, carry, ...numbers]
  },
  foldPatches: patches,
  gae: ([advantage, returns, carry, reward, value, nextValue, terminated, truncated, valid, ...numbers]) => {
    const rollout = { advantage, return: returns, reward, value, nextValue, terminated, truncated, valid }
    return [rollout, carry, ...numbers]
  },
  gruBackward: cell(7),
  gruForward: cell(5),
  lstmBackward: cell(7),
  lstmForward: cell(5),
  ppoLoss: ([dLogprob, dEntropy, dValue, sums, logprob, entropy, value, ...rest]) => {
    const [oldLogprob, oldValue, advantage, returns, advantageMean, advantageScale, clipCoef, ...more] = rest
    const [clipValue, entropyCoef, valueCoef, weight, ...numbers] = more
    return [
      { dLogprob, dEntropy, dValue },
      sums,
      { logprob, entropy, value },
      { logprob: oldLogprob, value: oldValue, advantage, return: returns },
      { advantageMean, advantageScale, clipCoef, clipValue, entropyCoef, valueCoef, weight },
      ...numbers,
    ]
  },
  unfoldPatches: patches,
  vtrace: ([advantage, returns, carry, logprob, oldLogprob, reward, value, nextValue, ...rest]) => {
    const [terminated, truncated, valid, ...numbers] = rest
    const read = { logprob: oldLogprob, reward, value, nextValue, terminated, truncated, valid }
    return [{ advantage, return: returns, ...read }, carry, logprob, ...numbers]
  },
}

/** The kernels of one build over a memory of their own. */
export class Bench {
  readonly #bytes: Uint8Array
  readonly #kernels: Kernels
  readonly #isPlain: boolean

  constructor(build: BenchBuild, shared = true, pages = 160) {
    this.#isPlain = build === 'plain'
    const memory = new WebAssembly.Memory(shared ? { initial: pages, maximum: pages, shared } : { initial: pages })
    this.#bytes = new Uint8Array(memory.buffer)
    this.#kernels = kernelsOf(memory, build)
  }

  /** Copies the arguments' columns into the memory, calls the kernel on them, and copies them out. */
  call(name: keyof Kernels, given: readonly Argument[], shift = 0): Outcome {
    let end = 1024 + 8 * shift
    const placed = given.map((argument) => {
      if (typeof argument === 'number' || typeof argument === 'boolean') return argument
      this.#bytes.fill(GUARD, end, end + GUARD_BYTES)
      end += GUARD_BYTES
      const View = argument.constructor as new (buffer: ArrayBufferLike, at: number, length: number) => Column
      const column = new View(this.#bytes.buffer, end, argument.length)
      column.set(argument)
      // The next column begins where the elements allow it, not at a cache line: kernels may assume no more.
      const after = end + argument.byteLength
      end = Math.ceil(after / 8) * 8
      this.#bytes.fill(GUARD, after, end + GUARD_BYTES)
      return column
    })
    const kernel = this.#kernels[name] as (...given: unknown[]) => unknown
    const length = placed.reduce((sum: number, column) => sum + (typeof column === 'object' ? column.length : 0), 0)
    const grouped = GROUPED[name]?.(placed) ?? placed
    const result = (this.#isPlain && length <= STRICT_LENGTH_MAX ? strict(kernel) : kernel)(...grouped)
    for (const column of placed) {
      if (typeof column === 'number' || typeof column === 'boolean') continue
      const after = column.byteOffset + column.byteLength
      for (let i = 1; i <= GUARD_BYTES; i++) {
        if (this.#bytes[column.byteOffset - i] !== GUARD) throw new Error(`${name} wrote before a column`)
        if (this.#bytes[after + i - 1] !== GUARD) throw new Error(`${name} wrote beyond a column`)
      }
    }
    return {
      columns: placed.map((column) => (typeof column === 'object' ? column.slice() : undefined)),
      result,
    }
  }
}

/** Seeded numbers for a case (a linear congruential generator's upper bits; tests need no better). */
export class Numbers {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
    this.uniform()
  }

  /** In [low, high). */
  uniform(low = 0, high = 1): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0
    return low + (high - low) * ((this.#state >>> 8) / 2 ** 24)
  }

  whole(low: number, high: number): number {
    return Math.floor(this.uniform(low, high + 1))
  }

  floats(length: number, low = -1, high = 1): Float32Array {
    const column = new Float32Array(length)
    for (let i = 0; i < length; i++) column[i] = this.uniform(low, high)
    return column
  }

  flags(length: number, part = 0.2): Uint8Array {
    const column = new Uint8Array(length)
    for (let i = 0; i < length; i++) column[i] = this.uniform() < part ? 1 : 0
    return column
  }

  wholes(length: number, low: number, high: number): Int32Array {
    const column = new Int32Array(length)
    for (let i = 0; i < length; i++) column[i] = this.whole(low, high)
    return column
  }
}
