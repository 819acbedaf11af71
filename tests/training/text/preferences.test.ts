import { describe, expect, test } from 'vitest'
import { dpo, kto } from '../../../src/algorithms/losses/preference-losses.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { defineTextEnvironment, type Example } from '../../../src/environments/text.ts'
import { answersOf, mismatchedRow } from '../../../src/language/examples.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { modelReward } from '../../../src/language/rewards/model.ts'
import { batchSizeOf, judge, opened } from '../../../src/language/rewards/reward.ts'
import { saveTokenizer } from '../../../src/language/tokenizers/tokenizer.ts'
import type { TrainingExample } from '../../../src/language/tokenizers/turn-ids.ts'
import { saveTransformer } from '../../../src/language/transformer/folder.ts'
import { transformerLogprobs } from '../../../src/training/backends/transformer-logprobs.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import { exampleAt } from '../../../src/world/conversations/cohort.ts'
import { createWorld } from '../../../src/world/world.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const NUM_PAIRS = 12

/** Sums with a right and a wrong answer; odd ones are longer. */
const pairs: readonly Example[] = Array.from({ length: NUM_PAIRS }, (_, i) => {
  return { prompt: `${i}+${i % 3}=`, answer: `${i + (i % 3)}`, rejected: i % 2 === 0 ? '9' : 'many', margin: i % 4 }
})
/** The same answers, one an example. */
const labelled: readonly Example[] = pairs.map(({ prompt, answer, rejected }, i) =>
  i % 3 === 0 ? { prompt, rejected: rejected! } : { prompt, answer: answer! },
)

const environmentOf = (examples: readonly Example[]) =>
  defineTextEnvironment({
    id: 'text/pairs',
    settings: {},
    make: () => ({
      numExamples: examples.length,
      example: (index: number) => examples[index]!,
      respond: () => ({ reward: 0 }),
    }),
  })()

type Options = Parameters<typeof sft>[0] & {
  readonly critic?: boolean
  readonly examples?: readonly Example[]
  readonly context?: number
}

async function trainerOf(
  { examples = pairs, context = 32, critic = false, ...settings }: Options,
  tooLong = 'error' as 'error' | 'skip' | 'cut',
) {
  const world = await createWorld({
    environment: environmentOf(examples),
    policy: languageModel({ width: 16, layers: 2, heads: 2, context, critic, anyText: true }),
    numLanes: 1,
    seed: 4,
    tooLong,
  })
  return createTrainer(world, sft({ loss: 'dpo', updates: 8, batchSize: 5, learningRate: 0.01, ...settings }))
}

type Made = Awaited<ReturnType<typeof trainerOf>>

const untimed = ({ seconds: _, phaseSeconds: __, ...metrics }: TextMetrics) => metrics

async function steps(trainer: Made, count = Number.POSITIVE_INFINITY) {
  const all: ReturnType<typeof untimed>[] = []
  for await (const metrics of trainer.updates()) if (all.push(untimed(metrics)) === count) break
  return all
}

/** Sums over the learned tokens by other code than the trainer's. */
function logprobOf(trainer: Made, weights: Float32Array, { ids, lossMask }: TrainingExample): number {
  const said = transformerLogprobs({ model: trainer.world.cohort().model, weights }).logprobs([ids])
  const [logprobs] = said as readonly (readonly number[])[]
  return logprobs!.reduce((sum, value, t) => sum + (lossMask[t + 1] === 1 ? value : 0), 0)
}

const average = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

/** A trainer after some steps, its initial weights, the examples of its next step, and that step's metrics. */
async function nextStep(options: Options) {
  const trainer = await trainerOf(options)
  const cohort = trainer.world.cohort()
  const initial = cohort.weights.slice()
  await steps(trainer, 4) // The second pass over the examples has begun.
  const weights = cohort.weights.slice()
  const next = Array.from({ length: 5 }, (_, i) => exampleAt(cohort, trainer.world.kernels, 20 + i).promptId)
  const [{ loss, preference }] = (await steps(trainer, 1)) as [ReturnType<typeof untimed>]
  const ofWeights = (whose: Float32Array) => (row: Parameters<typeof logprobOf>[2]) => logprobOf(trainer, whose, row)
  return { cohort, next, loss, preference: preference!, policy: ofWeights(weights), reference: ofWeights(initial) }
}

describe('metrics of preferences are those of their answers', () => {
  test('of dpo', async () => {
    const { cohort, next, loss, preference, policy, reference } = await nextStep({ lossSettings: ['beta=0.3'] })
    const rewards = next.map((example) => {
      const [good, bad] = answersOf(cohort, example, 'pair').map((row) => 0.3 * (policy(row) - reference(row)))
      return { good: good!, bad: bad! }
    })
    expect(rewards.some(({ good, bad }) => Math.abs(good - bad) > 0.01)).toBe(true)
    const losses = rewards.map(({ good, bad }) => Math.log(1 + Math.exp(bad - good)))
    expect(loss).toBeCloseTo(average(losses), 5)
    expect(preference.chosenReward).toBeCloseTo(average(rewards.map(({ good }) => good)), 5)
    expect(preference.rejectedReward).toBeCloseTo(average(rewards.map(({ bad }) => bad)), 5)
    expect(preference.rewardMargin).toBeCloseTo(average(rewards.map(({ good, bad }) => good - bad)), 5)
    expect(preference.rewardAccuracy).toBeCloseTo(average(rewards.map(({ good, bad }) => (good > bad ? 1 : 0))), 9)
    const chosen = next.map((example) => policy(answersOf(cohort, example, 'pair')[0]!))
    expect(preference.chosenLogprob).toBeCloseTo(average(chosen), 4)
    expect(preference.preferenceKl).toBeNull()
  })

  test('of kto, with the KL by answers to other prompts', async () => {
    const options = { loss: 'kto', examples: labelled, lossSettings: ['beta=0.3', 'badWeight=0.5'] }
    const { cohort, next, loss, preference, policy, reference } = await nextStep(options)
    const away = (row: Parameters<typeof policy>[0]) => policy(row) - reference(row)
    const others = next.map((example, i) => away(mismatchedRow(cohort, example, next.at(i - 1)!)!))
    const kl = Math.max(0, average(others))
    expect(preference.preferenceKl).toBeCloseTo(kl, 5)
    const answers = next.flatMap((example) => answersOf(cohort, example, 'answer'))
    const losses = answers.map((row) => {
      const value = 0.3 * (away(row) - kl)
      return row.isGood ? 1 - 1 / (1 + Math.exp(-value)) : 0.5 * (1 - 1 / (1 + Math.exp(value)))
    })
    expect(new Set(answers.map(({ isGood }) => isGood)).size).toBe(2)
    expect(loss).toBeCloseTo(average(losses), 5)
    const goods = answers.filter(({ isGood }) => isGood)
    expect(preference.chosenReward).toBeCloseTo(average(goods.map((row) => 0.3 * away(row))), 5)
    expect(preference.rewardAccuracy).toBeNull()
  })
})

describe('training on preferences', () => {
  test.each(['dpo', 'ipo', 'orpo', 'simpo', 'kto'])('%s tells the answers apart', async (loss) => {
    const all = await steps(await trainerOf({ loss, updates: 12 }))
    expect(all.at(-1)!.loss).toBeLessThan(all[0]!.loss)
    expect(all.at(-1)!.preference!.rewardMargin!).toBeGreaterThan(all[0]!.preference!.rewardMargin! + 0.01)
  })

  test.each(['dpo', 'kto'])('%s goes on from a checkpoint with the same bits', async (loss) => {
    const path = `${await temporaryFolder()}/three`
    const straight = await trainerOf({ loss })
    const metrics = await steps(straight)
    const stopped = await trainerOf({ loss })
    await steps(stopped, 3)
    await stopped.save(path)
    const resumed = await trainerOf({ loss })
    await resumed.restore(path)
    expect(await steps(resumed)).toEqual(metrics.slice(3))
    expect(resumed.world.cohort().weights).toEqual(straight.world.cohort().weights)
  })

  test('asks the reference once for each answer', async () => {
    const trainer = await trainerOf({ updates: 8 })
    await steps(trainer, 3) // 15 of 12 examples: all of them.
    const { answerLogprob } = trainer.world.cohort().learner as never as { answerLogprob: Float64Array }
    expect(answerLogprob).toHaveLength(2 * NUM_PAIRS)
    expect(answerLogprob.every((value) => value < 0)).toBe(true)
    answerLogprob.fill(-1) // What is known is not asked again.
    await steps(trainer)
    expect(answerLogprob.every((value) => value === -1)).toBe(true)
  })

  test('a pair too long is refused, skipped or cut before the first step, and counted', async () => {
    const long = [...pairs, { prompt: '1+1=', answer: '2', rejected: '2'.repeat(40) }]
    await expect(trainerOf({ examples: long })).rejects.toThrow(
      'text/pairs, tooLong: got 1 of 13 examples too long, the longest with 46 tokens (the first is example 12), expected at most the context of 32',
    )
    const skipped = await trainerOf({ examples: long }, 'skip')
    expect(skipped.progress().tooLong).toEqual({ skipped: 1, cut: 0 })
    const cut = await trainerOf({ examples: long }, 'cut')
    expect(cut.progress().tooLong).toEqual({ skipped: 0, cut: 1 })
    expect(answersOf(cut.world.cohort(), 12, 'pair').map(({ ids }) => ids.length)).toEqual([7, 32])
    await steps(cut)
  })

  test('a reward model is a reward that judges answers as it learned to', async () => {
    const { cohort, next, loss, preference } = await nextStep({ loss: 'reward', critic: true })
    // The model before that step, made again.
    const before = await trainerOf({ loss: 'reward', critic: true })
    await steps(before, 4)
    const folder = `${await temporaryFolder()}/judge`
    await saveTransformer(folder, cohort.model, before.world.cohort().weights)
    await saveTokenizer(folder, cohort.tokenizer)
    const judged = modelReward({ folder })
    const scoreOf = async (example: Example, answer: string) => {
      return (await judge(judged, { prompt: '', completion: answer, example })).value!
    }
    const scores = await Promise.all(
      next.map(async (i) => ({
        good: await scoreOf(pairs[i]!, pairs[i]!.answer!),
        bad: await scoreOf(pairs[i]!, pairs[i]!.rejected as string),
        margin: pairs[i]!.margin!,
      })),
    )
    expect(preference.chosenReward).toBeCloseTo(average(scores.map(({ good }) => good)), 5)
    expect(preference.rejectedReward).toBeCloseTo(average(scores.map(({ bad }) => bad)), 5)
    const losses = scores.map(({ good, bad, margin }) => Math.log(1 + Math.exp(bad - good + margin)))
    expect(loss).toBeCloseTo(average(losses), 5)
    expect(scores.some(({ good, bad }) => Math.abs(good - bad) > 0.1)).toBe(true)
    const long = await judge(judged, { prompt: '', completion: 'x'.repeat(40), example: pairs[0]! })
    expect(long).toMatchObject({ value: null, failure: 'refused', error: '46 tokens, expected at most 32' })
    const short = modelReward({ folder, context: 20, batchSize: 3 })
    const refused = await judge(short, { prompt: '', completion: 'x'.repeat(18), example: pairs[0]! })
    expect(refused.error).toBe('24 tokens, expected at most 20')
    expect(batchSizeOf(short)).toBe(3)
  })

  test('a reward model needs a value head, to learn and to judge', async () => {
    await expect(trainerOf({ loss: 'reward' })).rejects.toThrow(
      'sft, loss reward: got a model without a value head, expected a model with a critic',
    )
    expect(() => modelReward()).toThrow('reward model.folder: got nothing, expected a folder')
    const folder = `${await temporaryFolder()}/without`
    const { model, tokenizer, weights } = (await trainerOf({})).world.cohort()
    await saveTransformer(folder, model, weights)
    await saveTokenizer(folder, tokenizer)
    await expect(opened(modelReward({ folder }))).rejects.toThrow(
      'without value_head.safetensors, expected a model trained',
    )
  })

  test('an example without what is compared is named', async () => {
    const without = (left: 'answer' | 'rejected') => [
      ...pairs,
      { prompt: 'a', [left === 'answer' ? 'rejected' : 'answer']: 'b' },
    ]
    await expect(trainerOf({ examples: without('rejected') })).rejects.toThrow(
      'text/pairs, example 12: got no rejected answer, expected a chosen and a rejected one, to compare',
    )
    await expect(trainerOf({ examples: without('answer') })).rejects.toThrow('example 12: got no chosen answer')
    await expect(trainerOf({ examples: [{ prompt: 'a' }], loss: 'kto' })).rejects.toThrow('example 0: got no answer')
    expect(await steps(await trainerOf({ examples: without('answer'), loss: 'kto', updates: 1 }))).toHaveLength(1)
  })

  test('a built-in loss given as a part is the one of its id', async () => {
    expect(sft({}, { loss: dpo }).parameters).toMatchObject({ loss: 'dpo' })
    expect(sft({}, { loss: kto }).loss.level).toBe('answer')
  })
})
