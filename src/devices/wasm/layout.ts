/** Transposing, tiling, gathering and summing, where tfjs's wasm backend goes element by element. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type Kernel, type KernelArguments, sizeOf, type TensorKernels } from './heap.ts'

/** GatherV2, Mean, Sum, Tile, Transpose and UnsortedSegmentSum. */
export function layoutKernels(heap: Heap): TensorKernels {
  return {
    GatherV2: gather(heap),
    Mean: reduce(heap, 'Mean'),
    Sum: reduce(heap, 'Sum'),
    Tile: tile(heap),
    Transpose: transpose(heap),
    UnsortedSegmentSum: unsortedSegmentSum(heap),
  }
}

/** Where the last axes change places with those before them, as a matrix's do; tfjs's own takes other orders. */
function transpose(heap: Heap): Kernel {
  const theirs = heap.registered('Transpose')
  return (given) => {
    const x = given.inputs.x!
    const { perm } = given.attrs as unknown as { perm: readonly number[] }
    const shape = perm.map((axis) => x.shape[axis]!)
    const swap = x.dtype === 'float32' || x.dtype === 'int32' ? swapOf(x.shape, perm) : undefined
    if (swap === undefined) return theirs(given)
    const out = heap.output(shape, x.dtype)
    heap.kernels.transposeMatrices(heap.words(out), heap.words(x), swap.count, swap.height, swap.width)
    return out
  }
}

/** A permutation as the transposing of `count` matrices, if it is one: some first axes, and then two groups changed. */
function swapOf(shape: readonly number[], perm: readonly number[]) {
  const moved = perm.filter((axis) => shape[axis] !== 1)
  const kept = moved.toSorted((a, b) => a - b)
  const first = moved.findIndex((axis, i) => axis !== kept[i])
  if (first === -1) return undefined
  const [from, to] = [moved.slice(first), kept.slice(first)]
  const turn = from.indexOf(to[0]!)
  if (String([...from.slice(turn), ...from.slice(0, turn)]) !== String(to)) return undefined
  const lengths = (axes: readonly number[]) => sizeOf(axes.map((axis) => shape[axis]!))
  return {
    count: lengths(kept.slice(0, first)),
    height: lengths(from.slice(turn)),
    width: lengths(from.slice(0, turn)),
  }
}

/** Each axis repeated: the smallest block that is whole is written once and then copied. */
function tile(heap: Heap): Kernel {
  return ({ inputs, attrs }: KernelArguments) => {
    const x = inputs.x!
    const { reps } = attrs as unknown as { reps: readonly number[] }
    const out = heap.output(
      x.shape.map((length, axis) => length * reps[axis]!),
      x.dtype,
    )
    const [into, from] = x.dtype === 'bool' ? [heap.flags(out), heap.flags(x)] : [heap.words(out), heap.words(x)]
    if (into.length > 0) tileAxis(into, from, x.shape, reps, 0, 0, 0)
    return out
  }
}

/** Writes what lies under axis `axis` at element `at` of x to element `to`; returns how much it wrote. */
function tileAxis(
  out: Int32Array | Uint8Array,
  x: Int32Array | Uint8Array,
  shape: readonly number[],
  reps: readonly number[],
  axis: number,
  at: number,
  to: number,
): number {
  let block = 0
  const rest = shape.slice(axis)
  if (reps.slice(axis + 1).every((count) => count === 1)) {
    block = sizeOf(rest)
    if (block === 1) {
      const count = reps[axis] ?? 1
      out.fill(x[at]!, to, to + count)
      return count
    }
    out.set(x.subarray(at, at + block) as Uint8Array, to)
  } else {
    const inner = sizeOf(rest.slice(1))
    for (let i = 0; i < rest[0]!; i++) block += tileAxis(out, x, shape, reps, axis + 1, at + i * inner, to + block)
  }
  const total = block * (reps[axis] ?? 1)
  for (let done = block; done < total; done *= 2) {
    out.copyWithin(to + done, to, to + Math.min(done, total - done))
  }
  return total
}

/** Slices of x by index, with leading batch axes or without. */
function gather(heap: Heap): Kernel {
  return ({ inputs, attrs }: KernelArguments) => {
    const { x, indices } = inputs as { x: TensorInfo; indices: TensorInfo }
    const { axis, batchDims } = attrs as unknown as { axis: number; batchDims: number }
    const { util, backend_util } = heap.tf
    const [along] = util.parseAxisParam(axis, x.shape)
    const shapes = backend_util.segment_util.collectGatherOpShapeInfo(x as never, indices as never, along!, batchDims)
    const { batchSize, outerSize, dimSize, sliceSize, outputShape } = shapes
    const given = heap.ints(indices)
    for (const index of given) {
      if (index < 0 || index >= dimSize) throw new Error(`gather: index ${index} is not in [0, ${dimSize - 1}]`)
    }
    const count = given.length / batchSize
    const out = heap.output(outputShape, x.dtype)
    const bytes = x.dtype === 'bool'
    const [into, from] = bytes ? [heap.flags(out), heap.flags(x)] : [heap.words(out), heap.words(x)]
    const list = heap.ints(indices)
    const rows = new Uint32Array(list.buffer, list.byteOffset, list.length)
    const { kernels } = heap
    for (let n = 0; n < batchSize * outerSize; n++) {
      const first = Math.floor(n / outerSize) * count
      const slices = from.subarray(n * dimSize * sliceSize, (n + 1) * dimSize * sliceSize)
      const gathered = into.subarray(n * count * sliceSize, (n + 1) * count * sliceSize)
      if (slices instanceof Int32Array) {
        kernels.gatherRows(gathered as Int32Array, slices, rows, first, count, sliceSize)
      } else {
        for (let i = 0; i < count; i++) {
          const at = rows[first + i]! * sliceSize
          gathered.set(slices.subarray(at, at + sliceSize), i * sliceSize)
        }
      }
    }
    return out
  }
}

/**
 * Sums or means of floats over neighbouring axes that are not the last, which tfjs transposes for, and over nothing, where
 * it leaves what the heap holds. Its own take the rest.
 */
function reduce(heap: Heap, name: 'Sum' | 'Mean'): Kernel {
  const theirs = heap.registered(name)
  return (given) => {
    const x = given.inputs.x!
    const { axis, keepDims } = given.attrs as unknown as { axis: number | number[]; keepDims: boolean }
    const axes = heap.tf.util.parseAxisParam(axis, x.shape)
    const long = axes.filter((at) => x.shape[at] !== 1).toSorted((a, b) => a - b)
    const [first, last] = [long[0] ?? 0, long.at(-1) ?? -1]
    const between = x.shape.slice(first, last + 1)
    const depth = sizeOf(between)
    const isOne = depth === sizeOf(long.map((at) => x.shape[at]!))
    const width = sizeOf(x.shape.slice(last + 1))
    const isEmpty = sizeOf(x.shape) === 0
    if (x.dtype !== 'float32' || (!isEmpty && (!isOne || width === 1 || depth === 1))) return theirs(given)
    const shape = x.shape.flatMap((length, at) => (!axes.includes(at) ? [length] : keepDims ? [1] : []))
    const out = heap.output(shape, 'float32')
    const { kernels } = heap
    const sums = heap.floats(out)
    if (isEmpty) sums.fill(name === 'Sum' ? 0 : Number.NaN)
    else {
      kernels.sumMiddle(sums, heap.floats(x), sizeOf(x.shape.slice(0, first)), depth, width)
      if (name === 'Mean') for (let i = 0; i < sums.length; i++) sums[i] = sums[i]! / depth
    }
    return out
  }
}

/**
 * output[s] is the sum of those x[i] whose segment is s, in rising order of i; x[i] is what the first axis of x holds.
 * Rows of a negative segment or one that does not exist are left out, as in tfjs's cpu backend.
 */
function unsortedSegmentSum(heap: Heap): Kernel {
  return ({ inputs, attrs }: KernelArguments) => {
    const { x, segmentIds } = inputs as { x: TensorInfo; segmentIds: TensorInfo }
    const { numSegments } = attrs as unknown as { numSegments: number }
    const [numRows, ...rowShape] = x.shape as [number, ...number[]]
    const values = x.dtype === 'float32' ? x : heap.run('Cast', { x }, { dtype: 'float32' })
    const out = heap.output([numSegments, ...rowShape], 'float32')
    const { kernels } = heap
    const sums = heap.floats(out).fill(0)
    kernels.addToSegments(sums, heap.floats(values), heap.ints(segmentIds), numRows, sizeOf(rowShape), numSegments)
    if (values !== x) heap.free(values)
    return out
  }
}
