/** Transposing, tiling, gathering and summing, which tfjs's wasm backend does element by element. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type Kernel, type KernelArguments, sizeOf, type TensorKernels } from './heap.ts'

/** Concat, GatherV2, Mean, Slice, SplitV, Sum, Tile, Transpose and UnsortedSegmentSum. */
export function layoutKernels(heap: Heap): TensorKernels {
  return {
    Concat: concat(heap),
    GatherV2: gather(heap),
    Mean: reduce(heap, 'Mean'),
    Slice: slice(heap),
    SplitV: split(heap),
    Sum: reduce(heap, 'Sum'),
    Tile: tile(heap),
    Transpose: transpose(heap),
    UnsortedSegmentSum: unsortedSegmentSum(heap),
  }
}

const hasWords = ({ dtype }: TensorInfo): boolean => dtype === 'float32' || dtype === 'int32'

function concat(heap: Heap): Kernel {
  const theirs = heap.registered('Concat')
  return (given) => {
    const tensors = Object.values(given.inputs) as TensorInfo[]
    const [first] = tensors as [TensorInfo]
    if (!tensors.every((tensor) => hasWords(tensor) && tensor.dtype === first.dtype)) return theirs(given)
    const { util, backend_util } = heap.tf
    const [axis] = util.parseAxisParam((given.attrs as unknown as { axis: number }).axis, first.shape)
    const shapes = tensors.map(({ shape }) => shape)
    backend_util.assertParamsConsistent(shapes, axis!)
    const shape = backend_util.computeOutShape(shapes, axis!)
    const out = heap.output(shape, first.dtype)
    const [numRows, row] = [sizeOf(shape.slice(0, axis)), sizeOf(shape.slice(axis))]
    const { kernels } = heap
    const into = heap.words(out)
    let from = 0
    for (const tensor of tensors) {
      const width = sizeOf(tensor.shape.slice(axis))
      if (width > 0) kernels.copyRows(into, heap.words(tensor), numRows, width, row, width, from, 0)
      from += width
    }
    return out
  }
}

function split(heap: Heap): Kernel {
  const theirs = heap.registered('SplitV')
  return (given) => {
    const x = given.inputs.x!
    if (!hasWords(x)) return theirs(given)
    const attributes = given.attrs as unknown as { axis: number; numOrSizeSplits: number | number[] }
    const [axis] = heap.tf.util.parseAxisParam(attributes.axis, x.shape)
    const lengths = heap.tf.backend_util.prepareSplitSize(x as never, attributes.numOrSizeSplits, axis)
    const parts = lengths.map((length) => heap.output(x.shape.with(axis!, length), x.dtype))
    const [numRows, row] = [sizeOf(x.shape.slice(0, axis)), sizeOf(x.shape.slice(axis))]
    const inner = sizeOf(x.shape.slice(axis! + 1))
    const { kernels } = heap
    const from = heap.words(x)
    let first = 0
    for (const [i, part] of parts.entries()) {
      const width = lengths[i]! * inner
      if (width > 0) kernels.copyRows(heap.words(part), from, numRows, width, width, row, 0, first)
      first += width
    }
    return parts
  }
}

/** A block of a tensor: contiguous elements as far as possible, then rows of them. */
function slice(heap: Heap): Kernel {
  const theirs = heap.registered('Slice')
  return (given) => {
    const x = given.inputs.x!
    if (!hasWords(x)) return theirs(given)
    const attributes = given.attrs as unknown as { begin: number[]; size: number[] }
    const { parseSliceParams, assertParamsValid } = heap.tf.slice_util
    const [begin, size] = parseSliceParams(x as never, attributes.begin, attributes.size)
    assertParamsValid(x as never, begin!, size!)
    const out = heap.output(size!, x.dtype)
    if (sizeOf(size!) === 0) return out
    // Axes as (first element, elements taken, stride), last first; an axis is merged with the one behind it if that is taken whole.
    const axes: { from: number; taken: number; step: number }[] = []
    let step = 1
    let isWhole = false
    for (let axis = size!.length - 1; axis >= 0; axis--) {
      const [from, taken, all] = [begin![axis]!, size![axis]!, x.shape[axis]!]
      const inner = axes.at(-1)
      if (isWhole) axes[axes.length - 1] = { from: from * step, taken: taken * inner!.taken, step: inner!.step }
      else axes.push({ from: from * step, taken, step })
      step *= all
      isWhole = taken === all
    }
    const [run = { from: 0, taken: 1, step: 1 }, rows = { from: 0, taken: 1, step: 1 }, ...outer] = axes
    let starts = [run.from + rows.from]
    for (const axis of outer) {
      starts = Array.from({ length: axis.taken }, (_, i) => i).flatMap((i) =>
        starts.map((start) => start + axis.from + i * axis.step),
      )
    }
    const { kernels } = heap
    const [into, from] = [heap.words(out), heap.words(x)]
    const block = run.taken * rows.taken
    for (const [n, start] of starts.entries()) {
      kernels.copyRows(into, from, rows.taken, run.taken, run.taken, rows.step, n * block, start)
    }
    return out
  }
}

/** Swaps the last axes with those before them, like a matrix transpose; tfjs's own kernel handles other orders. */
function transpose(heap: Heap): Kernel {
  const theirs = heap.registered('Transpose')
  return (given) => {
    const x = given.inputs.x!
    const { perm } = given.attrs as unknown as { perm: readonly number[] }
    const shape = perm.map((axis) => x.shape[axis]!)
    if (sizeOf(shape) === 0) return heap.output(shape, x.dtype) // tfjs's kernel would divide by zero lengths.
    const swap = hasWords(x) ? swapOf(x.shape, perm) : undefined
    if (swap === undefined) return theirs(given)
    const out = heap.output(shape, x.dtype)
    heap.kernels.transposeMatrices(heap.words(out), heap.words(x), swap.count, swap.height, swap.width)
    return out
  }
}

/** A permutation as the transposition of `count` matrices, if it is one: leading axes stay, then two groups of axes are swapped. */
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

/** Repeats each axis: the smallest complete block is written once and then copied. */
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

/** Writes the part of x at element `at` under axis `axis` to element `to`; returns the number of written elements. */
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

/** Slices of x by index, with or without leading batch axes. */
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
 * Sums or means of floats. tfjs transposes first if the axes are not the last ones, adds sequentially in f32, and returns uninitialized
 * memory for an empty sum. A mean of nothing is NaN, as in TensorFlow.
 */
function reduce(heap: Heap, name: 'Sum' | 'Mean'): Kernel {
  const theirs = heap.registered(name)
  return (given) => {
    const x = given.inputs.x!
    const isEmpty = sizeOf(x.shape) === 0
    if (x.dtype !== 'float32' && !(isEmpty && x.dtype === 'int32')) return theirs(given)
    const { axis, keepDims } = given.attrs as unknown as { axis: number | number[]; keepDims: boolean }
    const axes = heap.tf.util.parseAxisParam(axis, x.shape)
    const out = heap.output(
      x.shape.flatMap((length, at) => (!axes.includes(at) ? [length] : keepDims ? [1] : [])),
      name === 'Mean' ? 'float32' : x.dtype,
    )
    if (isEmpty) {
      if (name === 'Mean') heap.floats(out).fill(Number.NaN)
      else heap.words(out).fill(0)
      return out
    }
    const rising = axes.toSorted((a, b) => a - b)
    sumGroups(heap, out, x, x.shape, rising)
    const count = sizeOf(axes.map((at) => x.shape[at]!))
    if (name === 'Mean' && count > 1) {
      const means = heap.floats(out)
      for (let i = 0; i < means.length; i++) means[i] = means[i]! / count
    }
    return out
  }
}

/** Sums x, viewed with `shape`, over `axes` (ascending) into `out`: neighboring axes together, the last of them first. */
function sumGroups(
  heap: Heap,
  out: TensorInfo,
  x: TensorInfo,
  shape: readonly number[],
  axes: readonly number[],
): void {
  let first = axes.length - 1
  while (first > 0 && axes[first - 1] === axes[first]! - 1) first--
  const [from, to] = axes.length === 0 ? [0, 0] : [axes[first]!, axes.at(-1)! + 1]
  const [count, depth, width] = [shape.slice(0, from), shape.slice(from, to), shape.slice(to)].map(sizeOf)
  if (first <= 0) {
    heap.kernels.sumMiddle(heap.floats(out), heap.floats(x), count!, depth!, width!)
    return
  }
  const rest = [...shape.slice(0, from), ...shape.slice(to)]
  const partial = heap.output(rest, 'float32')
  heap.kernels.sumMiddle(heap.floats(partial), heap.floats(x), count!, depth!, width!)
  sumGroups(heap, out, partial, rest, axes.slice(0, first))
  heap.free(partial)
}

/**
 * output[s] is the sum of all x[i] with segment s, in ascending order of i; x[i] is a slice along the first axis. Slices with a negative
 * or too large segment are ignored, as in tfjs's cpu backend.
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
