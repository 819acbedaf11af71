/** The engines that ask servers, held to the contract and to the engine of this process, over `serveModel` and over servers that lie. */
import { readdir } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { deliverWeights } from '../../src/engines/engine.ts'
import { sglangEngine } from '../../src/engines/servers/sglang.ts'
import { vllmEngine } from '../../src/engines/servers/vllm.ts'
import { transformerLogprobs } from '../../src/entries/text.ts'
import type { Constraint } from '../../src/environments/text.ts'
import { createTrainer, rl } from '../../src/index.ts'
import { tick } from '../../src/systems/tick.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { engineSuite } from '../support/engine-suite.ts'
import {
  errorOf,
  type Lie,
  liar,
  type PairOptions,
  pair,
  type ServerKind,
  serverKinds,
  talkPolicy,
} from '../support/server-engines.ts'
import { temporaryFolder } from '../support/temporary.ts'

const kinds = Object.keys(serverKinds) as ServerKind[]

async function underTest(kind: ServerKind, sampling = {}, options: PairOptions = {}) {
  const { engine: definition } = await pair(kind, options)
  const world = await talkWorld({ numLanes: 4, engine: definition, sampling })
  const cohort = world.cohort()
  const { engine, numLanes, context, model, explore, stopStrings, weights } = cohort
  const drawing = { sampling: cohort.sampling, explore, stopStrings }
  return { engine, numSlots: numLanes, context, vocabularySize: model.shape.vocabularySize, drawing, weights }
}

const FILTERED = { topK: 3, temperature: 0.8 }
engineSuite('vllm, of a server of ours', () => underTest('vllm'))
engineSuite('vllm, of a server of ours, with candidate sets', () => underTest('vllm', FILTERED))
engineSuite('sglang, of a server of ours', () => underTest('sglang', { temperature: 0.8 }))
engineSuite('sglang, of a server of ours, with candidate sets', () =>
  underTest('sglang', FILTERED, { logprobs: 'candidates' }),
)

describe.each(kinds)('conversations by a %s server of the same weights', (kind) => {
  test('have the tokens, log-probabilities and candidate sets of the engine of this process, to the bit', async () => {
    for (const sampling of [{}, { topK: 4, temperature: 0.7 }]) {
      const { engine } = await pair(kind, { logprobs: 'candidates' })
      const own = await talkUntil(await talkWorld({ explore: false, sampling }), 12)
      const asked = await talkUntil(await talkWorld({ explore: false, sampling, engine }), 12)
      const told = ({ token, logprob, group, reward }: (typeof own)[number]) => ({ token, logprob, group, reward })
      // The most probable token is taken at temperature 1 over all tokens there, whatever the sampling is.
      if (Object.keys(sampling).length === 0) expect(asked.map(told)).toEqual(own.map(told))
      else expect(asked.map(({ token }) => token)).toEqual(own.map(({ token }) => token))
    }
  })

  test('that are drawn have the log-probabilities that the weights say', async () => {
    const { engine } = await pair(kind)
    const world = await talkWorld({ engine })
    const { model, weights } = world.cohort()
    const rows = await talkUntil(world, 8)
    const twin = transformerLogprobs({ model, weights: weights.slice() })
    const expected = await twin.logprobs(rows.map(({ token }) => token))
    let count = 0
    for (const [r, { lossMask, logprob }] of rows.entries()) {
      lossMask.forEach((flag, t) => {
        if (flag === 1) expect(logprob[t]).toBeCloseTo(expected[r]![t - 1]!, 4)
        count += flag
      })
    }
    expect(count).toBeGreaterThan(8)
  })
})

test.each<[ServerKind, object, string]>([
  ['vllm', { schema: {} }, 'sampling_params.structured_outputs: got {"json":{}}'],
  ['sglang', { schema: {} }, 'sampling_params.json_schema'],
  ['sglang', { grammar: 'root ::= "x"' }, 'sampling_params.ebnf'],
])(
  'a form is asked of a %s server by its own field, and one that cannot says so: %o',
  async (kind, constraint, field) => {
    const { engine, drawing } = await underTest(kind)
    expect(engine.constrains).toBe(true)
    const turn = {
      slot: 0,
      ids: Int32Array.of(1, 2),
      generated: 0,
      unchanged: 0,
      maxTokens: 3,
      key: [0, 0, 0] as const,
    }
    engine.submit({ ...turn, ...drawing, constraint: constraint as Constraint })
    await engine.arrival
    expect(engine.poll().ends).toMatchObject([{ reason: 'failed', error: expect.stringContaining(field) }])
  },
)

describe.each(kinds)('a training by a %s server', (kind) => {
  const settings = { groupsPerUpdate: 2, groupSize: 4, updates: 3, learningRate: 0.02 }

  test.each([
    ['the whole model', {}],
    ['an adapter', { loraRank: 2 }],
  ])('of %s delivers each version and learns by it', async (_, model) => {
    const folder = await temporaryFolder()
    const { engine, server } = await pair(kind, { settings: model, weights: folder })
    const world = await talkWorld({ engine, policy: talkPolicy(model), numLanes: 8, groupSize: 4 })
    const trainer = createTrainer(world, rl(settings))
    const cohort = world.cohort()
    const begun = (cohort.adapter?.weights ?? cohort.weights).slice()
    for await (const { rl: metrics } of trainer.updates({})) {
      // What the server recorded is what the learner says of the same tokens, under the weights that were delivered.
      expect(metrics!.kl.k2).toBeLessThan(1e-9)
      expect(metrics!.ratio).toBeCloseTo(1, 4)
      expect(metrics!.trajectories).toBe(8)
    }
    await trainer.close()
    expect([cohort.version, cohort.engine.version]).toEqual([3, 3])
    expect(cohort.adapter?.weights ?? cohort.weights).not.toEqual(begun)
    const what = cohort.adapter === null ? 'model' : 'adapter'
    expect((await readdir(folder)).sort()).toEqual([2, 3].map((version) => `${what}-${version}`))
    const info = await (await fetch(`${server.url}/weight_info`)).json()
    expect(info).toEqual({ weight_version: '3' })
  })
})

describe('a turn', () => {
  const drawn = [{}, { topK: 3, topP: 0.9, minP: 0.01, temperature: 0.7 }] as const
  const first = async (kind: ServerKind, sampling: object, options: PairOptions = {}) => {
    const { asked, engine } = await liar(kind, () => ({}), options)
    await talkUntil(await talkWorld({ engine, sampling, numLanes: 1 }), 1)
    return JSON.parse(asked.find(({ path }) => path === serverKinds[kind].turn)!.body)
  }
  const NO_CHANGE = { repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0 }
  const shared = { stop: expect.any(Array), ...NO_CHANGE, n: 1, skip_special_tokens: false }
  const ids = expect.arrayContaining([expect.any(Number)])

  test.each(drawn)('is asked of vLLM with all that draws it: %j', async (sampling) => {
    const { topK = 0, topP = 1, minP = 0, temperature = 1 } = sampling as Record<string, number>
    expect(await first('vllm', sampling)).toEqual({
      ...{ request_id: expect.any(String), token_ids: ids, model: 'small', output_mode: 'tokens' },
      cache_salt: expect.any(String),
      sampling_params: {
        ...{ ...shared, temperature, top_p: topP, top_k: topK, min_p: minP, max_tokens: expect.any(Number) },
        ...{ seed: expect.any(Number), logprobs: 0, min_tokens: 0, detokenize: false },
      },
    })
  })

  test.each(drawn)('is asked of SGLang with all that draws it: %j', async (sampling) => {
    const { topK = -1, topP = 1, minP = 0, temperature = 1 } = sampling as Record<string, number>
    const sets = Object.keys(sampling).length > 0
    expect(await first('sglang', sampling, sets ? { logprobs: 'candidates' } : {})).toEqual({
      ...{ rid: expect.any(String), input_ids: ids, return_logprob: !sets },
      ...(sets ? { return_sampling_mask: true, sampling_logprobs_mode: 'selected' } : {}),
      sampling_params: {
        ...{ ...shared, temperature, top_p: topP, top_k: topK, min_p: minP, max_new_tokens: expect.any(Number) },
        ...{ sampling_seed: expect.any(Number), min_new_tokens: 0 },
      },
    })
  })

  test.each([
    ['vllm', { min_tokens: 2, repetition_penalty: 1.5, frequency_penalty: 0.5, presence_penalty: -1 }],
    ['sglang', { min_new_tokens: 2, repetition_penalty: 1.5, frequency_penalty: 0.5, presence_penalty: -1 }],
  ] as const)(
    'of changed logits is asked of a %s server, and its log-probabilities are unknown',
    async (kind, fields) => {
      const { asked, engine: definition } = await liar(kind, () => ({}))
      const { engine, sampling } = (await talkWorld({ engine: definition, numLanes: 1 })).cohort()
      expect(engine.changes).toEqual(['bias', 'repetition', 'frequency', 'presence', 'minTokens'])
      const changes = { bias: { 3: -1.5 }, repetition: 1.5, frequency: 0.5, presence: -1, minTokens: 2 }
      const turn = { slot: 0, ids: Int32Array.of(1, 2), generated: 0, unchanged: 0, maxTokens: 3, explore: true }
      engine.submit({ ...turn, sampling, stopStrings: [], key: [0, 0, 0], changes })
      await engine.arrival
      const { tokens } = engine.poll()
      const body = JSON.parse(asked.find(({ path }) => path === serverKinds[kind].turn)!.body)
      expect(body.sampling_params).toMatchObject({ ...fields, logit_bias: { 3: -1.5 } })
      const logprobs = tokens.flatMap(({ logprob, count }) => Array.from(logprob.subarray(0, count)))
      expect([logprobs.length > 0, logprobs.every(Number.isNaN)]).toEqual([true, true])
    },
  )

  // biome-ignore lint/suspicious/noExplicitAny: lies are of any kind.
  test.each<[ServerKind, (json: Record<string, any>) => void, RegExp]>([
    ['vllm', (json) => Object.assign(json, { request_id: 'other' }), /request_id: got "other" of ids/],
    ['vllm', (json) => Object.assign(json, { prompt_token_ids: [1] }), /of ids \[1\], expected/],
    ['vllm', (json) => Object.assign(json, { choices: 'x' }), /token ids: got undefined/],
    ['sglang', (json) => Object.assign(json.meta_info, { id: 'other' }), /meta_info\.id: got "other", expected/],
    ['sglang', (json) => Object.assign(json, { meta_info: null }), /log-probabilities: got undefined/],
    ['sglang', (json) => Object.assign(json.meta_info, { weight_versions: [3] }), /versions: got/],
    ['sglang', (json) => Object.assign(json.meta_info, { output_token_logprobs: [null] }), /log-probabilit/],
  ])('of a %s server that answers another fails', async (kind, lie, message) => {
    const { engine } = await liar(kind, (path, json) => {
      if (path === serverKinds[kind].turn) lie(json)
      return { json }
    })
    expect(await errorOf(engine)).toMatch(message)
  })

  test('is taken where the server names none of what it was asked', async () => {
    for (const kind of kinds) {
      const { engine } = await liar(kind, (path, json) => {
        if (path !== serverKinds[kind].turn) return {}
        delete json.request_id
        delete json.prompt_token_ids
        delete json.meta_info?.id
        return { json }
      })
      expect(await errorOf(engine)).toBe(null)
    }
  })

  test.each<[ServerKind, string, RegExp | null]>([
    ['vllm', 'small', null],
    ['vllm', 'large', /engine vllm at .*, model: got "large", expected one of its models: small/],
    ['sglang', 'small', null],
    ['sglang', 'path', null],
    ['sglang', 'large', /engine sglang at .*, model: got "large", expected the served model: "small"/],
  ])('is asked of the model that is named, of a %s server: %s', async (kind, model, message) => {
    const { engine } = await liar(
      kind,
      (path, json) =>
        path === '/model_info' ? { json: { ...json, served_model_name: 'small', model_path: 'path' } } : {},
      { model },
    )
    if (message === null) expect(await errorOf(engine)).toBe(null)
    else expect(await errorOf(engine)).toMatch(message)
  })

  test('is asked of an SGLang that has the routes of before', async () => {
    const { engine, asked } = await liar('sglang', (path) => (path === '/model_info' ? { status: 404, json: {} } : {}))
    expect(await errorOf(engine)).toBe(null)
    expect(asked.map(({ path }) => path)).toContain('/get_model_info')
  })
})

describe('a server', () => {
  const isTurn = (path: string) => path === '/inference/v1/generate'

  // biome-ignore lint/suspicious/noExplicitAny: lies are of any kind.
  test.each<[string, (choice: any) => void, RegExp]>([
    [
      'a log-probability too few',
      (choice) => choice.logprobs.content.pop(),
      /log-probabilities: got .*, expected \d+ of them/,
    ],
    ['no log-probabilities', (choice) => Object.assign(choice, { logprobs: null }), /log-probabilities: got undefined/],
    ['one of another token', (choice) => (choice.logprobs.content[0].token_id += 1), /log-probability 0/],
    ['a probability above 1', (choice) => (choice.logprobs.content[0].logprob = 0.5), /log-probability 0/],
    ['an id that is none', (choice) => (choice.token_ids[0] = 4000), /token ids: got .*, expected ids below/],
    [
      'spans that leave a token out',
      (choice) => (choice.weight_versions[0].start = 1),
      /versions: got .*, expected runs of them/,
    ],
    [
      'a candidate set without its token',
      (choice) => (choice.sampling_mask = choice.token_ids.map(() => [99])),
      /candidate set 0: got .*, expected ids with \d+ among them/,
    ],
  ])('that tells %s fails the turn, and says what it told', async (_, lie, message) => {
    const { engine } = await liar('vllm', (path, json) => {
      if (isTurn(path)) lie(json.choices[0])
      return { json }
    })
    expect(await errorOf(engine)).toMatch(message)
  })

  test.each<[string, (path: string, json: object) => Lie, RegExp]>([
    [
      'another tokenizer',
      (path) => (path === '/tokenize' ? { json: { tokens: [1, 2, 3] } } : {}),
      /tokenizer: got ids \[1,2,3\] for a probe text/,
    ],
    [
      'another kind of log-probabilities',
      (path) => (path.startsWith('/server_info') ? { json: { logprobs_mode: 'raw_logprobs' } } : {}),
      /logprobs: got "raw"/,
    ],
    [
      'another kind of log-probabilities, as vLLM tells it',
      (path) =>
        path.startsWith('/server_info')
          ? { json: { vllm_config: { model_config: { logprobs_mode: 'raw_logprobs' } } } }
          : {},
      /logprobs: got "raw"/,
    ],
    [
      'a route that should say the kind, and fails,',
      (path) => (path.startsWith('/server_info') ? { status: 500, json: { error: { message: 'no way' } } } : {}),
      /server_info\S*: status 500, no way/,
    ],
    [
      'too short a context',
      (path) => (path === '/v1/models' ? { json: { data: [{ id: 'small', max_model_len: 8 }] } } : {}),
      /context: got 8 tokens/,
    ],
    ['no model', (path) => (path === '/v1/models' ? { json: { data: [] } } : {}), /model: got ""/],
    [
      'half a JSON',
      (path) => (isTurn(path) ? { text: '{"choices": [' } : {}),
      /got "\{\\"choices\\": \[", expected a JSON object/,
    ],
    [
      'no echo of the mode',
      (path, json) => (isTurn(path) ? { json: { ...json, output_mode: undefined } } : {}),
      /output_mode/,
    ],
    [
      'a status',
      (path) => (isTurn(path) ? { status: 402, json: { error: { message: 'pay' } } } : {}),
      /status 402, pay/,
    ],
    ['a connection that breaks', (path) => (isTurn(path) ? null : {}), /generate: /],
  ])('of %s fails turns, and says why', async (_, answer, message) => {
    const { engine } = await liar('vllm', answer)
    expect(await errorOf(engine)).toMatch(message)
  })

  test('without a route that says the kind of its log-probabilities is taken at the option’s word', async () => {
    const { engine } = await liar('vllm', (path) => (path.startsWith('/server_info') ? { status: 404, json: {} } : {}))
    expect(await errorOf(engine)).toBe(null)
  })

  test('that refuses weights, and then to end the update, is told of with both of its errors', async () => {
    const { engine } = await liar('vllm', (path) => {
      if (path === '/update_weights') return { status: 400, json: { error: { message: 'no such file' } } }
      return path === '/finish_weight_update' ? { status: 500, json: { error: { message: 'stuck' } } } : {}
    })
    const { engine: made, weights } = (await talkWorld({ engine })).cohort()
    await expect(deliverWeights(made, { version: 7, weights })).rejects.toThrow(
      /update_weights: status 400, no such file; and then .*finish_weight_update: status 500, stuck/,
    )
  })

  test('is given a seed that each part of a turn’s key decides, and that stays when the turn is submitted again', async () => {
    const { engine: definition, asked } = await liar('vllm', (_, json) => ({ json }))
    const { engine, sampling, explore, stopStrings } = (await talkWorld({ engine: definition })).cohort()
    const seedOf = async (key: readonly [number, number, number], ids: readonly number[], generated = 0) => {
      const drawing = { sampling, explore, stopStrings, maxTokens: 2 }
      engine.submit({ ...drawing, slot: 0, ids: Int32Array.from(ids), generated, unchanged: 0, key })
      while (engine.poll().ends.length === 0) await engine.arrival
      return JSON.parse(asked.findLast(({ path }) => isTurn(path))!.body).sampling_params.seed
    }
    const seed = await seedOf([4, 5, 6], [1, 2])
    expect(await seedOf([4, 5, 6], [1, 2, 3], 1)).toBe(seed)
    const others = [await seedOf([5, 5, 6], [1, 2]), await seedOf([4, 6, 6], [1, 2]), await seedOf([4, 5, 7], [1, 2])]
    expect(new Set([seed, ...others]).size).toBe(4)
  })

  test('that is busy is asked again with the same request, and gives the same tokens', async () => {
    let left = 2
    const { engine, asked } = await liar(
      'vllm',
      (path, json) => (isTurn(path) && left-- > 0 ? { status: left === 0 ? 503 : 429, json: {} } : { json }),
      { retries: 3 },
    )
    const [row] = await talkUntil(await talkWorld({ engine, numLanes: 1 }), 1)
    const [calm] = await talkUntil(await talkWorld({ engine: (await pair('vllm')).engine, numLanes: 1 }), 1)
    expect([row!.error, row!.token]).toEqual([null, calm!.token])
    const turns = asked.filter(({ path }) => isTurn(path)).slice(0, 3)
    expect(new Set(turns.map(({ body }) => body)).size).toBe(1)
    expect(JSON.parse(turns[0]!.body).request_id).toMatch(/^\w+-\d+$/)
  })

  test('that does not answer in time fails the turn', async () => {
    const { engine } = await pair('vllm', { deadline: 0.2, retries: 0 })
    const http = createServer(() => {})
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
    expect(await errorOf(vllmEngine({ url, deadline: 0.2, retries: 0 }))).toMatch(/no answer in 0.2 s/)
    http.closeAllConnections()
    http.close()
    expect(engine.id).toBe('vllm')
  })

  test('that keeps old weights, or another version, is found by the delivery', async () => {
    for (const [answer, message] of [
      [
        (path: string) => (path === '/weight_info' ? { json: { weight_version: '6' } } : {}),
        'got version "6", expected "7", as delivered',
      ],
      // It says that it has them, and has not.
      [
        (path: string, json: object) => (path === '/finish_weight_update' ? { status: 200, json } : {}),
        /log-probabilities \S+ nats from the learner's/,
      ],
    ] as const) {
      const { engine } = await liar('vllm', answer as never)
      const world = await talkWorld({ engine })
      const { engine: made, weights } = world.cohort()
      if (message instanceof RegExp) {
        const other = weights.slice().map((value, i) => value + 0.05 * Math.cos(i))
        await expect(deliverWeights(made, { version: 7, weights: other })).rejects.toThrow(message)
      } else await expect(deliverWeights(made, { version: 7, weights })).rejects.toThrow(message)
    }
    const { engine } = await pair('vllm', { weights: '' })
    const { engine: made, weights } = (await talkWorld({ engine })).cohort()
    await expect(deliverWeights(made, { version: 1, weights })).rejects.toThrow('got no folder for weights')
  })

  test('is not asked for turns that are broken off', async () => {
    const { server, engine } = await pair('vllm', { slots: 1 })
    await fetch(`${server.url}/pause?mode=keep`, { method: 'POST' })
    const world = await talkWorld({ engine, numLanes: 2 })
    void tick(world)
    const waiting = async () => (await (await fetch(`${server.url}/health`)).json()).waiting
    while ((await waiting()) < 2) await new Promise((resolve) => setTimeout(resolve, 5))
    world.cohort().engine.abort(0)
    while ((await waiting()) > 1) await new Promise((resolve) => setTimeout(resolve, 5))
    world.cohort().engine.close()
    while ((await waiting()) > 0) await new Promise((resolve) => setTimeout(resolve, 5))
    await fetch(`${server.url}/resume`, { method: 'POST' })
  })

  test('has an address, and numbers in their range', () => {
    expect(() => vllmEngine({ url: 'localhost:8000' })).toThrow(
      'url: got "localhost:8000", expected a URL like http://',
    )
    expect(() => vllmEngine({ url: 'http://x', deadline: 0 })).toThrow('vllm.deadline: got 0, expected a number > 0')
    expect(() => vllmEngine({ url: 'http://x', retries: -1 })).toThrow('vllm.retries: got -1')
    expect(() => vllmEngine({ url: 'http://x', apiKeyVariable: 'NO_SUCH_KEY' })).toThrow(
      'vllm.apiKeyVariable: got NO_SUCH_KEY, which is not set',
    )
    expect(() => sglangEngine({ url: 'http://x', logprobs: 'raw' })).toThrow('sglang.logprobs: got "raw"')
    expect(() => vllmEngine({ url: 'http://x', retry: 1 } as never)).toThrow(/"retry".*did you mean "retries"/)
  })
})
