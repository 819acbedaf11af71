/** Layers of square weights: the product, the layer forward and backward, by our builds, torch and JAX on one thread each, in turns. */
import { Activation, createKernels, kernelBuilds, MATMUL_SCRATCH } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import type { Companion } from '../companion.ts'
import { Columns } from '../kernels/columns.ts'
import { TwinNumbers } from '../kernels/network.ts'
import { check, type Figure, figure, interleave, ratio } from '../measure.ts'
import { type Answer, ROWS, WIDTHS } from './sizes.ts'

const REPEATS = 9
/** Operations of one run, at least one call's. */
const RUN_FLOP = 2e8
/** Numbers before they repeat (`widths.py`). */
const PERIOD = 4096

/** What is timed, and how many times the operations of a product it takes. */
const WORK = { product: 1, forward: 1, backward: 2 } as const
type What = keyof typeof WORK

/** Our layers: one call's seconds, and the sum of the first one's results. */
function ourLayers() {
  const memory = new WebAssembly.Memory({ initial: 2560, maximum: 2560, shared: true })
  const columns = new Columns(memory)
  const [rowsMost, widest] = [Math.max(...ROWS), Math.max(...WIDTHS)]
  const [a, b, c] = [columns.floats(rowsMost * widest), columns.floats(widest ** 2), columns.floats(rowsMost * widest)]
  const [dWeight, dBias] = [columns.floats(widest ** 2), columns.floats(widest)]
  const scratch = columns.floats(Math.max(MATMUL_SCRATCH, (widest + 1) * widest))
  const numbers = new Float32Array(PERIOD)
  new TwinNumbers().fill(numbers, -1, 1)
  for (const column of [a, b]) for (let i = 0; i < column.length; i += PERIOD) column.set(numbers, i)
  const none = columns.floats(0)
  const call = (kernels: Kernels, what: What, rows: number, width: number): void => {
    if (what === 'product') kernels.matmul(c, a, b, none, scratch, rows, width, width, false, false, false)
    else if (what === 'forward') kernels.denseForward(c, a, b, b, rows, width, width, Activation.tanh, 0, 0)
    else {
      kernels.denseBackwardWeights(dWeight, dBias, a, a, rows, width, width, 0)
      kernels.denseBackwardInput(c, a, b, scratch, a, rows, width, width, false, Activation.tanh)
    }
  }
  const sumOf = (column: Float32Array) => column.reduce((sum, value) => sum + value, 0)
  return kernelBuilds()
    .filter((build) => build === 'relaxed' || build === 'native')
    .map((build) => {
      const kernels = createKernels(memory, build)
      const run = (what: What, rows: number, width: number, calls: number): { seconds: number; sum: number } => {
        dWeight.fill(0)
        dBias.fill(0)
        call(kernels, what, rows, width)
        const made = [c.subarray(0, rows * width), dWeight.subarray(0, width * width), dBias.subarray(0, width)]
        const sum = made.reduce((total, column) => total + sumOf(column), 0)
        const start = performance.now()
        for (let i = 0; i < calls; i++) call(kernels, what, rows, width)
        return { seconds: (performance.now() - start) / 1000 / calls, sum }
      }
      return [build, run] as const
    })
}

export async function layerFigures(peer: Companion): Promise<Figure[]> {
  const ours = ourLayers()
  const best = ours.at(-1)?.[0]
  const figures: Figure[] = []
  const sizes = WIDTHS.flatMap((width) => ROWS.map((rows) => ({ width, rows })))
  for (const [what, times] of Object.entries(WORK) as [What, number][]) {
    for (const { width, rows } of sizes) {
      const flop = times * 2 * rows * width * width
      const calls = Math.max(1, Math.round(RUN_FLOP / flop))
      const ask = (library: string, count: number) => peer.ask<Answer>(`${library} ${what} ${rows} ${width} ${count}`)
      const [torch, jax] = [await ask('torch', 1), await ask('jax', 1)]
      const tolerance = 1e-5 * (rows + (what === 'backward' ? width : 0)) * width * Math.sqrt(Math.max(rows, width))
      const compare = (who: string, sum: number) =>
        check(Math.abs(sum - torch.sum) <= tolerance, `the sum of ${what} by ${who} is ${torch.sum}, not ${sum}`)
      compare('JAX', jax.sum)
      for (const [build, run] of ours) compare(build, run(what, rows, width, 0).sum)
      const runners = {
        ...Object.fromEntries(ours.map(([build, run]) => [build, () => run(what, rows, width, calls).seconds])),
        torch: async () => (await ask('torch', calls)).seconds,
        jax: async () => (await ask('jax', calls)).seconds,
      } as Record<string, () => number | Promise<number>>
      const seconds = await interleave(runners, { repeats: REPEATS })
      const name = `${what === 'product' ? 'product' : `layer with tanh, ${what}`}, ${rows} × ${width} with ${width} × ${width}, 1 thread`
      const told = (who: string, taken: readonly number[]) =>
        figure(
          `${name}, ${who}`,
          'GFLOP/s',
          taken.map((value) => flop / value / 1e9),
        )
      figures.push(told(`torch ${torch.version}`, seconds.torch!), told(`JAX ${jax.version}`, seconds.jax!))
      for (const [build] of ours) {
        const taken = seconds[build]!
        const isBest = build === best
        const wanted = isBest && what === 'product' && width >= 256 && rows >= 256 ? { atLeast: 0.9 } : undefined
        const ratios = [ratio('torch', seconds.torch!, taken, wanted), ratio('JAX', seconds.jax!, taken)]
        if (isBest && build !== 'relaxed') ratios.push(ratio('relaxed', seconds.relaxed!, taken, { atLeast: 1 }))
        figures.push({ ...told(`Colonnade, ${build}`, taken), ratios })
      }
    }
  }
  return figures
}
