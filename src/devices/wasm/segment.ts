/** Sums by segment: what a gather's gradient needs. */
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type KernelArguments, sizeOf, type TensorKernels } from './heap.ts'

/** UnsortedSegmentSum. */
export function segmentKernels(heap: Heap): TensorKernels {
  /**
   * output[s] is the sum of those x[i] whose segment is s, in rising order of i; x[i] is what the first axis of x holds.
   * Rows of a negative segment or one that does not exist are left out, as in tfjs's cpu backend.
   */
  const unsortedSegmentSum = ({ inputs: { x, segmentIds }, attrs }: KernelArguments): TensorInfo => {
    const { numSegments } = attrs as unknown as { numSegments: number }
    const [numRows, ...rowShape] = x!.shape as [number, ...number[]]
    const width = sizeOf(rowShape)
    const values = x!.dtype === 'float32' ? x! : heap.run('Cast', { x: x! }, { dtype: 'float32' })
    const sums = heap.output([numSegments, ...rowShape], 'float32')
    const into = heap.floats(sums).fill(0)
    const [from, ids] = [heap.floats(values), heap.ints(segmentIds!)]
    for (let row = 0, i = 0; row < numRows; row++) {
      const segment = ids[row]!
      if (segment < 0 || segment >= numSegments) {
        i += width
        continue
      }
      for (let k = 0, at = segment * width; k < width; k++, at++, i++) into[at] = into[at]! + from[i]!
    }
    if (values !== x) heap.free(values)
    return sums
  }
  return { UnsortedSegmentSum: unsortedSegmentSum }
}
