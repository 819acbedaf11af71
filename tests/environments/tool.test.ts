import { describe, expect, test } from 'vitest'
import { callTool, defineTool, toolSchemas } from '../../src/environments/tools/tool.ts'
import type { ToolArguments, ToolCall } from '../../src/environments/tools/tool-calls.ts'
import { templateFormat } from '../../src/environments/tools/tool-format.ts'

const never = new AbortController().signal
const number = { type: 'number' }
const add = defineTool({
  name: 'add',
  description: 'The sum of two numbers.',
  parameters: {
    type: 'object',
    properties: {
      a: number,
      b: { type: ['number', 'null'] },
      unit: { type: 'string', enum: ['m', 's'] },
      list: { type: 'array' },
    },
    required: ['a', 'b'],
  },
  run: ({ a, b, unit = '' }) => `${(a as number) + ((b as number | null) ?? 0)}${unit as string}`,
})

test('a tool has its arguments checked by their types, of each that JSON has', async () => {
  const values = { integer: 2, number: 2.5, boolean: false, string: 'a', array: [1], object: {}, null: null }
  const of = (type: string) =>
    defineTool({
      ...{ name: 't', description: '', run: () => 'fine' },
      parameters: { type: 'object', properties: { x: { type } } },
    })
  const fits: Record<string, string[]> = { number: ['integer', 'number'] }
  for (const type of Object.keys(values)) {
    for (const [name, x] of Object.entries(values)) {
      const { isError } = await callTool([of(type)], { name: 't', arguments: { x } }, never)
      expect([type, name, isError]).toEqual([type, name, !(fits[type] ?? [type]).includes(name)])
    }
  }
})

describe('A tool', () => {
  test('is called with what the model gives, and answers in words', async () => {
    const ask = (given: object) => callTool([add], { name: 'add', arguments: given as never }, never)
    expect(await ask({ a: 1, b: 2 })).toEqual({ content: '3', isError: false })
    expect(await ask({ a: 1, b: null, unit: 'm' })).toEqual({ content: '1m', isError: false })
  })

  test.each<[unknown, string]>([
    [{ sum: [1] }, '{"sum":[1]}'],
    [7, '7'],
    [null, 'null'],
    [undefined, ''],
    ['word', 'word'],
  ])('answers %j as %j', async (answer, content) => {
    const tool = defineTool({ name: 't', description: '', parameters: { type: 'object' }, run: () => answer })
    expect(await callTool([tool], { name: 't', arguments: {} }, never)).toEqual({ content, isError: false })
  })

  test.each<[string, ToolCall, string]>([
    ['a name that is no tool', { name: 'sum', arguments: {} }, 'error: no tool "sum"; there are add'],
    ['an argument too few', { name: 'add', arguments: { a: 1 } }, 'error: add: b is missing'],
    [
      'an argument too many',
      { name: 'add', arguments: { a: 1, b: 2, c: 3 } },
      'error: add: c is not one of its arguments',
    ],
    ['a text for a number', { name: 'add', arguments: { a: '1', b: 2 } }, 'error: add: a is "1", not of type number'],
    [
      'neither of two types',
      { name: 'add', arguments: { a: 1, b: 'x' } },
      'error: add: b is "x", not of type number or null',
    ],
    [
      'an object for a list',
      { name: 'add', arguments: { a: 1, b: 1, list: {} } },
      'error: add: list is {}, not of type array',
    ],
    [
      'none of the values',
      { name: 'add', arguments: { a: 1, b: 2, unit: 'h' } },
      'error: add: unit is "h", not one of ["m","s"]',
    ],
    ['a call that cannot be read', { malformed: 'a call without a name' }, 'error: a call without a name'],
  ])('tells the model of %s', async (_, call, content) => {
    const { isError, content: told } = await callTool([add], call, never)
    expect(isError).toBe(true)
    expect(told).toBe(content)
  })

  const hanging = (stopped: unknown[]) =>
    defineTool({
      name: 'wait',
      description: '',
      parameters: { type: 'object' },
      seconds: 0.02,
      run: (_, signal) => new Promise(() => signal.addEventListener('abort', () => stopped.push(signal.reason))),
    })

  test('that throws, or hangs, is an error that the model hears of', async () => {
    const throwing = (error: unknown) =>
      defineTool({
        name: 'fail',
        description: '',
        parameters: { type: 'object' },
        run() {
          throw error
        },
      })
    const call = { name: 'fail', arguments: {} }
    expect(await callTool([throwing(new Error('no network'))], call, never)).toEqual({
      content: 'error: fail: no network',
      isError: true,
    })
    expect((await callTool([throwing('broken')], call, never)).content).toBe('error: fail: broken')
    const stopped: unknown[] = []
    expect(await callTool([hanging(stopped)], { name: 'wait', arguments: {} }, never)).toEqual({
      content: 'error: wait: no answer within 0.02 s',
      isError: true,
    })
    expect(stopped).toHaveLength(1)
  })

  test('is told when nobody waits any longer', async () => {
    const stopped: unknown[] = []
    const stop = new AbortController()
    const patient = { ...hanging(stopped), seconds: 60 }
    const answer = callTool([patient], { name: 'wait', arguments: {} }, stop.signal)
    stop.abort()
    expect((await answer).content).toBe('error: wait: the result is no longer needed')
    expect(stopped).toHaveLength(1)
    expect((await callTool([patient], { name: 'wait', arguments: {} }, stop.signal)).isError).toBe(true)
  })

  test.each<[object, string]>([
    [{ name: 'a b' }, 'tool, name: got "a b", expected letters, digits, _, . and -, 64 at most'],
    [{ name: 'a'.repeat(65) }, '64 at most'],
    [{ name: '' }, 'tool, name: got ""'],
    [{ name: 3 }, 'tool, name: got 3'],
    [{ parameters: null }, 'tool add, parameters: got null, expected a JSON schema of type object'],
    [{ parameters: 'object' }, 'tool add, parameters: got "object"'],
    [{ seconds: Number.POSITIVE_INFINITY }, 'tool add, seconds: got Infinity, expected a number above 0'],
    [{ description: 3 }, 'tool add, description: got 3, expected a text'],
    [{ parameters: { type: 'string' } }, 'expected a JSON schema of type object'],
    [{ seconds: 0 }, 'tool add, seconds: got 0, expected a number above 0'],
    [{ run: 'add' }, 'tool add, run: got "add", expected a function'],
  ])('is refused with %j', (part, message) => {
    expect(() => defineTool({ ...add, ...part } as never)).toThrow(message)
  })

  test('is told to templates as a JSON schema', () => {
    const { name, description, parameters } = add
    expect(toolSchemas([add])).toEqual([{ type: 'function', function: { name, description, parameters } }])
  })
})

describe('Calls as templates teach them', () => {
  const calls = (raw: string) => templateFormat.calls({ raw, completion: raw })
  const one = (given: ToolArguments = { a: 1 }) => [{ name: 'add', arguments: given }]

  test.each<[string, string, readonly ToolCall[]]>([
    ['nothing', 'It is 3.', []],
    ['Hermes', 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', one()],
    [
      'Hermes twice',
      '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>',
      [...one(), ...one({ a: 2 })],
    ],
    ['arguments as JSON in a text', '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', one()],
    [
      "Qwen3-Coder's",
      '<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\none\ntwo\n</parameter>\n</function>\n</tool_call>',
      one({ a: 1, b: 'one\ntwo' }),
    ],
    [
      'behind thinking, in which a call is none',
      '<think><tool_call>{}</tool_call></think><tool_call>{"name":"add"}</tool_call>',
      one({}),
    ],
    ["Mistral's list", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', one()],
    ["Mistral's names", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add{"a": 2}', [...one(), ...one({ a: 2 })]],
    ["Llama's", '{"name": "add", "parameters": {"a": 1}}', one()],
    [
      "Llama's, as a function",
      '<|python_tag|>{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}',
      one(),
    ],
    ['JSON that is an answer', '{"sum": 3}', []],
    ['a call that is cut off', '<tool_call>{"name": "add", "argu', [{ malformed: 'a call without </tool_call>' }]],
    ['JSON that is none', '<tool_call>{"name": add}</tool_call>', [{ malformed: 'a call that is no JSON object' }]],
    [
      'JSON deeper than recursion goes',
      `<tool_call>{"name": "add", "arguments": ${'{"a": '.repeat(50_000)}1${'}'.repeat(50_001)}</tool_call>`,
      [{ malformed: 'a call that is no JSON object' }],
    ],
    ['no name', '<tool_call>{"arguments": {}}</tool_call>', [{ malformed: 'a call without a name' }]],
    [
      'a list of arguments',
      '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
      [{ malformed: 'add: arguments that are no JSON object' }],
    ],
    [
      'a function that is cut off',
      '<tool_call><function=add></tool_call>',
      [{ malformed: 'a call without </function>' }],
    ],
    ['a list that is none', '[TOOL_CALLS] [{', [{ malformed: 'calls that are no list in JSON' }]],
    ['no call behind the mark', '[TOOL_CALLS] ', [{ malformed: 'a call without name and arguments' }]],
  ])('are read: %s', (_, raw, expected) => {
    expect(calls(raw)).toEqual(expected)
  })

  test('are answered by messages of tools, which name them where they can', () => {
    const results = [
      { content: '3', isError: false },
      { content: 'error: a call without a name', isError: true },
    ]
    expect(templateFormat.answers(results, [...one(), { malformed: 'a call without a name' }])).toEqual([
      { role: 'tool', content: '3', name: 'add' },
      { role: 'tool', content: 'error: a call without a name' },
    ])
  })
})
