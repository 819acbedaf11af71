/**
 * `npm run bench -- devices`: training steps on tfjs's wasm backend with our kernels, against it as it comes and against it
 * with only what it lacks; then what each device does that can be had. Losses and gradients are checked first; competitors
 * run in turns.
 */
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import type { Tfjs, WasmBackend } from '../../src/policies/devices/wasm/heap.ts'
import { registerWasmKernels } from '../../src/policies/devices/wasm/register.ts'
import { check, checkClose, type Figure, figure, interleave, rates, ratio, secondsOf, type Wanted } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { perceptron, type Twin, transformer } from './networks.ts'
import { compareDevices } from './table.ts'

const REPEATS = 7

const { tf, backend } = await startWasm()
const figures: Figure[] = []

/** tfjs's core with the wasm backend active. */
async function startWasm(): Promise<{ tf: Tfjs; backend: WasmBackend }> {
  const require = createRequire(import.meta.url)
  const core = require('@tensorflow/tfjs-core') as Tfjs
  require('@tensorflow/tfjs-layers') // For Node, tfjs's gradients are in this package.
  const { setWasmPaths } = require('@tensorflow/tfjs-backend-wasm') as typeof import('@tensorflow/tfjs-backend-wasm')
  setWasmPaths(`${dirname(require.resolve('@tensorflow/tfjs-backend-wasm'))}/`)
  check(await core.setBackend('wasm'), 'tfjs has no wasm backend here')
  return { tf: core, backend: core.backend() as unknown as WasmBackend }
}

/** Runs `work` with our kernels: all, those that tfjs lacks, or none. */
function withKernels<T>(which: 'all' | 'missing' | 'none', work: () => T): T {
  if (which === 'none') return work()
  const registration = registerWasmKernels(tf, backend, { which })
  try {
    return work()
  } finally {
    registration.undo()
  }
}

/** Both ways give one loss and one set of gradients, before and after a step. */
function checkTwin(name: string, twin: Twin, theirs: 'missing' | 'none'): void {
  const run = (which: 'all' | 'missing' | 'none') =>
    withKernels(which, () => {
      twin.restart()
      const gradients = twin.gradients()
      return { gradients, losses: [twin.step(), twin.step()] }
    })
  const [ours, wanted] = [run('all'), run(theirs)]
  wanted.losses.forEach((loss, i) => {
    checkClose(ours.losses[i]!, loss, 1e-4, `${name}: loss ${i}`)
  })
  for (const [i, gradient] of wanted.gradients.entries()) {
    const scale = gradient.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-6)
    const apart = gradient.reduce((most, value, k) => Math.max(most, Math.abs(value - ours.gradients[i]![k]!)), 0)
    check(apart <= 1e-3 * scale, `${name}: gradient ${i} is off by ${apart} of ${scale}`)
  }
}

async function compare(
  name: string,
  twin: Twin,
  theirs: 'missing' | 'none',
  count: number,
  steps: number,
  wanted: Wanted,
) {
  checkTwin(name, twin, theirs)
  const { numTensors } = tf.memory()
  const runner = (which: 'all' | 'missing' | 'none') => () =>
    withKernels(which, () => {
      return secondsOf(() => {
        for (let i = 0; i < steps; i++) twin.step()
      })
    })
  const seconds = await interleave({ theirs: runner(theirs), ours: runner('all') }, { repeats: REPEATS })
  checkClose(tf.memory().numTensors, numTensors, 0, 'the number of tensors')
  const label = theirs === 'none' ? 'tfjs wasm as it comes' : 'tfjs wasm with what it lacks'
  figures.push(figure(`${name}, ${label}`, 'rows/s', rates(steps * count, seconds.theirs)), {
    ...figure(`${name}, with our kernels`, 'rows/s', rates(steps * count, seconds.ours)),
    ratios: [ratio(label, seconds.theirs, seconds.ours, wanted)],
  })
  twin.dispose()
}

for (const [count, steps] of [
  [1024, 8],
  [8192, 2],
] as const) {
  const name = `network 4-64-64-(2+1), PPO update, ${count} rows`
  await compare(name, perceptron(tf, count), 'none', count, steps, { atLeast: 3 })
}
const shape = { vocabulary: 512, context: 64, width: 128, heads: 4, layers: 4, batch: 16 }
const twin = transformer(tf, shape)
const millions = (twin.numWeights / 1e6).toFixed(2)
const tokens = shape.batch * shape.context
await compare(`transformer of ${millions}M, training step, ${tokens} tokens`, twin, 'missing', tokens, 1, {
  atLeast: 1.5,
})
const devices = await compareDevices()
reportRoom('devices', [...figures, ...devices.figures], devices.skipped)
