import { join } from 'node:path'
import { expect, test } from 'vitest'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { defineTextEnvironment, type Example } from '../../src/environments/text.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { modelReward } from '../../src/language/rewards/model.ts'
import { judge } from '../../src/language/rewards/reward.ts'
import { saveTokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { transformerLogprobs } from '../../src/training/backends/transformer-logprobs.ts'
import { createTrainer } from '../../src/training/loop/trainer.ts'
import type { ConversationCohort } from '../../src/world/conversations/cohort.ts'
import { createWorld } from '../../src/world/world.ts'
import { temporaryFolder } from '../support/temporary.ts'

const LETTERS = 'abcdefgh'

/** Four letters, of which the first is the answer; the other one is wrong. No two of the first 4,096 are equal. */
function exampleOf(index: number): Example & { readonly answer: string; readonly rejected: string } {
  const code = (index * 2731 + 17) % 4096
  const letters = [0, 3, 6, 9].map((bits) => LETTERS[(code >> bits) & 7]!)
  const wrong = LETTERS[(LETTERS.indexOf(letters[0]!) + 1 + (index % 7)) % 8]!
  return { prompt: `${letters.join('')}=`, answer: letters[0]!, rejected: wrong }
}

const TRAINED = 600
const heldOut = Array.from({ length: 100 }, (_, i) => exampleOf(2000 + i))

/** The first letter of the prompts to learn from, with a reward for the right one, or by a judge. */
const firstLetter = (judged?: ReturnType<typeof modelReward>) =>
  defineTextEnvironment({
    id: 'text/first-letter',
    settings: {},
    make: () => ({
      alphabet: `${LETTERS}=`,
      numExamples: TRAINED,
      maxTokens: 2,
      example: exampleOf,
      async respond({ completion, example }) {
        if (judged === undefined) return { reward: completion === example.answer ? 1 : 0 }
        return { reward: (await judge(judged, { prompt: '', completion, example })).value }
      },
    }),
  })()

/** Trains a new model, or that of a folder; saves it, and returns the folder and the cohort. */
async function trained(
  algorithm: ReturnType<typeof sft> | ReturnType<typeof rl>,
  { from, critic = false, judged }: { from?: string; critic?: boolean; judged?: ReturnType<typeof modelReward> } = {},
) {
  const begins = from === undefined ? { width: 32, layers: 2, heads: 4 } : { folder: from }
  const { groupSize = 1 } = algorithm.settings as { readonly groupSize?: number }
  const policy = languageModel({ ...begins, context: 12, critic } as never)
  const world = await createWorld({ environment: firstLetter(judged), policy, numLanes: 64, seed: 1, groupSize })
  for await (const _ of createTrainer(world, algorithm as never).updates());
  const cohort = world.cohort() as ConversationCohort
  const folder = join(await temporaryFolder(), 'model')
  await saveTransformer(folder, cohort.model, cohort.weights)
  await saveTokenizer(folder, cohort.tokenizer)
  return { folder, cohort }
}

/** On held-out prompts: the mean probability of the right answer, and how often it is above that of the wrong one. */
function measured({ model, weights, tokenizer }: ConversationCohort) {
  const { logprobs } = transformerLogprobs({ model, weights })
  const sumOf = ({ prompt }: Example, answer: string) => {
    const ids = [...tokenizer.beginIds, ...tokenizer.encode(prompt as string)]
    const whole = [...ids, ...tokenizer.encode(answer, { continues: true }), tokenizer.endIds[0]!]
    const [said] = logprobs([whole]) as readonly (readonly number[])[]
    return said!.slice(ids.length - 1).reduce((sum, value) => sum + value, 0)
  }
  const pairs = heldOut.map((example) => [sumOf(example, example.answer), sumOf(example, example.rejected)] as const)
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  return {
    right: mean(pairs.map(([chosen]) => Math.exp(chosen))),
    preferred: mean(pairs.map(([chosen, rejected]) => (chosen > rejected ? 1 : 0))),
  }
}

test('each way to learn from answers improves what it is for, on prompts that it never saw', async () => {
  const base = await trained(sft({ updates: 10, batchSize: 32 }))
  const before = measured(base.cohort)
  const { folder: from } = base

  const supervised = await trained(sft({ updates: 120, batchSize: 32, learningRate: 3e-3 }), { from })
  const taught = measured(supervised.cohort)
  const preferred = await trained(sft({ loss: 'dpo', updates: 60, batchSize: 32, learningRate: 1e-3 }), { from })
  const chosen = measured(preferred.cohort)
  const judging = await trained(sft({ loss: 'reward', updates: 100, batchSize: 32, learningRate: 3e-3 }), {
    from,
    critic: true,
  })
  const judged = modelReward({ folder: judging.folder })
  const verdicts = await Promise.all(
    heldOut.map(async (example) => {
      const scoreOf = async (completion: string) => (await judge(judged, { prompt: '', completion, example })).value!
      return (await scoreOf(example.answer)) > (await scoreOf(example.rejected)) ? 1 : 0
    }),
  )
  const accuracy = verdicts.reduce<number>((sum, verdict) => sum + verdict, 0) / verdicts.length
  const reinforced = await trained(
    rl({ loss: 'ppo', updates: 60, groupsPerUpdate: 16, groupSize: 4, learningRate: 1e-3 }),
    { from, critic: true, judged },
  )
  const pleased = measured(reinforced.cohort)
  const student = await trained(
    rl({
      loss: 'distill',
      teacher: supervised.folder,
      updates: 60,
      groupsPerUpdate: 16,
      groupSize: 4,
      learningRate: 1e-3,
    }),
    { from },
  )
  const distilled = measured(student.cohort)

  expect(taught.right).toBeGreaterThan(before.right + 0.1)
  expect(chosen.preferred).toBeGreaterThan(before.preferred + 0.03)
  expect(accuracy).toBeGreaterThan(0.9)
  expect(pleased.right).toBeGreaterThan(before.right + 0.1)
  expect(distilled.right).toBeGreaterThan(before.right + 0.1)
}, 600_000)
