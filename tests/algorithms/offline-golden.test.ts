/** One update of algorithms for recorded rows beside torch: losses, and the gradient by every weight. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { rowLoss } from '../../src/algorithms/losses/row-loss.ts'
import { imitationLoss } from '../../src/algorithms/on-policy/bc.ts'
import {
  cql,
  discreteCql,
  iql,
  iqlNetwork,
  qNetwork,
  sacNetwork,
  td3bc,
  td3Network,
} from '../../src/entries/algorithms.ts'
import { createTrainer, createWorld, mlp, recordEpisodes } from '../../src/index.ts'
import { BOUNDS, drift } from '../support/drift.ts'

type Named = Readonly<Record<string, readonly (readonly number[] | null)[]>>

interface Recorded {
  readonly settings: Readonly<Record<string, number>>
  readonly weights: Named
  readonly target: Named
  readonly gradient: Named
  readonly noise: readonly (readonly number[])[]
  readonly parts: Readonly<Record<string, number>>
  readonly action?: readonly number[]
}

const golden = JSON.parse(readFileSync(new URL('../golden/offline.json', import.meta.url), 'utf8'))
const batch: Readonly<Record<'observation' | 'action' | 'next' | 'terminated' | 'reward', readonly number[]>> =
  golden.batch
const { hidden, gamma } = golden as { readonly hidden: number[]; readonly gamma: number }
const ROWS = batch.reward.length
const RATE = 0.1

/** A learner's columns in which a test writes. */
interface Written {
  readonly target: Float32Array
  readonly replay: {
    readonly rows: Readonly<Record<'observation' | 'reward', Float32Array>> &
      Readonly<Record<'action', Float32Array | Int32Array>> &
      Readonly<Record<'terminated' | 'truncated' | 'valid', Uint8Array>>
  }
}

/** A use of noise is a set of rows; a loss asks for them block by block. Returns the noise in the order of `uses`. */
function noiseOf(noise: Recorded['noise'], uses: readonly number[], width: number) {
  return (out: Float32Array, _: unknown, __: number, use: number, first: number, ...rest: readonly number[]) => {
    const count = rest[2]!
    const all = noise[uses.indexOf(use)]!
    for (let i = 0; i < count * width; i++) out[i] = all[first * width + i]!
  }
}

const cases = [
  { algorithm: td3bc, policy: td3Network, uses: [1], own: { policyDelay: 1, targetInterval: 9 } },
  { algorithm: iql, policy: iqlNetwork, uses: [], own: { targetInterval: 9 } },
  // The next action, three samples in the state, in the next state and among all actions, and the actor's own.
  { algorithm: cql, policy: sacNetwork, uses: [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2], own: { targetInterval: 9 } },
  { algorithm: discreteCql, policy: qNetwork, uses: [], own: { targetInterval: 9 } },
] as const

test.each(cases)('$algorithm.id: losses and gradients are those of torch', async ({ algorithm, policy, uses, own }) => {
  const { settings, weights, target, gradient, noise, parts, action }: Recorded = golden[algorithm.id]
  const environment = drift({ kind: action === undefined ? 'numbers' : 'choices' }) as never
  // The next observation of row i is that of row i + numLanes.
  const shape = { environment, numLanes: ROWS, kernels: 'plain', seed: 1 } as const
  const world = await createWorld({ ...shape, policy: policy({ hidden }) as never })
  const trainer = createTrainer(
    world,
    algorithm({
      ...{ numSteps: 2, gradientSteps: 1, batchSize: ROWS, replayRows: 2 * ROWS, learningStarts: 0, gamma },
      ...{ optimizer: 'sgd', momentum: 0, learningRate: RATE, maxGradNorm: 1e9, ...settings, ...own },
    } as never),
  )
  const cohort = world.cohort()
  const { parameters } = cohort.model
  const namesOf = (name: string) => parameters.filter((each) => each.name.startsWith(name))
  const write = (into: Float32Array, values: Named) => {
    for (const [name, layers] of Object.entries(values)) {
      for (const [i, layer] of layers.entries()) into.set(layer!, namesOf(name)[i]!.offset)
    }
  }
  const kernels = (world as unknown as { kernels: Record<string, unknown> }).kernels
  kernels.drawByPriority = (drawn: Uint32Array, weight: Float32Array) => {
    const written = cohort.learner.algorithm as unknown as Written
    const { rows } = written.replay
    write(cohort.weights, weights)
    write(written.target, target)
    rows.observation.set([...batch.observation, ...batch.next])
    const { low, high } = BOUNDS
    rows.action.set(action ?? batch.action.map((a, i) => low[i % 2]! + ((a + 1) / 2) * (high[i % 2]! - low[i % 2]!)))
    rows.reward.set(batch.reward)
    rows.terminated.set(batch.terminated)
    rows.truncated.fill(0)
    rows.valid.fill(1)
    drawn.forEach((_, i) => {
      drawn[i] = i
    })
    weight.fill(1)
  }
  kernels.drawReplayNormal = kernels.drawReplayUniform = noiseOf(noise, uses, 2)
  const table = await recordEpisodes({
    ...{ environment, policy: mlp({ hidden: [2] }), episodes: ROWS, seed: 1 },
    weights: (await createWorld({ ...shape, policy: mlp({ hidden: [2] }) })).cohort().weights,
  })
  const told: Readonly<Record<string, number>>[] = []
  for await (const metrics of trainer.learn(table)) {
    told.push(metrics as never)
    break
  }
  for (const [name, value] of Object.entries(parts)) {
    expect(Math.abs(told[0]![name]! - value), name).toBeLessThan(1e-5 * Math.max(1, Math.abs(value)))
  }
  let compared = 0
  for (const [name, layers] of Object.entries(weights)) {
    for (const [i, layer] of layers.entries()) {
      const { offset } = namesOf(name)[i]!
      for (const [k, begun] of layer!.entries()) {
        const got = (begun - cohort.weights[offset + k]!) / RATE
        const expected = gradient[name]![i]?.[k] ?? 0
        expect(Math.abs(got - expected), `${name} ${i} ${k}: ${got} for ${expected}`).toBeLessThan(1e-4)
        compared++
      }
    }
  }
  expect(compared).toBeGreaterThan(60)
})

test('the loss of awr and its derivatives are those of torch', () => {
  const { settings, parts, columns, gradient } = golden.awr
  const names = ['policyLoss', 'valueLoss', 'entropy', 'logprob']
  const loss = rowLoss((row, given: typeof settings) => imitationLoss(row, given, 1 / given.temperature))
  const floats = (values: readonly number[]) => Float32Array.from(values)
  const derivatives = {
    dLogprob: floats(columns.value),
    dEntropy: floats(columns.value),
    dValue: floats(columns.value),
  }
  const sums = new Float64Array(4)
  const mean = columns.advantage.reduce((sum: number, each: number) => sum + each, 0) / ROWS
  const square = columns.advantage.reduce((sum: number, each: number) => sum + (each - mean) ** 2, 0) / ROWS
  const minibatch = { advantageMean: mean, advantageScale: 1 / Math.sqrt(square), weight: 1 / ROWS }
  const evaluated = {
    ...{ logprob: floats(columns.logprob), entropy: floats(columns.entropy), value: floats(columns.value) },
  }
  const recorded = {
    ...{ advantage: floats(columns.advantage), return: floats(columns.return) },
    ...{ logprob: floats(columns.value), value: floats(columns.value) },
  }
  loss(settings, {} as never, { id: 'awr', metrics: names }).ofRows(
    ...[derivatives, sums, evaluated, recorded as never, minibatch, ROWS, 0, 0],
  )
  expect(sums[0]! / ROWS).toBeCloseTo(parts.policyLoss, 5)
  expect(sums[1]! / ROWS).toBeCloseTo(parts.valueLoss, 5)
  for (const [name, column] of Object.entries(derivatives)) {
    const expected: readonly number[] = gradient[name[1]!.toLowerCase() + name.slice(2)]
    for (const [row, value] of expected.entries()) expect(column[row]!, `${name} ${row}`).toBeCloseTo(value, 5)
  }
})
