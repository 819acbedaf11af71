/** Answers of a form that requests ask for: what reaches an engine that can hold answers to it, and what becomes of others. */
import { describe, expect, test } from 'vitest'
import type { Constraint } from '../../../src/environments/text.ts'
import { isOfConstraint } from '../../../src/language/grammars/grammars.ts'
import { made, scriptedGateway } from '../../support/gateway.ts'

const CHAT = '/v1/chat/completions'
const messages = [{ role: 'user', content: 'hi' }]
const SCHEMA = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] }
const FORMAT = { type: 'json_schema', json_schema: { name: 'n', strict: true, schema: SCHEMA } }
const tools = ['add', 'sub'].map((name) => ({ type: 'function', function: { name, parameters: SCHEMA } }))
const call = (name: string) => `<tool_call>\n{"name": "${name}", "arguments": {"a": 1}}\n</tool_call>`

/** A session whose model says this, over an engine that holds answers to forms. */
async function saying(said: string, constrains = true, template?: string) {
  const { gateway, seen } = await scriptedGateway(() => said, {}, template, 400, constrains)
  const { ask, end } = await made(gateway)
  const chat = (body: object) => ask(CHAT, { model: 'x', messages, ...body })
  return { chat, ask, seen, calls: async () => (await end({ reward: 0 })).json.calls as number }
}

describe('JSON', () => {
  test('of a schema, or of an object, is what the engine is held to, in each dialect', async () => {
    const { chat, ask, seen } = await saying('{"a":1}')
    const { json } = await chat({ response_format: FORMAT })
    expect(json.choices[0].message.content).toBe('{"a":1}')
    await chat({ response_format: { type: 'json_object' } })
    await ask('/v1/responses', {
      model: 'x',
      input: 'hi',
      text: { format: { type: 'json_schema', name: 'n', schema: SCHEMA } },
    })
    const output = { format: { type: 'json_schema', schema: SCHEMA } }
    await ask('/v1/messages', { model: 'x', max_tokens: 99, messages, output_config: output })
    await chat({ response_format: { type: 'text' } })
    const constraints = seen.map(({ constraint }) => constraint)
    const schema = { schema: SCHEMA }
    expect(constraints).toEqual([schema, { schema: { type: 'object' } }, schema, schema, undefined])
  })

  test.each(['no', '[1]', '{"b":1}'])(
    'that the engine did not keep to is an error, and not recorded: %s',
    async (said) => {
      const { chat, calls } = await saying(said)
      const { status, json } = await chat({ response_format: FORMAT })
      expect([status, json.error.code]).toEqual([502, 'engine_failed'])
      const streamed = await chat({ response_format: FORMAT, stream: true })
      expect(streamed.text).toContain('"code":"engine_failed"')
      expect(await calls()).toBe(0)
    },
  )

  test('that is cut off is told as it is', async () => {
    const { chat, calls } = await saying('{"a":1}')
    const { json } = await chat({ response_format: FORMAT, max_tokens: 2 })
    expect([json.choices[0].finish_reason, await calls()]).toEqual(['length', 1])
  })
})

describe('a field of a server', () => {
  test.each<[object, object, string]>([
    [{ guided_json: SCHEMA }, { schema: SCHEMA }, '{"a":1}'],
    [{ guided_json: JSON.stringify(SCHEMA) }, { schema: SCHEMA }, '{"a":1}'],
    [{ json_schema: SCHEMA }, { schema: SCHEMA }, '{"a":1}'],
    [{ structured_outputs: { json: SCHEMA } }, { schema: SCHEMA }, '{"a":1}'],
    [{ structured_outputs: { json_object: true } }, { schema: { type: 'object' } }, '{"b":1}'],
    [{ guided_regex: 'a+' }, { regex: 'a+' }, 'aa'],
    [{ regex: 'a+' }, { regex: 'a+' }, 'aa'],
    [{ structured_outputs: { regex: 'a+' } }, { regex: 'a+' }, 'aa'],
    [{ guided_choice: ['a"b', 'c'] }, { grammar: 'root ::= ("a\\"b" | "c")' }, 'a"b'],
    [{ structured_outputs: { choice: ['c'] } }, { grammar: 'root ::= "c"' }, 'c'],
    [{ guided_grammar: 'root ::= "x"' }, { grammar: 'root ::= "x"' }, 'x'],
    [{ ebnf: 'root ::= "x"' }, { grammar: 'root ::= "x"' }, 'x'],
    [{ grammar: 'root ::= "x"' }, { grammar: 'root ::= "x"' }, 'x'],
  ])('is a constraint, in chats and in completions: %j', async (fields, constraint, said) => {
    const { chat, ask, seen } = await saying(said)
    expect((await chat(fields)).json.choices[0].message.content).toBe(said)
    const { json } = await ask('/v1/completions', { model: 'x', prompt: 'hi', max_tokens: 99, ...fields })
    expect(json.choices[0].text).toBe(said)
    expect(seen.map((turn) => turn.constraint)).toEqual([constraint, constraint])
    const { chat: other } = await saying('y')
    expect((await other(fields)).json.error.code).toBe('engine_failed')
  })

  test.each<[string, object]>([
    ['guided_json', { guided_json: 'no' }],
    ['guided_regex', { guided_regex: 3 }],
    ['guided_choice', { guided_choice: [] }],
    ['structured_outputs', { structured_outputs: {} }],
    ['structured_outputs', { structured_outputs: { regex: 'a', choice: ['b'] } }],
    ['structured_outputs.json_object', { structured_outputs: { json_object: false } }],
    ['regex', { guided_grammar: 'root ::= "x"', regex: 'a' }],
    ['guided_regex', { response_format: FORMAT, guided_regex: 'a' }],
    ['regex', { tools, regex: 'a' }],
    ['structural_tag', { structural_tag: '{}' }],
  ])('that is none, or one too many, is refused by its name: %s %j', async (param, fields) => {
    const { chat, seen } = await saying('a')
    const { status, json } = await chat(fields)
    expect([status, json.error.param, seen.length]).toEqual([400, param, 0])
  })
})

describe('a call of a tool', () => {
  const grammarOf = (constraint: unknown) => (constraint as { grammar: string }).grammar.split('\n')

  test('is what the engine is held to: of any tool, of one that is named, and of one alone', async () => {
    const { chat, ask, seen } = await saying(call('add'))
    const named = { type: 'function', function: { name: 'add' } }
    for (const more of [
      { tool_choice: 'required' },
      { tool_choice: named },
      { tool_choice: 'required', parallel_tool_calls: false },
    ]) {
      const { json } = await chat({ tools, ...more })
      expect([json.choices[0].finish_reason, json.choices[0].message.tool_calls[0].function.name]).toEqual([
        ...['tool_calls', 'add'],
      ])
    }
    const [any, one, alone] = seen.map(({ constraint }) => grammarOf(constraint))
    expect(any!.slice(0, 4)).toEqual([
      'root ::= call ("\\n" call)*',
      String.raw`call ::= "<tool_call>\n{\"name\": \"" (call0 | call1) "}\n</tool_call>"`,
      String.raw`call0 ::= "add\", \"arguments\": " arguments0`,
      String.raw`call1 ::= "sub\", \"arguments\": " arguments1`,
    ])
    expect(one!.slice(0, 3)).toEqual(['root ::= call', any![1]!.replace(' | call1', ''), any![2]])
    expect(alone!.slice(0, 4)).toEqual(['root ::= call', ...any!.slice(1, 4)])
    // What the schemas of the tools say is in it, each under names of its own.
    const text = (constraint: object, said: string) => isOfConstraint(constraint as Constraint, said)
    for (const { constraint } of seen) {
      expect(text(constraint!, call('add'))).toBe(true)
      expect(text(constraint!, call('add').replace('"a": 1', '"a": "1"'))).toBe(false)
      expect(text(constraint!, call('add').replace('"a": 1', ''))).toBe(false)
    }
    const flat = tools.map(({ function: each }) => ({ type: 'function', ...each }))
    await ask('/v1/responses', { model: 'x', input: 'hi', tools: flat, tool_choice: { type: 'function', name: 'add' } })
    const own = tools.map(({ function: { name, parameters } }) => ({ name, input_schema: parameters }))
    const asked = { model: 'x', max_tokens: 99, messages, tools: own }
    await ask('/v1/messages', { ...asked, tool_choice: { type: 'tool', name: 'add' } })
    await ask('/v1/messages', { ...asked, tool_choice: { type: 'any' } })
    expect(seen.slice(3).map(({ constraint }) => grammarOf(constraint))).toEqual([one, one, any])
  })

  test('has arguments by a schema of which everything is enforced; of others any object, unless the tool is strict', async () => {
    const { gateway, seen } = await scriptedGateway(() => call('odd'), {}, undefined, 400, true)
    const { ask } = await made(gateway)
    const parameters = { type: 'object', properties: { a: { type: 'array', uniqueItems: true } } }
    const asked = (strict: boolean) => ({
      ...{ model: 'x', messages, tool_choice: 'required' },
      tools: [{ type: 'function', function: { name: 'odd', strict, parameters } }],
    })
    expect((await ask(CHAT, asked(false))).status).toBe(200)
    expect(gateway.counts.hints).toEqual({ 'odd.parameters.properties.a.uniqueItems': 1 })
    expect(isOfConstraint(seen[0]!.constraint!, call('odd').replace('"a"', '"b"'))).toBe(true)
    const { status, json } = await ask(CHAT, asked(true))
    expect([status, json.error.param]).toEqual([400, 'tools'])
    expect(json.error.message).toContain('odd.parameters.properties.a.uniqueItems: got true')
  })

  test('with other arguments than its schema requires is an error, and not recorded', async () => {
    const { chat, calls } = await saying(call('add').replace('"a"', '"b"'))
    const { status, json } = await chat({ tools, tool_choice: 'required' })
    expect([status, json.error.message]).toEqual([
      502,
      expect.stringContaining('a call of add with arguments that have no a'),
    ])
    expect(await calls()).toBe(0)
  })

  test('that the engine did not write, or of another tool, is an error, and not recorded', async () => {
    for (const [said, tool_choice] of [
      ['words', 'required'],
      [call('sub'), { type: 'function', function: { name: 'add' } }],
    ] as const) {
      const { chat, calls } = await saying(said)
      expect((await chat({ tools, tool_choice })).status).toBe(502)
      expect((await chat({ tools, tool_choice, stream: true })).text).toContain('engine_failed')
      expect(await calls()).toBe(0)
    }
  })
})

test('a regular expression that only the engine knows is left to it', async () => {
  const { chat } = await saying('words')
  expect((await chat({ guided_regex: '\\p{L}+' })).status).toBe(200)
  expect((await chat({ guided_regex: 'x+' })).status).toBe(502)
})

describe('a form is refused', () => {
  test('by an engine that holds no answer to one, naming those that do', async () => {
    const { chat, ask, seen } = await saying(call('add'), false)
    for (const [param, body] of [
      ['response_format', { response_format: FORMAT }],
      ['tool_choice', { tools, tool_choice: 'required' }],
    ] as const) {
      const { status, json } = await chat(body)
      expect([status, json.error.param, json.error.code]).toEqual([400, param, 'unsupported_field'])
      expect(json.error.message).toContain('engine scripted has no guided decoding; the local one')
    }
    const { text } = await ask('/v1/messages', {
      model: 'x',
      max_tokens: 9,
      messages,
      stream: true,
      output_config: { format: FORMAT },
    })
    expect(JSON.parse(text).error.type).toBe('invalid_request_error')
    expect(seen).toEqual([])
  })

  test.each<[string, object]>([
    ['response_format', { tools, response_format: FORMAT }],
    ['response_format', { response_format: { type: 'xml' } }],
    ['response_format', { response_format: { type: 'json_schema' } }],
    ['tool_choice', { tool_choice: 'required' }],
    ['tool_choice', { tools, tool_choice: { type: 'function', function: { name: 'mul' } } }],
    ['tool_choice', { tools, tool_choice: 'sometimes' }],
  ])('where it says nothing that can be: %s %o', async (param, body) => {
    const { chat } = await saying('x')
    const { status, json } = await chat(body)
    expect([status, json.error.param]).toEqual([400, param])
  })
})
