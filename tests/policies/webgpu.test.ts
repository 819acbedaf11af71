/** Our own shaders on SwiftShader, beside the kernels of the processor. */
import { expect, test } from 'vitest'
import {
  a2c,
  breakout,
  cartPole,
  convolutional,
  createTrainer,
  createWorld,
  mlp,
  pendulum,
  ppo,
  ticTacToe,
} from '../../src/index.ts'
import { product, TILES } from '../../src/kernels/webgpu/product.ts'
import { startGpu } from '../../src/kernels/webgpu/start.ts'
import { deviceColumn } from '../../src/kernels/webgpu/step.ts'
import { skipLoudly } from '../support/command.ts'
import { webgpuSwiftShader } from '../support/swiftshader.ts'

/** SwiftShader compiles the shader of a product in about two seconds. */
const TIMEOUT = 900_000

async function gpuFor(context: { skip(note?: string): never }) {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `our own shaders (${found.why})`)
  return startGpu([`${found.folder}/`])
}

const MATRICES = [
  [false, false],
  [true, false],
  [false, true],
] as const

test.for(Object.entries(TILES))(
  'products by %s tiles are those of sums in f64',
  { timeout: TIMEOUT },
  async ([, tile], context) => {
    const gpu = await gpuFor(context)
    const [rows, columns, depth] = [150, 141, 77]
    const values = (length: number, seed: number) =>
      Float32Array.from({ length }, (_, i) => Math.sin(i * 12.9898 + seed))
    const [left, right] = [values(rows * depth, 1), values(depth * columns, 2)]
    for (const [aTransposed, bTransposed] of MATRICES) {
      const [a, b, c] = [
        deviceColumn('a', left.length),
        deviceColumn('b', right.length),
        deviceColumn('c', rows * columns),
      ]
      const one = product({
        ...{ name: 'product', rows, columns, depth, tile },
        a: { element: aTransposed ? `a[k * ${rows}u + row]` : `a[row * ${depth}u + k]`, alongDepth: !aTransposed },
        b: {
          element: bTransposed ? `b[column * ${depth}u + k]` : `b[k * ${columns}u + column]`,
          alongDepth: bTransposed,
        },
        store: `c[row * ${columns}u + column] = value;`,
        bindings: { reads: { a, b }, writes: { c } },
      })
      const memory = gpu.memory()
      const ready = await memory.ready([one])
      memory.send(a, left)
      memory.send(b, right)
      memory.run(ready)
      const got = new Float32Array(rows * columns)
      await memory.read([{ column: c, into: got }])
      memory.release()
      let worst = 0
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          let sum = 0
          for (let k = 0; k < depth; k++) {
            const x = left[aTransposed ? k * rows + row : row * depth + k]!
            sum += x * right[bTransposed ? column * depth + k : k * columns + column]!
          }
          worst = Math.max(worst, Math.abs(sum - got[row * columns + column]!))
        }
      }
      expect(worst).toBeLessThan(1e-4) // Sums of up to 77.
    }
  },
)

const tasks = [
  ['images', breakout, { filters: [3, 2], hidden: [5], sharedTrunk: true }],
  ['choices', cartPole, { hidden: [12] }],
  ['choices, with a mask and a shared trunk', ticTacToe, { hidden: [10], sharedTrunk: true, activation: 'relu' }],
  ['a box, normalized', pendulum, { hidden: [9], normalizeObservations: true }],
] as const

test.for(tasks)(
  'two updates of %s leave the weights of the processor, to 1e-5',
  { timeout: TIMEOUT },
  async ([, environment, network], context) => {
    const gpu = await gpuFor(context)
    const learned = async (device: 'none' | 'webgpu', threads = 1) => {
      const settings = { ...network, hidden: [...network.hidden], device }
      const policy =
        'filters' in network ? convolutional({ ...settings, filters: [...network.filters] }) : mlp(settings)
      const world = await createWorld({ environment: environment() as never, policy, numLanes: 8, seed: 1 })
      const algorithm = ppo({ numSteps: 24, numMinibatches: 3, updateEpochs: 2, entropyCoef: 0.01, clipValue: 0.2 })
      const trainer = createTrainer(world, algorithm, { threads })
      const metrics = []
      for await (const each of trainer.updates({ totalSteps: 2 * 8 * 24 })) metrics.push(each)
      const cohort = world.cohorts[0]!
      const kept = { weights: cohort.weights.slice(), metrics }
      trainer.close()
      world.close()
      return kept
    }
    const cpu = await learned('none')
    const before = gpu.transfers
    const own = await learned('webgpu')
    const { sends, reads } = gpu.transfers
    expect(Math.max(...cpu.weights.map((value, i) => Math.abs(value - own.weights[i]!)))).toBeLessThan(1e-5)
    expect(Math.max(...own.weights.map(Math.abs))).toBeGreaterThan(0.1)
    for (const [i, { policyLoss, valueLoss, entropy, gradNorm, approxKl }] of cpu.metrics.entries()) {
      const theirs = own.metrics[i]!
      expect(theirs.gradNorm / gradNorm).toBeCloseTo(1, 4)
      expect(theirs.valueLoss / valueLoss).toBeCloseTo(1, 4)
      expect(theirs.entropy / entropy).toBeCloseTo(1, 4)
      expect(theirs.policyLoss).toBeCloseTo(policyLoss, 5)
      expect(theirs.approxKl).toBeCloseTo(approxKl, 5)
    }
    // Of each update: weights, two moments, observations, actions, recorded numbers and perhaps masks; per pass the order; per minibatch numbers.
    const columns = environment === ticTacToe ? 7 : 6
    expect(sends - before.sends).toBe(2 * (columns + 2 * (1 + 3)))
    expect(reads - before.reads).toBe(2 * (2 + 1))
    const shared = await learned('webgpu', 2)
    expect(shared.weights).toEqual(own.weights)
  },
)

test('what has no shader is refused before anything is collected', async (context) => {
  await gpuFor(context)
  const made = async (algorithm: Parameters<typeof createTrainer>[1]) => {
    const policy = mlp({ hidden: [4], device: 'webgpu' })
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 4, seed: 1 })
    const trainer = createTrainer(world, algorithm)
    for await (const _ of trainer.updates({ totalSteps: 64 })) break
  }
  await expect(made(a2c())).rejects.toThrow('algorithm: got a2c with a policy on device webgpu, expected ppo')
  await expect(made(ppo({ optimizer: 'sgd' }))).rejects.toThrow(
    'ppo.optimizer: got sgd with a policy on device webgpu, expected adam',
  )
  await expect(made(ppo({ entropyCoef: '0.1 * progress' }))).rejects.toThrow(
    'ppo.entropyCoef: got a formula with a policy on device webgpu, expected a number',
  )
})
