/** Square weights times rows: our builds, torch and JAX on one thread each, in turns. */
import { createKernels, kernelBuilds, MATMUL_SCRATCH } from '../../src/kernels/bind.ts'
import { Companion } from '../companion.ts'
import { Columns } from '../kernels/columns.ts'
import { TwinNumbers } from '../kernels/network.ts'
import { check, type Figure, figure, interleave, ratio } from '../measure.ts'
import { peerSource } from './python.ts'

const ROWS = [16, 256, 8192]
const WIDTHS = [64, 256, 512, 1024]
const REPEATS = 9
/** Operations of one run, at least one call's. */
const RUN_FLOP = 2e8
/** Numbers before they repeat (`products.py`). */
const PERIOD = 4096

interface Answer {
  readonly seconds: number
  readonly sum: number
  readonly version: string
}

/** Our products: one call's seconds and the sum of its result. */
function ourProducts() {
  const memory = new WebAssembly.Memory({ initial: 2048, maximum: 2048, shared: true })
  const columns = new Columns(memory)
  const most = Math.max(...ROWS) * Math.max(...WIDTHS)
  const [a, b, c] = [columns.floats(most), columns.floats(Math.max(...WIDTHS) ** 2), columns.floats(most)]
  const scratch = columns.floats(MATMUL_SCRATCH)
  const numbers = new Float32Array(PERIOD)
  new TwinNumbers().fill(numbers, -1, 1)
  for (const column of [a, b]) for (let i = 0; i < column.length; i += PERIOD) column.set(numbers, i)
  const none = columns.floats(0)
  return kernelBuilds()
    .filter((build) => build === 'relaxed' || build === 'native')
    .map((build) => {
      const kernels = createKernels(memory, build)
      const run = (rows: number, width: number, calls: number): { seconds: number; sum: number } => {
        const start = performance.now()
        for (let i = 0; i < calls; i++) {
          kernels.matmul(c, a, b, none, scratch, rows, width, width, false, false, false)
        }
        const seconds = (performance.now() - start) / 1000 / calls
        return { seconds, sum: c.subarray(0, rows * width).reduce((sum, value) => sum + value, 0) }
      }
      return [build, run] as const
    })
}

export async function productFigures(python: string): Promise<Figure[]> {
  const peer = new Companion(python, [peerSource('products.py')])
  const ours = ourProducts()
  const best = ours.at(-1)?.[0]
  const figures: Figure[] = []
  try {
    for (const width of WIDTHS) {
      for (const rows of ROWS) {
        const flop = 2 * rows * width * width
        const calls = Math.max(1, Math.round(RUN_FLOP / flop))
        const ask = (library: string, count: number) => peer.ask<Answer>(`${library} ${rows} ${width} ${count}`)
        const [torch, jax] = [await ask('torch', 1), await ask('jax', 1)]
        const tolerance = 1e-5 * rows * width * Math.sqrt(width)
        const compare = (who: string, sum: number) =>
          check(Math.abs(sum - torch.sum) <= tolerance, `the sum by ${who} is ${torch.sum}, not ${sum}`)
        compare('JAX', jax.sum)
        for (const [build, run] of ours) compare(build, run(rows, width, 1).sum)
        const runners = {
          ...Object.fromEntries(ours.map(([build, run]) => [build, () => run(rows, width, calls).seconds])),
          torch: async () => (await ask('torch', calls)).seconds,
          jax: async () => (await ask('jax', calls)).seconds,
        } as Record<string, () => number | Promise<number>>
        const seconds = await interleave(runners, { repeats: REPEATS })
        const name = `product of ${rows} × ${width} with ${width} × ${width}, 1 thread`
        const told = (who: string, taken: readonly number[]) =>
          figure(
            `${name}, ${who}`,
            'GFLOP/s',
            taken.map((value) => flop / value / 1e9),
          )
        figures.push(told(`torch ${torch.version}`, seconds.torch!), told(`JAX ${jax.version}`, seconds.jax!))
        for (const [build] of ours) {
          const taken = seconds[build]!
          const wanted = build === best && width >= 256 && rows >= 256 ? { atLeast: 0.9 } : undefined
          const ratios = [ratio('torch', seconds.torch!, taken, wanted), ratio('JAX', seconds.jax!, taken)]
          figures.push({ ...told(`Colonnade, ${build}`, taken), ratios })
        }
      }
    }
    return figures
  } finally {
    peer.close()
  }
}
