import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { corrections } from '../../../src/algorithms/losses/loss-presets.ts'
import { describeAdvantages, describeLoss } from '../../../src/algorithms/losses/losses.ts'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { InputError } from '../../../src/base/errors.ts'
import { grpo } from '../../../src/compat/named-losses.ts'
import { RolloutCoordinator } from '../../../src/compat/rollout-coordinator.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { samplesToTrajectories } from '../../../src/tables/trajectories/sample.ts'
import { loadSamplesFromJsonl } from '../../../src/tables/trajectories/sample-files.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../../src/tables/trajectories/trajectory.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import { Trainer, type TrainerParts, type TrainingColumns } from '../../../src/training/text/learn/token-trainer.ts'
import { createWorld } from '../../../src/world/world.ts'
import { digits, talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const environment = digits({
  example: (index) => ({ prompt: '12345'.slice(0, index + 1), answer: '1' }),
  respond: ({ completion }) => ({ reward: completion.length + (completion.charCodeAt(0) % 3) }),
})
const policy = languageModel({ width: 16, layers: 1, heads: 2 })
const parts = { advantageFn: grpo.computeAdvantages, lossFn: grpo.policyLoss, optimizer: { learningRate: 0.01 } }

/** A world, and sixteen of its conversations in groups of four. */
async function collected() {
  const world = await talkWorld({ environment, policy, groupSize: 4, numLanes: 8 })
  return { world, data: await new RolloutCoordinator(world, { episodes: 16 }).collect() }
}

function rowsOf(data: Trajectories): Trajectory[] {
  return Array.from({ length: data.count }, (_, i) => data.row(i))
}

function tableOf(rows: readonly Trajectory[]): Trajectories {
  const table = new Trajectories()
  for (const row of rows) table.append(row)
  return table
}

/** The row as others hand it over: its tokens, its mask and its reward, and not what they were drawn with. */
function unrecorded(row: Trajectory): Trajectory {
  const version = new Int32Array(row.token.length).fill(-1)
  return { ...row, logprob: new Float32Array(row.token.length).fill(Number.NaN), version }
}

/** Weights and figures after two steps on the same trajectories, the second of which is off-policy. */
async function outcome(of: (data: Trajectories) => Trajectories | Promise<Trajectories>, options = {}) {
  const { world, data } = await collected()
  const trainer = new Trainer({ model: world, ...parts, ...options } as TrainerParts)
  const given = await of(data)
  const first = await trainer.train(given)
  const weights = world.cohort().weights.slice()
  return { first, weights, second: await trainer.train(given) }
}

const learned = (data: Trajectories) => data.columns().lossMask.reduce((sum, flag) => sum + flag, 0)

describe('tokens whose log-probability nobody recorded', () => {
  test('from a file of samples train as if the weights before the step had drawn them, counted, and never as if certain', async () => {
    let count = 0
    const file = await outcome(async (data) => {
      count = learned(data)
      const path = join(await temporaryFolder(), 'samples.jsonl')
      const lines = rowsOf(data).map(({ token, lossMask, group, member, promptId, reward }) =>
        JSON.stringify({
          ...{ prompt: `${promptId}`, response: '', promptId, groupIndex: group, member, reward },
          ...{ tokens: Array.from(token), lossMask: Array.from(lossMask) },
        }),
      )
      await writeFile(path, lines.join('\n'))
      return samplesToTrajectories(await loadSamplesFromJsonl(path))
    })
    const recorded = await outcome((data) => data)
    expect([file.first.ratio, file.first['kl/k3'], file.first.numRecomputed]).toEqual([1, 0, count])
    expect(recorded.first.numRecomputed).toBe(0)
    // What the sampler recorded is, to the bit, what evaluating gives.
    expect(file.weights).toEqual(recorded.weights)
    // The batch of the second step starts with other weights, and they stand for what nobody recorded.
    expect([file.second['kl/k2'], file.second.numRecomputed]).toEqual([0, count])
    expect(recorded.second['kl/k2']).toBeGreaterThan(0)
  })

  test('leave what is recorded beside them as it is', async () => {
    const { first } = await outcome((data) =>
      tableOf(
        rowsOf(data).map((row, i) => {
          if (i < 8) return unrecorded(row)
          return { ...row, logprob: Array.from(row.logprob, (value) => value - Math.LN2) }
        }),
      ),
    )
    const { data } = await collected()
    const tokens = rowsOf(data).map(({ lossMask }) => Array.from(lossMask).reduce((sum, flag) => sum + flag, 0))
    const [half, all] = [tokens.slice(0, 8), tokens].map((each) => each.reduce((sum, value) => sum + value, 0)) as [
      number,
      number,
    ]
    expect(first.numRecomputed).toBe(half)
    expect(first.ratio).toBeCloseTo((half + 2 * (all - half)) / all, 5)
  })

  test('are refused where a correction compares with what was recorded, before anything is changed', async () => {
    const { world, data } = await collected()
    const before = world.cohort().weights.slice()
    const lossFn = describeLoss('grpo', 'paper', corrections.tis)
    const trainer = new Trainer({ model: world, ...parts, lossFn })
    const table = tableOf(rowsOf(data).map((row, i) => (i === 5 ? unrecorded(row) : row)))
    await expect(trainer.train(table)).rejects.toThrow(InputError)
    await expect(trainer.train(table)).rejects.toThrow(
      /grpo\.correction .*: got \d+ tokens .* not recorded, expected all of them recorded/,
    )
    expect(world.cohort().weights).toEqual(before)
    expect((await trainer.train(data)).numRecomputed).toBe(0)
  })

  test('are none where somebody says what they were', async () => {
    const getLogprobsFn: TrainerParts['getLogprobsFn'] = ({ logprob, lossMask }) =>
      logprob.map((_, t) => (lossMask[t] === 1 ? -2 : Number.NaN))
    const { first } = await outcome((data) => tableOf(rowsOf(data).map(unrecorded)), { getLogprobsFn })
    expect(first.numRecomputed).toBe(0)
    expect(first['kl/k2']).toBeGreaterThan(0)
  })

  test('of a world’s own trainer are worked out and counted by the same road', async () => {
    const weights: Float32Array[] = []
    for (const isRecorded of [true, false]) {
      const world = await createWorld({ environment, policy, numLanes: 8, groupSize: 4, seed: 2 })
      const settings = { groupsPerUpdate: 4, groupSize: 4, updates: 1, learningRate: 0.01 }
      const trainer = createTrainer(world, rl(settings))
      const { trajectories } = trainer.world.cohort()
      const append = trajectories.appendConversation.bind(trajectories)
      if (!isRecorded) trajectories.appendConversation = (rows) => append(rows.map(unrecorded))
      for await (const { rl: metrics } of trainer.updates()) {
        expect(metrics!.numRecomputed).toBe(isRecorded ? 0 : learned(trajectories))
        expect(metrics!.ratio).toBe(1)
      }
      weights.push(trainer.world.cohort().weights.slice())
    }
    expect(weights[1]).toEqual(weights[0])
  })
})

describe('a group', () => {
  test('of one run has its own baseline, though another run has trajectories of the same numbers', async () => {
    const { world, data } = await collected()
    const rows = rowsOf(data).slice(0, 4)
    const other = rows.map((row, i) => ({ ...row, source: 'another run', reward: 100 + i * i }))
    let seen: TrainingColumns | undefined
    const metricsFn: TrainerParts['metricsFn'] = (columns) => {
      seen = structuredClone(columns)
      return {}
    }
    const advantageFn = describeAdvantages(describeLoss('dr-grpo', 'paper', { maxLength: 6 }))
    await new Trainer({ model: world, ...parts, advantageFn, metricsFn }).train(tableOf([...rows, ...other]))
    const { reward, offsets, advantage, group } = seen!
    expect(new Set(group).size).toBe(2)
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    const [own, theirs] = [rows, other].map((each) => mean(each.map((row) => row.reward!))) as [number, number]
    reward.forEach((value, i) => {
      expect(advantage[offsets[i + 1]! - 1]).toBeCloseTo(value - (value < 50 ? own : theirs), 4)
    })
  })

  test('is of its run by a name that a world makes of all that decides what is said, and a trainer of its algorithms', async () => {
    const settings = { groupsPerUpdate: 4, groupSize: 4, updates: 1 }
    const sourceOf = async (options: object, rates: readonly number[] = []) => {
      const world = await createWorld({ environment, policy, numLanes: 8, groupSize: 4, seed: 2, ...options })
      for (const learningRate of rates) createTrainer(world, rl({ ...settings, learningRate }))
      const { source } = world.cohort()
      expect(source).toMatch(/^text\/digits [0-9a-f]{16}$/)
      return source
    }
    const sources = await Promise.all([
      sourceOf({}),
      sourceOf({ seed: 3 }),
      sourceOf({ sampling: { temperature: 0.5 } }),
      sourceOf({ policy: languageModel({ width: 16, layers: 2, heads: 2 }) }),
      sourceOf({}, [0.1]),
      sourceOf({}, [0.2]),
    ])
    expect(new Set(sources).size).toBe(6)
    expect(await sourceOf({ numLanes: 3 })).toBe(sources[0])
    expect(await sourceOf({ numLanes: 3 }, [0.2])).toBe(sources[5])
  })
})

test('a log-probability under a distribution that nobody knows is none: the token is one of the whole vocabulary', async () => {
  const wrong = (candidateCount: number) => (data: Trajectories) =>
    tableOf(
      rowsOf(data).map((row) => ({
        ...row,
        logprob: Array.from(row.logprob, (value) => value - 1),
        candidateCount: Array.from(row.lossMask, (flag) => (flag === 1 ? candidateCount : 0)),
        candidateIds: [],
      })),
    )
  const [unknown, whole] = [await outcome(wrong(-1)), await outcome(wrong(0))]
  expect([unknown.first.ratio, unknown.first.numRecomputed > 0]).toEqual([1, true])
  expect(whole.first.ratio).toBeCloseTo(Math.exp(1), 4)
  expect(whole.first.numRecomputed).toBe(0)
})
