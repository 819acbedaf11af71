/**
 * PPO's learner on rollouts made by hand: in several threads that take turns in this one, on sequences, and with policies that answer
 * later or give no number.
 */
import { describe, expect, test } from 'vitest'
import type { Learner, LearnerMetrics } from '../../src/algorithms/algorithm.ts'
import { ppo } from '../../src/algorithms/on-policy/ppo.ts'
import { Clock } from '../../src/base/clock.ts'
import { type PartedWork, type ShareWork, toldNumbers } from '../../src/base/parted.ts'
import { Random } from '../../src/base/random.ts'
import { box, multiDiscrete } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { rolloutPlan } from '../../src/components/rollout.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { mlp } from '../../src/policies/mlp.ts'
import type { Policy, PolicyModel } from '../../src/policies/policy.ts'
import { Numbers } from '../kernels/calls.ts'

const NUM_STEPS = 16
const NUM_LANES = 6
const WIDTH = 3
const SIZES = [2, 3]
const MASK_WIDTH = 5
const observationSpace = box({ low: -1, high: 1, shape: [WIDTH] })
const actionSpace = multiDiscrete(SIZES)

type PpoSettings = NonNullable<Parameters<typeof ppo>[0]>
type Bound = Policy & { differentiate: Policy['differentiate'] }

const perceptron = (): PolicyModel => mlp({ hidden: [8] }).build(observationSpace, actionSpace)

/** The perceptron, of which `change` makes another policy. */
function changed(part: Partial<PolicyModel>, change: (inner: Policy) => Partial<Policy>): PolicyModel {
  const model = perceptron()
  return {
    ...model,
    ...part,
    bind(...given) {
      const inner = model.bind(...given)
      const bound: Bound = { ...methodsOf(inner), ...change(inner) }
      return bound
    },
  }
}

function methodsOf(inner: Policy): Policy {
  return {
    infer: (...given) => inner.infer(...given),
    values: (...given) => inner.values(...given),
    evaluate: (...given) => inner.evaluate(...given),
    view: (...given) => inner.view(...given),
    differentiate: (...given) => inner.differentiate(...given),
  }
}

/** What a policy was handed of sequences. */
interface Handed {
  readonly memory: number[]
  readonly continues: number[]
}

/** The perceptron as if it had a memory, which it never uses: rows of burn-in are passed over. */
function inSequences(length: number, burnIn: number, blockRows: number, handed: Handed[] = []): PolicyModel {
  return changed({ sequence: { length, burnIn }, blockRows, memoryWidth: 1 }, (inner) => ({
    differentiate(rows, from, count, lossOf, gradient) {
      expect(from).toBe(0)
      const whole = burnIn + length
      const numSeen = (count / length) * whole
      handed.push({ memory: [...rows.memory.slice(0, numSeen)], continues: [...rows.continues.slice(0, numSeen)] })
      const observation = new Float32Array(count * WIDTH)
      for (let i = 0; i < count; i++) {
        const at = WIDTH * (Math.floor(i / length) * whole + burnIn + (i % length))
        observation.set(rows.observation.subarray(at, at + WIDTH), i * WIDTH)
      }
      return inner.differentiate({ ...rows, observation }, 0, count, lossOf, gradient)
    },
  }))
}

/** The perceptron on a device that answers later. */
const later = (): PolicyModel =>
  changed({ answersLater: true }, (inner) => ({
    async differentiate(...given) {
      await Promise.resolve()
      inner.differentiate(...given)
    },
  }))

interface Learned {
  readonly weights: Float32Array
  readonly metrics: LearnerMetrics
}

/** Shares work among so many threads in this one, which take turns. The last goes first, so that nobody may rely on an order. */
function inTurns(count: number): ShareWork[] {
  const works: PartedWork[][] = Array.from({ length: count }, () => [])
  const parts = (id: number, from: number, end: number): void | Promise<void> => {
    for (let i = from; i < end; i++) {
      const pending = works[count - 1 - (i % count)]![id]!.part(i)
      if (pending !== undefined) return pending.then(() => parts(id, i + 1, end))
    }
  }
  return works.map(
    (own): ShareWork =>
      (work) => {
        const id = own.push(work) - 1
        const told = toldNumbers()
        const run = (numParts: number) => {
          for (const each of works) each[id]!.open(told)
          return parts(id, 0, numParts)
        }
        return { told, run }
      },
  )
}

/** Two updates of a rollout in which some rows are dead, by so many threads. */
async function learn(model: PolicyModel, settings: PpoSettings, threads = 1): Promise<Learned> {
  const definition = ppo({ numSteps: NUM_STEPS, learningRate: 0.01, ...settings })
  const shape = { numLanes: NUM_LANES, model, observationSpace, actionSpace, actionMaskWidth: MASK_WIDTH, threads }
  const seen = { observation: WIDTH, observationType: 'f32' as const }
  const widths = { ...seen, actionMask: MASK_WIDTH, memory: model.memoryWidth ?? 0 }
  const { arena, columns } = takeArena({
    rollout: rolloutPlan(NUM_STEPS, NUM_LANES, widths, actionSpace),
    weights: column('f32', model.numParameters),
    learner: definition.plan(shape),
    workspaces: Object.fromEntries(Array.from({ length: threads }, (_, i) => [i, model.workspace()])),
  })
  const { rollout, weights } = columns
  const random = new Random(5)
  const kernels = createKernels(arena.memory, 'plain')
  model.initialize(weights, random, 0)
  weights.forEach((weight, k) => {
    weights[k] = weight + 0.3 * Math.sin(k)
  })
  fill(rollout)
  const learners: Learner[] = inTurns(threads).map((share, thread) =>
    definition.bind({
      ...shape,
      ...{ rollout, weights, kernels, random, thread, share, clock: new Clock(), finals: () => [] },
      columns: columns.learner,
      policy: model.bind(weights, columns.workspaces[thread]!, kernels, random),
    }),
  )
  let metrics: LearnerMetrics | undefined
  for (let update = 0; update < 2; update++) {
    const running = learners[0]!.learn(update, 4)
    for (let step = running.next(); ; step = running.next()) {
      metrics = step.value as LearnerMetrics
      if (step.done) break
      await step.value
    }
  }
  return { weights: weights.slice(), metrics: metrics! }
}

function fill(
  rollout: ReturnType<typeof takeArena<{ rollout: ReturnType<typeof rolloutPlan> }>>['columns']['rollout'],
) {
  const numbers = new Numbers(9)
  rollout.observation.set(numbers.floats(rollout.observation.length))
  rollout.actionMask.set(numbers.flags(rollout.actionMask.length, 0.7))
  rollout.memory.forEach((_, row) => {
    rollout.memory[row] = row
  })
  rollout.reward.set(numbers.floats(rollout.reward.length))
  rollout.value.set(numbers.floats(rollout.value.length))
  rollout.nextValue.set(numbers.floats(rollout.value.length))
  rollout.logprob.set(numbers.floats(rollout.value.length, -2, -1))
  rollout.terminated.set(numbers.flags(rollout.value.length, 0.1))
  rollout.valid.set(numbers.flags(rollout.value.length, 0.8))
  for (let row = 0; row < rollout.valid.length; row++) {
    rollout.step[row] = numbers.uniform() < 0.2 ? 0 : 7
    // What was chosen is legal.
    const chosen = SIZES.map((size) => numbers.whole(0, size - 1))
    rollout.action.set(chosen, row * SIZES.length)
    rollout.actionMask[row * MASK_WIDTH + chosen[0]!] = 1
    rollout.actionMask[row * MASK_WIDTH + SIZES[0]! + chosen[1]!] = 1
  }
}

function expectNear(got: Learned, wanted: Learned): void {
  got.weights.forEach((weight, k) => void expect(weight, `weight ${k}`).toBeCloseTo(wanted.weights[k]!, 5))
  for (const [key, value] of Object.entries(wanted.metrics)) {
    expect(got.metrics[key as keyof LearnerMetrics], key).toBeCloseTo(value, 5)
  }
}

const settings: PpoSettings = { numMinibatches: 3, updateEpochs: 2, entropyCoef: 0.1 }

describe('threads', () => {
  test.each([2, 3, 5])('%i make the bits of one', async (threads) => {
    const blocks = { ...perceptron(), blockRows: 4 }
    const alone = await learn(blocks, settings)
    expect((await learn(blocks, settings, threads)).weights).toEqual(alone.weights)
    expect((await learn(blocks, settings, threads)).metrics).toEqual(alone.metrics)
    const stopped = { ...settings, updateEpochs: 9, targetKl: 1e-9 }
    expect((await learn(blocks, stopped, threads)).weights).toEqual((await learn(blocks, stopped)).weights)
  })
})

describe('sequences', () => {
  // In one minibatch, of which everything is learned at once, it does not matter what else stands in a block.
  const whole: PpoSettings = { numMinibatches: 1, updateEpochs: 3, entropyCoef: 0.1, clipValue: 0.3 }

  test.each([
    [4, 0, 256],
    [4, 3, 20],
    [8, 5, 13],
    [1, 2, 9],
    [16, 0, 16],
  ])('of %i rows after %i of burn-in, %i rows a block, make the step that their rows make alone', async (...cut) => {
    for (const normalizeAdvantage of [true, false]) {
      const given = { ...whole, normalizeAdvantage }
      expectNear(await learn(inSequences(...cut), given), await learn(perceptron(), given))
    }
  })

  test('are each handed with what was remembered at their rows, and whether they go on', async () => {
    const handed: Handed[] = []
    await learn(inSequences(4, 2, 12, handed), { numMinibatches: 2, updateEpochs: 1 })
    // Of each update 24 sequences, two a block; those that begin in the rollout's first row have no burn-in of their own.
    expect(handed).toHaveLength(24)
    const starts = handed.flatMap(({ memory }) => [memory.slice(0, 6), memory.slice(6)]).slice(0, 24)
    const wanted = Array.from({ length: 24 }, (_, unit) => {
      const lane = unit % NUM_LANES
      return Array.from(
        { length: 6 },
        (_, k) => Math.max(0, 4 * Math.floor(unit / NUM_LANES) + k - 2) * NUM_LANES + lane,
      )
    })
    const sorted = (lists: number[][]) => lists.map(String).toSorted()
    expect(sorted(starts)).toEqual(sorted(wanted))
    for (const { continues } of handed) expect([continues[0], continues[6]]).toEqual([0, 0])
    expect(handed.some(({ continues }) => continues.includes(1))).toBe(true)
  })

  test('make the bits of one thread in several', async () => {
    const cut = () => inSequences(4, 2, 12)
    expect((await learn(cut(), settings, 3)).weights).toEqual((await learn(cut(), settings)).weights)
  })
})

describe('policies', () => {
  test('that answer later are waited for: the bits are those of an answer at once', async () => {
    const wanted = await learn({ ...perceptron(), blockRows: 4 }, settings)
    expect(await learn({ ...later(), blockRows: 4 }, settings)).toEqual(wanted)
  })

  test('take up the weights once after each minibatch', async () => {
    let refreshed = 0
    const model = changed({}, () => ({ refresh: () => void refreshed++ }))
    await learn(model, { numMinibatches: 3, updateEpochs: 2 })
    expect(refreshed).toBe(2 * 3 * 2)
  })

  test('whose gradient is no number are refused before the weights are touched', async () => {
    const model = changed({}, (inner) => ({
      differentiate(rows, from, count, lossOf, gradient) {
        inner.differentiate(rows, from, count, lossOf, gradient)
        gradient[0]![0] = Number.POSITIVE_INFINITY
      },
    }))
    await expect(learn(model, settings)).rejects.toThrow(
      'ppo: got a gradient of norm Infinity, expected a finite norm: try a smaller learningRate or smaller rewards',
    )
  })
})

test('more minibatches than valid rows: those without a row are passed over', async () => {
  const { weights, metrics } = await learn(perceptron(), { numMinibatches: NUM_STEPS * NUM_LANES, updateEpochs: 1 })
  expect(weights.every(Number.isFinite)).toBe(true)
  expect(Object.values(metrics).every(Number.isFinite)).toBe(true)
})
