import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { box, discrete, type Space } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import { sacNetwork } from '../../src/entries/algorithms.ts'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { Evaluated, SoftPolicy } from '../../src/policies/policy.ts'

const LANES = 6
const LOW = [-2, 0]
const HIGH = [1, 10]
const observationSpace = box({ low: -9, high: 9, shape: [3] })

test('a network is of a box, and acts in one with bounds', () => {
  const build = (seen: Space, acts: Space) => () => sacNetwork({ hidden: [4] }).build(seen, acts)
  const actions = box({ low: -1, high: 1 })
  expect(build(discrete(2), actions)).toThrow('sacNetwork observation space: got')
  expect(build(observationSpace, discrete(2))).toThrow('sacNetwork action space: got')
  for (const bounds of [
    { low: Number.NEGATIVE_INFINITY, high: 1 },
    { low: -1, high: Number.POSITIVE_INFINITY },
  ])
    expect(build(observationSpace, box(bounds))).toThrow('expected a box with finite bounds')
})

/** A network with weights at random over lanes that see something. */
function makeLanes(build = kernelBuilds()[0]!) {
  const model = sacNetwork({ hidden: [7, 5] }).build(observationSpace, box({ low: LOW, high: HIGH }))
  const { arena, columns } = takeArena({
    weights: column('f32', model.numParameters),
    workspace: model.workspace(),
    observation: column('f32', LANES, 3),
    chosen: column('f32', LANES, 2),
    logprob: column('f32', LANES),
    value: column('f32', LANES),
    lane: column('u32', LANES),
    episode: column('u32', LANES),
    step: column('i32', LANES),
  })
  const random = new Random(6)
  for (const each of [columns.weights, columns.observation]) {
    each.forEach((_, i) => {
      random.draw(Stream.initialize, each.length, 0, i)
      each[i] = 0.5 * random.normal(0, 0)
    })
  }
  columns.lane.set([3, 1, 4, 1, 5, 9])
  columns.step.set([0, 1, 2, 3, 4, 5])
  const policy = model.bind(
    columns.weights,
    columns.workspace as Columns<Plan>,
    createKernels(arena.memory, build),
    random,
  ) as SoftPolicy
  const none = { current: new Uint8Array(0), next: new Uint8Array(0) }
  const memory = { current: new Float32Array(0), next: new Float32Array(0) }
  const { observation, chosen, logprob, value, lane, episode, step } = columns
  const lanes = {
    observation: { current: observation, next: observation },
    ...{ actionMask: none, memory, action: { chosen, applied: chosen, logprob, value } },
    episode: { lane, episode, step, episodeReturn: new Float64Array(LANES), phase: new Uint8Array(LANES) },
  }
  const rows = {
    observation,
    action: chosen,
    actionMask: none.current,
    memory: memory.current,
    continues: none.current,
  }
  return { model, policy, lanes, rows, chosen, logprob, value, observation }
}

describe.each(kernelBuilds())('an actor with two critics (%s)', (build) => {
  test('acts within its bounds, in each lane on its own, and evaluates that bit for bit', () => {
    const { policy, lanes, rows, chosen, logprob, value } = makeLanes(build)
    policy.infer(lanes, true, 0, LANES)
    const [acted, said, valued] = [chosen.slice(), logprob.slice(), value.slice()]
    for (let n = 0; n < LANES; n++) {
      for (const k of [0, 1]) {
        expect(acted[2 * n + k]).toBeGreaterThan(LOW[k]!)
        expect(acted[2 * n + k]).toBeLessThan(HIGH[k]!)
      }
    }
    expect(new Set(acted).size).toBe(2 * LANES)
    const evaluated = policy.evaluate(rows, 0, LANES) as Evaluated
    expect(evaluated.logprob.slice(0, LANES)).toEqual(said)
    expect(evaluated.value.slice(0, LANES)).toEqual(valued)
    policy.infer(lanes, true, 2, 4)
    expect(chosen).toEqual(acted)
    expect(logprob).toEqual(said)
  })

  test('takes the middle of its distribution where it does not explore, and values states by that', () => {
    const { policy, lanes, chosen, observation } = makeLanes(build)
    policy.infer(lanes, false, 0, LANES)
    const [logprob, value] = [new Float32Array(LANES), new Float32Array(LANES)]
    const unit = policy.draw(observation, 0, new Float32Array(2 * LANES), logprob, LANES).slice(0, 2 * LANES)
    for (let i = 0; i < 2 * LANES; i++) {
      const [low, high] = [LOW[i % 2]!, HIGH[i % 2]!]
      expect(chosen[i]).toBeCloseTo(low + ((unit[i]! + 1) / 2) * (high - low), 5)
    }
    policy.values(value, { observation, actionMask: new Uint8Array(0), memory: new Float32Array(0) }, LANES)
    expect(value).toEqual(policy.judge(observation, 0, unit, LANES).slice(0, LANES))
    const [one, other] = policy.criticValues
    for (let n = 0; n < LANES; n++) expect(value[n]).toBe(Math.min(one[n]!, other[n]!))
  })

  test('says the density of an action, over its bounds it adds up to one', () => {
    const { policy, rows, chosen, observation } = makeLanes(build)
    for (let n = 1; n < LANES; n++) observation.copyWithin(3 * n, 0, 3)
    const steps = 120
    let sum = 0
    for (let i = 0; i < steps; i++) {
      for (let j = 0; j < steps; j += LANES) {
        for (let n = 0; n < LANES; n++) {
          chosen[2 * n] = -2 + (3 * (i + 0.5)) / steps
          chosen[2 * n + 1] = (10 * (j + n + 0.5)) / steps
        }
        const { logprob } = policy.evaluate(rows, 0, LANES) as Evaluated
        for (let n = 0; n < LANES; n++) sum += (Math.exp(logprob[n]!) * 30) / steps ** 2
      }
    }
    expect(sum).toBeCloseTo(1, 1)
  })
})

test('the actor and both critics begin with numbers of their own', () => {
  const model = sacNetwork({ hidden: [6, 6] }).build(
    box({ low: -9, high: 9, shape: [3] }),
    box({ low: LOW, high: HIGH }),
  )
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(6), 0)
  const layers = ['critic0', 'critic1'].map((name) =>
    model.parameters
      .filter((each) => each.name.startsWith(`${name}.`) && each.name.endsWith('.weight'))
      .map(({ offset, shape }) => [...weights.subarray(offset, offset + shape[0]! * shape[1]!)]),
  )
  expect(layers[0]!.length).toBe(3)
  for (const [i, layer] of layers[0]!.entries()) expect(layer).not.toEqual(layers[1]![i])
})
