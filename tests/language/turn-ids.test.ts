import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import type { Message } from '../../src/environments/text.ts'
import { jinjaTemplate } from '../../src/language/templates/chat-template.ts'
import { spelledMessage } from '../../src/language/templates/dialogue.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import type { Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { nextTurn, promptIds, renderIds, trainingRows, turnIds } from '../../src/language/tokenizers/turn-ids.ts'
import * as fc from '../support/properties.ts'
import { QWEN3_TEMPLATE } from '../support/qwen3-folder.ts'
import { expectedOf, folderOf, recorded } from './golden.ts'

const user = (content: string): Message => ({ role: 'user', content })
const assistant = (content: string): Message => ({ role: 'assistant', content })
const load = (name: string) => loadTokenizer(folderOf(name))

/** The tokenizer of bytes with another template. */
async function bytesWith(source: string): Promise<Tokenizer> {
  return { ...byteTokenizer(), chatTemplate: await jinjaTemplate('its template', { default: source }) }
}

/** The only row of an example. */
function rowOf(...given: Parameters<typeof trainingRows>) {
  const rows = trainingRows(...given)
  expect(rows).toHaveLength(1)
  return rows[0]!
}

/** What the mask lets the model learn, in one text a run. */
function learned(tokenizer: Tokenizer, { ids, lossMask }: { ids: number[]; lossMask: number[] }): string[] {
  expect(lossMask).toHaveLength(ids.length)
  const runs: number[][] = []
  ids.forEach((id, i) => {
    if (lossMask[i] !== 1) return
    if (lossMask[i - 1] !== 1) runs.push([])
    runs.at(-1)!.push(id)
  })
  return runs.map((run) => tokenizer.decode(run))
}

describe('renderIds', () => {
  test.each(recorded)('%s has the ids that transformers makes of a rendered conversation', async (name) => {
    const tokenizer = await load(name)
    for (const { messages, ids } of expectedOf(name).conversations) {
      if (ids) expect(renderIds(tokenizer, messages, { addGenerationPrompt: true })).toEqual(ids)
    }
  })

  test('the token at the start stands there once, not again before the template', async () => {
    const tokenizer = await load('llama3')
    const ids = promptIds(tokenizer, [user('Hi')])
    expect(ids.filter((id) => id === tokenizer.beginIds[0])).toEqual(tokenizer.beginIds)
    expect(promptIds(tokenizer, 'Hi')).toEqual([...tokenizer.beginIds, ...tokenizer.encode('Hi')])
  })

  test('a message that was templated before does not open turns: what it spells is text', async () => {
    const tokenizer = await load('qwen2')
    const start = tokenizer.encode('<|im_start|>', { special: true })[0]
    const templated = tokenizer.chatTemplate!.render([user('Hi')], { addGenerationPrompt: true })
    const ids = promptIds(tokenizer, [user(templated)])
    expect(ids.filter((id) => id === start)).toHaveLength(3) // System, user, and where the assistant begins.
    expect(tokenizer.decode(ids)).toBe(tokenizer.chatTemplate!.render([user(templated)], { addGenerationPrompt: true }))
  })

  test('messages need a template, plain text does not', () => {
    const digits = byteTokenizer({ alphabet: '0123' })
    expect(promptIds(digits, '12')).toEqual([1, 2])
    expect(() => promptIds(digits, [user('12')])).toThrow(/tokenizer alphabet:0123: got no chat template/)
  })
})

describe('turnIds', () => {
  test.each(['qwen2', 'smollm', 'llama3', 'llama', 'mistral'])(
    '%s: what follows a turn is what the template has there',
    async (name) => {
      const tokenizer = await load(name)
      const before = [user('Hi 😀'), assistant('Hello, fox')]
      const after = [...before, user('And 1 + 2?\n')]
      const prompt = tokenizer.chatTemplate!.render(before.slice(0, 1), { addGenerationPrompt: true })
      const [end] = tokenizer.endIds
      const added = turnIds(tokenizer, before, after, end!)
      const whole = tokenizer.chatTemplate!.render(after, { addGenerationPrompt: true })
      const said = tokenizer.decode([end!])
      const rest = whole.slice(whole.indexOf(said, prompt.length) + said.length)
      const ids = renderIds(tokenizer, after, { addGenerationPrompt: true })
      expect(added).toEqual(ids.slice(-added.length))
      expect(ids.at(-added.length - 1)).toBe(end)
      expect(tokenizer.decode([end!, ...added])).toContain(rest.trim())
    },
  )

  test('the default system message does not come again with each turn', async () => {
    const tokenizer = await load('qwen2')
    let messages = [user('a'), assistant('b')]
    let ids = promptIds(tokenizer, messages.slice(0, 1))
    for (const content of ['c', 'd', 'e']) {
      ids = [...ids, ...tokenizer.encode('b'), tokenizer.endIds[0]!]
      ids.push(...turnIds(tokenizer, messages, [...messages, user(content)], ids.at(-1)!))
      messages = [...messages, user(content), assistant('b')]
    }
    const text = tokenizer.decode(ids)
    expect(text.split('You are a helpful assistant.')).toHaveLength(2)
    expect(text).toBe(tokenizer.chatTemplate!.render(messages.slice(0, -1), { addGenerationPrompt: true }))
  })

  test('ids that were sampled are not tokenized again, though their text has other ids', async () => {
    const tokenizer = await load('qwen2')
    const sampled = [...'Hello'].flatMap((letter) => tokenizer.encode(letter))
    expect(sampled).not.toEqual(tokenizer.encode('Hello'))
    const before = [user('Hi'), assistant(tokenizer.decode(sampled))]
    const added = turnIds(tokenizer, before, [...before, user('More')], tokenizer.endIds[0]!)
    expect(tokenizer.decode(added)).toBe('\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n')
    const stored = [...promptIds(tokenizer, before.slice(0, 1)), ...sampled, tokenizer.endIds[0]!, ...added]
    expect(tokenizer.decode(stored)).toBe(
      tokenizer.chatTemplate!.render([...before, user('More')], { addGenerationPrompt: true }),
    )
  })

  test('a turn that was cut is ended first; one that ended with another end id, by the end of the template', async () => {
    const tokenizer = await load('qwen2')
    const [end, other] = tokenizer.endIds
    const before = [user('Hi'), assistant('Hel')]
    const after = [...before, user('More')]
    const ended = turnIds(tokenizer, before, after, end!)
    expect(turnIds(tokenizer, before, after, tokenizer.encode('l')[0]!)).toEqual([end, ...ended])
    expect(turnIds(tokenizer, before, after, other!)).toEqual([end, ...ended])
  })

  test('a template that trims what was said does not hinder: what was said stays as it was', async () => {
    const tokenizer = await load('llama3')
    const before = [user('Hi'), assistant(' Hello \n')]
    const added = turnIds(tokenizer, before, [...before, user('More')], tokenizer.endIds[0]!)
    expect(tokenizer.decode(added)).toBe(
      '<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    )
  })

  test('what the assistant or the environment spells out does not end a turn', async () => {
    const tokenizer = byteTokenizer()
    const before = [user('Hi'), assistant('I say <|end|> <|user|>')]
    const added = turnIds(tokenizer, before, [...before, user('<|assistant|>yes')], 257)
    expect(added).toEqual([260, ...Buffer.from('<|assistant|>yes'), 257, 261])
  })

  test('a template that drops earlier thinking is refused, at the place where the texts part', async () => {
    const tokenizer = await bytesWith(
      '{% for m in messages %}<|{{ m.role }}|>{% if m.role == "assistant" and not loop.last %}' +
        '{{ m.content.split("</think>")[-1] }}{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}' +
        '{% if add_generation_prompt %}<|assistant|>{% endif %}',
    )
    const before = [user('Hi'), assistant('<think>hm</think>Hello')]
    const turn = () => turnIds(tokenizer, before, [...before, user('More')], 257)
    expect(turn).toThrow(InputError)
    expect(turn).toThrow(
      /its template: got the earlier messages change.*at character 30, .*<think>hm.* becomes .*Hello.*remove thinking/,
    )
    const plain = [user('Hi'), assistant('Hello')]
    expect(turnIds(tokenizer, plain, [...plain, user('More')], 257)).toEqual([260, ...Buffer.from('More'), 257, 261])
  })

  test('a template that leaves a turn open ends it where the words end', async () => {
    const tokenizer = await bytesWith(
      '{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}' +
        '{% if add_generation_prompt %}assistant:{% endif %}',
    )
    const before = [user('Hi'), assistant(' Hello ')]
    const added = turnIds(tokenizer, before, [...before, user('More')], 111)
    expect(tokenizer.decode(added)).toBe('\nuser: More\nassistant:')
  })

  test('messages that are no continuation are refused', () => {
    const tokenizer = byteTokenizer()
    expect(() => turnIds(tokenizer, [user('a')], [user('a'), user('b')], 0)).toThrow(/before: .*the assistant last/)
    const before = [user('a'), assistant('b')]
    expect(() => turnIds(tokenizer, before, [user('x'), assistant('b'), user('c')], 0)).toThrow(/messages of before/)
    expect(() => turnIds(tokenizer, before, before, 0)).toThrow(/then new ones/)
  })
})

describe('nextTurn', () => {
  /** The recorded tokenizer of Qwen2, which has <think>, with what Qwen3's template does. */
  async function qwen3(given: Record<string, unknown> = {}): Promise<Tokenizer> {
    return {
      ...(await load('qwen2')),
      chatTemplate: await jinjaTemplate('qwen3', { default: QWEN3_TEMPLATE }, {}, given),
    }
  }

  test('goes on from what stands where the model thought nothing, though the template tells of empty thoughts at the end', async () => {
    const tokenizer = await qwen3()
    const before = [user('Hi'), assistant('Hello')]
    expect(tokenizer.chatTemplate!.render(before)).toContain('<think>\n\n</think>')
    const { ids, isRewritten } = nextTurn(tokenizer, before, [...before, user('More')], tokenizer.endIds[0]!)
    expect(isRewritten).toBe(false)
    expect(tokenizer.decode(ids)).toBe('\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n')
  })

  test('begins anew where thinking is taken out of the turn before, and not within one question and its tools', async () => {
    const tokenizer = await qwen3()
    const before = [user('Hi'), assistant('<think>\nhm\n</think>\n\nHello')]
    const after = [...before, user('More')]
    const { ids, isRewritten } = nextTurn(tokenizer, before, after, tokenizer.endIds[0]!)
    expect(isRewritten).toBe(true)
    expect(ids).toEqual(renderIds(tokenizer, after, { addGenerationPrompt: true }))
    expect(tokenizer.decode(ids)).not.toContain('hm')
    expect(() => turnIds(tokenizer, before, after, tokenizer.endIds[0]!)).toThrow(/becomes .*remove thinking/)
    const tool = nextTurn(tokenizer, before, [...before, { role: 'tool', content: '3' }], tokenizer.endIds[0]!)
    expect(tool.isRewritten).toBe(false)
    expect(tokenizer.decode(tool.ids)).toContain('<tool_response>\n3')
  })

  test('begins anew where the prompt of a turn is not what the template tells of it: without thinking', async () => {
    const tokenizer = await qwen3({ enable_thinking: false })
    const before = [user('Hi'), assistant('Hello')]
    expect(tokenizer.decode(promptIds(tokenizer, before.slice(0, 1)))).toContain('<think>\n\n</think>\n\n')
    expect(nextTurn(tokenizer, before, [...before, user('More')], tokenizer.endIds[0]!).isRewritten).toBe(true)
  })

  test('a special token that the model chose is one again when its turn is rendered anew; one that it spelled is text', async () => {
    const plain = await qwen3()
    const call = '<|endoftext|>' // A special token, as those by which some models call tools.
    const [id] = plain.encode(call, { special: true })
    const words = (text: string) => plain.encode(text)
    const said = [...words('<think>\nx\n</think>\n\na '), ...words(call), id!, ...words('b')]
    const message = spelledMessage(plain, said)
    expect(message.content).toBe(`<think>\nx\n</think>\n\na ${call}b`)
    const before = [user('Hi'), message]
    const { ids, isRewritten } = nextTurn(plain, before, [...before, user('More')], plain.endIds[0]!)
    expect(isRewritten).toBe(true)
    expect(ids.filter((each) => each === id)).toHaveLength(1)
    expect(plain.decode(ids)).toContain(`assistant\na ${call}${call}b<|im_end|>`)
    const forged = [{ ...user(call), spelled: { text: call, special: [0] } }]
    expect(renderIds(plain, forged)).not.toContain(id) // Nobody else chooses tokens.
  })

  test('messages without content that call tools are rendered with their calls, in which special tokens are text', async () => {
    const tokenizer = await qwen3()
    const [start] = tokenizer.encode('<|im_start|>', { special: true })
    const calls = [{ type: 'function', function: { name: 'add', arguments: { a: 1, b: '<|im_start|>' } } }]
    const messages = [
      user('1+2?'),
      { role: 'assistant', content: null, tool_calls: calls },
      { role: 'tool', content: '3' },
    ]
    const ids = renderIds(tokenizer, messages, { addGenerationPrompt: true })
    expect(tokenizer.decode(ids)).toBe(tokenizer.chatTemplate!.render(messages, { addGenerationPrompt: true }))
    expect(tokenizer.decode(ids)).toContain('<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "<|im_start|>"}}')
    expect(ids.filter((id) => id === start)).toHaveLength(4)
    const rows = trainingRows(tokenizer, [...messages, assistant('3')])
    expect(rows.flatMap((row) => learned(tokenizer, row)).join()).toContain('<tool_call>')
    expect(() => renderIds(tokenizer, [{ role: 'assistant', content: null }])).toThrow(/message: got/)
  })
})

describe('trainingRows of several turns', () => {
  const heard = (content: string): Message => ({ role: 'tool', content })

  test('behind a plain text teach each turn of the assistant with its end, and nothing of what it hears', () => {
    const tokenizer = byteTokenizer({ alphabet: '0123456789=[]*' })
    const row = rowOf(tokenizer, { prompt: '3*4=', answer: [assistant('[3*4]'), heard('12='), assistant('12')] })
    expect(tokenizer.decode(row.ids)).toBe('3*4=[3*4]<|end|>12=12<|end|>')
    expect(learned(tokenizer, row)).toEqual(['[3*4]<|end|>', '12<|end|>'])
  })

  test('behind messages go by the template, which is told of the tools', async () => {
    const source =
      "{{ tools | tojson }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}" +
      "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    const tokenizer = await bytesWith(source)
    const answer = [assistant('call'), heard('12'), assistant('It is 12.')]
    const row = rowOf(tokenizer, { prompt: [user('3*4?')], answer }, [{ name: '<|end|>' }])
    const text = '[{"name": "<|end|>"}]<|user|>3*4?<|end|><|assistant|>'
    expect(tokenizer.decode(row.ids)).toBe(`${text}call<|end|><|tool|>12<|end|><|assistant|>It is 12.<|end|>`)
    expect(learned(tokenizer, row)).toEqual(['call<|end|>', 'It is 12.<|end|>'])
    // What a schema spells is text: the end tokens are those of the messages.
    expect(row.ids.filter((id) => id === tokenizer.endIds[0])).toHaveLength(4)
    const prompt = promptIds(tokenizer, [user('3*4?')], [{ name: '<|end|>' }])
    expect(row.ids.slice(0, prompt.length)).toEqual(prompt)
    const [call, told] = answer
    const before = [user('3*4?'), call!]
    const ids = turnIds(tokenizer, before, [...before, told!], tokenizer.endIds[0]!, [{ name: '<|end|>' }])
    expect(tokenizer.decode(ids)).toBe('<|tool|>12<|end|><|assistant|>')
  })

  test('are refused where the template tells the model of no tools', async () => {
    const tools = [{ name: 'add' }]
    expect(() => promptIds(byteTokenizer(), [user('Hi')], tools)).toThrow(
      'the byte template: got tools, which it cannot render, expected messages alone',
    )
    const tokenizer = await load('qwen2')
    expect(() => promptIds(tokenizer, [user('Hi')], tools)).toThrow('expected a template that reads tools')
  })
})

describe('trainingRows', () => {
  const conversation = [
    { role: 'system', content: 'Be short.' },
    user('What is 1 + 2?'),
    assistant('3'),
    { role: 'tool', content: 'noted' },
    user('And 😀?'),
    assistant('Hello'),
  ]

  test.each(['qwen2', 'smollm'])('%s learns what the assistant says and its end, and nothing else', async (name) => {
    const tokenizer = await load(name)
    const example = rowOf(tokenizer, conversation)
    expect(learned(tokenizer, example)).toEqual(['3<|im_end|>', 'Hello<|im_end|>'])
    expect(example.ids).toEqual(renderIds(tokenizer, conversation))
  })

  test.each(['llama', 'mistral'])('%s learns words as it will have to say them, with their space', async (name) => {
    const tokenizer = await load(name)
    const example = rowOf(tokenizer, [user('Hi'), assistant('Hello fox'), user('More'), assistant('Paris')])
    expect(learned(tokenizer, example)).toEqual(['Hello fox</s>', 'Paris</s>'])
    const prompt = promptIds(tokenizer, [user('Hi')])
    expect(example.ids.slice(0, prompt.length)).toEqual(prompt)
    expect(example.lossMask.slice(0, prompt.length + 1)).toEqual([...prompt.map(() => 0), 1])
    expect(tokenizer.decode(example.ids)).toContain('[/INST] Hello fox</s>')
  })

  test('each prompt in it is what the model is given when it speaks, and each break what turnIds puts there', async () => {
    const tokenizer = await load('llama3')
    const messages = [user('Hi'), assistant('Hello'), user('More'), assistant('Paris')]
    const end = tokenizer.endIds[0]!
    const ids = [...promptIds(tokenizer, messages.slice(0, 1)), ...tokenizer.encode('Hello'), end]
    ids.push(...turnIds(tokenizer, messages.slice(0, 2), messages.slice(0, 3), end), ...tokenizer.encode('Paris'), end)
    expect(rowOf(tokenizer, messages).ids).toEqual(ids)
  })

  test('any conversation: the mask is 0 but for its words and ends, whatever messages spell out', () => {
    const tokenizer = byteTokenizer()
    const words = fc
      .array(fc.constantFrom('a', 'é', '\n', ' ', '<|end|>', '<|user|>', '\u{fdd0}', '7\u{fdd1}'))
      .map((w) => w.join(''))
    const message = fc.record({ role: fc.constantFrom('system', 'user', 'assistant', 'tool'), content: words })
    fc.assert(
      fc.property(fc.array(message), words, (messages, last) => {
        const all = [...messages, assistant(last)]
        const example = rowOf(tokenizer, all)
        expect(example.ids).toEqual(renderIds(tokenizer, all))
        const said = all.filter(({ role }) => role === 'assistant').map(({ content }) => `${content}<|end|>`)
        const masked = example.ids.filter((_, i) => example.lossMask[i] === 1)
        expect(masked).toEqual(said.flatMap((text) => [...Buffer.from(text.slice(0, -7)), 257]))
      }),
    )
  })

  test('a prompt and its answer: the prompt is told, the answer and its end are learned', async () => {
    const digits = byteTokenizer({ alphabet: '0123+=' })
    expect(rowOf(digits, { prompt: '1+2=', answer: '3' })).toEqual({
      ids: [1, 4, 2, 5, 3, 6],
      lossMask: [0, 0, 0, 0, 1, 1],
    })
    const llama = await load('llama')
    const example = rowOf(llama, { prompt: 'The answer is', answer: ' Paris' })
    expect(example.ids[0]).toBe(llama.beginIds[0])
    expect(llama.decode(example.ids)).toBe('<s> The answer is Paris</s>')
    expect(learned(llama, example)).toEqual(['Paris</s>'])
  })

  test('a prompt of messages and its answer are the conversation of both', async () => {
    const tokenizer = await load('qwen2')
    const prompt = [user('Hi')]
    expect(rowOf(tokenizer, { prompt, answer: 'Hello' })).toEqual(rowOf(tokenizer, [...prompt, assistant('Hello')]))
  })

  test('a template that never ends the turn is refused, and does not take the end of the next message for it', async () => {
    const tokenizer = await bytesWith(
      '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == "user" %}<|end|>{% endif %}{% endfor %}' +
        '{% if add_generation_prompt %}<|assistant|>{% endif %}',
    )
    const messages = [user('Hi'), assistant('Hello'), user('More')]
    expect(() => rowOf(tokenizer, messages)).toThrow(/its template: got no end token after/)
  })

  test('a generation prompt that the conversation does not have is refused', async () => {
    const tokenizer = await bytesWith(
      '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}' +
        '{% if add_generation_prompt %}<|assistant|><think>{% endif %}',
    )
    expect(() => rowOf(tokenizer, [user('Hi'), assistant('Hello')])).toThrow(/<think>" becomes .*Hello/)
  })

  test('nothing to learn, and a tokenizer without an end, are refused', () => {
    const tokenizer = byteTokenizer()
    expect(() => rowOf(tokenizer, [user('Hi')])).toThrow(/text by the assistant/)
    expect(() => rowOf({ ...tokenizer, endIds: [] }, { prompt: 'a', answer: 'b' })).toThrow(/no end id/)
  })
})
