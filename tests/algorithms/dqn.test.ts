import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import { dqn, qNetwork, replayTable } from '../../dist/src/entries/algorithms.js'
import {
  cartPole,
  createTrainer,
  createWorld,
  defineSystem,
  type EnvironmentDefinition,
  mlp,
  pendulum,
  ppo,
  readArrow,
  type UpdateMetrics,
  writeArrow,
} from '../../dist/src/index.js'
// @ts-expect-error: a module without types.
import { gates, isOpen } from '../support/gates.mjs'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

const GAMMA = 0.9

/** Rewards that differ from row to row, from what the lane saw. */
const uneven = defineSystem({
  id: 'uneven',
  settings: {},
  make: () => ({
    after: 'step',
    run({ reward, observation }, from, to) {
      for (let n = from; n < to; n++) reward[n] = 1 + Math.sin(9 * observation[4 * n]!) + observation[4 * n + 3]!
    },
  }),
})

/** A column of a table, as numbers. */
type TableOf = { fields: readonly { name: string; column: ArrayLike<number>; rows?: Uint32Array }[] }
const fieldOf = ({ fields }: TableOf, name: string) => fields.find((field) => field.name === name)!

interface Step {
  readonly observation: number[]
  readonly final: number[] | null
  readonly action: number
  readonly reward: number
  readonly nextValue: number
  readonly terminated: boolean
}

/** What each lane did in a rollout, step by step. */
function stepsOf(table: TableOf, numLanes: number): Step[][] {
  const column = (name: string) => fieldOf(table, name).column
  const final = fieldOf(table, 'finalObservation')
  const lanes: Step[][] = Array.from({ length: numLanes }, () => [])
  for (let row = 0; row < column('reward').length; row++) {
    const at = final.rows!.indexOf(row)
    const isTruncated = column('truncated')[row] !== 0
    lanes[row % numLanes]!.push({
      observation: Array.from({ length: 4 }, (_, k) => column('observation')[4 * row + k]!),
      final: isTruncated ? Array.from({ length: 4 }, (_, k) => final.column[4 * at + k]!) : null,
      action: column('action')[row]!,
      reward: column('reward')[row]!,
      nextValue: column('nextValue')[row]!,
      terminated: column('terminated')[row] !== 0,
    })
  }
  return lanes
}

/** Values of all actions of a network with one hidden layer of relu. */
function valuesOf(weights: Float32Array, x: readonly number[], hidden: number, numActions: number): number[] {
  const bias = 4 * hidden
  const y = Array.from({ length: hidden }, (_, j) =>
    Math.max(
      0,
      x.reduce((sum, each, k) => sum + each * weights[k * hidden + j]!, weights[bias + j]!),
    ),
  )
  const head = bias + hidden
  return Array.from({ length: numActions }, (_, a) =>
    y.reduce(
      (sum, each, k) => sum + each * weights[head + numActions * k + a]!,
      weights[head + numActions * hidden + a]!,
    ),
  )
}

describe.each([
  { double: true, nStep: 3, masked: false },
  { double: false, nStep: 1, masked: false },
  { double: true, nStep: 2, masked: true },
  { double: false, nStep: 1, masked: true },
])('$nStep steps, double $double, masked $masked', ({ double, nStep, masked }) => {
  test('errors are those of targets made anew from all rollouts, over ends of both kinds and the end of the replay', async () => {
    const [numLanes, numSteps, hidden] = [3, 5, 6]
    const environment = masked ? gates() : cartPole({ maxEpisodeSteps: 13 })
    const numActions = masked ? 4 : 2
    const policy = qNetwork({ hidden: [hidden] })
    const world = await createWorld({ environment, policy, numLanes, seed: 2, systems: [uneven()], kernels: 'plain' })
    const [batchSize, replayRows] = [40, 66] // 22 steps: rollouts of 5 come to its end in their middle.
    // The weights stay as they are, to a bit.
    const settings = { optimizer: 'sgd', learningRate: 1e-30, gamma: GAMMA, numSteps, batchSize, replayRows } as const
    const algorithm = dqn({ ...settings, nStep, double, gradientSteps: 1, learningStarts: 1, huberDelta: null })
    const trainer = createTrainer(world, algorithm)
    const cohort = world.cohort()
    const columns = cohort.learner.algorithm as unknown as Learned
    const { weights } = cohort
    const target = Float32Array.from(weights, (weight, i) => weight + 0.2 * Math.cos(i))
    const lanes: Step[][] = Array.from({ length: numLanes }, () => [])
    const kinds = new Set<string>()
    let obeyed = 0
    for await (const metrics of trainer.updates({ totalSteps: numLanes * numSteps * 9 })) {
      for (const [n, steps] of stepsOf(Object.values(trainer.rollouts)[0]!.table, numLanes).entries())
        lanes[n]!.push(...steps)
      if (metrics.update === 1) {
        columns.target.set(target) // From the second step on it has weights of its own.
        continue
      }
      for (const { final, terminated, nextValue } of lanes.flatMap((steps) => steps.slice(-numSteps))) {
        if (final === null || terminated) continue
        const legal = valuesOf(weights, final, hidden, numActions).filter((_, a) => !masked || isOpen(final, a))
        expect(nextValue).toBeCloseTo(Math.max(...legal), 4)
      }
      const numBlocks = columns.replay.rows.reward.length / numLanes
      const now = lanes[0]!.length
      let sum = 0
      for (let i = 0; i < batchSize; i++) {
        const row = columns.drawn[i]!
        const block = Math.floor(row / numLanes)
        const at = block + numBlocks * Math.floor((now - 1 - block) / numBlocks) // The newest step with this place.
        const lane = lanes[row % numLanes]!
        let [expected, discount, k] = [0, 1, at]
        let end: Step | undefined
        for (; k < at + nStep && end === undefined; k++) {
          expected += discount * lane[k]!.reward
          discount *= GAMMA
          if (lane[k]!.terminated || lane[k]!.final !== null) end = lane[k]
        }
        kinds.add(end === undefined ? 'goes on' : end.terminated ? 'terminated' : 'truncated')
        if (!end?.terminated) {
          const next = end === undefined ? lane[k]!.observation : end.final!
          const [own, others] = [weights, target].map((each) => valuesOf(each, next, hidden, numActions)) as Values
          const judged = double ? own : others
          const legal = [...judged.keys()].filter((a) => !masked || isOpen(next, a))
          const best = legal.reduce((best, a) => (judged[a]! > judged[best]! ? a : best))
          if (judged[best]! < Math.max(...judged)) obeyed++
          expected += discount * others[best]!
        }
        const value = valuesOf(weights, lane[at]!.observation, hidden, numActions)[lane[at]!.action]!
        expect(columns.error[i]).toBeCloseTo(Math.abs(expected - value), 4)
        sum += Math.abs(expected - value)
      }
      expect(metrics.tdError).toBeCloseTo(sum / batchSize, 4)
      expect(metrics.drawableRows).toBe(Math.min(numBlocks - nStep, now - nStep) * numLanes)
    }
    expect([...kinds].sort()).toEqual(['goes on', 'terminated', 'truncated'])
    expect(obeyed > 20).toBe(masked)
  })
})

type Values = [number[], number[]]

interface Learned {
  readonly target: Float32Array
  readonly drawn: Uint32Array
  readonly error: Float32Array
  readonly replay: { readonly rows: { readonly reward: Float32Array } }
}

const small = {
  learningStarts: 20,
  batchSize: 150,
  replayRows: 120,
  nStep: 2,
  priorityExponent: 0.6,
  targetInterval: 3,
}

async function trainerOf(threads: number, environment: EnvironmentDefinition = cartPole({ maxEpisodeSteps: 20 })) {
  const policy = qNetwork({ hidden: [8], dueling: true })
  const world = await createWorld({ environment, policy, numLanes: 6, seed: 5 })
  return createTrainer(world, dqn({ ...small, learningRate: 0.01 }), { threads })
}

type DqnTrainer = Awaited<ReturnType<typeof trainerOf>>

const untimed = (metrics: UpdateMetrics) => Object.keys(dqn.metrics).map((name) => metrics[name])

async function trainTo(trainer: DqnTrainer, last: number) {
  const told: unknown[] = []
  for await (const metrics of trainer.updates({ totalSteps: 6 * 4 * 12 })) {
    told.push(untimed(metrics as UpdateMetrics))
    if (trainer.update === last) break
  }
  return { told, weights: [...trainer.world.cohort().weights] }
}

test.each([
  ['', cartPole({ maxEpisodeSteps: 20 })],
  [', with masks', gates()],
])(
  'one, two and three threads leave the same bits, and a checkpoint taken up again goes on with them%s',
  async (_, environment) => {
    const whole = await trainerOf(1, environment)
    const begun = [...whole.world.cohort().weights]
    const expected = await trainTo(whole, 12)
    expect(expected.told).toHaveLength(12)
    expect(expected.told.at(-1)).not.toContain(Number.NaN)
    expect(expected.weights).not.toEqual(begun)
    for (const threads of rowsOf([3, 2])) {
      const trainer = await trainerOf(threads, environment)
      expect(await trainTo(trainer, 12)).toEqual(expected)
      trainer.close()
    }
    const folder = await temporaryFolder()
    const first = await trainerOf(1, environment)
    const before = await trainTo(first, 7)
    await first.save(folder)
    const second = await trainerOf(1, environment)
    await second.restore(folder)
    const after = await trainTo(second, 12)
    expect([...before.told, ...after.told]).toEqual(expected.told)
    expect(after.weights).toEqual(expected.weights)
  },
)

test('its replay is a table: the last rows of all rollouts, where they lie, and through Arrow', async () => {
  const trainer = await trainerOf(1)
  const rewards: number[] = []
  const seen: number[] = []
  for await (const metrics of trainer.updates({ totalSteps: 6 * 4 * 12 })) {
    const { table } = Object.values(trainer.rollouts)[0]!
    rewards.push(...(fieldOf(table as TableOf, 'reward').column as Float32Array))
    seen.push(...(fieldOf(table as TableOf, 'observation').column as Float32Array))
    if (metrics.update === 1) expect(replayTable(trainer.world.cohort()).numRows).toBe(24)
  }
  const table = replayTable(trainer.world.cohort())
  const oldest = Number(table.metadata.oldestRow)
  expect(oldest).toBe(((rewards.length / 6) % 20) * 6)
  const inOrder = (column: ArrayLike<number>, width: number) => {
    const all = Array.from(column)
    return [...all.slice(oldest * width), ...all.slice(0, oldest * width)]
  }
  expect(inOrder(fieldOf(table as TableOf, 'reward').column, 1)).toEqual(rewards.slice(-120))
  const observation = fieldOf(table as TableOf, 'observation').column as Float32Array
  expect(inOrder(observation, 4)).toEqual(seen.slice(-480))
  expect(observation.buffer).toBe(trainer.world.cohort().weights.buffer) // In the arena.
  const path = join(await temporaryFolder(), 'replay.arrow')
  await writeArrow(path, table)
  const read = await readArrow(path)
  expect(read.schema.metadata.get('oldestRow')).toBe(String(oldest))
  expect([...read.getChild('reward')!]).toEqual([...(fieldOf(table as TableOf, 'reward').column as Float32Array)])
  expect(read.getChild('finalObservation')!.nullCount).toBe(
    120 - fieldOf(table as TableOf, 'finalObservation').rows!.length,
  )
  const plain = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 1 })
  expect(() => replayTable(plain.cohort())).toThrow('replayTable(cohort)')
})

test('its replay keeps what was legal, and where an episode was truncated', async () => {
  const trainer = await trainerOf(1, gates({ maxEpisodeSteps: 4 }))
  for await (const _ of trainer.updates({ totalSteps: 6 * 4 * 3 }));
  const table = replayTable(trainer.world.cohort()) as TableOf
  for (const [seen, legal] of [
    ['observation', 'actionMask'],
    ['finalObservation', 'finalActionMask'],
  ] as const) {
    const [observation, mask] = [fieldOf(table, seen), fieldOf(table, legal)]
    expect(mask.rows).toEqual(observation.rows)
    expect(mask.column.length).toBe(observation.column.length)
    expect(mask.column.length).toBeGreaterThanOrEqual(40)
    for (let i = 0; i < mask.column.length; i += 4) {
      const state = [0, 1, 2, 3].map((k) => observation.column[i + k]!)
      expect([0, 1, 2, 3].map((k) => mask.column[i + k] === 1)).toEqual([0, 1, 2, 3].map((gate) => isOpen(state, gate)))
    }
  }
})

test('a state without a legal action may be terminal, and is an error where an episode was truncated', async () => {
  const train = async (trap: 'terminated' | 'truncated') => {
    const { told } = await trainTo(await trainerOf(1, gates({ trap })), 12)
    return told
  }
  expect((await train('terminated')).at(-1)).not.toContain(Number.NaN)
  await expect(train('truncated')).rejects.toThrow(
    /^action mask: got no legal action after the truncation of lane 1 \(episode \d+, step 3\)/,
  )
})

test('what it cannot learn from is refused', async () => {
  const begin = async (options: object) => {
    const world = await createWorld({ environment: cartPole(), numLanes: 2, ...options } as never)
    return createTrainer(world, dqn())
  }
  await expect(begin({ policy: mlp() })).rejects.toThrow('dqn policy: got a policy without action values')
  await expect(begin({ policy: qNetwork(), environment: pendulum() })).rejects.toThrow('qNetwork action space')
  expect(() => dqn({ batchSize: 0 })).toThrow('dqn.batchSize')
  const world = await createWorld({ environment: cartPole(), numLanes: 2, policy: qNetwork() })
  expect(() => createTrainer(world, ppo())).toThrow('ppo policy: got a policy of action values')
})
