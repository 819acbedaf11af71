/** The dense kernels and the product at many shapes, native beside relaxed: whether a call is ever slower for going to C. */
import { Activation, createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import { Columns } from '../kernels/columns.ts'
import { type Figure, figure } from '../measure.ts'

const ROWS = [1, 2, 4, 16, 64, 256, 1000]
const SIZES = [1, 2, 3, 4, 16, 64, 512, 1024]
/** Elements of the largest column. */
const MOST = 1 << 20
/** Operations of one run, calls of one run at most, and turns, of which the quickest counts. */
const RUN_FLOP = 4e5
const MOST_CALLS = 2000
const TURNS = 5

/** For each kernel the relaxed body's least time over the native one's, over all shapes; nothing without native kernels. */
export function shapeFigures(): Figure[] {
  if (!kernelBuilds().includes('native')) return []
  const memory = new WebAssembly.Memory({ initial: 512, maximum: 512, shared: true })
  const columns = new Columns(memory)
  const [x, y, w, g] = [MOST, MOST, MOST, MOST].map((length) => {
    const column = columns.floats(length)
    for (let i = 0; i < length; i++) column[i] = Math.sin(i) / 10
    return column
  }) as [Float32Array, Float32Array, Float32Array, Float32Array]
  const [bias, none, workspace] = [columns.floats(1024), columns.floats(0), columns.floats(1025 * 1024)]
  type Call = (k: Kernels, rows: number, inputs: number, outputs: number) => void
  const calls: Record<string, Call> = {
    denseForward: (k, rows, inputs, outputs) => {
      k.denseForward(y, x, w, bias, rows, inputs, outputs, Activation.tanh, 0, 0)
    },
    denseBackwardWeights: (k, rows, inputs, outputs) => k.denseBackwardWeights(g, bias, y, x, rows, inputs, outputs, 0),
    denseBackwardInput: (k, rows, inputs, outputs) => {
      k.denseBackwardInput(y, x, w, workspace, g, rows, inputs, outputs, false, Activation.tanh)
    },
    matmul: (k, rows, inputs, outputs) => {
      k.matmul(y, x, w, none, workspace, rows, outputs, inputs, false, false, false)
    },
  }
  const shapes = SIZES.flatMap((inputs) =>
    SIZES.flatMap((outputs) => ROWS.map((rows) => ({ rows, inputs, outputs }))),
  ).filter(({ rows, inputs, outputs }) => rows * Math.max(inputs, outputs) <= MOST)
  const [native, relaxed] = [createKernels(memory, 'native'), createKernels(memory, 'relaxed')]
  return Object.entries(calls).map(([name, call]) => {
    const ratios = shapes.map(({ rows, inputs, outputs }) => {
      const times = Math.max(3, Math.min(MOST_CALLS, Math.round(RUN_FLOP / (2 * rows * inputs * outputs))))
      const least = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
      for (let turn = 0; turn < TURNS; turn++) {
        for (const [i, kernels] of [native, relaxed].entries()) {
          const start = performance.now()
          for (let n = 0; n < times; n++) call(kernels, rows, inputs, outputs)
          least[i] = Math.min(least[i]!, performance.now() - start)
        }
      }
      return least[1]! / least[0]!
    })
    return figure(
      `${name}, ${shapes.length} shapes of 1–1,000 rows, 1–1,024 inputs and outputs, relaxed over native`,
      '×',
      ratios,
    )
  })
}
