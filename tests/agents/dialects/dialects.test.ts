/** Each field of OpenAI's Responses and of Anthropic's Messages, as chat completions have it, and each answer and stream back. */
import { describe, expect, test } from 'vitest'
import { anthropic } from '../../../src/agents/dialects/anthropic.ts'
import type { ChatAnswered, ChatChunk, Dialect } from '../../../src/agents/dialects/dialect.ts'
import { Hints } from '../../../src/agents/dialects/hints.ts'
import { responses } from '../../../src/agents/dialects/responses.ts'
import { RequestError } from '../../../src/base/http/request-error.ts'

const hints = new Hints()
const user = (content: string) => ({ role: 'user', content })
const call = (id: string, name = 'add', args = '{"a":1}') => ({
  ...{ id, type: 'function' as const },
  function: { name, arguments: args },
})
const usage = { prompt_tokens: 9, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 5 } }
type Message = ChatAnswered['choices'][number]['message']
const answered = (message: Message, finish: string | null, stop: string | null = null): ChatAnswered => ({
  ...{ model: 'm', usage },
  choices: [{ message, finish_reason: finish, stop_reason: stop }],
})
const chunk = (
  delta: ChatChunk['choices'][number]['delta'],
  finish: string | null = null,
  stop: string | null = null,
): ChatChunk => ({ model: 'm', choices: [{ delta, finish_reason: finish, stop_reason: stop }] })
const last: ChatChunk = { model: 'm', choices: [], usage }

/** The events of a stream of these chunks. */
async function eventsOf(
  dialect: Dialect,
  chunks: readonly ChatChunk[],
  asked = {},
): Promise<Record<string, unknown>[]> {
  const stream = (async function* () {
    yield* chunks
  })()
  const events = []
  for await (const event of dialect.events(stream, asked)) events.push(event as Record<string, unknown>)
  return events
}

/** Expects that a request is refused, by the field and with these words. */
function expectRefused(dialect: Dialect, body: object, param: string, words: string): void {
  let refusal: unknown = null
  try {
    dialect.toChat(body as Record<string, unknown>, new Hints())
  } catch (error) {
    refusal = error
  }
  expect(refusal).toBeInstanceOf(RequestError)
  expect(refusal).toMatchObject({ status: 400, param, message: expect.stringContaining(words) })
}

describe('Responses', () => {
  const dialect = responses([])
  const toChat = (body: object, before: readonly object[] = []) =>
    responses(before).toChat(body as Record<string, unknown>, hints)

  test('says of a text no more than it is', () => {
    expect(toChat({ input: 'hi' })).toEqual({ messages: [user('hi')] })
    const absent = { instructions: null, tools: null, tool_choice: null, previous_response_id: null }
    expect(toChat({ input: 'hi', ...absent })).toEqual({ messages: [user('hi')] })
  })

  test('has each field that chat completions know by another name', () => {
    const tools = [
      { type: 'function', name: 'add', description: 'adds', parameters: { type: 'object' } },
      { type: 'function', name: 'now', description: null },
    ]
    expect(toChat({ input: 'hi', instructions: 'brief', max_output_tokens: 7, tools, tool_choice: 'none' })).toEqual({
      messages: [{ role: 'system', content: 'brief' }, user('hi')],
      max_completion_tokens: 7,
      tools: [
        { type: 'function', function: { name: 'add', description: 'adds', parameters: { type: 'object' } } },
        { type: 'function', function: { name: 'now', parameters: {} } },
      ],
      tool_choice: 'none',
    })
  })

  test('passes on how tokens are drawn and how much thought is asked for, and counts hints', () => {
    const counted = new Hints()
    const names = ['store', 'metadata', 'user', 'service_tier', 'safety_identifier', 'prompt_cache_key', 'include']
    const fields = Object.fromEntries([...names, 'stream_options', 'new_field'].map((name) => [name, 'any']))
    const neutral = { truncation: 'disabled', background: false, top_logprobs: 0, context_management: [], stream: true }
    const passed = {
      model: 'm',
      temperature: 0.5,
      top_p: 0.9,
      top_k: 3,
      min_p: 0.1,
      seed: 4,
      parallel_tool_calls: false,
    }
    const asked = { input: 'hi', ...fields, ...neutral, ...passed }
    expect(dialect.toChat({ ...asked, text: { verbosity: 'low' }, reasoning: { summary: 'auto' } }, counted)).toEqual({
      ...{ messages: [user('hi')], ...passed },
    })
    expect(counted.counts).toEqual(
      Object.fromEntries([...Object.keys(fields), 'text.verbosity', 'reasoning.summary'].map((name) => [name, 1])),
    )
    const format = { type: 'json_schema', name: 'n', schema: {}, strict: true }
    expect(toChat({ input: 'hi', reasoning: { effort: 'low' }, text: { format } })).toMatchObject({
      reasoning_effort: 'low',
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema: {}, strict: true } },
    })
    expect(toChat({ input: 'hi', tool_choice: { type: 'function', name: 'add' } }).tool_choice).toEqual({
      ...{ type: 'function', function: { name: 'add' } },
    })
    expect(toChat({ input: 'hi', text: { format: { type: 'json_object' } } }).response_format).toEqual({
      type: 'json_object',
    })
  })

  test('goes on behind what was said before, under new instructions or the old', () => {
    const before = [{ role: 'system', content: 'old' }, user('a'), { role: 'assistant', content: 'b' }]
    expect(toChat({ input: 'c' }, before).messages).toEqual([...before, user('c')])
    const system = { role: 'system', content: 'new' }
    const renewed = [system, ...before.slice(1), user('c')]
    expect(toChat({ input: 'c', instructions: 'new' }, before).messages).toEqual(renewed)
  })

  test('has items as messages: calls belong to what the assistant said before them', () => {
    const items = [
      { role: 'developer', content: 'dev' },
      { type: 'message', role: 'system', content: 'sys' },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      { type: 'reasoning', summary: [] },
      { type: 'function_call', call_id: 'c0', name: 'add', arguments: '{"a":1}' },
      { type: 'function_call', call_id: 'c1', name: 'add', arguments: '{"a":1}' },
      { type: 'function_call_output', call_id: 'c0', output: '3' },
      { type: 'function_call_output', call_id: 'c1', output: [{ type: 'output_text', text: '4' }] },
      { role: 'assistant', content: 'hm' },
      { type: 'function_call', call_id: 'c2', name: 'add', arguments: '{"a":1}' },
    ]
    expect(toChat({ input: items }).messages).toEqual([
      { role: 'system', content: 'dev' },
      { role: 'system', content: 'sys' },
      user('ab'),
      { role: 'assistant', content: null, tool_calls: [call('c0'), call('c1')] },
      { role: 'tool', tool_call_id: 'c0', content: '3' },
      { role: 'tool', tool_call_id: 'c1', content: '4' },
      { role: 'assistant', content: 'hm', tool_calls: [call('c2')] },
    ])
  })

  test.each([
    [{ instructions: 3 }, 'instructions', 'got 3, expected a text'],
    [{ input: undefined }, 'input', 'got undefined, expected a text, or a list of items'],
    [{ input: {} }, 'input', 'expected a text, or a list of items'],
    [{ input: [{ type: 'image' }] }, 'input[0].type', 'got "image", expected one of message, function_call'],
    [{ input: [user('x'), null] }, 'input[1]', 'got undefined, expected a text, or a list of parts'],
    [{ input: [user('x'), { role: 'user', content: 3 }] }, 'input[1]', 'got 3, expected a text, or a list of parts'],
    [{ input: [{ role: 'user', content: [null] }] }, 'input[0]', 'got null, expected parts of type input_text'],
    [{ input: [{ role: 'user', content: [{ type: 'text', text: 3 }] }] }, 'input[0]', 'expected parts of type'],
    [
      { input: [{ role: 'user', content: [{ type: 'input_image', text: 'x' }] }] },
      'input[0]',
      'expected parts of type',
    ],
    [{ input: [{ type: 'function_call_output', call_id: 'c', output: 3 }] }, 'input[0]', 'got 3, expected a text'],
    [{ input: [{ type: 'function_call', call_id: 'c' }] }, 'input[0].name', "got undefined, expected a tool's name"],
    [{ tools: 'all' }, 'tools', 'got "all", expected a list'],
    [{ tools: [null] }, 'tools', 'got null, expected tools of type function'],
    [{ tools: [{ type: 'web_search', name: 'web' }] }, 'tools', 'expected tools of type function'],
    [{ stop: ['x'] }, 'stop', 'expected nothing: this server cannot do that'],
    [{ typical_p: 0.5 }, 'typical_p', 'it supports temperature, top_p, top_k, min_p, seed, logit_bias'],
    [{ grammar: 'x' }, 'grammar', 'expected nothing: this server cannot do that; it supports'],
    [{ truncation: 'auto' }, 'truncation', 'expected "disabled": this server cannot do that'],
    [{ background: true }, 'background', 'expected false: this server cannot do that'],
    [{ top_logprobs: 2 }, 'top_logprobs', 'expected 0: this server cannot do that'],
    [{ conversation: 'c' }, 'conversation', 'this server cannot do that'],
    [{ prompt: {} }, 'prompt', 'this server cannot do that'],
    [{ context_management: [1] }, 'context_management', 'this server cannot do that'],
  ])('refuses %j by name', (body, param, words) => expectRefused(dialect, { input: 'hi', ...body }, param, words))

  /** The parts of a response that are the same in all. */
  const head = {
    ...{ id: expect.stringMatching(/^resp_[0-9a-f]{32}$/), object: 'response', created_at: expect.any(Number) },
    ...{ status: 'completed', background: false, error: null, incomplete_details: null, instructions: null },
    ...{ model: 'm', max_output_tokens: null, parallel_tool_calls: true, previous_response_id: null, store: true },
    ...{ reasoning: { effort: null, summary: null }, text: { format: { type: 'text' } }, tools: [], metadata: {} },
    ...{ temperature: null, top_p: null, tool_choice: 'auto', truncation: 'disabled' },
  }
  const spent = {
    ...{ input_tokens: 9, input_tokens_details: { cached_tokens: 5 }, output_tokens: 4, total_tokens: 13 },
    output_tokens_details: { reasoning_tokens: 0 },
  }
  const textPart = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })
  const item = (text: string) => ({
    ...{ type: 'message', id: expect.stringMatching(/^msg_[0-9a-f]{32}$/), status: 'completed', role: 'assistant' },
    content: [textPart(text)],
  })
  const called = (id: string) => ({
    ...{ type: 'function_call', id: expect.stringMatching(/^fc_[0-9a-f]{32}$/), call_id: id, status: 'completed' },
    ...{ name: 'add', arguments: '{"a":1}' },
  })

  test('answers with words, calls, both or neither, and what was asked', () => {
    const output = (message: Message) => dialect.answer(answered(message, 'stop'), {}) as { output: object[] }
    expect(output({ content: 'hi' })).toEqual({ ...head, output: [item('hi')], usage: spent })
    expect(output({ content: 'hi', tool_calls: [call('c')] }).output).toEqual([item('hi'), called('c')])
    expect(output({ content: null, tool_calls: [call('c')] }).output).toEqual([called('c')])
    expect(output({ content: '' }).output).toEqual([])
    const before = Math.floor(Date.now() / 1000)
    const asked = {
      instructions: 'brief',
      max_output_tokens: 4,
      previous_response_id: 'resp_0',
      tools: [{ name: 'x' }],
    }
    const more = { tool_choice: 'none', metadata: { a: 'b' }, parallel_tool_calls: false }
    const cut = dialect.answer(answered({ content: 'hi' }, 'length'), { ...asked, ...more })
    expect(cut).toEqual({
      ...{ ...head, ...asked, ...more, output: [item('hi')], usage: spent },
      ...{ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } },
    })
    const { created_at: created } = cut as { created_at: number }
    expect([created >= before, created <= Date.now() / 1000]).toEqual([true, true])
  })

  test('streams words and calls as items of their own, numbered, and the whole answer last', async () => {
    const chunks = [
      ...[chunk({}), chunk({ content: 'h' }), chunk({ content: 'm' }), chunk({ tool_calls: [call('c0'), call('c1')] })],
      ...[chunk({ content: 'so' }), chunk({}, 'stop'), last],
    ]
    const events = await eventsOf(dialect, chunks)
    const begun = { ...head, output: [], usage: null, status: 'in_progress' }
    const id = expect.any(String)
    const text = (at: number, deltas: string[]) => {
      const part = { item_id: id, output_index: at, content_index: 0 }
      const whole = deltas.join('')
      return [
        {
          type: 'response.output_item.added',
          output_index: at,
          item: { ...item(''), status: 'in_progress', content: [] },
        },
        { type: 'response.content_part.added', ...part, part: textPart('') },
        ...deltas.map((delta) => ({ type: 'response.output_text.delta', ...part, delta, logprobs: [] })),
        { type: 'response.output_text.done', ...part, text: whole, logprobs: [] },
        { type: 'response.content_part.done', ...part, part: textPart(whole) },
        { type: 'response.output_item.done', output_index: at, item: item(whole) },
      ]
    }
    const use = (at: number, name: string) => {
      const [added, args] = [called(name), '{"a":1}']
      return [
        {
          type: 'response.output_item.added',
          output_index: at,
          item: { ...added, status: 'in_progress', arguments: '' },
        },
        { type: 'response.function_call_arguments.delta', item_id: id, output_index: at, delta: args },
        { type: 'response.function_call_arguments.done', item_id: id, output_index: at, name: 'add', arguments: args },
        { type: 'response.output_item.done', output_index: at, item: added },
      ]
    }
    const output = [item('hm'), called('c0'), called('c1'), item('so')]
    const expected = [
      { type: 'response.created', response: begun },
      { type: 'response.in_progress', response: begun },
      ...[...text(0, ['h', 'm']), ...use(1, 'c0'), ...use(2, 'c1'), ...text(3, ['so'])],
      { type: 'response.completed', response: { ...head, output, usage: spent } },
    ]
    expect(events).toEqual(expected.map((event, i) => ({ ...event, sequence_number: i })))
    const ids = events.flatMap(({ item_id }) => (item_id === undefined ? [] : [item_id]))
    expect(new Set(ids).size).toBe(4) // Each item's events name that item.
  })

  test('streams an answer that was cut off, and one of which nothing was counted', async () => {
    const events = await eventsOf(dialect, [chunk({ content: 'h' }), chunk({}, 'length')])
    const incomplete = { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, usage: null }
    expect(events.at(-1)).toMatchObject({
      type: 'response.incomplete',
      response: { ...incomplete, output: [item('h')] },
    })
  })
})

describe('Messages', () => {
  const toChat = (body: object) => anthropic.toChat(body as Record<string, unknown>, hints)
  const nothing = { stop: [] }

  test('says no more than it is', () => {
    expect(toChat({ messages: [user('hi')] })).toEqual({ messages: [user('hi')], ...nothing })
    expect(toChat({ messages: [user('hi')], system: null, tools: null, tool_choice: null })).toEqual({
      ...{ messages: [user('hi')], ...nothing },
    })
  })

  test('has each field that chat completions know by another name, and takes no notice of others', () => {
    const tools = [{ name: 'add', description: 'adds', input_schema: { type: 'object' } }]
    const more = [{ type: 'custom', name: 'now', input_schema: {} }]
    const counted = new Hints()
    const ignored = ['metadata', 'service_tier', 'container', 'cache_control']
    const passed = { model: 'm', temperature: 0.5, top_p: 0.9, top_k: 3, thinking: { type: 'disabled' } }
    const body = {
      ...Object.fromEntries(ignored.map((name) => [name, 'any'])),
      ...{ ...passed, stream: true, output_config: { effort: 'low', format: { type: 'json_schema', schema: {} } } },
      ...{ mcp_servers: [], context_management: {}, messages: [user('hi')], max_tokens: 7, stop_sequences: ['.'] },
      ...{ tools: [...tools, ...more], tool_choice: { type: 'none', disable_parallel_tool_use: false } },
    }
    for (const system of [
      'brief',
      [
        { type: 'text', text: 'br' },
        { type: 'text', text: 'ief' },
      ],
    ]) {
      expect(anthropic.toChat({ ...body, system }, counted)).toEqual({
        messages: [{ role: 'system', content: 'brief' }, user('hi')],
        ...{ ...passed, reasoning_effort: 'low' },
        response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: {} } },
        ...{ max_completion_tokens: 7, stop: ['.'], tool_choice: 'none' },
        tools: [
          { type: 'function', function: { name: 'add', description: 'adds', parameters: { type: 'object' } } },
          { type: 'function', function: { name: 'now', parameters: {} } },
        ],
      })
    }
    expect(counted.counts).toEqual(Object.fromEntries(ignored.map((name) => [name, 2])))
    expect(toChat({ messages: [], tools })).toMatchObject({ tool_choice: 'auto' })
    const choice = (tool_choice: object) => toChat({ messages: [], tool_choice, tools })
    expect(choice({ type: 'any', disable_parallel_tool_use: true })).toMatchObject({
      ...{ tool_choice: 'required', parallel_tool_calls: false },
    })
    expect(choice({ type: 'tool', name: 'add' })).toMatchObject({
      tool_choice: { type: 'function', function: { name: 'add' } },
    })
  })

  test('has blocks as messages: what tools answered and what is said, in their order', () => {
    const text = (text: string) => ({ type: 'text', text })
    const use = (id: string) => ({ type: 'tool_use', id, name: 'add', input: { a: 1 } })
    const result = (id: string, more: object) => ({ type: 'tool_result', tool_use_id: id, ...more })
    const messages = [
      { role: 'user', content: [text('a'), text('b')] },
      { role: 'assistant', content: [{ type: 'thinking' }, text('h'), text('m'), use('c0'), use('c1')] },
      { role: 'user', content: [result('c0', { content: '3' }), result('c1', { content: [text('4')] }), text('so')] },
      { role: 'assistant', content: [{ type: 'redacted_thinking' }, use('c2')] },
      { role: 'user', content: [text('wait'), result('c2', {}), result('c2', { content: null })] },
      { role: 'assistant', content: [text('ok')] },
    ]
    expect(toChat({ messages }).messages).toEqual([
      user('ab'),
      { role: 'assistant', content: 'hm', tool_calls: [call('c0'), call('c1')] },
      { role: 'tool', tool_call_id: 'c0', content: '3' },
      { role: 'tool', tool_call_id: 'c1', content: '4' },
      user('so'),
      { role: 'assistant', content: null, tool_calls: [call('c2')] },
      user('wait'),
      { role: 'tool', tool_call_id: 'c2', content: '' },
      { role: 'tool', tool_call_id: 'c2', content: '' },
      { role: 'assistant', content: 'ok' },
    ])
  })

  const says = (content: unknown, role = 'user') => ({ messages: [{ role, content }] })
  const tool = (tool: unknown) => ({ messages: [], tools: [tool] })
  test.each([
    [{}, 'messages', 'got undefined, expected a list'],
    [{ messages: [null] }, 'messages[0].content', 'got undefined, expected a text, or a list of blocks'],
    [says(3), 'messages[0].content', 'got 3, expected a text, or a list of blocks'],
    [says([null]), 'messages[0].content', 'got null, expected blocks of type text'],
    [says([{ type: 'image', text: 'x' }]), 'messages[0].content', 'expected blocks of type text'],
    [says([{ type: 'text', text: 3 }]), 'messages[0].content', 'expected blocks of type text'],
    [says([{ type: 'tool_result', content: 3 }]), 'messages[0].content, tool_result', 'got 3, expected a text'],
    [says([null], 'assistant'), 'messages[0].content', 'expected blocks of type text and tool_use'],
    [says([{ type: 'image' }], 'assistant'), 'messages[0].content', 'expected blocks of type text and tool_use'],
    [says([{ type: 'text', text: 3 }], 'assistant'), 'messages[0].content', 'expected blocks of type text'],
    [
      says([{ type: 'tool_use', id: 'c' }], 'assistant'),
      'messages[0].content, tool_use.name',
      "expected a tool's name",
    ],
    [{ messages: [], system: 3 }, 'system', 'got 3, expected a text, or a list of blocks'],
    [{ messages: [], system: [{ type: 'image' }] }, 'system', 'expected blocks of type text'],
    [{ messages: [], tools: 'all' }, 'tools', 'got "all", expected a list'],
    [tool(null), 'tools', 'got null, expected one like { "name"'],
    [tool({ type: 'bash', name: 'bash', input_schema: {} }), 'tools', 'only client tools are supported'],
    [tool({ name: 3, input_schema: {} }), 'tools', 'only client tools are supported'],
    [tool({ name: 'add' }), 'tools', 'only client tools are supported'],
    [{ messages: [], tool_choice: { type: 'tool' } }, 'tool_choice', 'expected type auto, any, tool with a name'],
    [{ messages: [], tool_choice: { type: 'all' } }, 'tool_choice', 'expected type auto, any, tool with a name'],
    [{ messages: [], tool_choice: 'auto' }, 'tool_choice', 'got "auto", expected an object'],
    [{ messages: [], stop_sequences: [''] }, 'stop_sequences', 'at most 16 of them'],
    [{ messages: [], mcp_servers: [1] }, 'mcp_servers', 'this server cannot do that'],
    [{ messages: [], context_management: { edits: [] } }, 'context_management', 'this server cannot do that'],
    [{ messages: [], stop: ['x'] }, 'stop', 'expected nothing: this server cannot do that'],
    [{ messages: [], thread: { type: 'create' } }, 'thread', 'expected none: send the whole conversation'],
    [{ messages: [], xtc_probability: 1 }, 'xtc_probability', 'expected 0: this server cannot do that; it supports'],
  ])('refuses %j by name', (body, param, words) => expectRefused(anthropic, body, param, words))

  const head = { id: expect.stringMatching(/^msg_[0-9a-f]{32}$/), type: 'message', role: 'assistant', model: 'm' }
  const counted = { cache_creation_input_tokens: 0, input_tokens: 4, cache_read_input_tokens: 5, output_tokens: 4 }
  const uncounted = { cache_creation_input_tokens: 0, input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 }
  const use = (id: string) => ({ type: 'tool_use', id, name: 'add', input: { a: 1 } })

  test('answers with words, calls, both or neither, and why it ended', () => {
    const answer = (...told: Parameters<typeof answered>) => anthropic.answer(answered(...told), {})
    const end = { stop_reason: 'end_turn', stop_sequence: null }
    const text = { type: 'text', text: 'hi' }
    expect(answer({ content: 'hi' }, 'stop')).toEqual({ ...head, content: [text], ...end, usage: counted })
    expect(answer({ content: 'hi', tool_calls: [call('c')] }, 'tool_calls')).toMatchObject({
      ...{ content: [text, use('c')], stop_reason: 'tool_use', stop_sequence: null },
    })
    expect(answer({ content: null, tool_calls: [call('c')] }, 'tool_calls')).toMatchObject({ content: [use('c')] })
    expect(answer({ content: '' }, null)).toMatchObject({ content: [], ...end })
    expect(answer({ content: 'hi' }, 'length')).toMatchObject({ stop_reason: 'max_tokens', stop_sequence: null })
    const stopped = { stop_reason: 'stop_sequence', stop_sequence: '.' }
    expect(answer({ content: 'hi' }, 'stop', '.')).toMatchObject(stopped)
    expect(answer({ content: 'hi' }, 'length', '.')).toMatchObject({ stop_reason: 'max_tokens', stop_sequence: null })
  })

  const start = (index: number, content_block: object) => ({ type: 'content_block_start', index, content_block })
  const delta = (index: number, delta: object) => ({ type: 'content_block_delta', index, delta })
  const stop = (index: number) => ({ type: 'content_block_stop', index })
  const begun = (usage: object) => ({
    type: 'message_start',
    message: { ...head, content: [], stop_reason: null, stop_sequence: null, usage },
  })

  test('streams words and calls as blocks of their own, one after another', async () => {
    const chunks = [
      ...[chunk({}), chunk({ content: 'h' }), chunk({ content: 'm' }), chunk({ tool_calls: [call('c0'), call('c1')] })],
      ...[chunk({ content: 'so' }), chunk({}, 'stop', '.'), last],
    ]
    const words = (text: string) => ({ type: 'text_delta', text })
    const args = { type: 'input_json_delta', partial_json: '{"a":1}' }
    const called = (index: number, id: string) => [
      start(index, { ...use(id), input: {} }),
      delta(index, args),
      stop(index),
    ]
    expect(await eventsOf(anthropic, chunks)).toEqual([
      begun(uncounted),
      ...[start(0, { type: 'text', text: '' }), delta(0, words('h')), delta(0, words('m')), stop(0)],
      ...[...called(1, 'c0'), ...called(2, 'c1')],
      ...[start(3, { type: 'text', text: '' }), delta(3, words('so')), stop(3)],
      { type: 'message_delta', delta: { stop_reason: 'stop_sequence', stop_sequence: '.' }, usage: counted },
      { type: 'message_stop' },
    ])
  })

  test('streams an answer without words, of which nothing was counted', async () => {
    expect(await eventsOf(anthropic, [chunk({})])).toEqual([
      begun(uncounted),
      { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: uncounted },
      { type: 'message_stop' },
    ])
  })

  test.each([
    [400, 'invalid_request_error'],
    [401, 'authentication_error'],
    [403, 'permission_error'],
    [404, 'not_found_error'],
    [410, 'invalid_request_error'],
    [413, 'request_too_large'],
    [429, 'rate_limit_error'],
    [500, 'api_error'],
    [501, 'api_error'],
    [503, 'overloaded_error'],
  ])('tells an error of status %i as %s', (status, type) => {
    const body = anthropic.errorBody!(new RequestError(status, 'why'))
    expect(body).toEqual({ type: 'error', error: { type, message: 'why' } })
    const details = { error_code: 'thread_unsupported_request', unsupported: ['thread'] }
    const threaded = new RequestError(status, 'why', { code: 'thread_unsupported_request' })
    expect(anthropic.errorBody!(threaded)).toEqual({ type: 'error', error: { type, message: 'why', details } })
  })
})
