/** The shapes of OpenAI's API, held to what the model says by another road: teacher-forced, or generated without a server. */
import { describe, expect, test, vi } from 'vitest'
import { Hints } from '../../../src/agents/dialects/hints.ts'
import { modelRoutes, stranger } from '../../../src/agents/dialects/routes.ts'
import { keyOfSeed } from '../../../src/agents/serving/fields.ts'
import { openServedModel } from '../../../src/agents/serving/served-model.ts'
import { Random } from '../../../src/base/random.ts'
import type { LocalEngine } from '../../../src/engines/local/local.ts'
import { transformerLogprobs } from '../../../src/entries/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { byteTokenizer } from '../../../src/language/tokenizers/byte-tokenizer.ts'
import { QWEN3_TEMPLATE, writeQwen3 } from '../../support/qwen3-folder.ts'
import { get, post, routesOf, served, smallModel, stream } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const server = await served({ slots: 3, queue: 8 })
const completions = `${server.url}/v1/completions`
const chats = `${server.url}/v1/chat/completions`
const tokenizer = byteTokenizer()
const PROMPT = [256, 104, 105, 33]
const ids = { model: 'small', prompt: PROMPT, max_tokens: 8, seed: 5, return_token_ids: true, logprobs: 0 }
const MESSAGES = [{ role: 'user', content: 'hi' }]
const asked = { model: 'small', messages: MESSAGES, max_tokens: 8, seed: 5, logprobs: true, return_token_ids: true }

/** The small model's own log-probabilities, computed without an engine. */
async function model() {
  const { model } = await smallModel().open({} as never)
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(3), 0)
  return transformerLogprobs({ model, weights })
}

/** The log-probabilities of the next token at a temperature, over the `topK` most probable tokens. */
async function nextLogprobs(
  prefix: readonly number[],
  temperature: number,
  topK: number,
): Promise<Map<number, number>> {
  const raw = Array.from((await (await model()).nextLogprobs!(prefix)) as ArrayLike<number>)
  const order = raw.map((_, id) => id).sort((a, b) => raw[b]! - raw[a]!)
  const kept = order.slice(0, topK)
  const sum = kept.reduce((total, id) => total + Math.exp(raw[id]! / temperature), 0)
  return new Map(kept.map((id) => [id, raw[id]! / temperature - Math.log(sum)]))
}

describe('completions', () => {
  test('tell the ids that the model saw and chose, with their log-probabilities', async () => {
    const { status, json } = await post(completions, { ...ids, temperature: 0.7, top_k: 4, max_tokens: 6, logprobs: 3 })
    const [choice] = json.choices
    expect([status, json.object, json.model, choice.prompt_token_ids]).toEqual([
      200,
      'text_completion',
      'small',
      PROMPT,
    ])
    expect(choice.token_ids.length).toBeGreaterThan(2)
    for (const [t, id] of choice.token_ids.entries()) {
      const expected = await nextLogprobs([...PROMPT, ...choice.token_ids.slice(0, t)], 0.7, 4)
      expect(choice.logprobs.token_logprobs[t]).toBeCloseTo(expected.get(id)!, 4)
      expect(choice.logprobs.tokens[t]).toBe(tokenizer.decode([id]))
      const best = [...expected.values()].sort((a, b) => b - a).slice(0, 3)
      const top = Object.values(choice.logprobs.top_logprobs[t]) as number[]
      if (top.length < 3) continue // Two bytes have one spelling.
      for (const [i, value] of top.sort((a, b) => b - a).entries()) expect(value).toBeCloseTo(best[i]!, 4)
    }
    const numTokens = choice.token_ids.length
    expect(json.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: numTokens, total_tokens: 4 + numTokens })
  })

  test('take the most probable tokens at temperature 0, whatever stands beside them', async () => {
    const [first, ...others] = await Promise.all(
      [0, 1.5, 0, 0.3].map((temperature, i) => post(completions, { ...ids, temperature, seed: i, top_p: 1 - i / 10 })),
    )
    const greedy = first!.json.choices[0].token_ids
    expect(others[1]!.json.choices[0].token_ids).toEqual(greedy)
    expect(others[0]!.json.choices[0].token_ids).not.toEqual(greedy)
    for (const [t, id] of greedy.entries()) {
      const [[best]] = [...(await nextLogprobs([...PROMPT, ...greedy.slice(0, t)], 1, 1000))] as [[number, number]]
      expect(id).toBe(best)
    }
  })

  test('are the same for the same seed, alone or among others, and others for other seeds and choices', async () => {
    const one = await post(completions, { ...ids, n: 3 })
    const [again, other] = await Promise.all([
      post(completions, { ...ids, n: 2 }),
      post(completions, { ...ids, seed: 6, temperature: 0.99, n: 2 }),
      post(completions, { ...ids, seed: 7, temperature: 0.5, top_p: 0.5 }),
    ])
    const tokens = (answer: typeof one): string[] =>
      answer.json.choices.map(({ token_ids }: { token_ids: number[] }) => token_ids.join())
    expect(tokens(again!)).toEqual(tokens(one).slice(0, 2))
    expect(new Set([...tokens(one), ...tokens(other!)]).size).toBe(5)
    expect(one.json.choices.map(({ index }: { index: number }) => index)).toEqual([0, 1, 2])
  })

  test('go on with the numbers of their seed where another goes on behind their tokens', async () => {
    const whole = (await post(completions, ids)).json.choices[0].token_ids
    const prompt = [...PROMPT, ...whole.slice(0, 3)]
    const rest = await post(completions, { ...ids, prompt, max_tokens: 5 })
    expect(rest.json.choices[0].token_ids).toEqual(whole.slice(3))
  })

  test('of several prompts come prompt by prompt, of text as of ids', async () => {
    const prompts = { ...ids, n: 2, prompt: ['hi!', 'ho'], temperature: 0 }
    const { json } = await post(completions, prompts)
    expect(json.choices.map((each: { prompt_token_ids: number[] }) => each.prompt_token_ids)).toEqual(
      ['hi!', 'hi!', 'ho', 'ho'].map((text) => [256, ...tokenizer.encode(text)]),
    )
    const single = await post(completions, { ...ids, temperature: 0 })
    expect(json.choices[1].token_ids).toEqual(single.json.choices[0].token_ids)
    expect(json.usage.prompt_tokens).toBe(7)
  })

  test('end at a stop string, whose text is not told, nor what may be its beginning before that is clear', async () => {
    let [whole, letter, seed] = [{ text: '' }, '', 0]
    for (; letter === ''; seed++) {
      whole = (await post(completions, { ...ids, max_tokens: 58, seed })).json.choices[0]
      letter = /^[^ -~]{3,}?([ -~])/.exec(whole.text)?.[1] ?? ''
    }
    const stop = ['never\u{1}', letter]
    const cut = await post(completions, { ...ids, max_tokens: 58, seed: seed - 1, stop })
    expect(cut.json.choices[0]).toMatchObject({ finish_reason: 'stop', stop_reason: letter })
    expect(cut.json.choices[0].text).toBe(whole.text.slice(0, whole.text.indexOf(letter)))
    const events = await stream(completions, { ...ids, max_tokens: 58, seed: seed - 1, stop })
    expect(events.map(({ choices }) => choices[0].text).join('')).toBe(cut.json.choices[0].text)
  })

  test('stream what they would answer whole', async () => {
    const body = { ...ids, n: 2, stream_options: { include_usage: true }, return_weight_versions: true }
    const { stream_options: _, ...unstreamed } = body
    const { json } = await post(completions, unstreamed)
    const events = await stream(completions, body)
    const usage = events.pop()
    expect([usage.choices, usage.usage.completion_tokens]).toEqual([[], json.usage.completion_tokens])
    for (const whole of json.choices) {
      const parts = events.flatMap(({ choices }) => choices).filter(({ index }) => index === whole.index)
      expect(parts.map(({ text }) => text).join('')).toBe(whole.text)
      expect(parts.flatMap(({ token_ids }) => token_ids)).toEqual(whole.token_ids)
      for (const name of ['tokens', 'token_logprobs', 'text_offset']) {
        expect(parts.flatMap(({ logprobs }) => logprobs[name])).toEqual(whole.logprobs[name])
      }
      expect(parts.map(({ prompt_token_ids }) => prompt_token_ids !== undefined)).toEqual(parts.map((_, i) => i === 0))
      expect(parts.at(-1)).toMatchObject({ finish_reason: whole.finish_reason, weight_versions: whole.weight_versions })
      expect(parts.slice(0, -1).every(({ finish_reason }) => finish_reason === null)).toBe(true)
      expect(whole.weight_versions).toEqual([{ version: 'default', start: 0, end: whole.token_ids.length }])
    }
  })
})

describe('chats', () => {
  test('go by the chat template, and tell log-probabilities as OpenAI does', async () => {
    const { json } = await post(chats, { ...asked, top_logprobs: 2 })
    const expected = tokenizer.encode('<|begin|><|user|>hi<|end|><|assistant|>', { special: true })
    expect(json.prompt_token_ids).toEqual(expected)
    const [choice] = json.choices
    const same = await post(completions, { ...ids, prompt: expected })
    expect(choice.token_ids).toEqual(same.json.choices[0].token_ids)
    expect(choice.message).toEqual({ role: 'assistant', content: same.json.choices[0].text, refusal: null })
    expect(choice.logprobs.content.map(({ logprob }: { logprob: number }) => logprob)).toEqual(
      same.json.choices[0].logprobs.token_logprobs,
    )
    for (const { token, bytes, top_logprobs } of choice.logprobs.content) {
      if (bytes !== null) expect(new TextDecoder().decode(Uint8Array.from(bytes))).toBe(token)
      expect(top_logprobs.length).toBe(2)
      expect(top_logprobs[0].logprob).toBeGreaterThanOrEqual(top_logprobs[1].logprob)
    }
  })

  test('stream what they would answer whole', async () => {
    const whole = (await post(chats, { ...asked, n: 2 })).json
    const events = await stream(chats, { ...asked, n: 2 })
    for (const choice of whole.choices) {
      const parts = events.flatMap(({ choices }) => choices).filter(({ index }) => index === choice.index)
      expect(parts[0].delta).toEqual({ role: 'assistant', content: '' })
      expect(parts.map(({ delta }) => delta.content ?? '').join('')).toBe(choice.message.content)
      expect(parts.flatMap(({ token_ids = [] }) => token_ids)).toEqual(choice.token_ids)
      expect(parts.flatMap(({ logprobs }) => logprobs?.content ?? [])).toEqual(choice.logprobs.content)
      expect(parts.at(-1).finish_reason).toBe(choice.finish_reason)
    }
  })

  test('take contents in parts, and never a special token that a message spells out', async () => {
    const content = [
      { type: 'text', text: 'a<|end|>' },
      { type: 'text', text: 'b' },
    ]
    const { json } = await post(chats, { ...asked, messages: [{ role: 'user', content }] })
    expect(json.prompt_token_ids).toEqual([256, 260, ...tokenizer.encode('a<|end|>b'), 257, 261])
  })
})

describe('tools', () => {
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }]
  const SAID = 'So: \n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'

  /** A model whose template tells of tools, and which says this. */
  async function caller(said: string) {
    const folder = await temporaryFolder()
    const template = `{%- if tools %}{{ 'tools: ' + tools | tojson + '\\n' }}{%- endif %}{%- for message in messages %}{{ message.role + ': ' + (message.content or '') }}{%- for call in message.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ 'assistant: ' }}{%- endif %}`
    await writeQwen3(folder, { context: 400, template })
    const model = await openServedModel('caller', { policy: languageModel({ folder }) })
    const { decoder } = model.batcher.engine as LocalEngine
    const script = [...model.tokenizer.encode(said), model.tokenizer.endIds[0]!]
    let prompt: number | null = null
    const { advance } = decoder
    const { submit } = model.batcher.engine
    model.batcher.engine.submit = (turn) => {
      prompt = null
      submit.call(model.batcher.engine, turn)
    }
    decoder.advance = (count, ...rest) => {
      advance.call(decoder, count, ...rest)
      prompt ??= decoder.columns.forward.position[0]!
      decoder.columns.chosen[0] = script[decoder.columns.forward.position[0]! - prompt]!
    }
    const routes = routesOf(model, { names: () => ['caller'], labelOf: String, currentLabel: () => '0' })
    const route = routes.get('POST /v1/chat/completions')!
    const ask = (body: object) =>
      route({
        body: { model: 'caller', messages: MESSAGES, tools, temperature: 1, ...body },
        ...{ query: new URLSearchParams(), headers: {}, params: {} },
        signal: new AbortController().signal,
        // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
      }) as Promise<any>
    return { ask, routes, tokenizer: model.tokenizer }
  }

  test('reach the template, and calls that the model writes become calls', async () => {
    const { ask, tokenizer } = await caller(SAID)
    const answer = await ask({ return_token_ids: true })
    expect(tokenizer.decode(answer.prompt_token_ids)).toContain(
      'tools: [{"type": "function", "function": {"name": "add"',
    )
    const [{ message, finish_reason }] = answer.choices
    expect([message.content, finish_reason]).toEqual(['So:', 'tool_calls'])
    expect(message.tool_calls).toEqual([
      { id: expect.stringMatching(/^call_\w{24}$/), type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
    ])
  })

  test('are told in a stream when the call is whole', async () => {
    const { ask } = await caller(SAID)
    const { events } = await ask({ stream: true })
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    const deltas: any[] = []
    for await (const { choices } of events) deltas.push(choices[0])
    const calls = deltas.flatMap(({ delta }) => delta.tool_calls ?? [])
    expect(calls).toMatchObject([{ index: 0, function: { name: 'add', arguments: '{"a":1}' } }])
    expect(deltas.map(({ delta }) => delta.content ?? '').join('')).toBe('So:')
    expect(deltas.at(-1).finish_reason).toBe('tool_calls')
  })

  test('are one where several may not be: the turn ends behind the first, in each dialect', async () => {
    const twice = `${SAID}\n${SAID.slice(SAID.indexOf('<tool_call>'))}`
    const { ask, routes, tokenizer } = await caller(twice)
    expect((await ask({})).choices[0].message.tool_calls).toHaveLength(2)
    const alone = (await ask({ parallel_tool_calls: false, return_token_ids: true })).choices[0]
    expect([alone.message.content, alone.message.tool_calls.length, alone.finish_reason]).toEqual([
      ...['So:', 1, 'tool_calls'],
    ])
    expect(tokenizer.decode(alone.token_ids)).toBe(SAID)
    const [{ function: called }] = tools
    const request = { query: new URLSearchParams(), headers: {}, params: {}, signal: new AbortController().signal }
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    const asked = (path: string, body: object) => routes.get(`POST ${path}`)!({ ...request, body } as any) as any
    const named = { model: 'caller', temperature: 1 }
    const flat = [{ type: 'function', ...called }]
    for (const [isAlone, count] of [
      [false, 2],
      [true, 1],
    ] as const) {
      const response = { ...named, input: 'hi', tools: flat, ...(isAlone ? { parallel_tool_calls: false } : {}) }
      const { output } = await asked('/v1/responses', response)
      expect(output.filter(({ type }: { type: string }) => type === 'function_call')).toHaveLength(count)
      const choice = { tool_choice: { type: 'auto', disable_parallel_tool_use: isAlone } }
      const anthropicTools = [{ name: called.name, input_schema: called.parameters }]
      const message = { ...named, max_tokens: 300, messages: MESSAGES, tools: anthropicTools, ...choice }
      const { content } = await asked('/v1/messages', message)
      expect(content.filter(({ type }: { type: string }) => type === 'tool_use')).toHaveLength(count)
    }
  })

  test('stay text where nobody gave them, or their call is broken', async () => {
    for (const said of [SAID.replace('add', 'sub'), SAID.replace('}}', '}')]) {
      const { ask } = await caller(said)
      const [{ message, finish_reason }] = (await ask({})).choices
      expect([message.content, message.tool_calls, finish_reason]).toEqual([said, undefined, 'stop'])
    }
  })

  test('go back to the template with their answers, arguments as an object', async () => {
    const { ask, tokenizer } = await caller('ok')
    const call = { id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }
    const messages = [
      ...MESSAGES,
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', content: '2' },
    ]
    const answer = await ask({ messages, return_token_ids: true })
    expect(tokenizer.decode(answer.prompt_token_ids)).toContain(
      '"arguments": {"a": 1}}\n</tool_call><|im_end|>\ntool: 2',
    )
  })

  test('are refused where the template tells of none', async () => {
    const { status, json } = await post(chats, { ...asked, tools })
    expect([status, json.error.param, json.error.code]).toEqual([400, 'tools', 'unsupported_field'])
  })
})

describe('requests that cannot be answered', () => {
  const text = { model: 'small', prompt: 'hi' }
  test.each<[string, object | string, number, object]>([
    ['an unknown model', { ...text, model: 'other' }, 404, { code: 'model_not_found', param: 'model' }],
    ['no model', { prompt: 'hi' }, 400, { param: 'model' }],
    [
      'a known field of sampling',
      { ...text, dry_multiplier: 1 },
      400,
      { code: 'unsupported_field', param: 'dry_multiplier' },
    ],
    ['a field that asks for what is not done', { ...text, best_of: 3 }, 400, { code: 'unsupported_field' }],
    ['a number out of range', { ...text, top_p: 2 }, 400, { param: 'top_p', code: 'bad_field' }],
    ['a top_p of 0', { ...text, top_p: 0 }, 400, { param: 'top_p', code: 'bad_field' }],
    ['a number that is a text', { ...text, max_tokens: '5' }, 400, { param: 'max_tokens' }],
    ['a stop string that is empty', { ...text, stop: [''] }, 400, { param: 'stop' }],
    ['no prompt', { model: 'small' }, 400, { param: 'prompt' }],
    ['an id beyond the vocabulary', { ...text, prompt: [1, 263] }, 400, { param: 'prompt' }],
    ['a prompt without room', { ...text, prompt: 'x'.repeat(64) }, 400, { code: 'context_length_exceeded' }],
    ['more tokens than have room', { ...text, max_tokens: 62 }, 400, { code: 'context_length_exceeded' }],
    ['more turns than the queue holds', { ...text, n: 12 }, 400, { param: 'n' }],
    ['half a JSON', '{"model": "small"', 400, { code: 'bad_json' }],
    ['a list', '[]', 400, { code: 'bad_json' }],
    ['a body that is too long', { ...text, prompt: 'x'.repeat(5 * 2 ** 20) }, 413, { code: 'body_too_large' }],
  ])('%s', async (_, body, status, error) => {
    const answered = await post(completions, body)
    expect([answered.status, answered.json.error]).toMatchObject([status, error])
    expect(Object.keys(answered.json.error)).toEqual(['message', 'type', 'param', 'code'])
    expect(answered.json.error.type).toBe('invalid_request_error')
  })

  test('null is as good as absent, and values that ask for nothing are taken', async () => {
    const { status } = await post(completions, {
      ...text,
      stop: null,
      user: 'me',
      frequency_penalty: 0,
      logit_bias: null,
    })
    expect(status).toBe(200)
  })

  test.each<[object, string]>([
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'robot', content: 'x' }] }, 'messages'],
    [{ messages: [{ role: 'user' }] }, 'messages[0]'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 'messages[0].content'],
    [{ logprobs: false, top_logprobs: 2 }, 'top_logprobs'],
    [{ tool_choice: 'required' }, 'tool_choice'],
    [{ response_format: { type: 'xml' } }, 'response_format'],
  ])('a chat with %o', async (fields, param) => {
    const { status, json } = await post(chats, { ...asked, ...fields })
    expect([status, json.error.param]).toEqual([400, param])
  })

  test('a path that is not there, a method that is not its, and a body that a page could send', async () => {
    expect((await post(`${server.url}/v1/nothing`, {})).status).toBe(404)
    const wrong = await get(completions)
    expect([wrong.status, wrong.json.error.message]).toEqual([405, 'GET is not a method of /v1/completions'])
    const plain = await post(completions, text, { headers: { 'content-type': 'text/plain' } })
    expect(plain.status).toBe(415)
  })
})

test('seeds that lie side by side share no key, nor their choices', () => {
  const keys = [0, 1, 2, -1, 2 ** 32, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER].flatMap((seed) =>
    [0, 1, 2].map((index) => keyOfSeed(seed, index).join()),
  )
  expect(new Set(keys).size).toBe(keys.length)
})

describe('fields that nobody knows', () => {
  test('are hints, which are counted by name and told of once, and no field is told in terminal control', async () => {
    const told = vi.spyOn(console, 'error').mockImplementation(() => {})
    const { url } = await served()
    const body = {
      model: 'small',
      prompt: 'hi',
      temprature: 1,
      user: 'me',
      'x\u001b[2J': 1,
      stream_options: { more: 1 },
    }
    expect((await post(`${url}/v1/completions`, body)).status).toBe(200)
    expect((await post(`${url}/v1/completions`, body)).status).toBe(200)
    const { hints } = (await get(`${url}/server_info`)).json
    expect(hints).toEqual({ temprature: 2, user: 2, 'x\u001b[2J': 2, 'stream_options.more': 2 })
    const lines = told.mock.calls.map(String)
    told.mockRestore()
    expect(lines).toHaveLength(4)
    expect(lines[0]).toContain('"temprature", which changes no answer (did you mean temperature?)')
    expect(lines.join()).not.toContain('\u001b')
  })

  test('are refused where the server is strict, and hints that are known are not', async () => {
    const { url } = await served({ strict: true })
    const asked = { model: 'small', prompt: 'hi', max_tokens: 2, user: 'me', service_tier: 'auto' }
    expect((await post(`${url}/v1/completions`, asked)).status).toBe(200)
    const { status, json } = await post(`${url}/v1/completions`, { ...asked, temprature: 1 })
    expect([status, json.error.code, json.error.message]).toEqual([
      ...[400, 'unknown_field', 'unknown field temprature (did you mean temperature?)'],
    ])
    const options = await post(`${url}/v1/completions`, { ...asked, stream: true, stream_options: { usage: true } })
    expect([options.status, options.json.error.param]).toEqual([400, 'stream_options.usage'])
  })

  test('do not fill the memory: beyond 256 names they are counted together', () => {
    const told = vi.spyOn(console, 'error').mockImplementation(() => {})
    const hints = new Hints()
    for (let i = 0; i < 1000; i++) hints.add(`field${i}`)
    told.mockRestore()
    expect([Object.keys(hints.counts).length, hints.counts.others]).toEqual([257, 744])
  })
})

describe('thinking', () => {
  /** A server whose template reads `enable_thinking`. */
  async function thinker(template = QWEN3_TEMPLATE) {
    const folder = await temporaryFolder()
    await writeQwen3(folder, { context: 400, template })
    const model = await openServedModel('thinker', { policy: languageModel({ folder }) })
    const host = { served: model, naming: { names: () => ['m'], labelOf: String, currentLabel: () => '0' } }
    const hints = new Hints()
    const route = new Map(modelRoutes({ host: () => ({ ...host, hints }), asker: () => stranger({ ...host, hints }) }))
    const promptOf = async (path: string, body: object) => {
      const asked = { model: 'm', ...(path.endsWith('responses') ? {} : { max_tokens: 1 }), ...body }
      // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
      const submitted: any[] = []
      const { submit } = model.batcher
      model.batcher.submit = (requests, id) => {
        submitted.push(...requests)
        return submit.call(model.batcher, requests, id)
      }
      const request = { body: asked, query: new URLSearchParams(), headers: {}, params: {} }
      await route.get(`POST ${path}`)!({ ...request, signal: new AbortController().signal })
      return model.tokenizer.decode(submitted.at(-1)!.ids) as string
    }
    return { promptOf, hints }
  }
  const OFF = '<think>\n\n</think>\n\n'

  test('reaches a template that reads it, in the words of each dialect', async () => {
    const { promptOf, hints } = await thinker()
    const chat = { messages: MESSAGES }
    for (const [path, body] of [
      ['/v1/chat/completions', { ...chat, reasoning_effort: 'none' }],
      ['/v1/chat/completions', { ...chat, thinking: { type: 'disabled' } }],
      ['/v1/chat/completions', { ...chat, enable_thinking: false }],
      ['/v1/chat/completions', { ...chat, chat_template_kwargs: { enable_thinking: false } }],
      ['/v1/responses', { input: 'hi', reasoning: { effort: 'none' } }],
      ['/v1/messages', { ...chat, thinking: { type: 'disabled' } }],
    ] as const) {
      expect((await promptOf(path, body)).endsWith(OFF)).toBe(true)
    }
    expect((await promptOf('/v1/messages', { ...chat, thinking: { type: 'enabled' } })).endsWith(OFF)).toBe(false)
    expect(hints.counts).toEqual({})
    expect((await promptOf('/v1/chat/completions', { ...chat, reasoning_effort: 'low' })).endsWith(OFF)).toBe(false)
    expect(hints.counts).toEqual({ reasoning_effort: 1 })
  })

  test('is a hint where the template reads nothing of it, but for variables that are named', async () => {
    const { promptOf, hints } = await thinker(`{%- for message in messages %}{{ message.content }}{%- endfor %}`)
    const body = { messages: MESSAGES, reasoning_effort: 'high', thinking: { type: 'enabled' } }
    expect(await promptOf('/v1/chat/completions', body)).toBe('hi')
    expect(hints.counts).toEqual({ reasoning_effort: 1, thinking: 1 })
    const named = promptOf('/v1/chat/completions', {
      messages: MESSAGES,
      chat_template_kwargs: { enable_thinking: true },
    })
    await expect(named).rejects.toMatchObject({ status: 400, param: 'chat_template_kwargs' })
  })
})

test('models are listed, and told of one by one', async () => {
  const { json } = await get(`${server.url}/v1/models`)
  const model = { id: 'small', object: 'model', max_model_len: 64 }
  expect(json).toMatchObject({ object: 'list', data: [model] })
  expect((await get(`${server.url}/v1/models/small`)).json).toMatchObject(model)
  const other = await get(`${server.url}/v1/models/org%2Fother`)
  expect([other.status, other.json.error.code, other.json.error.message]).toEqual([
    ...[404, 'model_not_found', 'there is no model "org/other"'],
  ])
})

test('embeddings are refused with 501', async () => {
  const { status, json } = await post(`${server.url}/v1/embeddings`, { model: 'small', input: 'hi' })
  expect([status, json.error.code]).toEqual([501, 'not_implemented'])
})

describe('the other dialects of a server', () => {
  test('answer what chat completions do, and draw by what the request says', async () => {
    const drawn = { model: 'small', seed: 5, temperature: 0.5 }
    const chat = await post(chats, { ...drawn, messages: MESSAGES, max_tokens: 8 })
    const { content } = chat.json.choices[0].message
    const response = await post(`${server.url}/v1/responses`, { ...drawn, input: 'hi', max_output_tokens: 8 })
    expect(response.json.output[0].content[0].text).toBe(content)
    const message = await post(`${server.url}/v1/messages`, { ...drawn, messages: MESSAGES, max_tokens: 8 })
    expect(message.json.content[0].text).toBe(content)
    const other = await post(`${server.url}/v1/messages`, { ...drawn, seed: 6, messages: MESSAGES, max_tokens: 8 })
    expect(other.json.content[0].text).not.toBe(content)
  })

  test('know the names of models, and keep no responses', async () => {
    const named = await post(`${server.url}/v1/messages`, { model: 'claude', messages: MESSAGES, max_tokens: 2 })
    expect([named.status, named.json.error.type]).toEqual([404, 'not_found_error'])
    const body = { model: 'small', input: 'hi', previous_response_id: 'resp_0' }
    const { status, json } = await post(`${server.url}/v1/responses`, body)
    expect([status, json.error.message]).toEqual([404, expect.stringContaining('send the whole input')])
  })
})
