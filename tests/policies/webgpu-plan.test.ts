/** The plan of an update on a device, and what crosses to it and back: none of this needs a GPU. */
import { expect, test } from 'vitest'
import { cartPole } from '../../src/index.ts'
import { PpoSum } from '../../src/kernels/bind.ts'
import { ppoShader } from '../../src/kernels/webgpu/losses.ts'
import type { DeviceColumn, Step } from '../../src/kernels/webgpu/step.ts'
import { shapeOf } from '../../src/policies/actor-critic.ts'
import type { DeviceUpdate } from '../../src/policies/webgpu/contract.ts'
import { ShaderUpdate, updatePlan } from '../../src/policies/webgpu/update.ts'

const settings = {
  ...{ hidden: [8, 8], activation: 'tanh' as const, cell: null, units: 0, filters: [], kernelSize: 1 },
  ...{ sharedTrunk: false, logStd: 0, normalizeObservations: false },
} as const
const { observationSpace, actionSpace } = cartPole()
const shape = shapeOf('mlp', settings, null, observationSpace, actionSpace)
const loss = ppoShader(PpoSum, {
  ...{ clipCoef: 0.2, clipValue: Number.POSITIVE_INFINITY, entropyCoef: 0, valueCoef: 0.5 },
})
const adam = { beta1: 0.9, beta2: 0.999, epsilon: 1e-5, weightDecay: 0 }
const options = {
  ...{ numRows: 64, minibatchRows: 32, numMinibatches: 2, hasMask: false, loss, adam },
  numTrained: shape.parameters.size,
}

test('each step binds what its shader declares, within what every device allows', () => {
  const { block, optimizer } = updatePlan(shape, options)
  const steps = [...block, ...optimizer]
  expect(steps.length).toBeGreaterThan(20)
  for (const { name, code, columns, groups } of steps) {
    const declared = [...code.matchAll(/@binding\((\d+)\) var<storage, \w+> \w+: array<(\w+)>/g)]
    expect(
      declared.map(([, place, type]) => [Number(place), type]),
      name,
    ).toEqual(columns.map(({ type }, i) => [i, type]))
    expect(columns.length, name).toBeLessThanOrEqual(8)
    expect(new Set(columns).size, name).toBe(columns.length)
    for (const count of groups) expect(count >= 1 && count <= 65_535, name).toBe(true)
    expect(code, name).not.toMatch(/undefined|NaN|\[object/)
  }
})

test('a minibatch that does not fit is divided into blocks', () => {
  const { blockRows } = updatePlan(shape, options, 8 * 4 * 10)
  expect(blockRows).toBe(10)
  expect(updatePlan(shape, options).blockRows).toBe(32)
})

/** A device that computes nothing, and keeps what it is asked for. */
function recorder() {
  const calls: string[] = []
  const sent = new Map<string, unknown>()
  const memory = {
    ready: async (steps: readonly Step[]) => ({ steps }),
    send(column: DeviceColumn, values: unknown) {
      calls.push(`send ${column.name}`)
      sent.set(column.name, values)
    },
    clear: (column: DeviceColumn) => calls.push(`clear ${column.name}`),
    release: () => calls.push('release'),
    run: ({ steps }: { readonly steps: readonly Step[] }) => calls.push(`run ${steps[0]!.name}`),
    read: async (parts: readonly { readonly column: DeviceColumn }[]) =>
      calls.push(`read ${parts.map(({ column }) => column.name).join(', ')}`),
  }
  return { calls, sent, gpu: { memory: () => memory, maxColumnBytes: 2 ** 20 } as never }
}

test('observations of bytes cross as floats, which shaders read', async () => {
  const { sent, gpu } = recorder()
  const update = new ShaderUpdate(gpu, shape, options, new Set())
  const [row, all] = [new Float32Array(64), new Float32Array(shape.parameters.size)]
  const observation = Uint8Array.from({ length: 64 * 4 }, (_, i) => i)
  await update.begin({
    ...{ weights: all, moment: all, squareMoment: all },
    rollout: {
      ...{ observation, action: new Int32Array(64), actionMask: new Uint8Array(0) },
      ...{ logprob: row, value: row, advantage: row, return: row },
    },
  })
  expect(sent.get('observation')).toEqual(Float32Array.from(observation))
})

test('weights, moments and the rollout cross once an update, the order once a pass, and a few numbers once a block', async () => {
  const { calls, gpu } = recorder()
  const holding = new Set<DeviceUpdate>()
  const update = new ShaderUpdate(gpu, shape, options, holding)
  const size = shape.parameters.size
  const trained = {
    weights: new Float32Array(size),
    moment: new Float32Array(size),
    squareMoment: new Float32Array(size),
  }
  const row = () => new Float32Array(64)
  const rollout = {
    ...{ observation: new Float32Array(64 * 4), action: new Int32Array(64), actionMask: new Uint8Array(0) },
    ...{ logprob: row(), value: row(), advantage: row(), return: row() },
  }
  await update.begin({ ...trained, rollout })
  const numbers = { weight: 1 / 32, advantageMean: 0, advantageScale: 1, learningRate: 1e-3 }
  for (let pass = 0; pass < 2; pass++) {
    update.order(new Uint32Array(64), 64)
    for (const m of [0, 1])
      update.minibatch(m, 32 * m, 32, { ...numbers, correction1: 1, correction2: 1, maxNorm: 0.5 })
    await update.results()
  }
  await update.end(trained)
  const minibatch = ['clear gradient', 'send numbers', 'run gather rows', 'run sum partials']
  const pass = ['send order', ...minibatch, ...minibatch, 'read results']
  expect(calls).toEqual([
    ...['weights', 'moment', 'squareMoment', 'observation', 'action', 'recorded'].map((name) => `send ${name}`),
    ...[...pass, ...pass],
    'read weights, moment, squareMoment',
  ])

  const released = () => calls.splice(0).filter((call) => call === 'release').length
  expect([released(), holding.size]).toEqual([0, 1])
  for (const each of holding) each.release()
  expect([released(), holding.size]).toEqual([1, 0])
  await update.begin({ ...trained, rollout })
  update.release() // During an update: at its end.
  expect([released(), holding.size]).toEqual([0, 1])
  await update.end(trained)
  expect([released(), holding.size]).toEqual([1, 0])
})
