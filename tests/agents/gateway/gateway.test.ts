/** What agents ask through a gateway, in each API's shapes, and what of it stands in the table. */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test, vi } from 'vitest'
import type { EngineDefinition } from '../../../src/engines/engine.ts'
import { scriptedEngine } from '../../../src/engines/scripted.ts'
import { type Gateway, openGateway } from '../../../src/entries/engines.ts'
import { defineTextEnvironment } from '../../../src/environments/text.ts'
import { createWorld } from '../../../src/index.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { eventsOf, made, opened, operate, scriptedGateway } from '../../support/gateway.ts'
import { QWEN3_TEMPLATE } from '../../support/qwen3-folder.ts'
import { post, smallModel } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const CHAT = '/v1/chat/completions'
const user = (content: string) => ({ role: 'user', content })
const ADD = {
  name: 'add',
  description: 'adds',
  parameters: { type: 'object', properties: { a: { type: 'number' } } },
}
const CALL = 'Hm.\n<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>'

/** The row's tokens that the model chose and that are learned, a list for each turn. */
function learned(gateway: Gateway, row: number): { ids: number[]; logprobs: number[] }[] {
  const { token, lossMask, logprob, turn } = gateway.trajectories.row(row)
  const turns = new Map<number, { ids: number[]; logprobs: number[] }>()
  for (let t = 0; t < token.length; t++) {
    if (lossMask[t] !== 1) continue
    if (!turns.has(turn[t]!)) turns.set(turn[t]!, { ids: [], logprobs: [] })
    turns.get(turn[t]!)!.ids.push(token[t]!)
    turns.get(turn[t]!)!.logprobs.push(logprob[t]!)
  }
  return [...turns.values()]
}

describe('a session', () => {
  test('that goes on is one row, token for token what the engine saw and chose', async () => {
    const { gateway, seen } = await scriptedGateway((_, turn) => `answer ${turn}`)
    const { ask, end } = await made(gateway, { prompt_id: 7, group: 3, member: 1, epoch: 2 })
    const messages: object[] = [user('one')]
    for (let turn = 0; turn < 3; turn++) {
      const { status, json } = await ask(CHAT, { model: 'gpt-4o', messages, temperature: 0.3, seed: 1 })
      expect([status, json.model, json.choices[0].message.content]).toEqual([200, 'tiny', `answer ${turn}`])
      messages.push(json.choices[0].message, user(`go on ${turn}`))
    }
    const told = await end({ reward: 0.5, components: { speed: 2 } })
    expect(told.json).toMatchObject({ rows: 1, calls: 3, continued: 2, rewritten: 0, retokenized: 0, repeated: 0 })
    expect(gateway.trajectories.count).toBe(1)
    const row = gateway.trajectories.row(0)
    expect(row).toMatchObject({ promptId: 7, group: 3, member: 1, epoch: 2, turns: 3, reward: 0.5, stopReason: 'stop' })
    expect(row.components).toEqual({ speed: 2 })
    const last = seen[2]!
    expect(Array.from(row.token)).toEqual([...last.prompt, ...last.chosen])
    expect(learned(gateway, 0)).toEqual(seen.map(({ chosen, logprobs }) => ({ ids: chosen, logprobs })))
    const chosen = Array.from(row.logprob, (logprob) => !Number.isNaN(logprob))
    expect(chosen).toEqual(Array.from(row.lossMask, (mask) => mask === 1))
  })

  test('that sums up, asks others and tries again is a tree, of which each answer is learned once', async () => {
    const { gateway, seen } = await scriptedGateway((_, turn) => `a${turn}`)
    const { ask, end } = await made(gateway)
    const say = async (messages: object[]) => {
      const { json } = await ask(CHAT, { model: 'x', messages })
      return [...messages, json.choices[0].message] as object[]
    }
    const first = await say([user('task')])
    const one = await say([...first, user('left')])
    await say([...first, user('right')]) // Another way from the same answer.
    await say([{ role: 'system', content: 'sub' }, user('help')])
    await say([...one, user('more')])
    await say([user('task')]) // The same again.
    const { json } = await end({ reward: 1 })
    expect(json).toMatchObject({ rows: 4, calls: 6, continued: 3, repeated: 1, retokenized: 0 })
    const rows = Array.from({ length: 4 }, (_, i) => gateway.trajectories.row(i))
    expect(rows.map(({ segment }) => segment)).toEqual([0, 1, 2, 3])
    expect(rows.map(({ turns }) => turns)).toEqual([2, 1, 3, 1])
    const all = rows.flatMap((_, i) => learned(gateway, i).map(({ ids }) => ids.join()))
    expect(all.toSorted()).toEqual(seen.map(({ chosen }) => chosen.join()).toSorted())
    const whole = rows.map(({ token }) => Array.from(token).join())
    const expected = [2, 3, 4, 5].map((turn) => [...seen[turn]!.prompt, ...seen[turn]!.chosen].join())
    expect(whole).toEqual(expected)
    // What was learned in another row stands as what the model said all the same.
    const { logprob, lossMask } = rows[2]!
    const known = Array.from(logprob).filter((each) => !Number.isNaN(each)).length
    expect(known - Array.from(lossMask).filter((mask) => mask === 1).length).toBe(seen[0]!.chosen.length)
  })

  test('begins a row anew where the template rewrites what stands, and counts it', async () => {
    const think = '<think>\nhm\n</think>\n\nyes'
    const { gateway, seen } = await scriptedGateway(() => think, {}, QWEN3_TEMPLATE)
    const { ask, end } = await made(gateway)
    const { json } = await ask(CHAT, { model: 'x', messages: [user('a')] })
    await ask(CHAT, { model: 'x', messages: [user('a'), json.choices[0].message, user('b')] })
    expect((await end({ reward: 0 })).json).toMatchObject({ rows: 2, rewritten: 1, retokenized: 1, continued: 0 })
    for (const [i, turn] of seen.entries()) {
      expect(Array.from(gateway.trajectories.row(i).token)).toEqual([...turn.prompt, ...turn.chosen])
    }
  })

  test('that an agent gives back changed is not taken for what the model said', async () => {
    const { gateway } = await scriptedGateway(() => 'ok')
    const { ask, end } = await made(gateway)
    await ask(CHAT, { model: 'x', messages: [user('a')] })
    await ask(CHAT, { model: 'x', messages: [user('a'), { role: 'assistant', content: 'OK' }, user('b')] })
    expect((await end({ reward: 0 })).json).toMatchObject({ rows: 2, continued: 0, retokenized: 0 })
  })

  test('has what a developer says as the system’s words, in every shape that knows developers', async () => {
    const { gateway, seen, tokenizer } = await scriptedGateway(() => 'ok')
    const { ask } = await made(gateway)
    const messages = [{ role: 'developer', content: 'be brief' }, user('hi')]
    expect((await ask(CHAT, { model: 'x', messages })).status).toBe(200)
    expect((await ask('/v1/responses', { model: 'x', input: messages })).status).toBe(200)
    for (const { prompt } of seen) {
      expect(tokenizer.decode(prompt)).toBe('system: be brief<|im_end|>\nuser: hi<|im_end|>\nassistant: ')
    }
    expect(seen).toHaveLength(2)
    const refused = await ask(CHAT, { model: 'x', messages: [null] })
    expect([refused.status, refused.json.error.param]).toEqual([400, 'messages[0]'])
  })

  test('draws other tokens in each session and call, whatever seed the agent says', async () => {
    const gateway = await opened({ policy: smallModel(), seed: 3 })
    const said = new Set<string>()
    for (let i = 0; i < 3; i++) {
      const { ask, end } = await made(gateway, { group: 0 })
      for (let call = 0; call < 2; call++) {
        const body = { model: 'x', messages: [user('hi')], max_tokens: 12, seed: 5, temperature: 0, n: 2 }
        expect((await ask(CHAT, body)).status).toBe(200)
      }
      await end({ reward: 0 })
    }
    const { trajectories } = gateway
    for (let row = 0; row < trajectories.count; row++) said.add(Array.from(trajectories.row(row).token).join())
    expect([trajectories.count, said.size]).toEqual([12, 12])
  })
})

describe('tools', () => {
  test('go through chat completions, with arguments that the agent writes otherwise', async () => {
    const { gateway, seen, tokenizer } = await scriptedGateway((_, turn) => (turn === 0 ? CALL : 'three'))
    const { ask, end } = await made(gateway)
    const tools = [{ type: 'function', function: ADD }]
    const first = (await ask(CHAT, { model: 'x', messages: [user('1+2')], tools })).json.choices[0].message
    const [call] = first.tool_calls
    const again = { ...call, function: { name: 'add', arguments: '{"a": 1, "b": 2}' } }
    const messages = [
      user('1+2'),
      { role: 'assistant', content: 'Hm.', tool_calls: [again] },
      { role: 'tool', tool_call_id: call.id, content: '3' },
    ]
    await ask(CHAT, { model: 'x', messages, tools })
    expect((await end({ reward: 1 })).json).toMatchObject({ rows: 1, continued: 1, retokenized: 0 })
    expect(tokenizer.decode(seen[0]!.prompt)).toMatch(/^tools: \[.*"add".*\]\nuser: 1\+2/)
    expect(tokenizer.decode(seen[1]!.prompt)).toContain(`${CALL}<|im_end|>\ntool: 3<|im_end|>\nassistant: `)
  })

  test('go through Responses, also by the id of the response before, whole and streamed', async () => {
    const { gateway, seen } = await scriptedGateway((prompt) => (prompt.includes('tool: 3') ? 'three' : CALL))
    const { ask, end } = await made(gateway)
    const asked = { model: 'x', instructions: 'add', tools: [{ type: 'function', ...ADD }] }
    const { json } = await ask('/v1/responses', { ...asked, input: [{ role: 'user', content: '1+2' }] })
    expect(json).toMatchObject({ object: 'response', status: 'completed', error: null })
    expect(json.output).toMatchObject([
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hm.' }] },
      { type: 'function_call', name: 'add', arguments: '{"b":2,"a":1}', status: 'completed' },
    ])
    expect(json.usage.total_tokens).toBe(json.usage.input_tokens + json.usage.output_tokens)
    const output = { type: 'function_call_output', call_id: json.output[1].call_id, output: '3' }
    const items = [{ role: 'user', content: '1+2' }, ...json.output, output]
    const whole = (await ask('/v1/responses', { ...asked, input: items })).json
    expect(whole.output[0].content[0].text).toBe('three')
    const body = { ...asked, input: [output], previous_response_id: json.id, stream: true }
    const events = eventsOf((await ask('/v1/responses', body)).text)
    expect(events.every(({ name, data }) => name === data.type)).toBe(true)
    expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, i) => i))
    expect(events.map(({ name }) => name)).toEqual([
      ...['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added'],
      ...['response.output_text.delta', 'response.output_text.done', 'response.content_part.done'],
      ...['response.output_item.done', 'response.completed'],
    ])
    expect(events.at(-1)!.data.response).toMatchObject({ status: 'completed', previous_response_id: json.id })
    expect(events.at(-1)!.data.response.output[0].content[0].text).toBe('three')
    expect(seen[2]!.prompt).toEqual(seen[1]!.prompt)
    const calls = eventsOf((await ask('/v1/responses', { ...asked, input: '1+2', stream: true })).text)
    const done = calls.find(({ name }) => name === 'response.function_call_arguments.done')!.data
    expect([done.name, done.arguments]).toEqual(['add', '{"b":2,"a":1}'])
    expect(calls.at(-1)!.data.response.output.map(({ type }: { type: string }) => type)).toEqual([
      'message',
      'function_call',
    ])
    const unknown = await ask('/v1/responses', { ...asked, input: 'x', previous_response_id: 'resp_other' })
    expect([unknown.status, unknown.json.error.code]).toEqual([404, 'previous_response_not_found'])
    expect((await end({ reward: 1 })).json).toMatchObject({ calls: 4, continued: 2, retokenized: 0 })
  })

  test('go through Anthropic’s Messages, whole and streamed', async () => {
    const { gateway, seen } = await scriptedGateway((prompt) => (prompt.includes('tool: 3') ? 'three' : CALL))
    const { ask, end } = await made(gateway)
    const { parameters, ...named } = ADD
    const asked = { model: 'claude', max_tokens: 300, system: [{ type: 'text', text: 'add' }], top_k: 5 }
    const tools = [{ ...named, input_schema: parameters, cache_control: { type: 'ephemeral' } }]
    const first = { ...asked, tools, messages: [user('1+2')] }
    const { json } = await ask('/v1/messages', first)
    expect(json).toMatchObject({ type: 'message', role: 'assistant', stop_reason: 'tool_use', stop_sequence: null })
    expect(json.content).toMatchObject([
      { type: 'text', text: 'Hm.' },
      { type: 'tool_use', name: 'add', input: { a: 1, b: 2 } },
    ])
    const result = { type: 'tool_result', tool_use_id: json.content[1].id, content: [{ type: 'text', text: '3' }] }
    const messages = [user('1+2'), { role: 'assistant', content: json.content }, { role: 'user', content: [result] }]
    expect((await ask('/v1/messages/count_tokens', { ...first, messages })).json.input_tokens).toBeGreaterThan(20)
    const streamed = eventsOf((await ask('/v1/messages', { ...first, messages, stream: true })).text)
    expect(streamed.every(({ name, data }) => name === data.type)).toBe(true)
    expect(streamed.map(({ name }) => name)).toEqual([
      ...['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop'],
      ...['message_delta', 'message_stop'],
    ])
    expect(streamed[2]!.data.delta).toEqual({ type: 'text_delta', text: 'three' })
    expect(streamed[4]!.data).toMatchObject({
      delta: { stop_reason: 'end_turn' },
      usage: { output_tokens: seen[1]!.chosen.length },
    })
    const calls = eventsOf((await ask('/v1/messages', { ...first, stream: true })).text)
    const [, block] = calls.filter(({ name }) => name === 'content_block_start')
    expect(block!.data).toMatchObject({ index: 1, content_block: { type: 'tool_use', name: 'add', input: {} } })
    const [, json_delta] = calls.filter(({ name }) => name === 'content_block_delta')
    expect(JSON.parse(json_delta!.data.delta.partial_json)).toEqual({ a: 1, b: 2 })
    const cut = await ask('/v1/messages', { ...asked, messages: [user('x')], max_tokens: 2 })
    expect(cut.json.stop_reason).toBe('max_tokens')
    const stopped = await ask('/v1/messages', { ...first, stop_sequences: ['m.'] })
    expect(stopped.json).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: 'm.' })
    const wrong = await ask('/v1/messages', { ...first, messages: [{ role: 'user', content: [{ type: 'image' }] }] })
    expect([wrong.status, wrong.json.type, wrong.json.error.type]).toEqual([400, 'error', 'invalid_request_error'])
    expect((await end({ reward: 1 })).json).toMatchObject({ continued: 1, retokenized: 0 })
    expect(seen[1]!.prompt.slice(0, seen[0]!.prompt.length)).toEqual(seen[0]!.prompt)
  })

  test('that cannot be done are refused by name', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const { ask } = await made(gateway)
    for (const [path, body, param] of [
      ['/v1/responses', { input: 'x', tools: [{ type: 'web_search' }] }, 'tools'],
      ['/v1/responses', { input: 'x', background: true }, 'background'],
      [CHAT, { messages: [user('x')], tool_choice: 'required' }, 'tool_choice'],
    ] as const) {
      const { status, json } = await ask(path, { model: 'x', ...body })
      expect([status, json.error.param]).toEqual([400, param])
    }
    const { status, json } = await ask('/v1/messages', {
      ...{ model: 'x', max_tokens: 5, messages: [user('x')], tool_choice: { type: 'any' } },
    })
    expect([status, json.error.message]).toEqual([400, expect.stringContaining('tool_choice')])
  })
})

test('a response is gone on with where there are no instructions, and none by what is no id', async () => {
  const { gateway, seen, tokenizer } = await scriptedGateway((_, turn) => `a${turn}`)
  const { ask } = await made(gateway)
  const { json } = await ask('/v1/responses', { model: 'x', input: 'one' })
  expect((await ask('/v1/responses', { model: 'x', input: 'two', previous_response_id: json.id })).status).toBe(200)
  expect(tokenizer.decode(seen[1]!.prompt)).toBe(
    'user: one<|im_end|>\nassistant: a0<|im_end|>\nuser: two<|im_end|>\nassistant: ',
  )
  const { status, json: refused } = await ask('/v1/responses', { model: 'x', input: 'two', previous_response_id: 3 })
  expect([status, refused.error.param]).toEqual([404, 'previous_response_id'])
})

test('the model, and a session while it goes on, are told of', async () => {
  const { gateway } = await scriptedGateway(() => 'yes', { context: 300 })
  const { id, key, ask } = await made(gateway, { prompt_id: 7, group: 3, member: 1, epoch: 2 })
  const get = async (path: string, secret: string) => {
    const response = await fetch(gateway.url + path, { headers: { authorization: `bearer ${secret}` } })
    return response.json() as Promise<Record<string, unknown>>
  }
  expect(await get('/v1/models', key)).toEqual({
    object: 'list',
    data: [
      {
        id: 'tiny',
        object: 'model',
        created: expect.any(Number),
        owned_by: 'colonnade',
        root: 'tiny',
        max_model_len: 300,
      },
    ],
  })
  await ask(CHAT, { model: 'x', messages: [user('hi')] })
  const { tokens, ...told } = await get(`/sessions/${id}`, gateway.operatorKey)
  const counts = { calls: 1, continued: 0, rewritten: 0, retokenized: 0, repeated: 0 }
  const place = { source: expect.stringMatching(/^gateway /), promptId: 7, group: 3, member: 1, epoch: 2 }
  expect(told).toEqual({ number: 0, ...place, ...counts })
  expect(tokens).toBeGreaterThan(1)
})

test('tokens are counted of messages with words alone', async () => {
  const { gateway } = await scriptedGateway(() => 'x')
  const { ask } = await made(gateway)
  for (const messages of [[], [{ role: '', content: 'x' }]]) {
    const { status, json } = await ask('/v1/messages/count_tokens', { model: 'x', messages })
    expect([status, json.error]).toEqual([
      400,
      { type: 'invalid_request_error', message: 'messages: expected messages with text' },
    ])
  }
})

describe('nobody', () => {
  test('reaches a session without its key or id, or makes and rewards one without the operator’s key', async () => {
    const { gateway, seen } = await scriptedGateway(() => 'x')
    const [mine, other] = [await made(gateway), await made(gateway)]
    const body = { model: 'x', messages: [user('secret words')] }
    expect((await mine.ask(CHAT, body, 'sk-colonnade-guess')).status).toBe(401)
    expect((await mine.ask(CHAT, body, gateway.operatorKey)).status).toBe(401)
    expect((await mine.ask(CHAT, body, mine.id)).status).toBe(401)
    expect((await mine.ask(`/sessions/${mine.key}/v1/chat/completions`, body)).status).toBe(404)
    expect((await mine.ask(`/sessions/${mine.id.slice(1)}x/v1/chat/completions`, body)).status).toBe(404)
    expect((await mine.ask('/sessions', {})).status).toBe(401)
    expect((await mine.ask(`/sessions/${mine.id}/reward`, { reward: 9 })).status).toBe(401)
    expect((await mine.ask(`/sessions/${mine.id}/v1/chat/completions`, body, 'none')).status).toBe(200)
    const keyed = { 'content-type': 'application/json', 'x-api-key': other.key }
    const asked = { method: 'POST', headers: keyed, body: JSON.stringify({ ...body, max_tokens: 5 }) }
    expect((await fetch(`${gateway.url}/v1/messages`, asked)).status).toBe(200)
    expect(seen.length).toBe(2)
    const own = await fetch(`${gateway.url}/sessions/${mine.id}`, { headers: { authorization: `Bearer ${mine.key}` } })
    expect(own.status).toBe(401)
  })

  test('goes on with another session’s words, or is told that the engine keeps them', async () => {
    const gateway = await opened({ policy: smallModel(), slots: 1 })
    const [mine, other] = [await made(gateway), await made(gateway)]
    const body = { model: 'x', messages: [user('secret words')], max_tokens: 3 }
    const cached = ({ json }: Awaited<ReturnType<typeof mine.ask>>) => json.usage.prompt_tokens_details.cached_tokens
    expect(cached(await mine.ask(CHAT, body))).toBe(0)
    expect(cached(await mine.ask(CHAT, body))).toBeGreaterThan(5)
    expect(cached(await other.ask(CHAT, body))).toBe(0)
    const made1 = (await mine.ask('/v1/responses', { model: 'x', input: 'hi', max_output_tokens: 3 })).json.id
    const stolen = await other.ask('/v1/responses', { model: 'x', input: 'hi', previous_response_id: made1 })
    expect(stolen.status).toBe(404)
    await mine.end({ reward: 1 })
    await other.end({ reward: 0 })
    const { trajectories } = gateway
    const rows = Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i))
    expect(rows.map(({ group }) => group)).toEqual([0, 0, 0, 1])
    expect(
      rows.every(({ version, lossMask }) => Array.from(version).every((v, t) => (v !== -1) === (lossMask[t] === 1))),
    ).toBe(true)
  })

  test('finds keys or words of a session in what the gateway prints', async () => {
    const printed: unknown[] = []
    const methods = (['log', 'error', 'warn'] as const).map((name) =>
      vi.spyOn(console, name).mockImplementation((...words) => printed.push(...words)),
    )
    const { gateway } = await scriptedGateway(() => 'x')
    const { id, key, ask, end } = await made(gateway)
    await ask(CHAT, { model: 'x', messages: [user('secret words')] })
    await ask(`/sessions/${id}/nowhere`, {})
    await ask(CHAT, { model: 'x', messages: 'secret words' })
    await end({ reward: Number.NaN })
    for (const method of methods) method.mockRestore()
    const all = printed.map(String).join()
    for (const secret of [id, key, gateway.operatorKey, 'secret words']) expect(all).not.toContain(secret)
    const { json } = await ask(`/sessions/${id}/nowhere`, {})
    expect(JSON.stringify(json)).not.toContain(id)
  })
})

describe('limits', () => {
  test('of calls, tokens, sessions and bodies are kept', async () => {
    const limits = { maxCalls: 3, maxTokens: 8, maxTurnTokens: 5, maxSessions: 2, maxBodyBytes: 2000 }
    const { gateway, seen } = await scriptedGateway(() => 'a long answer', limits)
    const [one, two] = [await made(gateway), await made(gateway)]
    const third = await operate(gateway, '/sessions', {})
    expect([third.status, third.json.error.code]).toEqual([429, 'too_many_sessions'])
    const body = { model: 'x', messages: [user('hi')], max_tokens: 100_000 }
    const usages = []
    for (let i = 0; i < 2; i++) usages.push((await one.ask(CHAT, body)).json.usage.completion_tokens)
    expect(usages).toEqual([5, 3])
    const spent = await one.ask(CHAT, body)
    expect([spent.status, spent.json.error.code]).toEqual([403, 'session_limit'])
    for (let i = 0; i < 3; i++) expect((await two.ask(CHAT, { ...body, max_tokens: 1 })).status).toBe(200)
    expect((await two.ask(CHAT, { ...body, max_tokens: 1 })).status).toBe(403)
    expect((await two.ask(CHAT, { ...body, messages: [user('x'.repeat(3000))] })).status).toBe(413)
    expect(seen.length).toBe(5)
    const { json } = await one.end({ reward: 1 })
    expect([json.rows, gateway.trajectories.row(0).stopReason]).toEqual([2, 'length'])
    expect((await operate(gateway, '/sessions', {})).status).toBe(200)
    expect((await one.ask(CHAT, body)).status).toBe(401)
  })

  test('an answer of which the client has gone, or the session has ended, is broken off and not kept', async () => {
    const { gateway, seen } = await scriptedGateway((_, turn) => (turn === 0 ? null : 'x'), { slots: 1 })
    const session = gateway.openSession()
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${session.key}` }
    const body = JSON.stringify({ model: 'x', messages: [user('hi')] })
    const leaving = new AbortController()
    const url = `${session.openaiUrl}/chat/completions`
    const gone = fetch(url, { method: 'POST', headers, body, signal: leaving.signal }).catch(({ name }) => name)
    while (seen.length === 0) await sleep(5)
    leaving.abort()
    expect(await gone).toBe('AbortError')
    expect((await fetch(url, { method: 'POST', headers, body })).status).toBe(200) // It takes the only slot.
    const { rows, counts } = session.end({ reward: 1 })
    expect([rows.length, counts.calls]).toEqual([1, 1])
    const late = gateway.openSession()
    const { gateway: other, seen: hung } = await scriptedGateway(() => null)
    const open = other.openSession()
    const asking = fetch(`${open.openaiUrl}/chat/completions`, {
      ...{ method: 'POST', body },
      headers: { ...headers, authorization: `Bearer ${open.key}` },
    })
    while (hung.length === 0) await sleep(5)
    expect(open.end({ reward: null, error: 'late' })).toMatchObject({
      rows: [],
      worth: { reward: null, error: 'late' },
    })
    expect((await asking).status).toBe(410)
    late.end({ reward: 0 })
  })
})

test('a gateway says that it is well, what it is at, and that it stops', async () => {
  const { gateway, seen } = await scriptedGateway(() => null)
  const health = async () => {
    const response = await fetch(`${gateway.url}/health`)
    return [response.status, await response.json()]
  }
  expect(await health()).toEqual([200, { status: 'ok', state: 'open', running: 0, waiting: 0 }])
  const session = gateway.openSession()
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${session.key}` }
  const body = JSON.stringify({ model: 'x', messages: [user('hi')] })
  const asking = fetch(`${session.openaiUrl}/chat/completions`, { method: 'POST', headers, body })
  while (seen.length === 0) await sleep(5)
  expect(await health()).toEqual([200, { status: 'ok', state: 'open', running: 1, waiting: 0 }])
  await gateway.pause()
  expect((await health())[1]).toMatchObject({ state: 'frozen' })
  gateway.resume()
  const closing = gateway.close()
  gateway.resume() // Which opens nothing that stops.
  expect(await health()).toMatchObject([503, { error: { code: 'stopping' } }])
  session.end({ reward: null, error: 'late' })
  expect((await asking).status).toBe(410)
  await closing
})

test('what a session was worth is numbers by name, or unknown with a reason', async () => {
  const { gateway } = await scriptedGateway(() => 'x')
  const { end } = await made(gateway)
  for (const [said, message] of [
    [{}, 'reward: got undefined, expected a finite number'],
    [{ reward: '1' }, 'reward: got "1", expected a finite number'],
    [{ reward: 1, components: [1] }, 'components: got [1], expected numbers by name'],
    [{ reward: 1, components: null }, 'components: got null, expected numbers by name'],
    [{ reward: 1, components: 3 }, 'components: got 3, expected numbers by name'],
    [{ reward: 1, components: { speed: 'high' } }, 'components.speed: got "high", expected a finite number'],
    [{ reward: null, error: 3 }, 'error: got 3, expected a text'],
  ] as const) {
    const { status, json } = await end(said)
    expect([status, json.error.message]).toEqual([400, expect.stringContaining(`session 0, ${message}`)])
  }
  expect(gateway.counts).toMatchObject({ open: 1, ended: 0 })
  expect((await end({ reward: null, components: { speed: null } })).status).toBe(200)
})

test('an answer that a gateway breaks off as it closes is not kept', async () => {
  const { gateway, seen } = await scriptedGateway(() => null)
  const session = gateway.openSession()
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${session.key}` }
  const body = JSON.stringify({ model: 'x', messages: [user('hi')] })
  const asking = fetch(`${session.openaiUrl}/chat/completions`, { method: 'POST', headers, body })
  while (seen.length === 0) await sleep(5)
  await gateway.close({ now: true })
  const { choices } = (await (await asking).json()) as { choices: { finish_reason: string }[] }
  expect([choices[0]!.finish_reason, gateway.counts.calls]).toEqual(['abort', 0])
})

test('sessions that end lie in the folder before the reward is answered', async () => {
  const folder = await temporaryFolder()
  const { gateway, seen } = await scriptedGateway(() => 'yes', { folder })
  const { ask, end } = await made(gateway, { prompt_id: 4 })
  await ask('/v1/completions', { model: 'x', prompt: 'Q:' })
  await end({ reward: 0.25 })
  const { trajectories, words } = await readTrajectories(`${folder}/session-000000.arrow`)
  const { token, promptId, reward } = trajectories.row(0)
  expect([Array.from(token), promptId, reward]).toEqual([[...seen[0]!.prompt, ...seen[0]!.chosen], 4, 0.25])
  expect(words[0]!.prompt).toBe('"Q:"')
  expect(gateway.trajectories.count).toBe(0) // The memory of a gateway does not grow with its folder.
})

test('sessions are numbered behind those whose files lie in the folder, whatever else lies there', async () => {
  const folder = await temporaryFolder()
  for (const name of ['session-000004.arrow', 'session-000002.arrow', 'session-9.arrow', 'session-000007.arrow.part'])
    await writeFile(join(folder, name), '')
  const { gateway } = await scriptedGateway(() => 'yes', { folder })
  expect([gateway.openSession().number, gateway.openSession().number]).toEqual([5, 6])
})

test('a gateway that pauses is at rest when it says so: a step that other threads help with is over', async () => {
  const said = scriptedEngine(() => ({ token: 5, logprob: -1 }))
  let finish = () => {}
  const engine: EngineDefinition = {
    ...said,
    create(context) {
      const made = said.create(context)
      const advance = made.advance.bind(made)
      made.advance = () =>
        new Promise((resolve) => {
          finish = () => resolve(advance())
        })
      return made
    },
  }
  const gateway = await opened({ policy: smallModel(), engine })
  const { openaiUrl, key } = gateway.openSession()
  const asking = post(
    `${openaiUrl}/chat/completions`,
    { model: 'x', messages: [user('hi')], max_tokens: 1 },
    {
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    },
  )
  const idle = finish
  while (finish === idle) await sleep(5)
  let isAtRest = false
  const paused = gateway.pause().then(() => {
    isAtRest = true
  })
  await sleep(20)
  expect(isAtRest).toBe(false)
  finish()
  await paused
  gateway.resume()
  expect((await asking).status).toBe(200)
})

test('a gateway that closes keeps the sessions that nobody has ended, and fails where it cannot', async () => {
  const printed = vi.spyOn(console, 'error').mockImplementation(() => {})
  const folder = join(await temporaryFolder(), 'sessions')
  for (const isThere of [true, false]) {
    const { gateway } = await scriptedGateway(() => 'x', { folder })
    const { ask } = await made(gateway)
    await ask(CHAT, { model: 'x', messages: [user('hi')] })
    if (!isThere) await rm(folder, { recursive: true })
    if (!isThere) await writeFile(folder, 'no folder')
    const closed = gateway.close()
    if (isThere) await closed
    else await expect(closed).rejects.toThrow('sessions 1: got lost rows: ') // Behind the one that lay there.
    if (!isThere) await rm(folder)
    else {
      const { trajectories } = await readTrajectories(`${folder}/session-000000.arrow`)
      expect(trajectories.row(0).error).toBe('abandoned: the gateway was closed')
    }
  }
  printed.mockRestore()
})

test('a gateway refuses what does not fit', async () => {
  const policy = smallModel()
  await expect(openGateway({})).rejects.toThrow('openGateway: got neither world nor policy')
  await expect(openGateway({ policy, maxCalls: 0 })).rejects.toThrow('maxCalls: got 0, expected a whole number ≥ 1')
  await expect(openGateway({ policy, maxTokens: 1.5 })).rejects.toThrow(
    'maxTokens: got 1.5, expected a whole number ≥ 1',
  )
  for (const idleSeconds of [0, Number.POSITIVE_INFINITY, Number.NaN])
    await expect(openGateway({ policy, idleSeconds })).rejects.toThrow(`${idleSeconds}, expected seconds above 0`)
  const environment = defineTextEnvironment({
    ...{ id: 'test/one', settings: {} },
    make: () => ({ numExamples: 1, example: () => ({ prompt: 'x' }), respond: () => ({ reward: null }) }),
  })
  const world = await createWorld({ environment: environment(), policy, numLanes: 1 })
  await expect(openGateway({ world, policy })).rejects.toThrow('openGateway: got both, expected either world or policy')
  for (const [option, value] of Object.entries({ sampling: {}, seed: 1, slots: 1, context: 8, weights: 'x' })) {
    await expect(openGateway({ world, [option]: value })).rejects.toThrow(
      `openGateway, ${option}: got a value together with world, expected no value: the world has its own`,
    )
  }
  await expect(openGateway({ policy, operatorKey: 'short' })).rejects.toThrow('operatorKey: got 5 characters')
  await expect(openGateway({ policy, ports: 3 } as never)).rejects.toThrow(/ports.*did you mean "port"/)
  await expect(
    scriptedGateway(() => 'x', {
      sampling: { topK: 3 },
      engine: scriptedEngine(() => 'wait', { logprobs: 'raw' }),
    }),
  ).rejects.toThrow('log-probabilities of engine scripted: got raw')
  const { gateway } = await scriptedGateway(() => 'x')
  const { end } = await made(gateway)
  const { status, json } = await end({ reward: 'good' })
  expect([status, json.error.message]).toEqual([
    400,
    expect.stringContaining('reward: got "good", expected a finite number'),
  ])
})
