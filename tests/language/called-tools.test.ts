/** Templates that insist on `tool_calls` before what a tool answers. */
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { scriptedEngine } from '../../src/engines/scripted.ts'
import type { Message } from '../../src/environments/text.ts'
import { defineAgent } from '../../src/environments/tools/agent.ts'
import { defineTool, toolSchemas } from '../../src/environments/tools/tool.ts'
import { useTools } from '../../src/environments/tools/use-tools.ts'
import { type LanguageModelDefinition, languageModel } from '../../src/language/language-model.ts'
import { jinjaTemplate } from '../../src/language/templates/chat-template.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import type { Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { nextTurn, trainingRows } from '../../src/language/tokenizers/turn-ids.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { QWEN3_TEMPLATE } from '../support/qwen3-folder.ts'
import { folderOf } from './golden.ts'

/** Raises where a tool answers and the assistant's message before it has no tool_calls. */
const INSISTS = `{%- for message in messages %}
    {%- if message.role == 'tool' and messages[loop.index0 - 1].role == 'assistant' and not messages[loop.index0 - 1].tool_calls %}
        {{- raise_exception('a tool answers, and nothing was called') }}
    {%- endif %}
{%- endfor %}`

const qwen = await loadTokenizer(folderOf('qwen2'))
const withTemplate = async (template: string, tokenizer = qwen): Promise<Tokenizer> => ({
  ...tokenizer,
  chatTemplate: await jinjaTemplate('its template', { default: template }),
})
const [lenient, insisting] = [await withTemplate(QWEN3_TEMPLATE), await withTemplate(INSISTS + QWEN3_TEMPLATE)]

const user = (content: string): Message => ({ role: 'user', content })
const assistant = (content: string): Message => ({ role: 'assistant', content })
const tool = (content: string): Message => ({ role: 'tool', content })
/** Not as the template would write it: in another order, and with other spaces. */
const called = 'I add. <tool_call>{"arguments":{"a":1,  "b":40},"name":"add"}</tool_call>'

describe('a conversation under a template that insists on tool_calls', () => {
  test('goes on by the ids by which it would under one that does not', () => {
    const before = [user('1+40?'), assistant(called)]
    const after = [...before, tool('41')]
    const last = insisting.endIds[0]!
    const next = nextTurn(insisting, before, after, last)
    expect(next).toEqual(nextTurn(lenient, before, after, last))
    expect(next.isRewritten).toBe(false)
    expect(insisting.decode(next.ids)).toMatch(/^\n<\|im_start\|>user\n<tool_response>\n41\n<\/tool_response>/)
    const more = [...after, assistant(called.replace('40', '50')), tool('51'), tool('and more')]
    expect(nextTurn(insisting, more.slice(0, 4), more, last)).toEqual(nextTurn(lenient, more.slice(0, 4), more, last))
  })

  test('is learned of demonstrations with calls in words', () => {
    const lesson = [user('1+40?'), assistant(called), tool('41'), assistant('41')]
    // Two rows: the template takes thinking, though it is empty, out of the first turn when more follows.
    const rows = trainingRows(insisting, lesson)
    const said = rows.map(({ ids, lossMask }) => insisting.decode(ids.filter((_, i) => lossMask[i] === 1))).join('')
    // As the template writes the call, since that is what it teaches.
    expect(said).toContain('"name": "add", "arguments": {"a": 1, "b": 40}')
    expect(said).toContain('41<|im_end|>')
  })
})

describe('what the template is told', () => {
  /** A tokenizer whose template refuses messages as `refuse` says, and what it was told last. */
  function watched(refuse: (messages: readonly Message[]) => string | null) {
    const told: (readonly Message[])[] = []
    const tokenizer: Tokenizer = {
      ...byteTokenizer(),
      chatTemplate: {
        name: 'strict',
        render(messages) {
          const why = refuse(messages)
          if (why !== null) throw new InputError('strict', why, 'what it wants')
          told.push(messages)
          return messages.map(({ role, content }) => `<|${role}|>${content}<|end|>`).join('')
        },
      },
    }
    return { tokenizer, last: () => told.at(-1)! }
  }
  const lacksCalls = (messages: readonly Message[]) =>
    messages.some(
      ({ role }, i) => role === 'tool' && messages[i - 1]!.role === 'assistant' && !messages[i - 1]!.tool_calls,
    )
      ? 'no tool_calls'
      : null
  const two = `<think>no</think>Both.${called.slice(7)}<tool_call>{"name":"b"</tool_call>`
  const whole = [user('?'), assistant(two), tool('1'), tool('2')]

  test('are the words before the calls, and each call with an id of nine letters, which its answer has too', () => {
    const all: (readonly Message[])[] = []
    const spy = watched((messages) => {
      all.push(messages)
      return lacksCalls(messages)
    })
    nextTurn(spy.tokenizer, whole.slice(0, 2), whole, 0)
    const longest = all.filter(({ length }) => length === 4).at(-1)!
    expect(longest[1]).toEqual({
      role: 'assistant',
      content: '<think>no</think>Both.',
      tool_calls: [
        { id: 'call00000', type: 'function', function: { name: 'add', arguments: { a: 1, b: 40 } } },
        {
          id: 'call00001',
          type: 'function',
          function: { name: 'malformed', arguments: { written: '<tool_call>{"name":"b"</tool_call>' } },
        },
      ],
    })
    expect(longest.slice(2).map((message) => message.tool_call_id)).toEqual(['call00000', 'call00001'])
  })

  test('are arguments as JSON in a text, where it refuses objects', () => {
    const seen: unknown[] = []
    const { tokenizer } = watched((messages) => {
      const calls = messages.flatMap(({ tool_calls: each }) => (each ?? []) as { function: { arguments: unknown } }[])
      if (calls.some((call) => typeof call.function.arguments !== 'string')) return 'arguments that are no text'
      seen.push(...calls.map((call) => call.function.arguments))
      return lacksCalls(messages)
    })
    nextTurn(tokenizer, whole.slice(0, 2), whole, 0)
    expect(seen).toContain('{"a":1,"b":40}')
  })

  test('are the messages as they are, where it takes those; and its own reason stands where it takes none', () => {
    const plain = watched(() => null)
    nextTurn(plain.tokenizer, whole.slice(0, 2), whole, 0)
    expect(JSON.stringify(plain.last())).not.toContain('tool_calls')
    const none = watched((messages) =>
      messages.length === 4 ? `refused with ${messages[1]!.tool_calls ? '' : 'no '}calls` : null,
    )
    expect(() => nextTurn(none.tokenizer, whole.slice(0, 2), whole, 0)).toThrow('refused with no calls')
    const silent = [user('?'), assistant('I call nothing'), tool('1')]
    const strict = watched(lacksCalls)
    expect(() => nextTurn(strict.tokenizer, silent.slice(0, 2), silent, 0)).toThrow('strict: got no tool_calls')
  })
})

test('an agent calls its tools under such a template, and what it wrote stays as it was sampled', async () => {
  const add = defineTool({
    name: 'add',
    description: 'The sum of two numbers.',
    parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
    run: ({ a, b }) => (a as number) + (b as number),
  })
  const environment = defineAgent({
    id: 'text/adding',
    settings: {},
    make: () => ({
      numExamples: 1,
      maxTurns: 3,
      maxTokens: 100,
      example: () => ({ prompt: [user('1+40?')], tools: toolSchemas([add]) }),
      async run(context) {
        const { turn, calls } = await useTools(context, { tools: [add] })
        return { reward: turn.completion === '41' ? 1 : 0, components: { calls } }
      },
    }),
  })()
  const strict =
    "{% if tools %}{{ '<|system|>' + (tools | tojson) + '<|end|>' }}{% endif %}{% for message in messages %}" +
    "{{ '<|' + message.role + '|>' + message.content }}{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}" +
    "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
  const tokenizer = await withTemplate(INSISTS + strict, byteTokenizer())
  const model = { width: 8, layers: 1, heads: 2, context: 1024, anyText: true }
  const policy: LanguageModelDefinition = {
    ...languageModel(model),
    open: async (given) => ({ ...(await languageModel(model).open(given)), tokenizer }),
  }
  const engine = scriptedEngine((turn, ids) => {
    const text = tokenizer.decode(turn.ids).includes('<|tool|>') ? '41' : called
    return { token: [...tokenizer.encode(text), tokenizer.endIds[0]!][ids.length - turn.ids.length]!, logprob: -1 }
  })
  const [row] = await talkUntil(await talkWorld({ environment, policy, numLanes: 1, engine }), 1)
  const { token, lossMask, reward, components, segment } = row!
  expect([reward, components, segment]).toEqual([1, { calls: 1 }, 0])
  expect(tokenizer.decode(token.filter((_, t) => lossMask[t] === 1))).toBe(`${called}<|end|>41<|end|>`)
  expect(tokenizer.decode(token)).toContain(`${called}<|end|><|tool|>41<|end|><|assistant|>41<|end|>`)
})
