/**
 * `npm run bench -- kernels`: each SIMD body against its plain twin, and the dense network against a C twin that is
 * compiled on the spot, with one and two threads. Results are checked before they are timed; competitors run in turns.
 */
import { availableParallelism } from 'node:os'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { check, type Figure, figure, interleave, ratio, secondsOf } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { type Case, kernelCases } from './cases.ts'
import { Columns } from './columns.ts'
import { lossFigures } from './losses.ts'
import { networkFigures } from './networks.ts'

const REPEATS = 11
/** Milliseconds that one run takes at least: short kernels are called many times in it. */
const RUN_MS = 1
const WARMUP_MS = 20

const builds = kernelBuilds()
const memory = new WebAssembly.Memory({ initial: 2048, maximum: 2048, shared: true })
const bodies: readonly (readonly [KernelBuild, Kernels])[] = builds.map((build) => [
  build,
  createKernels(memory, build),
])

/** What every build writes is what the plain bodies write, within f32's rounding over a sum. */
function checkCase({ name, restore, run, outputs }: Case): void {
  let wanted: number[][] = []
  for (const [build, kernels] of bodies) {
    restore()
    run(kernels)
    const got = outputs.map((column) => Array.from(column))
    if (build === 'plain') wanted = got
    got.forEach((column, c) => {
      column.forEach((value, i) => {
        const expected = wanted[c]![i]!
        const close = Object.is(value, expected) || Math.abs(value - expected) <= 1e-4 * Math.max(1, Math.abs(expected))
        check(close, `${name}, ${build}: element ${i} is ${value}, not ${expected}`)
      })
    })
  }
  restore()
}

/** How many calls fill one run; warms the body. */
function callsOf(call: () => void): number {
  const start = performance.now()
  let calls = 0
  while (performance.now() < start + WARMUP_MS) {
    call()
    calls++
  }
  return Math.max(1, Math.round((calls * RUN_MS) / (performance.now() - start)))
}

async function caseFigures(given: Case): Promise<Figure[]> {
  checkCase(given)
  const { name, unit, count, run, restore } = given
  const runners = bodies.map(([build, kernels]) => {
    restore()
    const calls = callsOf(() => run(kernels))
    const runner = () => {
      restore()
      return (
        secondsOf(() => {
          for (let i = 0; i < calls; i++) run(kernels)
        }) / calls
      )
    }
    return [build, runner] as const
  })
  const seconds = await interleave(Object.fromEntries(runners), { repeats: REPEATS })
  restore()
  const [scale, rate] = unit === 'flop' ? [1e9, 'GFLOP/s'] : [1e6, `M ${unit}/s`]
  return bodies.map(([build]) => {
    const taken = seconds[build]!
    const rates = taken.map((value) => count / value / scale)
    const ratios = build === 'plain' ? [] : [ratio('plain', seconds.plain!, taken)]
    return { ...figure(`${name}, ${build}`, rate, rates), ratios }
  })
}

const skipped: string[] = []
if (availableParallelism() < 2) skipped.push('two threads: there is one core')
const figures = await networkFigures(builds, skipped)
const columns = new Columns(memory)
for (const given of kernelCases(columns)) figures.push(...(await caseFigures(given)))
figures.push(...(await lossFigures(bodies, columns)))
reportRoom('kernels', figures, skipped)
