/**
 * `node dist/bench/kernels/main.js`: each SIMD body against its plain twin, and the dense network against a C twin that is
 * compiled on the spot. Results are checked before they are timed. A table for people, then one JSON line.
 */
import { availableParallelism } from 'node:os'
import { bestKernelBuild, createKernels, type KernelBuild, type Kernels } from '../../src/kernels/bind.ts'
import { VERSION } from '../../src/version.ts'
import { check, summary } from '../measure.ts'
import { type Case, kernelCases } from './cases.ts'
import { Columns } from './columns.ts'
import { FLOP_A_ROW, Network, type TwinRows } from './network.ts'
import { runTwin } from './twin.ts'

const REPEATS = 21
/** Milliseconds that one repetition takes at least: short kernels are called many times in it. */
const REPETITION_MS = 1
const WARMUP_MS = 30
const TWIN_ROWS = [256, 1024, 8192] as const

const memory = new WebAssembly.Memory({ initial: 2048, maximum: 2048, shared: true })
const columns = new Columns(memory)
const builds: KernelBuild[] = bestKernelBuild() === 'relaxed' ? ['simd', 'relaxed'] : ['simd']
const bodies: readonly (readonly [KernelBuild, Kernels])[] = (['plain', ...builds] as const).map((build) => [
  build,
  createKernels(memory, build),
])

/** Median seconds of one call. */
function seconds(call: () => void): number {
  const warmed = performance.now() + WARMUP_MS
  let calls = 0
  while (performance.now() < warmed) {
    call()
    calls++
  }
  const repeats = Math.max(1, Math.round((calls * REPETITION_MS) / WARMUP_MS))
  const taken: number[] = []
  for (let i = 0; i < REPEATS; i++) {
    const start = performance.now()
    for (let n = 0; n < repeats; n++) call()
    taken.push((performance.now() - start) / 1000 / repeats)
  }
  return summary(taken).median
}

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

interface Row {
  readonly name: string
  readonly unit: string
  readonly count: number
  /** Median seconds of a call, by build. */
  readonly seconds: Record<string, number>
}

function timeCase(given: Case): Row {
  checkCase(given)
  const { name, unit, count, run, restore } = given
  const taken: Record<string, number> = {}
  for (const [build, kernels] of bodies) {
    taken[build] = seconds(() => run(kernels))
    restore()
  }
  return { name, unit, count, seconds: taken }
}

/** The dense network by every build, and by the C twins. */
function networkRows(): Row[] {
  const twins = ['x86-64-v3', 'native'].map((name) => [name, runTwin(name, TWIN_ROWS)] as const)
  const network = new Network(columns)
  const made = TWIN_ROWS.map((count) => network.rows(columns, count))
  const same = (got: number, wanted: number, what: string) =>
    check(Math.abs(got - wanted) <= 1e-4 * Math.max(1, Math.abs(wanted)), `${what} is ${got}, the C twin's ${wanted}`)
  for (const [build, kernels] of bodies) {
    for (const [name, twin] of twins) {
      if (twin === undefined) continue
      network.restart()
      network.layer(kernels)
      same(network.layerSum(), twin.layer.sum, `${build}, ${name}: the layer`)
      for (const rows of made) {
        const figures = twin.rows[rows.count]!
        network.restart()
        same(network.forward(kernels, rows), figures.forwardSum, `${build}, ${name}: forward of ${rows.count}`)
        same(network.update(kernels, rows), figures.updateSum, `${build}, ${name}: update of ${rows.count}`)
      }
    }
  }
  const byBuild = (call: (kernels: Kernels) => void): Record<string, number> => {
    network.restart()
    return Object.fromEntries(bodies.map(([build, kernels]) => [build, seconds(() => call(kernels))]))
  }
  const ofTwins = (part: (figures: NonNullable<ReturnType<typeof runTwin>>) => number): Record<string, number> =>
    Object.fromEntries(twins.flatMap(([name, twin]) => (twin === undefined ? [] : [[`C ${name}`, part(twin)]])))
  const network64 = 'network 4-64-64-(2+1)'
  return [
    {
      name: 'layer 64 × 64 + tanh, 256 rows',
      unit: 'flop',
      count: 2 * 256 * 64 * 64,
      seconds: { ...byBuild((k) => network.layer(k)), ...ofTwins(({ layer }) => layer.seconds) },
    },
    ...made.flatMap((rows: TwinRows): Row[] => [
      {
        name: `${network64}, forward, ${rows.count} rows`,
        unit: 'flop',
        count: rows.count * FLOP_A_ROW,
        seconds: { ...byBuild((k) => network.forward(k, rows)), ...ofTwins((twin) => twin.rows[rows.count]!.forward) },
      },
      {
        name: `${network64}, PPO update, ${rows.count} rows`,
        unit: 'flop',
        count: 3 * rows.count * FLOP_A_ROW,
        seconds: { ...byBuild((k) => network.update(k, rows)), ...ofTwins((twin) => twin.rows[rows.count]!.update) },
      },
    ]),
  ]
}

function print(rows: readonly Row[]): void {
  const width = Math.max(...rows.map(({ name }) => name.length))
  for (const { name, unit, count, seconds } of rows) {
    const cells = Object.entries(seconds).map(([build, median]) => {
      const rate = count / median
      const shown = unit === 'flop' ? `${(rate / 1e9).toPrecision(3)} GFLOP/s` : `${(rate / 1e6).toPrecision(3)}M/s`
      const ratio = build === 'plain' ? '' : ` (${(seconds.plain! / median).toPrecision(3)} ×)`
      return `${build} ${(1000 * median).toPrecision(3)} ms ${shown}${ratio}`
    })
    console.log(`${name.padEnd(width)}  ${cells.join('   ')}`)
  }
}

const rows = [...networkRows(), ...kernelCases(columns).map(timeCase)]
print(rows)

console.log(
  JSON.stringify({ colonnade: VERSION, node: process.version, cores: availableParallelism(), repeats: REPEATS, rows }),
)
