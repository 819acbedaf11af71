/**
 * What those find who come from other systems, by their documents: a guide to rollouts and training of textpolicy, the source
 * of its trainer, the quick reference of rollouts, a guide to agents of AReaL, and a tutorial of rollout orchestration.
 */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import * as entry from '../src/entries/compat.ts'
import { languageModel } from '../src/language/language-model.ts'
import { byteTokenizer } from '../src/language/tokenizers/byte-tokenizer.ts'
import { loadLora } from '../src/language/transformer/lora-folder.ts'
import { Trajectories, type TrajectoryColumns } from '../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../src/tables/trajectories/trajectory.ts'
import { evaluateText } from '../src/training/text/evaluate/evaluate.ts'
import { digits, talkWorld } from './support/conversations.ts'
import { temporaryFolder } from './support/temporary.ts'
import { trajectory } from './support/trajectories.ts'

/** Prompts of one to five digits, and rewards that differ within groups. */
const environment = digits({
  example: (index) => ({ prompt: '12345'.slice(0, index + 1), answer: '1' }),
  respond: ({ completion }) => ({ reward: completion.length + (completion.charCodeAt(0) % 3) }),
})
const policy = languageModel({ width: 16, layers: 1, heads: 2 })

/** Four groups of four conversations. */
async function collected(model = policy) {
  const world = await talkWorld({ environment, policy: model, groupSize: 4, numLanes: 8 })
  const coordinator = new entry.RolloutCoordinator(world, { episodes: 16 })
  return { world, cohort: world.cohort(), coordinator, buffer: await coordinator.collect() }
}

function tableOf(...given: Partial<Trajectory>[]): Trajectories {
  const table = new Trajectories()
  for (const row of given) table.append(trajectory(row))
  return table
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
const deviation = (values: readonly number[]) =>
  Math.sqrt(values.reduce((sum, value) => sum + (value - mean(values)) ** 2, 0) / (values.length - 1))
const clipped = (ratio: number, low: number, high: number) => Math.min(Math.max(ratio, 1 - low), 1 + high)
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x))

/** A trajectory of a batch, as the twins of the losses read it. */
interface Row {
  readonly ratio: readonly number[]
  readonly logprob: readonly number[]
  readonly sequenceRatio: number
  readonly product: number
  readonly advantage: number
}

/** The least of a ratio's two branches, as PPO has it. */
const ppo = (ratio: number, a: number, low: number, high: number) => -Math.min(ratio * a, clipped(ratio, low, high) * a)
const ofSequences = (batch: readonly Row[], loss: (row: Row) => number) => mean(batch.map(loss))
const ofTokens = (batch: readonly Row[], loss: (row: Row, t: number) => number) =>
  mean(batch.flatMap((row) => row.ratio.map((_, t) => loss(row, t))))
const hybrid = (row: Row, t: number) => Math.sqrt(row.sequenceRatio * row.ratio[t]!)
const sapo = ({ ratio, advantage }: Row, t: number) => {
  const tau = advantage > 0 ? 1 : 1.05
  return (-4 / tau) * sigmoid(tau * (ratio[t]! - 1)) * advantage
}

/** The losses as their papers write them. */
const losses: readonly (readonly [
  string,
  () => entry.LossFn | entry.TrainerParts['lossFn'],
  (batch: Row[]) => number,
])[] = [
  [
    'grpo',
    () => entry.grpo.policyLoss,
    (b) => ofSequences(b, (r) => mean(r.ratio.map((x) => ppo(x, r.advantage, 0.2, 0.2)))),
  ],
  ['dapo', () => entry.dapo.policyLoss, (b) => ofTokens(b, (r, t) => ppo(r.ratio[t]!, r.advantage, 0.2, 0.28))],
  ['gspo', () => entry.gspo.policyLoss, (b) => ofSequences(b, (r) => ppo(r.sequenceRatio, r.advantage, 3e-4, 4e-4))],
  [
    'gspo, hybrid',
    () => entry.gspo.policyLossHybrid,
    (b) => ofSequences(b, (r) => mean(r.ratio.map((_, t) => ppo(hybrid(r, t), r.advantage, 3e-4, 4e-4)))),
  ],
  [
    'gspo, token',
    () => entry.gspo.policyLossToken,
    (b) => ofSequences(b, (r) => ppo(r.sequenceRatio, r.advantage, 3e-4, 4e-4)),
  ],
  ['rloo', () => entry.rloo.policyLoss, (b) => ofSequences(b, (r) => -r.product * r.advantage)],
  [
    'cispo',
    () => entry.cispo.policyLoss,
    (b) => ofTokens(b, (r, t) => -Math.min(r.ratio[t]!, 5) * r.advantage * r.logprob[t]!),
  ],
  ['sapo', () => entry.sapo.policyLoss, (b) => ofSequences(b, (r) => mean(r.ratio.map((_, t) => sapo(r, t))))],
]

const grpoLike = (rewards: readonly number[]) => rewards.map((r) => (r - mean(rewards)) / deviation(rewards))
const advantages: readonly (readonly [
  string,
  () => entry.TrainerParts['advantageFn'],
  (rewards: readonly number[]) => number[],
])[] = [
  ['grpo', () => entry.grpo.computeAdvantages, grpoLike],
  ['grpo, Dr. GRPO', () => entry.grpo.computeAdvantagesDrGrpo, (rewards) => rewards.map((r) => r - mean(rewards))],
  ['dapo', () => entry.dapo.computeAdvantages, grpoLike],
  ['gspo', () => entry.gspo.computeAdvantages, grpoLike],
  [
    'rloo',
    () => entry.rloo.computeAdvantages,
    (rewards) => rewards.map((r, i) => r - mean(rewards.filter((_, j) => j !== i))),
  ],
  ['cispo', () => entry.cispo.computeAdvantages, grpoLike],
  ['sapo', () => entry.sapo.computeAdvantages, grpoLike],
]

describe('algorithms by name', () => {
  test.each(advantages)(
    '%s: advantages of a group are what the paper makes of its rewards',
    async (_, of, expected) => {
      const { world, buffer } = await collected()
      let worst = Number.POSITIVE_INFINITY
      const lossFn: entry.LossFn = ({ reward, group, advantage, offsets, logprob }) => {
        worst = 0
        for (const number of new Set(group)) {
          const members = [...group.keys()].filter((i) => group[i] === number)
          const twin = expected(members.map((i) => reward[i]!))
          for (const [k, i] of members.entries()) {
            worst = Math.max(worst, Math.abs(advantage[offsets[i + 1]! - 1]! - twin[k]!))
          }
        }
        return { loss: 0, dLogprob: logprob.map(() => 0) }
      }
      await new entry.Trainer({ model: world, advantageFn: of(), lossFn, optimizer: {} }).train(buffer)
      expect(worst).toBeLessThan(1e-5)
    },
  )

  test.each(losses)(
    '%s: the loss of a step is what the paper makes of ratios and advantages',
    async (_, of, expected) => {
      const { world, buffer } = await collected()
      let twin = Number.NaN
      const metricsFn = ({ offsets, counted, logprob, oldLogprob, advantage }: entry.TrainingColumns) => {
        const batch = Array.from({ length: offsets.length - 1 }, (_, i) => {
          const tokens = [...counted.keys()].slice(offsets[i], offsets[i + 1]).filter((t) => counted[t] === 1)
          const logRatio = tokens.map((t) => logprob[t]! - oldLogprob[t]!)
          return {
            ratio: logRatio.map(Math.exp),
            logprob: tokens.map((t) => logprob[t]!),
            sequenceRatio: Math.exp(mean(logRatio)),
            product: Math.exp(logRatio.reduce((sum, value) => sum + value, 0)),
            advantage: advantage[tokens[0]!]!,
          }
        })
        twin = expected(batch)
        return {}
      }
      const trainer = new entry.Trainer({
        model: world,
        advantageFn: ({ reward }) => reward.map((value) => value - 3.25),
        lossFn: of(),
        optimizer: { learningRate: 1e-3 },
        metricsFn,
        // Far enough from the weights' own that some ratios are clipped, and others not.
        getLogprobsFn: ({ logprob }) => logprob.map((value, t) => value + ((t % 5) - 2) * 0.2),
      })
      const { loss } = await trainer.train(buffer)
      expect(Math.abs(twin)).toBeGreaterThan(0.01)
      expect(loss).toBeCloseTo(twin, 4)
    },
  )
})

describe('a trainer from parts', () => {
  const parts = () => ({ advantageFn: entry.grpo.computeAdvantages, lossFn: entry.grpo.policyLoss })

  test('takes the coordinator’s buffer, makes a step, and clears the buffer', async () => {
    const { world, cohort, buffer } = await collected()
    const before = cohort.weights.slice()
    const trainer = new entry.Trainer({ model: world, ...parts(), optimizer: { learningRate: 0.01 }, buffer })
    expect(buffer.count).toBe(16)
    const metrics = await trainer.train()
    expect([metrics.step, trainer.stepCount, cohort.version, buffer.count]).toEqual([1, 1, 1, 0])
    expect(cohort.weights).not.toEqual(before)
    expect(trainer.getMetrics()).toMatchObject({ steps: 1, last: metrics })
    trainer.resetMetrics()
    expect(trainer.getMetrics()).toBeNull()
  })

  test('without an optimizer says that it needs one', async () => {
    const { world, buffer } = await collected()
    const trainer = new entry.Trainer({ model: world, ...parts(), optimizer: null, buffer })
    await expect(trainer.train()).rejects.toThrow(entry.OptimizerRequiredError)
  })

  test('with all its parts: each is asked, and what it says counts', async () => {
    const { world, cohort, buffer } = await collected(languageModel({ width: 16, layers: 1, heads: 2, loraRank: 2 }))
    const folder = await temporaryFolder()
    const adapter = cohort.adapter!.weights.slice()
    let selected = 0
    const trainer = new entry.Trainer({
      model: world,
      ...parts(),
      optimizer: { optimizer: 'sgd', learningRate: 1 },
      getLogprobsFn: (_, evaluate) => evaluate(),
      metricsFn: ({ reward }) => ({ best: Math.max(...reward) }),
      maxGradNorm: 0.001,
      buffer,
      dataSelectorFn: (given) => {
        const columns = entry.selectAllData(given)
        selected = columns.reward.length
        return columns
      },
      autoSaveLora: folder,
    })
    const rewards = [...buffer.columns().reward]
    const { best } = await trainer.train()
    expect([selected, best]).toEqual([16, Math.max(...rewards)])
    const moved = cohort.adapter!.weights.reduce((sum, value, i) => sum + (value - adapter[i]!) ** 2, 0)
    expect(Math.sqrt(moved)).toBeCloseTo(0.001, 5)
    expect((await loadLora(folder, cohort.model)).weights).toEqual(cohort.adapter!.weights)
  })

  test('an epoch of two steps collects twice, each time under the weights as they are', async () => {
    const { world, coordinator, buffer } = await collected()
    const trainer = new entry.Trainer({ model: world, ...parts(), optimizer: { learningRate: 0.01 } })
    const seen: number[] = []
    const watched = {
      collect: async () => {
        const collected = await coordinator.collect()
        seen.push(...new Set(collected.columns().version.filter((version) => version >= 0)))
        return collected
      },
    }
    expect((await trainer.trainEpoch(watched, 2)).map(({ step }) => step)).toEqual([1, 2])
    expect(seen).toEqual([0, 1])
    trainer.linkBuffer(buffer, entry.selectRecentData(4))
    trainer.unlinkBuffer()
    await expect(trainer.train()).rejects.toThrow(/neither trajectories nor a linked buffer/)
  })

  test('has no option that it does not know', async () => {
    const { world } = await collected()
    const options = { model: world, ...parts(), compileTraining: true }
    expect(() => new entry.Trainer(options)).toThrow(/Trainer.*"compileTraining"/)
    expect(() => new entry.RolloutCoordinator(world, { episodes: 4, maxSteps: 100 } as never)).toThrow(/"maxSteps"/)
  })
})

describe('buffers', () => {
  test('an episode buffer takes turns as dictionaries, and gives the last few', () => {
    const buffer = new entry.EpisodeBuffer({ maxEpisodes: 2 })
    const step = { action: [3], reward: 1, terminated: true, truncated: false }
    for (const first of [1, 2, 4]) buffer.add({ ...step, observation: [first] })
    expect([buffer.episodeCount, buffer.length, buffer.ready(2), buffer.ready(3)]).toEqual([2, 4, true, false])
    expect([...buffer.sample().token]).toEqual([2, 3, 4, 3])
    expect([...entry.selectRecentData(1)(buffer).token]).toEqual([4, 3])
    expect(() => buffer.add([[1], 1, true, false, {}] as never)).toThrow(/turn/)
  })

  test('the newest of a table are its last conversations', () => {
    const table = tableOf({ member: 0 }, { member: 1 }, { member: 2 })
    const members = (columns: TrajectoryColumns) => [...columns.member]
    expect(members(entry.selectAllData(table))).toEqual([0, 1, 2])
    expect(members(entry.selectRecentData(2)(table))).toEqual([1, 2])
  })
})

describe('samples', () => {
  const begun = () =>
    entry.startSample({
      ...{ epoch: 0, promptId: 3, group: 0, member: 0 },
      ...{ example: { prompt: 'What is 2+2?', answer: '4', correct: true }, tokens: [10, 11] },
    })
  const said = () =>
    entry.appendResponseTokens(begun(), { tokens: [52], text: '4', trainable: true, logprobs: [-0.5], version: 7 })

  test('hold a prompt’s tokens with mask 0, and a response’s with mask 1: as many masks as tokens', () => {
    expect(entry.statuses).toEqual(['pending', 'completed', 'truncated', 'aborted', 'failed'])
    expect(begun()).toMatchObject({
      prompt: 'What is 2+2?',
      groundTruth: '4',
      metadata: { correct: true },
      status: 'pending',
    })
    const sample = entry.appendResponseTokens(said(), { tokens: [1, 2], text: ' ok', trainable: false })
    expect(sample).toMatchObject({
      response: '4 ok',
      tokens: [10, 11, 52, 1, 2],
      lossMask: [0, 0, 1, 0, 0],
      responseLength: 1,
    })
    expect(sample.weightVersions).toEqual([-1, -1, 7, -1, -1])
  })

  test('of trajectories are their rows with words, and become the same trajectories again', () => {
    const table = tableOf({ member: 1, reward: 2 }, { member: 0, reward: 1 })
    const tokenizer = byteTokenizer({ alphabet: '0123456789' })
    const samples = entry.samplesOf(table, { example: () => ({ prompt: 'p', answer: 'a' }) }, tokenizer)
    expect(samples.map(({ member, reward, responseLength }) => [member, reward, responseLength])).toEqual([
      [0, 1, 2],
      [1, 2, 2],
    ])
    const again = entry.samplesToTrajectories(samples).columns()
    expect([[...again.member], [...again.reward], [...again.token]]).toEqual([
      [0, 1],
      [1, 2],
      [5, 6, 7, 8, 5, 6, 7, 8],
    ])
  })

  test('of files have the words that stand there', () => {
    const words = [{ prompt: '"p"', answer: 'a', completion: 'said' }]
    const [sample] = entry.samplesOfFile({ trajectories: tableOf({}), words: words as never })
    expect(sample).toMatchObject({ prompt: 'p', groundTruth: 'a', response: 'said', reward: 1 })
  })

  test('make a batch that is ready for training, whoever was done first', () => {
    const of = (member: number, reward: number) => ({
      ...said(),
      id: `0-3-0-${member}`,
      member,
      reward,
      status: 'completed' as const,
    })
    const batch = entry.convertToBatch([of(1, 0), of(0, 1)], { epochId: 2, stepId: 5 })
    expect(batch).toMatchObject({
      rewards: [1, 0],
      responseLengths: [1, 1],
      lossMasks: [
        [0, 0, 1],
        [0, 0, 1],
      ],
      groupIndices: [0, 0],
    })
    expect(batch.metadata).toMatchObject({
      epochId: 2,
      stepId: 5,
      numSamples: 2,
      numGroups: 1,
      numTokens: 6,
      weightVersions: { min: 7, max: 7 },
    })
    expect(entry.extractSampleFields(batch.samples).tokens).toEqual([
      [10, 11, 52],
      [10, 11, 52],
    ])
    expect(
      entry.computeResponseLengths([
        [0, 1, 1],
        [0, 0, 0],
      ]),
    ).toEqual([2, 0])
    expect(entry.buildBatchMetadata([], 1, 2)).toMatchObject({
      epochId: 1,
      stepId: 2,
      numSamples: 0,
      weightVersions: null,
    })
  })

  test('go to files and come back, and become what Hugging Face’s trainers read', async () => {
    const folder = await temporaryFolder()
    const [ours, theirs] = [join(folder, 'ours.jsonl'), join(folder, 'theirs.jsonl')]
    await entry.exportSamplesToJsonl([{ ...said(), reward: 1 }], ours, { includeTokens: true })
    const [back] = await entry.loadSamplesFromJsonl(ours, { limit: 1, unknown: 'error' })
    expect(back).toMatchObject({ tokens: [10, 11, 52], lossMask: [0, 0, 1], reward: 1, weightVersions: [-1, -1, 7] })
    await entry.exportSamplesToHuggingfaceFormat([{ ...said(), reward: 1 }], theirs)
    expect(JSON.parse(await readFile(theirs, 'utf8'))).toEqual({ prompt: 'What is 2+2?', completion: '4', reward: 1 })
  })
})

test('supervised fine-tuning learns its samples by heart', async () => {
  const small = languageModel({ width: 32, layers: 1, heads: 2, anyText: true })
  const steps: number[] = []
  const trainer = await entry.runSftTraining({
    policy: small,
    examples: [{ prompt: 'ab', answer: 'cd' }],
    settings: { updates: 40, batchSize: 1, learningRate: 1e-2 },
    seed: 1,
    tooLong: 'error',
    onStep: ({ loss }) => steps.push(loss),
  })
  expect(steps.length).toBe(40)
  expect(steps.at(-1)!).toBeLessThan(0.1 * steps[0]!)
  const asked = digits({ example: () => ({ prompt: 'ab' }) })
  const { weights } = trainer.world.cohort()
  const { samples } = await evaluateText({ environment: asked, policy: small, weights, episodes: 1 })
  expect(samples[0]!.completion).toBe('cd')
})

test('each value of the entry is called here, or in tests/compat', async () => {
  const here = await readFile(import.meta.filename, 'utf8')
  const folder = join(import.meta.dirname, 'compat')
  const others = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')))
  const isUsed = (name: string, text: string) => (text.match(new RegExp(`\\b${name}\\b`, 'g')) ?? []).length > 1
  const isCalled = (name: string) =>
    new RegExp(`\\bentry\\.${name}\\b`).test(here) || others.some((text) => isUsed(name, text))
  expect(Object.keys(entry).filter((name) => !isCalled(name))).toEqual([])
})
