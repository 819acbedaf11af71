/** Whole updates of PPO by width and rows: our builds, the C twin for this machine, torch and JAX, on one and two threads, in turns. */
import { availableParallelism } from 'node:os'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { Companion } from '../companion.ts'
import { Columns, networkMemory } from '../kernels/columns.ts'
import { flopARow, Network } from '../kernels/network.ts'
import { Pair } from '../kernels/pair.ts'
import { startTwin, type TwinAnswer } from '../kernels/twin.ts'
import { checkClose, type Figure, figure, interleave, ratio } from '../measure.ts'
import { type Answer, ROWS, WIDTHS } from './sizes.ts'

const REPEATS = 7
/** Operations of one run, at least one call's. */
const RUN_FLOP = 1e9
const TOLERANCE = 1e-3

type Competitor = (rows: number, calls: number) => TwinAnswer | Promise<TwinAnswer>

export interface Peers {
  /** Companions on one thread and on two. */
  readonly byThreads: ReadonlyMap<number, Companion>
  readonly versions: { readonly torch: string; readonly jax: string }
}

/** Our builds on one thread, and on two as a pair. `close` ends the pairs' second threads. */
async function ours(hidden: number): Promise<{ all: Map<string, Competitor>; close: () => void }> {
  const all = new Map<string, Competitor>()
  const pairs: Pair[] = []
  const builds = kernelBuilds().filter((build) => build === 'relaxed' || build === 'native')
  for (const build of builds) {
    const memory = networkMemory()
    const columns = new Columns(memory)
    const network = new Network(columns, 1, hidden)
    const made = new Map(ROWS.map((count) => [count as number, network.rows(columns, count)]))
    const kernels = createKernels(memory, build)
    all.set(`Colonnade, ${build}, 1 thread`, (rows, calls) => {
      network.restart()
      const sum = network.update(kernels, made.get(rows)!)
      const start = performance.now()
      for (let i = 0; i < calls; i++) network.update(kernels, made.get(rows)!)
      return { seconds: (performance.now() - start) / 1000 / Math.max(1, calls), sum }
    })
    if (availableParallelism() === 1) continue
    const pair = await Pair.start(build, ROWS, hidden)
    pairs.push(pair)
    all.set(`Colonnade, ${build}, 2 threads`, (rows, calls) => {
      return pair.run('update', ROWS.indexOf(rows as (typeof ROWS)[number]), calls)
    })
  }
  return { all, close: () => pairs.forEach((pair) => void pair.close()) }
}

async function figuresOf(hidden: number, { byThreads, versions }: Peers, skipped: string[]): Promise<Figure[]> {
  const { all, close } = await ours(hidden)
  const best = [...all.keys()].at(-1)!.split(', ')[1]!
  const twin = await startTwin('native', ROWS, hidden)
  if (twin === undefined) skipped.push(`the C twin of ${hidden} units: no gcc`)
  for (const [threads, peer] of byThreads) {
    const on = threads === 1 ? '1 thread' : `${threads} threads`
    if (twin) all.set(`C native, ${on}`, (rows, calls) => twin.ask(`update ${rows} ${threads} ${calls}`))
    for (const [library, version] of [
      ['torch', `torch ${versions.torch}`],
      ['jax', `JAX ${versions.jax}`],
    ] as const) {
      all.set(`${version}, ${on}`, (rows, calls) =>
        peer.ask<Answer>(`${library} update ${rows} ${hidden} ${Math.max(1, calls)}`),
      )
    }
  }
  const figures: Figure[] = []
  try {
    for (const rows of ROWS) {
      const flop = 3 * rows * flopARow(hidden)
      const calls = Math.max(1, Math.round(RUN_FLOP / flop))
      const { sum } = await all.get('Colonnade, relaxed, 1 thread')!(rows, 1)
      for (const [name, run] of all) {
        checkClose((await run(rows, 1)).sum, sum, TOLERANCE, `${name}: the sum of an update of ${rows} × ${hidden}`)
      }
      const runners = [...all].map(([name, run]) => [name, async () => (await run(rows, calls)).seconds] as const)
      const seconds = await interleave(Object.fromEntries(runners), { repeats: REPEATS })
      for (const name of all.keys()) {
        const taken = seconds[name]!
        const told = figure(
          `PPO update, 4-${hidden}-${hidden}-(2+1), ${rows} rows, ${name}`,
          'GFLOP/s',
          taken.map((value) => flop / value / 1e9),
        )
        if (!name.startsWith('Colonnade')) {
          figures.push(told)
          continue
        }
        const [, build, on] = name.split(', ')
        const ratios = [...all.keys()].flatMap((other) => {
          if (other.startsWith('Colonnade') || !other.endsWith(`, ${on}`)) return []
          const isTwin = other.startsWith('C ')
          return [ratio(other, seconds[other]!, taken, isTwin && build === best ? { atLeast: 0.9 } : undefined)]
        })
        if (build === best && build !== 'relaxed') {
          ratios.push(ratio(`relaxed, ${on}`, seconds[`Colonnade, relaxed, ${on}`]!, taken, { atLeast: 1 }))
        }
        figures.push({ ...told, ratios })
      }
    }
    return figures
  } finally {
    close()
    twin?.close()
  }
}

export async function updateFigures(peers: Peers, skipped: string[]): Promise<Figure[]> {
  const figures: Figure[] = []
  for (const width of WIDTHS) figures.push(...(await figuresOf(width, peers, skipped)))
  return figures
}
