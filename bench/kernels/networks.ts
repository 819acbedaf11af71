/** The dense network by every build and by the C twins, in turns. */
import { availableParallelism } from 'node:os'
import { createKernels } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import type { Companion } from '../companion.ts'
import { checkClose, type Figure, figure, interleave, type Ratio, ratio, type Wanted } from '../measure.ts'
import { Columns, networkMemory } from './columns.ts'
import { flopARow, Network } from './network.ts'
import { Pair } from './pair.ts'
import { startTwin, type TwinAnswer } from './twin.ts'

const REPEATS = 15
const ROWS = [256, 1024, 8192]
/** The twin that ours is measured by, and the one shown beside it. */
const ARCHITECTURES = ['x86-64-v3', 'native'] as const
/** Rows that one run goes through; fewer with plain bodies, which need twenty times as long. */
const RUN_ROWS = 65_536
const PLAIN_ROWS = 8192
const TOLERANCE = 1e-4

type What = 'layer' | 'forward' | 'update'
/** One competitor: mean seconds of a call, and the first call's sum. */
type Competitor = (what: What, rows: number, calls: number) => TwinAnswer | Promise<TwinAnswer>

/** How fast ours has to be against the C twin for x86-64-v3 with as many threads. */
const WANTED: Readonly<Record<What, Wanted | undefined>> = {
  layer: undefined,
  forward: { atLeast: 0.5 },
  update: { atLeast: 0.6 },
}

export async function networkFigures(builds: readonly KernelBuild[], skipped: string[]): Promise<Figure[]> {
  const best = builds.at(-1)!
  const twins = new Map<string, Companion>()
  for (const architecture of ARCHITECTURES) {
    const twin = await startTwin(architecture, ROWS)
    if (twin === undefined) skipped.push(`the C twin for ${architecture}: no gcc for it`)
    else twins.set(`C ${architecture}`, twin)
  }
  const pair = availableParallelism() > 1 ? await Pair.start(best, ROWS) : undefined
  try {
    const single = new Map<string, Competitor>(singleThreaded(builds))
    const double = new Map<string, Competitor>()
    if (pair) double.set(best, (what, rows, calls) => pair.run(what as 'forward', ROWS.indexOf(rows), calls))
    for (const [name, twin] of twins) {
      single.set(name, (what, rows, calls) => twin.ask(`${what} ${rows} 1 ${calls}`))
      if (pair) double.set(name, (what, rows, calls) => twin.ask(`${what} ${rows} 2 ${calls}`))
    }
    const figures = await workFigures('layer', 256, single, new Map(), best)
    for (const rows of ROWS) {
      for (const what of ['forward', 'update'] as const) {
        figures.push(...(await workFigures(what, rows, single, double, best)))
      }
    }
    return figures
  } finally {
    pair?.close()
    for (const twin of twins.values()) twin.close()
  }
}

/** Our bodies on one thread. */
function singleThreaded(builds: readonly KernelBuild[]): [string, Competitor][] {
  const memory = networkMemory()
  const columns = new Columns(memory)
  const network = new Network(columns)
  const made = new Map(ROWS.map((count) => [count, network.rows(columns, count)]))
  return builds.map((build) => {
    const kernels = createKernels(memory, build)
    const call = (what: What, count: number): number => {
      if (what === 'forward') return network.forward(kernels, made.get(count)!)
      if (what === 'update') return network.update(kernels, made.get(count)!)
      network.layer(kernels)
      return 0
    }
    return [
      build,
      (what, count, calls) => {
        network.restart()
        const first = call(what, count)
        const start = performance.now()
        for (let i = 0; i < calls; i++) call(what, count)
        const seconds = (performance.now() - start) / 1000 / calls
        return { seconds, sum: what === 'layer' ? network.layerSum() : first }
      },
    ]
  })
}

/** One piece of work by all competitors, checked, then in turns. */
async function workFigures(
  what: What,
  rows: number,
  single: ReadonlyMap<string, Competitor>,
  double: ReadonlyMap<string, Competitor>,
  best: KernelBuild,
): Promise<Figure[]> {
  const all = new Map([
    ...[...single].map(([name, run]) => [`${name}, 1 thread`, run] as const),
    ...[...double].map(([name, run]) => [`${name}, 2 threads`, run] as const),
  ])
  const { sum } = await single.get('plain')!(what, rows, 1)
  for (const [name, run] of all) checkClose((await run(what, rows, 1)).sum, sum, TOLERANCE, `${name}: ${what}`)

  const runners = [...all].map(([name, run]) => {
    const calls = (name.startsWith('plain') ? PLAIN_ROWS : RUN_ROWS) / rows
    return [name, async () => (await run(what, rows, calls)).seconds] as const
  })
  const seconds = await interleave(Object.fromEntries(runners), { repeats: REPEATS, warmups: 3 })
  const title = what === 'layer' ? 'layer 64 × 64 + tanh' : `network 4-64-64-(2+1), ${what}`
  const flop = what === 'layer' ? 2 * 64 * 64 : flopARow() * (what === 'update' ? 3 : 1)
  const figures = [...all.keys()].map((name): Figure => {
    const taken = seconds[name]!
    const threads = name.endsWith('1 thread') ? '1 thread' : '2 threads'
    const isBest = name.startsWith(`${best},`)
    const ratios: Ratio[] = ARCHITECTURES.flatMap((architecture) => {
      const theirs = seconds[`C ${architecture}, ${threads}`]
      if (theirs === undefined || name.startsWith('C ')) return []
      const counts = isBest && rows >= 1024 && architecture === 'x86-64-v3'
      return [ratio(`C ${architecture}`, theirs, taken, counts ? WANTED[what] : undefined)]
    })
    if (isBest && threads === '1 thread') ratios.unshift(ratio('plain', seconds['plain, 1 thread']!, taken))
    const rates = taken.map((value) => (rows * flop) / value / 1e9)
    return { ...figure(`${title}, ${rows} rows, ${name}`, 'GFLOP/s', rates), ratios }
  })
  const scaling = scalingFigure(`${title}, ${rows} rows`, seconds, best, what === 'update' && rows >= 1024)
  return scaling === undefined ? figures : [...figures, scaling]
}

/** What two threads gain us, over what they gain the C twin. */
function scalingFigure(
  title: string,
  seconds: Readonly<Record<string, readonly number[]>>,
  best: KernelBuild,
  isWanted: boolean,
): Figure | undefined {
  const gain = (name: string) => seconds[`${name}, 2 threads`]?.map((two, i) => seconds[`${name}, 1 thread`]![i]! / two)
  const [ours, theirs] = [gain(best), gain('C x86-64-v3')]
  if (ours === undefined || theirs === undefined) return undefined
  const name = `${title}, gain of a second thread, ${best}`
  const wanted = isWanted ? { atLeast: 0.8 } : undefined
  const inverse = (values: readonly number[]) => values.map((value) => 1 / value)
  return { ...figure(name, '×', ours), ratios: [ratio("the C twin's gain", inverse(theirs), inverse(ours), wanted)] }
}
