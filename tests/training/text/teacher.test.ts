import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { reverse } from '../../../src/environments/tasks/sequences.ts'
import { defineTextEnvironment } from '../../../src/environments/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { loadLanguageModel } from '../../../src/language/load-language-model.ts'
import { saveTokenizer } from '../../../src/language/tokenizers/tokenizer.ts'
import { saveTransformer } from '../../../src/language/transformer/folder.ts'
import { transformerLogprobs } from '../../../src/training/backends/transformer-logprobs.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import { configureRun } from '../../../src/training/run/run.ts'
import { planTextRun } from '../../../src/training/text/learn/plan.ts'
import { createWorld } from '../../../src/world/world.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const environment = reverse({ maxLength: 2 })
const policy = languageModel({ width: 16, layers: 1, heads: 2 })
/** The same questions, whose rewards nobody knows. */
const unrewarded = defineTextEnvironment({
  id: 'text/unrewarded',
  settings: {},
  make: () => ({ ...environment, respond: () => ({ reward: null, error: 'nobody knows' }) }),
})()

let folder: string
let logprobsOf: (ids: readonly number[]) => readonly number[]
let requests: { readonly path: string; readonly body: { prompt?: number[]; input_ids?: number[] } }[] = []
let wrong = 0
let server: Server
let address: string

/** A teacher that has learned the task, in a folder; and servers that say its log-probabilities. */
beforeAll(async () => {
  folder = `${await temporaryFolder()}/teacher`
  const world = await createWorld({ environment, policy, numLanes: 1, seed: 2 })
  const trainer = createTrainer(world, sft({ updates: 60, batchSize: 32, learningRate: 0.01 }))
  for await (const _ of trainer.updates());
  await saveTransformer(folder, world.cohort().model, world.cohort().weights)
  await saveTokenizer(folder, world.cohort().tokenizer)
  const { model, weights } = await loadLanguageModel(folder)
  const validated = transformerLogprobs({ model, weights })
  logprobsOf = (ids) => (validated.logprobs([ids]) as readonly (readonly number[])[])[0]!
  server = createServer(async (request, response) => {
    const said = await text(request)
    const body = said === '' ? {} : JSON.parse(said)
    requests.push({ path: request.url!, body })
    const ids: number[] = body.prompt ?? body.input_ids ?? []
    const logprobs = ids.length === 0 ? [] : [null, ...logprobsOf(ids).slice(0, ids.length - 1 - wrong)]
    const each = logprobs.map((value, t) => [value, ids[t]] as const)
    const answers: Record<string, object> = {
      '/v1/models': { data: [{ id: 'teacher' }] },
      '/v1/completions': {
        choices: [
          { prompt_logprobs: each.map(([value, id]) => (value === null ? null : { [id!]: { logprob: value } })) },
        ],
      },
      '/generate': { meta_info: { input_token_logprobs: each.map(([value, id]) => [value, id, null]) } },
    }
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[request.url!]))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => server.close())

type Settings = Parameters<typeof rl>[0]

async function distilled(settings: Settings, from: typeof environment = environment) {
  const algorithm = rl({
    loss: 'distill',
    updates: 2,
    groupsPerUpdate: 8,
    groupSize: 2,
    learningRate: 0.01,
    ...settings,
  })
  const { groupSize, temperature } = algorithm.settings
  const world = await createWorld({
    environment: from,
    policy,
    numLanes: 16,
    seed: 1,
    groupSize,
    sampling: { temperature },
  })
  const trainer = createTrainer(world, algorithm)
  const metrics = []
  for await (const each of trainer.updates()) metrics.push(each)
  return { cohort: world.cohort(), learner: world.cohort().learner as never, metrics }
}

describe('on-policy distillation', () => {
  test('each token has the advantage of the teacher over the student', async () => {
    const { cohort, learner, metrics } = await distilled({ teacher: folder, updates: 1 })
    const { update } = learner as { update: { prepared: Record<'tokenAdvantage' | 'counted', Float32Array> } }
    const { token, logprob, lossMask, offsets } = cohort.trajectories.columns()
    let [count, total] = [0, 0]
    for (let i = 0; i + 1 < offsets.length; i++) {
      const said = logprobsOf([...token.subarray(offsets[i], offsets[i + 1])])
      for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++) {
        if (lossMask[t] === 0) continue
        const advantage = said[t - offsets[i]! - 1]! - logprob[t]!
        expect(update.prepared.tokenAdvantage[t]).toBeCloseTo(advantage, 4)
        total -= advantage
        count++
      }
    }
    expect(count).toBeGreaterThan(20)
    expect(metrics[0]!.rl!.referenceKl!.k1).toBeCloseTo(total / count, 4)
  })

  test('brings the student to the teacher, without rewards', async () => {
    const { metrics } = await distilled({ teacher: folder, updates: 30, groupsPerUpdate: 32 }, unrewarded)
    const kls = metrics.map(({ rl }) => rl!.referenceKl!.k1)
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    expect(mean(kls.slice(-8))).toBeLessThan(0.7 * mean(kls.slice(0, 3)))
    expect(metrics.at(-1)!.rl!.reward).toBeNull()
  })

  test('adds rewards at the end of answers where they count', async () => {
    const advantagesOf = async (rewardCoef: number) => {
      const { learner } = await distilled({ teacher: folder, updates: 1, lossSettings: { rewardCoef } })
      const { update } = learner as { update: { prepared: Record<'tokenAdvantage' | 'shapedReward', Float32Array> } }
      return { ...update.prepared, sum: update.prepared.tokenAdvantage.reduce((total, value) => total + value, 0) }
    }
    const [without, half] = [await advantagesOf(0), await advantagesOf(0.5)]
    const rewards = half.shapedReward.reduce((total, value) => total + value, 0)
    expect(rewards).toBeGreaterThan(0.5)
    expect(without.shapedReward.every((value) => value === 0)).toBe(true)
    expect(half.sum - without.sum).toBeCloseTo(rewards, 3)
  })

  test.each(['vllm', 'sglang'])('from a server of %s is the same', async (kind) => {
    requests = []
    const local = await distilled({ teacher: folder })
    const served = await distilled({ teacher: `${kind}:${address}` })
    expect(served.metrics.map(({ rl }) => rl!.referenceKl!.k1)).toEqual(
      local.metrics.map(({ rl }) => expect.closeTo(rl!.referenceKl!.k1, 5)),
    )
    const asked = requests.filter(({ path }) => path !== '/v1/models')
    expect(asked).toHaveLength(32)
    expect(requests.length - asked.length).toBe(kind === 'vllm' ? 1 : 0)
    expect(new Set(asked.map(({ path }) => path))).toEqual(new Set([kind === 'vllm' ? '/v1/completions' : '/generate']))
  })

  test('refuses what cannot be compared, before or instead of learning', async () => {
    expect(() => rl({ loss: 'distill' })).toThrow('rl.teacher: got none, expected a model or server to learn from')
    expect(() => rl({ teacher: 'x', loss: 'dapo' })).toThrow(
      'rl.teacher: got x, with loss dapo, expected none, or a loss that compares',
    )
    await expect(distilled({ teacher: `vllm:${address}`, temperature: 0.5 })).rejects.toThrow(
      'and sampling by temperature, topK, topP or minP, expected a model in this process',
    )
    const other = `${folder}-other`
    const bytes = await createWorld({
      environment,
      policy: languageModel({ width: 16, layers: 1, heads: 2, anyText: true }),
      numLanes: 1,
      seed: 1,
    })
    await saveTransformer(other, bytes.cohort().model, bytes.cohort().weights)
    await saveTokenizer(other, bytes.cohort().tokenizer)
    await expect(distilled({ teacher: other })).rejects.toThrow(
      /rl\.teacher: got .*other, with \d+ tokens, expected the student's/,
    )
    wrong = 1
    await expect(distilled({ teacher: `sglang:${address}` })).rejects.toThrow(
      /teacher at .*: got \d+ log-probabilities, expected \d+/,
    )
    wrong = 0
  })
})

describe('distillation on given answers', () => {
  async function taught(settings: Parameters<typeof sft>[0], threads = 1) {
    const world = await createWorld({ environment, policy, numLanes: 1, seed: 1 })
    const trainer = createTrainer(world, sft({ batchSize: 32, learningRate: 0.01, ...settings }), { threads })
    const losses = []
    for await (const { loss } of trainer.updates()) losses.push(loss)
    return { losses, weights: world.cohort().weights.slice() }
  }

  test('brings the student to the distributions of the teacher', async () => {
    const { losses } = await taught({ teacher: folder, updates: 60 })
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    expect(Math.min(...losses)).toBeGreaterThan(0)
    expect(losses[0]).toBeGreaterThan(0.5)
    expect(mean(losses.slice(-5))).toBeLessThan(0.2 * losses[0]!)
  })

  test('is the same with several threads, of which one learns', async () => {
    const alone = await taught({ teacher: folder, updates: 3 })
    const two = await taught({ teacher: folder, updates: 3 }, 2)
    expect(two).toEqual(alone)
    expect((await taught({ updates: 3 })).losses).not.toEqual(alone.losses)
  })

  test('refuses a server, and losses that compare answers', async () => {
    await expect(taught({ teacher: `vllm:${address}` })).rejects.toThrow(
      /sft\.teacher: got vllm:.*, expected a model in this process/,
    )
    expect(() => sft({ teacher: folder, loss: 'dpo' })).toThrow(/sft\.teacher: got ".*", with loss dpo, expected none/)
  })
})

test('the plan of a run refuses a teacher that cannot be one, by its key, unless a checkpoint goes on', async () => {
  const small = { threads: '1', 'languageModel.width': '16', 'languageModel.layers': '1', 'languageModel.heads': '2' }
  const planned = async (keys: Readonly<Record<string, string>>, isNew = true) =>
    planTextRun(await configureRun('text/reverse', { ...small, ...keys }), isNew)
  const missing = `${folder}/missing`
  for (const [key, more] of [
    ['sft.teacher', { mode: 'sft' }],
    ['rl.teacher', { mode: 'rl', 'rl.loss': 'distill', 'loss.rewardKlCoef': '1' }],
  ] as const) {
    const said = new RegExp(`^${key}, language model: got no folder .*missing, expected an existing folder$`)
    await expect(planned({ ...more, [key]: missing })).rejects.toThrow(said)
    await expect(planned({ ...more, [key]: missing }, false)).resolves.toBeDefined()
    await expect(planned({ ...more, [key]: folder })).resolves.toBeDefined()
    const context = { ...more, [key]: folder, 'languageModel.context': '400' }
    await expect(planned(context)).rejects.toThrow(/teacher: got .*, with a context of \d+, expected at least 400$/)
  }
  await expect(planned({ mode: 'sft', 'sft.teacher': `vllm:${address}` })).rejects.toThrow('a model in this process')
  const served = { mode: 'rl', 'rl.loss': 'distill', 'loss.rewardKlCoef': '1', 'rl.teacher': `vllm:${address}` }
  await expect(planned({ ...served, 'rl.topK': '4' })).rejects.toThrow(
    'and sampling by temperature, topK, topP or minP',
  )
  await expect(planned(served)).resolves.toBeDefined()
})
