/** Answers of changed logits: what is recorded is what evaluating gives, and what a direct computation from the logits gives. */
import { describe, expect, test } from 'vitest'
import { takeArena } from '../../../src/components/arena.ts'
import { column } from '../../../src/components/column.ts'
import { grpo } from '../../../src/entries/compat.ts'
import { defineTextEnvironment } from '../../../src/environments/text.ts'
import { createWorld } from '../../../src/index.ts'
import { createKernels } from '../../../src/kernels/bind.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { decoderPlan, TransformerDecoder } from '../../../src/language/transformer/decoder.ts'
import type { Sampling } from '../../../src/language/transformer/sampling.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { Trainer } from '../../../src/training/text/learn/token-trainer.ts'
import { compared } from '../../support/evaluated.ts'
import { made, opened, scriptedGateway } from '../../support/gateway.ts'
import { post, served, stream } from '../../support/serving.ts'

const CHAT = '/v1/chat/completions'
const messages = [{ role: 'user', content: 'aaa bbb' }]
const NONE = { temperature: 1, topK: 0, topP: 1, minP: 0 }
const ALL = {
  logit_bias: { 97: 3, 98: -2.5, 101: 40 },
  repetition_penalty: 1.4,
  frequency_penalty: 0.7,
  presence_penalty: 0.3,
  min_tokens: 6,
}
const AS_RECORDED = { bias: ALL.logit_bias, repetition: 1.4, frequency: 0.7, presence: 0.3, minTokens: 6 }

const environment = defineTextEnvironment({
  id: 'changed',
  settings: {},
  make: () => ({ numExamples: 1, example: () => ({ prompt: 'x' }), respond: () => ({ reward: 0 }) }),
})

const policy = (more: object = {}) =>
  languageModel({ width: 16, layers: 1, heads: 2, context: 160, anyText: true, ...more })

/** Rows of sessions that ask with these fields, then without, then with some, in a world that draws like this. */
async function recorded(fields: object, sampling: Partial<Sampling> = {}, more: object = {}) {
  const world = await createWorld({ environment: environment(), policy: policy(more), numLanes: 4, sampling, seed: 1 })
  const gateway = await opened({ world })
  for (let i = 0; i < 3; i++) {
    const { ask, end } = await made(gateway, { group: i })
    const first = await ask(CHAT, { model: 'x', messages, max_tokens: 24, n: 2, ...fields })
    expect(first.status, JSON.stringify(first.json)).toBe(200)
    const said = [...messages, first.json.choices[0].message, { role: 'user', content: 'y' }]
    const second = await ask(CHAT, { model: 'x', messages: said, max_tokens: 8 })
    const all = [...said, second.json.choices[0].message, { role: 'user', content: 'z' }]
    expect((await ask(CHAT, { model: 'x', messages: all, max_tokens: 12, ...ALL })).status).toBe(200)
    await end({ reward: i })
  }
  const { trajectories } = gateway
  return { world, rows: Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i)) }
}

describe('what is recorded of an answer of changed logits', () => {
  test.each<[object, Partial<Sampling>, object]>([
    [ALL, {}, {}],
    [{ logit_bias: { 97: -100, 200: 5 } }, { temperature: 1.5 }, { loraRank: 4 }],
    [{ repetition_penalty: 0.6, response_format: { type: 'json_object' } }, { topK: 9, temperature: 0.7 }, {}],
    [{ frequency_penalty: -2, presence_penalty: 2, min_tokens: 20 }, { topP: 0.8 }, {}],
    [{ min_tokens: 24 }, {}, {}],
    [{ min_tokens: 9, presence_penalty: 1 }, { minP: 0.1 }, {}],
  ])('is, to the bit, what evaluating gives: %j, %o, %o', async (fields, sampling, more) => {
    const run = await recorded(fields, sampling, more)
    const { pairs } = compared(run, { ...NONE, ...sampling })
    expect(pairs.length).toBeGreaterThan(80)
    for (const [was, is] of pairs) expect(is).toBe(was)
    const unchanged = { ...run, rows: run.rows.map(({ forms: _, ...row }) => row) }
    const differing = compared(unchanged, { ...NONE, ...sampling }).pairs.filter(([was, is]) => was !== is)
    expect(differing.length).toBeGreaterThan(10)
  })

  test('is what the logits give by the formula of the fields', async () => {
    const { world, rows } = await recorded(ALL, { temperature: 0.8 })
    const { model, weights, tokenizer } = world.cohort()
    const { arena, columns } = takeArena({
      weights: column('f32', weights.length),
      decoder: decoderPlan(model, 1, 160),
    })
    columns.weights.set(weights)
    const kernels = createKernels(arena.memory, world.kernelBuild)
    const decoder = new TransformerDecoder(model, columns.weights, columns.decoder, kernels, world.cohort().random)
    let compared = 0
    for (const { token, lossMask, turn, logprob, forms } of rows) {
      for (let t = 1; t < token.length; t++) {
        const { slot, forward, logits } = decoder.columns
        slot[0] = 0
        forward.token[0] = token[t - 1]!
        forward.position[0] = t - 1
        decoder.computeLogits(1)
        if (lossMask[t] !== 1) continue
        const from = Array.from(lossMask).findIndex((mask, i) => mask === 1 && turn[i] === turn[t])
        const isChanged = forms?.some((form) => form.turn === turn[t]) === true
        const before = Array.from(token).slice(0, t)
        const answer = before.slice(from)
        const scores = Array.from(logits.subarray(0, model.shape.vocabularySize), (logit, id) => {
          if (!isChanged) return logit / 0.8
          let x = logit + ((ALL.logit_bias as Record<number, number>)[id] ?? 0)
          if (before.includes(id)) x = x > 0 ? x / 1.4 : x * 1.4
          const count = answer.filter((other) => other === id).length
          x -= 0.7 * count + (count > 0 ? 0.3 : 0)
          return answer.length < 6 && tokenizer.endIds.includes(id) ? Number.NEGATIVE_INFINITY : x / 0.8
        })
        const most = Math.max(...scores)
        const wanted = scores[token[t]!]! - most - Math.log(scores.reduce((sum, x) => sum + Math.exp(x - most), 0))
        expect(Math.abs(logprob[t]! - wanted)).toBeLessThan(2e-5)
        compared++
      }
    }
    expect(compared).toBeGreaterThan(80)
  })

  test('names the changes of each turn, and is evaluated the same by a trainer', async () => {
    const { world, rows } = await recorded(ALL)
    const forms = rows.map((row) => row.forms)
    for (const each of forms) for (const { changes } of each ?? []) expect(changes).toEqual(AS_RECORDED)
    expect(forms.flat().length).toBe(9) // Three sessions: two answers, and one at the end.
    const buffer = new Trajectories()
    for (const row of rows) buffer.append(row)
    let evaluated = new Float32Array(0)
    const trainer = new Trainer({
      model: world,
      advantageFn: ({ reward }) => reward.map((value) => value - 1.2),
      lossFn: grpo.policyLoss,
      getLogprobsFn: (_, evaluate) => (evaluated = Float32Array.from(evaluate())),
      optimizer: { learningRate: 1e-3 },
      buffer,
    })
    const { logprob, lossMask } = buffer.columns()
    const { tokens } = await trainer.train()
    const chosen = [...lossMask.keys()].filter((t) => lossMask[t] === 1)
    expect(tokens).toBe(chosen.length)
    for (const t of chosen) expect(evaluated[t]).toBe(logprob[t])
  })
})

describe('serve', () => {
  test('adds biases: excludes a token, forces one, in each dialect and in the routes of ids', async () => {
    const { url } = await served({ policy: policy() })
    const bias = { 97: 100 }
    const base = { model: 'small', max_tokens: 5 }
    const chat = await post(url + CHAT, { ...base, messages, logit_bias: bias })
    expect(chat.json.choices[0].message.content).toBe('aaaaa')
    const pairs = await post(`${url}/v1/completions`, { ...base, prompt: 'x', logit_bias: [[97, 100]] })
    expect(pairs.json.choices[0].text).toBe('aaaaa')
    const response = await post(`${url}/v1/responses`, {
      ...{ model: 'small', max_output_tokens: 5, input: 'hi', logit_bias: bias },
    })
    expect(response.json.output[0].content[0].text).toBe('aaaaa')
    const message = await post(`${url}/v1/messages`, { ...base, messages, logit_bias: bias })
    expect(message.json.content[0].text).toBe('aaaaa')
    const vllm = { token_ids: [1, 2], sampling_params: { max_tokens: 3, logit_bias: bias } }
    expect((await post(`${url}/inference/v1/generate`, vllm)).json.choices[0].token_ids).toEqual([97, 97, 97])
    const sglang = { input_ids: [1, 2], sampling_params: { max_new_tokens: 3, logit_bias: bias } }
    expect((await post(`${url}/generate`, sglang)).json.output_ids).toEqual([97, 97, 97])
    const without = { ...base, prompt: 'x', max_tokens: 100, seed: 2 }
    const { json } = await post(`${url}/v1/completions`, { ...without, logit_bias: { 97: 100, 98: 99.5 }, logprobs: 2 })
    expect(new Set(json.choices[0].text)).toEqual(new Set('ab'))
  })

  test('repeats less with a frequency penalty, and a presence penalty is subtracted once', async () => {
    const { url } = await served({ policy: policy() })
    const asked = { model: 'small', prompt: 'x', max_tokens: 8, temperature: 0 }
    const said = async (more: object) =>
      (await post(`${url}/v1/completions`, { ...asked, ...more })).json.choices[0].text
    // 100 and 98.5 and less: the second takes its turn once the first is below it.
    const logit_bias = { 97: 60, 98: 57, 99: 40 }
    expect(await said({ logit_bias })).toBe('aaaaaaaa')
    expect(await said({ logit_bias, presence_penalty: 2 })).toBe('aaaaaaaa')
    const often = await said({ logit_bias, frequency_penalty: 2 })
    expect(often).toMatch(/^a{1,4}b/)
    expect(often).toContain('ab')
    expect(await said({ logit_bias: { 97: 60, 98: 59 }, presence_penalty: 2 })).toMatch(/^a{0,1}ba*|^ab/)
  })

  test('ends no answer before min_tokens, by an end token or a stop string, whole and streamed', async () => {
    const { url } = await served({ policy: policy() })
    const [end] = (await policy().open(environment())).tokenizer.endIds
    const asked = { model: 'small', prompt: 'x', max_tokens: 12, logit_bias: { [end!]: 100, 97: 50 } }
    const complete = async (more: object) => {
      const { json } = await post(`${url}/v1/completions`, { ...asked, ...more })
      const events = await stream(`${url}/v1/completions`, { ...asked, ...more })
      expect(events.map(({ choices }) => choices[0]?.text ?? '').join('')).toBe(json.choices[0].text)
      return [json.choices[0].text, json.choices[0].finish_reason]
    }
    expect(await complete({})).toEqual(['', 'stop'])
    expect(await complete({ min_tokens: 4 })).toEqual(['aaaa', 'stop'])
    expect(await complete({ min_tokens: 30 })).toEqual(['aaaaaaaaaaaa', 'length'])
    expect(await complete({ logit_bias: { 97: 100 }, stop: ['aa'] })).toEqual(['', 'stop'])
    expect(await complete({ logit_bias: { 97: 100 }, stop: ['aaa'], min_tokens: 5 })).toEqual(['aaa', 'stop'])
    // A form that must end before is refused, or ends the answer.
    const form = await post(`${url}/v1/completions`, { ...asked, guided_regex: 'ab', min_tokens: 5 })
    expect([form.status, form.json.error.code]).toEqual([502, 'engine_failed'])
  })

  test.each<[string, object]>([
    ['logit_bias', { logit_bias: { x: 1 } }],
    ['logit_bias', { logit_bias: { 100000: 1 } }],
    ['logit_bias', { logit_bias: { 5: 101 } }],
    ['logit_bias', { logit_bias: { 5: null } }],
    ['logit_bias', { logit_bias: 'a' }],
    ['logit_bias', { logit_bias: [[1, 2], 3] }],
    ['frequency_penalty', { frequency_penalty: 2.5 }],
    ['presence_penalty', { presence_penalty: '1' }],
    ['repetition_penalty', { repetition_penalty: 0 }],
    ['min_tokens', { min_tokens: -1 }],
  ])('refuses what is no change: %s %j', async (param, body) => {
    const { url } = await served({ policy: policy() })
    const { status, json } = await post(url + CHAT, { model: 'small', messages, ...body })
    expect([status, json.error.param]).toEqual([400, param])
  })
})

test('an engine that does not make a change is not asked for it, and is told one that it makes', async () => {
  const { gateway, seen } = await scriptedGateway(() => 'yes', {}, undefined, 400, false, ['bias', 'minTokens'])
  const { ask } = await made(gateway)
  const refused = await ask(CHAT, { model: 'x', messages, frequency_penalty: 1 })
  expect([refused.status, refused.json.error.param, refused.json.error.code]).toEqual([
    ...[400, 'frequency_penalty', 'unsupported_field'],
  ])
  expect(refused.json.error.message).toContain('engine scripted makes logit_bias, min_tokens')
  expect((await ask(CHAT, { model: 'x', messages, frequency_penalty: 0, repetition_penalty: 1 })).status).toBe(200)
  expect((await ask(CHAT, { model: 'x', messages, logit_bias: { 7: -1 }, min_tokens: 2 })).status).toBe(200)
  expect(seen.map(({ changes }) => changes)).toEqual([undefined, { bias: { 7: -1 }, minTokens: 2 }])
})
