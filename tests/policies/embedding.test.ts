/** Embeddings of choices in observations, against the same network over numbers that were looked up by hand. */
import { expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { box, dict, discrete, multiDiscrete } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { mlp } from '../../src/policies/mlp.ts'
import type { Evaluated, LossOf, PolicyModel, Rows } from '../../src/policies/policy.ts'
import { Numbers } from '../kernels/calls.ts'

const UNITS = 3
const COUNT = 7
const observationSpace = dict({
  room: discrete(4),
  speed: box({ low: -1, high: 1, shape: [2] }),
  lamps: multiDiscrete([2, 3]),
})
const sizes = [4, 2, 3]

function bound(model: PolicyModel) {
  const size = model.numParameters
  const plan = { weights: column('f32', size), gradient: column('f32', size), workspace: model.workspace() }
  const { arena, columns } = takeArena(plan)
  const random = new Random(3)
  model.initialize(columns.weights, random, 0)
  return {
    ...columns,
    policy: model.bind(columns.weights, columns.workspace, createKernels(arena.memory, 'plain'), random),
  }
}

const numbers = new Numbers(5)
const rooms = Array.from({ length: COUNT }, () => sizes.map((size) => numbers.whole(0, size - 1)))
const speeds = Array.from({ length: COUNT }, () => [...numbers.floats(2)])
const oneHot = (size: number, chosen: number) => Array.from({ length: size }, (_, k) => +(k === chosen))
const observation = Float32Array.from(
  rooms.flatMap(([room, a, b], n) => [...oneHot(4, room!), ...speeds[n]!, ...oneHot(2, a!), ...oneHot(3, b!)]),
)
const action = Int32Array.from(rooms, (_, n) => n % 3)
const rowsOf = (seen: Float32Array): Rows => ({
  ...{ observation: seen, action, actionMask: new Uint8Array(0) },
  ...{ memory: new Float32Array(0), continues: new Uint8Array(0) },
})
const lossOf: LossOf = ({ logprob, value }, { dLogprob, dEntropy, dValue }, _, count) => {
  for (let row = 0; row < count; row++) {
    dLogprob[row] = row + 0.5 * logprob[row]!
    dEntropy[row] = 0.3
    dValue[row] = value[row]! - row
  }
}
const lossWith = ({ logprob, entropy, value }: Evaluated) =>
  rooms.reduce((sum, _, n) => {
    return sum + n * logprob[n]! + 0.25 * logprob[n]! ** 2 + 0.3 * entropy[n]! + 0.5 * (value[n]! - n) ** 2
  }, 0)

test.each([false, true])(
  'a choice reads its row of a learned table, and its gradient reaches that row (shared: %s)',
  (sharedTrunk) => {
    const settings = { hidden: [5], sharedTrunk, layerNorm: true }
    const model = mlp({ ...settings, embedding: UNITS }).build(observationSpace, discrete(3))
    const embedded = bound(model)
    const plainWidth = 3 * UNITS + 2
    const plainModel = mlp(settings).build(box({ low: -9, high: 9, shape: [plainWidth] }), discrete(3))
    const plain = bound(plainModel)
    const names = model.parameters.map(({ name }) => name)
    const stacks = sharedTrunk ? ['trunk'] : ['actor', 'critic']
    const tablesOf = (stack: string) => ['room', 'lamps.0', 'lamps.1'].map((label) => `${stack}.embedding.${label}`)
    expect(names.filter((name) => name.includes('embedding'))).toEqual(stacks.flatMap(tablesOf))
    // All else is the network without embeddings.
    const views = embedded.policy.view(embedded.weights)
    const copyInto = () => {
      for (const [i, view] of plain.policy.view(plain.weights).entries()) {
        view.set(views[names.indexOf(plainModel.parameters[i]!.name)]!)
      }
    }
    const seenBy = (stack: string) => {
      const tables = tablesOf(stack).map((name) => views[names.indexOf(name)]!)
      const look = (k: number, row: number) => [...tables[k]!.subarray(row * UNITS, (row + 1) * UNITS)]
      return Float32Array.from(
        rooms.flatMap(([room, a, b], n) => [...look(0, room!), ...speeds[n]!, ...look(1, a!), ...look(2, b!)]),
      )
    }
    const expected = (): Evaluated => {
      copyInto()
      const by = (stack: string) => {
        const { logprob, entropy, value } = plain.policy.evaluate(rowsOf(seenBy(stack)), 0, COUNT) as Evaluated
        return { logprob: logprob.slice(0, COUNT), entropy: entropy.slice(0, COUNT), value: value.slice(0, COUNT) }
      }
      return { ...by(stacks[0]!), value: by(stacks.at(-1)!).value }
    }
    const found = embedded.policy.evaluate(rowsOf(observation), 0, COUNT) as Evaluated
    const wanted = expected()
    for (const name of ['logprob', 'entropy', 'value'] as const) {
      expect([...found[name].subarray(0, COUNT)]).toEqual([...wanted[name]])
    }
    embedded.policy.differentiate(rowsOf(observation), 0, COUNT, lossOf, embedded.policy.view(embedded.gradient))
    const largest = embedded.gradient.reduce((most, d) => Math.max(most, Math.abs(d)), 0)
    const nudge = 0.01
    for (const { name, offset, shape } of model.parameters) {
      if (!name.includes('embedding')) continue
      for (let i = offset; i < offset + shape[0]! * shape[1]!; i++) {
        const at = embedded.weights[i]!
        const [above, below] = [nudge, -nudge].map((step) => {
          embedded.weights[i] = at + step
          return lossWith(expected())
        })
        embedded.weights[i] = at
        const slope = (above! - below!) / (2 * nudge)
        expect(Math.abs(embedded.gradient[i]! - slope), `${name} ${i - offset}`).toBeLessThan(2e-3 * largest)
      }
    }
  },
)

test('an embedding without choices to embed, or of normalized ones, is refused', () => {
  const build = (settings: object, space = observationSpace) =>
    mlp({ embedding: 2, ...settings }).build(space, discrete(2))
  expect(() => build({}, box({ low: 0, high: 1 }))).toThrow('mlp embedding: got 2, and observations')
  expect(() => build({ normalizeObservations: true })).toThrow('mlp embedding: got 2 with normalizeObservations')
  expect(() => build({ device: 'webgpu' })).toThrow('mlp embedding: got 2 with device webgpu, expected device none')
  expect(() => build({ embedding: 0, layerNorm: true, device: 'webgpu' })).toThrow(
    'mlp layerNorm: got true with device',
  )
})
