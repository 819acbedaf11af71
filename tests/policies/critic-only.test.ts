/**
 * Observations with a part for critics alone (`criticOnly`): such a network is the one that sees everything, if the actor's weights for that
 * part are 0; its gradients are that network's, without those weights.
 */
import { expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { box, discrete, type Space, spaceType, spaceWidth } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { mlp } from '../../src/policies/mlp.ts'
import { convolutional, recurrent } from '../../src/policies/network/ready-made.ts'
import type { LossOf, PolicyDefinition, Rows } from '../../src/policies/policy.ts'
import { qNetwork } from '../../src/policies/q-network.ts'

import { sacNetwork } from '../../src/policies/sac-network.ts'

const [OWN, WIDTH] = [3, 8]
const [low, high] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]
const seen = (criticOnly: number, type: 'f32' | 'u8') =>
  box(
    type === 'u8' ? { low: 0, high: 255, shape: [WIDTH], type, criticOnly } : { low, high, shape: [WIDTH], criticOnly },
  )

function bound(definition: PolicyDefinition, space: Space, actionSpace: Space) {
  const model = definition.build(space, actionSpace)
  const size = model.numParameters
  const plan = { weights: column('f32', size), gradient: column('f32', size), workspace: model.workspace() }
  const { arena, columns } = takeArena(plan)
  const kernels = createKernels(arena.memory, 'plain')
  const policy = model.bind(columns.weights, columns.workspace as Columns<Plan>, kernels, new Random(4))
  return { model, policy, weights: columns.weights, gradient: columns.gradient }
}

const random = new Random(5)
function drawn(length: number, key: number, scale = 1): Float32Array {
  return Float32Array.from({ length }, (_, i) => {
    random.draw(Stream.initialize, key, 0, i)
    return scale * random.normal(0, 0)
  })
}

const networks: [string, PolicyDefinition, 'f32' | 'u8'][] = [
  ['no hidden layers', mlp({ hidden: [] }), 'f32'],
  ['hidden layers', mlp({ hidden: [6, 5] }), 'f32'],
  ['normalized observations', mlp({ hidden: [6], normalizeObservations: true }), 'f32'],
  ['bytes', mlp({ hidden: [6], activation: 'relu' }), 'u8'],
  ['a memory', recurrent({ hidden: [5], units: 4, sequenceLength: 3, burnIn: 2 }), 'f32'],
]

test.each(
  networks.flatMap((network) =>
    [discrete(4), box({ low, high, shape: [2] })].map((space) => [...network, space] as const),
  ),
)('the actor of a network with %s sees its own part, the critic everything', (_, definition, type, actionSpace) => {
  const part = bound(definition, seen(WIDTH - OWN, type), actionSpace)
  const whole = bound(definition, seen(0, type), actionSpace)
  const isFirst = (name: string) => name.startsWith('actor.') && name.endsWith('.weight')
  const first = part.model.parameters.find(({ name }) => isFirst(name))!
  expect(first.shape[0]).toBe(OWN)
  expect(part.model.parameters.find(({ name }) => name.startsWith('critic.'))!.shape[0]).toBe(WIDTH)
  part.weights.set(drawn(part.weights.length, 1, 0.5))
  const views = { part: part.policy.view(part.weights), whole: whole.policy.view(whole.weights) }
  for (const [i, { name }] of part.model.parameters.entries()) {
    if (name === 'observation.deviation') views.part[i]!.fill(1.5)
    views.whole[i]!.set(views.part[i]!) // Of the actor's first weights, the rest stays 0.
  }
  const { sequence = null, memoryWidth = 0 } = part.model
  const [numSeen, numRows] = sequence === null ? [20, 20] : [4 * 5, 4 * 3]
  const values = drawn(numSeen * WIDTH, 2)
  const width = spaceWidth(actionSpace)
  const rows: Rows = {
    observation: type === 'u8' ? Uint8Array.from(values, (x) => Math.min(255, Math.abs(2 * x))) : values,
    action:
      spaceType(actionSpace) === 'f32'
        ? drawn(numRows * width, 3)
        : Int32Array.from({ length: numRows }, (_, i) => i % 4),
    actionMask: new Uint8Array(0),
    memory: drawn(numSeen * memoryWidth, 4),
    continues: Uint8Array.from({ length: numSeen }, (_, i) => Number(i % 5 !== 0)),
  }
  const told: Record<string, number[]>[] = []
  for (const { policy, gradient } of [part, whole]) {
    const lossOf: LossOf = ({ logprob, entropy, value }, { dLogprob, dEntropy, dValue }, __, count) => {
      told.push({
        logprob: [...logprob.subarray(0, count)],
        entropy: [...entropy.subarray(0, count)],
        value: [...value.subarray(0, count)],
      })
      for (let row = 0; row < count; row++) {
        dLogprob[row] = 0.3 + row / 10
        dEntropy[row] = -0.1
        dValue[row] = value[row]! - row / 7
      }
    }
    policy.differentiate(rows, 0, numRows, lossOf, policy.view(gradient))
  }
  const near = (got: ArrayLike<number>, wanted: ArrayLike<number>) => {
    expect(got).toHaveLength(wanted.length)
    for (let i = 0; i < wanted.length; i++) {
      expect(Math.abs(got[i]! - wanted[i]!)).toBeLessThan(1e-5 * Math.max(1, Math.abs(wanted[i]!)))
    }
  }
  for (const name of ['logprob', 'entropy', 'value']) near(told[0]![name]!, told[1]![name]!)
  expect(new Set(told[0]!.logprob).size).toBeGreaterThan(0.9 * numRows)
  const gradients = [part.policy.view(part.gradient), whole.policy.view(whole.gradient)]
  for (const [i, { name, shape }] of part.model.parameters.entries()) {
    near(gradients[0]![i]!, gradients[1]![i]!.subarray(0, gradients[0]![i]!.length))
    if (shape[0] !== OWN || !isFirst(name)) expect(gradients[0]![i]).toHaveLength(gradients[1]![i]!.length)
  }
  expect(
    gradients[0]!.every(
      (each, i) => part.model.parameters[i]!.name.startsWith('observation') || each.some((x) => x !== 0),
    ),
  ).toBe(true)
  if (sequence !== null) return
  const judged = new Float32Array(numRows)
  part.policy.values(judged, rows, numRows)
  near(judged, told[1]!.value!)
})

test('a network whose actor would see the part for critics is refused', () => {
  const space = seen(WIDTH - OWN, 'f32')
  const refused =
    (definition: PolicyDefinition, actionSpace: Space = discrete(2)) =>
    () =>
      definition.build(space, actionSpace)
  expect(refused(mlp({ sharedTrunk: true }))).toThrow(
    'mlp observation space: got layers that actor and critic share, of observations with a part for critics alone',
  )
  expect(refused(qNetwork())).toThrow(
    'qNetwork observation space: got with 5 elements for critics alone, expected mlp or recurrent',
  )
  expect(refused(sacNetwork(), box({ low: -1, high: 1 }))).toThrow('sacNetwork observation space: got with 5 elements')
  const image = box({ low: 0, high: 1, shape: [5, 5, 2], criticOnly: 25 })
  expect(() => convolutional({ sharedTrunk: false }).build(image, discrete(2))).toThrow(
    'got convolutions, of observations with a part for critics alone',
  )
  expect(() => box({ low, high, shape: [3], criticOnly: 3 })).toThrow(
    'box criticOnly: got 3, expected a whole number from 0 to 2',
  )
})
