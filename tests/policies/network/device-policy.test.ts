import { expect, test, vi } from 'vitest'
import { spaceWidth } from '../../../src/base/space.ts'
import {
  breakout,
  cartPole,
  cartPolePosition,
  createTrainer,
  createWorld,
  dense,
  pendulum,
  ppo,
  recurrent,
} from '../../../src/index.ts'
import { type Device, startDevice } from '../../../src/policies/devices/device.ts'
import type { WasmBackend } from '../../../src/policies/devices/wasm/heap.ts'
import { headShape } from '../../../src/policies/head.ts'
import { type TrunkOptions, trunk, withHeads } from '../../../src/policies/network/compose.ts'
import { networkModel } from '../../../src/policies/network/device-policy.ts'
import type { PolicyDefinition, Sequence } from '../../../src/policies/policy.ts'
import { doors } from '../../support/doors.ts'
import { isThorough } from '../../support/tiers.ts'

const plain: TrunkOptions = {
  filters: [],
  kernelSize: 3,
  image: null,
  hidden: [6],
  activation: 'tanh',
  cell: null,
  units: 0,
}

/** Two trunks of these parts on a device that was made elsewhere. */
function policyOn(device: Device, options: TrunkOptions, sequence: Sequence | null): PolicyDefinition {
  return {
    id: 'parts',
    parameters: {},
    build(observationSpace, actionSpace) {
      const numInputs = spaceWidth(observationSpace)
      const [actor, critic] = [trunk('actor', numInputs, options), trunk('critic', numInputs, options)]
      const network = withHeads(actor, critic, headShape(actionSpace), 0)
      return networkModel('parts', network, actionSpace, observationSpace, sequence, { device })
    },
  }
}

const gru: TrunkOptions = { ...plain, cell: 'gru', units: 5 }
const lstm: TrunkOptions = { ...plain, cell: 'lstm', units: 4 }
const filters: TrunkOptions = { ...plain, filters: [2], image: [10, 10, 4] }

test.each([
  ['dense', plain, null, cartPole({ maxEpisodeSteps: 9 })],
  ['dense, box', plain, null, pendulum({ maxEpisodeSteps: 9 })],
  ['convolutional', filters, null, breakout()],
  ['GRU, masks', gru, { length: 8, burnIn: 0 }, doors()],
  ['GRU after a burn-in', gru, { length: 8, burnIn: 3 }, cartPolePosition({ maxEpisodeSteps: 9 })],
  ['LSTM', lstm, { length: 8, burnIn: 0 }, cartPolePosition({ maxEpisodeSteps: 9 })],
])(
  '%s: a device that answers later trains to the same weights, and keeps no tensors',
  async (_, options, sequence, environment) => {
    const wasm = await startDevice('wasm')
    const before = wasm.tf.memory().numTensors
    const trained = async (device: Device) => {
      const { tf } = device
      const read = vi.spyOn(tf.Tensor.prototype, 'dataSync')
      const policy = policyOn(device, options, sequence)
      const world = await createWorld({ environment, policy, numLanes: 6, seed: 2 })
      const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2 }))
      const tensors = new Set<number>()
      for await (const _ of trainer.updates({ totalSteps: 4 * 96 })) tensors.add(tf.memory().numTensors)
      const readsAtOnce = read.mock.calls.length
      read.mockRestore()
      const weights = world.cohorts[0]!.weights.slice()
      trainer.close()
      expect(tensors.size).toBe(1)
      expect(tf.memory().numTensors).toBe(before)
      return { readsAtOnce, weights }
    }
    const atOnce = await trained(wasm)
    const later = await trained({ ...wasm, readsSynchronously: false })
    expect(atOnce.readsAtOnce).toBeGreaterThan(100)
    expect(later.readsAtOnce).toBe(0)
    expect(later.weights).toEqual(atOnce.weights)
  },
)

const UPDATES = isThorough ? 300 : 100

test.each([
  ['dense', dense({ hidden: [6], device: 'wasm' })],
  ['recurrent', recurrent({ units: 4, hidden: [6], sequenceLength: 8, burnIn: 2, device: 'wasm' })],
])(`%s: ${UPDATES} updates leave the tensors and the heap that 50 left`, async (_, policy) => {
  const { tf } = await startDevice('wasm')
  const heapBytes = () => {
    const { wasm } = tf.backend() as unknown as WasmBackend
    return wasm.asm.memory.buffer.byteLength
  }
  const environment = cartPolePosition({ maxEpisodeSteps: 9 })
  const world = await createWorld({ environment, policy, numLanes: 6, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 1 }))
  let kept: object = {}
  for await (const { update } of trainer.updates({ totalSteps: UPDATES * 96 })) {
    const { numTensors, numBytes, numDataBuffers } = tf.memory()
    const found = { numTensors, numBytes, numDataBuffers, heapBytes: heapBytes() }
    if (update === 50) kept = found
    if (update >= 50) expect(found).toEqual(kept)
  }
  trainer.close()
})
