import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { box } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import { td3Network } from '../../src/entries/algorithms.ts'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { DeterministicPolicy, Evaluated } from '../../src/policies/policy.ts'

const LANES = 6
const LOW = [-2, 0]
const HIGH = [1, 10]
const observationSpace = box({ low: -9, high: 9, shape: [3] })

/** A network with weights at random over lanes that see something. */
function makeLanes(build = kernelBuilds()[0]!) {
  const model = td3Network({ hidden: [7, 5] }).build(observationSpace, box({ low: LOW, high: HIGH }))
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
  // It no longer acts at random, but with noise of deviation 0.2.
  columns.weights.set([0, 0.2], model.deterministic!.exploration)
  columns.lane.set([3, 1, 4, 1, 5, 9])
  columns.step.set([0, 1, 2, 3, 4, 5])
  const policy = model.bind(
    columns.weights,
    columns.workspace as Columns<Plan>,
    createKernels(arena.memory, build),
    random,
  ) as DeterministicPolicy
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
  return { model, weights: columns.weights, policy, lanes, rows, chosen, logprob, value, observation }
}

describe.each(kernelBuilds())('a deterministic actor with two critics (%s)', (build) => {
  test('acts within its bounds, in each lane on its own, and evaluates that bit for bit', () => {
    const { policy, lanes, rows, chosen, logprob, value } = makeLanes(build)
    policy.infer(lanes, true, 0, LANES)
    const [acted, said, valued] = [chosen.slice(), logprob.slice(), value.slice()]
    for (let n = 0; n < LANES; n++) {
      for (const k of [0, 1]) {
        expect(acted[2 * n + k]).toBeGreaterThanOrEqual(LOW[k]!)
        expect(acted[2 * n + k]).toBeLessThanOrEqual(HIGH[k]!)
      }
    }
    expect(new Set(acted).size).toBeGreaterThan(LANES)
    const evaluated = policy.evaluate(rows, 0, LANES) as Evaluated
    expect(evaluated.logprob.slice(0, LANES)).toEqual(said)
    expect(evaluated.value.slice(0, LANES)).toEqual(valued)
    policy.infer(lanes, true, 2, 4)
    expect(chosen).toEqual(acted)
    expect(logprob).toEqual(said)
  })

  test('takes its own action where it does not explore, and says the density and entropy of its noise', () => {
    const { policy, lanes, rows, chosen, observation, value } = makeLanes(build)
    policy.infer(lanes, false, 0, LANES)
    const valued = new Float32Array(LANES)
    policy.values(valued, { observation, actionMask: new Uint8Array(0), memory: new Float32Array(0) }, LANES)
    for (let n = 0; n < LANES; n++) expect(valued[n]).toBeCloseTo(value[n]!, 5)
    const own = policy.act(observation, 0, LANES).slice(0, 2 * LANES)
    for (let i = 0; i < 2 * LANES; i++) {
      const [low, high] = [LOW[i % 2]!, HIGH[i % 2]!]
      expect(chosen[i]).toBeCloseTo(low + ((own[i]! + 1) / 2) * (high - low), 5)
    }
    policy.infer(lanes, true, 0, LANES)
    const { logprob, entropy } = policy.evaluate(rows, 0, LANES) as Evaluated
    for (let n = 0; n < LANES; n++) {
      let [density, spread] = [1, 0]
      for (const k of [0, 1]) {
        const half = (HIGH[k]! - LOW[k]!) / 2
        const mean = LOW[k]! + half * (own[2 * n + k]! + 1)
        const deviation = 0.2 * half
        const distance = (chosen[2 * n + k]! - mean) / deviation
        density *= Math.exp(-(distance ** 2) / 2) / deviation / Math.sqrt(2 * Math.PI)
        spread += 0.5 * Math.log(2 * Math.PI * Math.E * deviation ** 2)
      }
      expect(logprob[n]).toBeCloseTo(Math.log(density), 4)
      expect(entropy[n]).toBeCloseTo(spread, 5)
    }
  })

  test('explores by uniform actions before anything is learned', () => {
    const { model, weights, policy, lanes, rows, chosen } = makeLanes(build)
    const begun = new Float32Array(model.numParameters)
    model.initialize(begun, new Random(1), 0)
    const { exploration } = model.deterministic!
    expect(begun[exploration]).toBe(1)
    weights[exploration] = 1
    const seen: number[][] = [[], []]
    for (let episode = 0; episode < 200; episode++) {
      lanes.episode.episode.fill(episode)
      policy.infer(lanes, true, 0, LANES)
      for (const [i, action] of chosen.entries()) {
        seen[i % 2]!.push((action - LOW[i % 2]!) / (HIGH[i % 2]! - LOW[i % 2]!))
      }
    }
    const { logprob, entropy } = policy.evaluate(rows, 0, LANES) as Evaluated
    for (const part of seen) {
      const tenths = Array.from({ length: 10 }, (_, i) => part.filter((x) => Math.floor(10 * x) === i).length)
      for (const count of tenths) expect(Math.abs(count - 120)).toBeLessThan(50) // 120 ± 10 of 1,200.
    }
    expect(logprob[0]).toBeCloseTo(-Math.log(3 * 10), 5)
    expect(entropy[0]).toBeCloseTo(Math.log(3 * 10), 5)
  })
})
