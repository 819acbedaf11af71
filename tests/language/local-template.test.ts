/** Templates that tell of each message by itself, and conversations that go on without their middle as with it. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import type { Message } from '../../src/environments/text.ts'
import { parseBounded } from '../../src/language/templates/bounded-template.ts'
import { isLocal } from '../../src/language/templates/local-template.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import type { Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { nextTurn } from '../../src/language/tokenizers/turn-ids.ts'
import { TOOL_TEMPLATE } from '../support/gateway.ts'
import { QWEN3_TEMPLATE, writeQwen3 } from '../support/qwen3-folder.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SAY = `{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}`
const TAIL = `{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}`
const loop = (body: string) => `{%- for message in messages %}${body}{%- endfor %}`

/** Templates of the forms that models come with. */
const LOCAL = {
  'ChatML, with a system message where there is none': `${loop(
    `{%- if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nHelp.<|im_end|>\\n' }}{%- endif %}${SAY}`,
  )}${TAIL}`,
  'tools, with answers side by side': `{%- if tools %}{{ tools | tojson }}{%- endif %}${loop(
    `{%- if message.role == 'tool' %}{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}{{ '\\n' + message.content }}{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{%- endif %}{%- else %}${SAY}{%- endif %}`,
  )}${TAIL}`,
  'turns of two, with what is set': `${loop(
    `{%- set said = message.content | trim %}{%- if said %}{%- set said = said + '!' %}{%- endif %}{{ '[' + (loop.index0 % 2) | string + ']' + said + '<|im_end|>' }}`,
  )}${TAIL}`,
  'the last message another way': `${loop(`{%- if loop.last %}{{ '*' }}{%- endif %}${SAY}`)}${TAIL}`,
  'calls of tools': TOOL_TEMPLATE,
}

/** And of those that look at more. */
const OTHER = {
  'the number of messages': `{{ messages | length }}${loop(SAY)}`,
  'the last message': `{{ messages[-1].role }}${loop(SAY)}`,
  'messages from the second on': `{%- set rest = messages[1:] %}${loop(SAY)}`,
  'the number of a message': loop(`{{ loop.index }}${SAY}`),
  'messages from the end': loop(`{%- if loop.revindex < 3 %}${SAY}{%- endif %}`),
  'what an earlier message set': loop(
    `{{ seen }}{%- if message.role == 'user' %}{%- set seen = 1 %}{%- endif %}${SAY}`,
  ),
  'what an earlier message set, behind': loop(`{{ seen }}{%- set seen = message.role %}${SAY}`),
  'a namespace': `{%- set ns = namespace(n=0) %}${loop(`{%- set ns.n = ns.n + 1 %}{{ ns.n }}${SAY}`)}`,
  'two loops': `${loop(SAY)}${loop(SAY)}`,
  'a loop within': loop(`{%- for other in messages %}{{ other.role }}{%- endfor %}`),
  'messages of one role': `{%- for message in messages if message.role == 'user' %}${SAY}{%- endfor %}`,
  'a loop that ends early': loop(`{%- if message.role == 'tool' %}{%- break %}{%- endif %}${SAY}`),
  'the neighbor of a neighbor': loop(`{{ messages[loop.index0 - 2].role }}${SAY}`),
  'all messages under another name': `{%- set all = messages %}${loop(SAY)}`,
  'thinking that is taken out': QWEN3_TEMPLATE,
  'no message': 'hello',
}

describe('a template is', () => {
  test.each(Object.entries(LOCAL))('local: %s', (_, source) => expect(isLocal(parseBounded(source))).toBe(true))
  test.each(Object.entries(OTHER))('not local: %s', (_, source) => expect(isLocal(parseBounded(source))).toBe(false))
})

/** The same tokenizer, which renders all messages. */
function whole(tokenizer: Tokenizer): Tokenizer {
  return Object.create(tokenizer, { chatTemplate: { value: { ...tokenizer.chatTemplate!, isLocal: false } } })
}

describe('a long conversation goes on', () => {
  test.each(Object.entries(LOCAL))('without its middle as with it: %s', async (_, template) => {
    const folder = join(await temporaryFolder(), 'tiny')
    await writeQwen3(folder, { context: 400, template })
    const tokenizer = await loadTokenizer(folder)
    const random = new Random(7)
    let draws = 0
    const below = (n: number) => {
      random.draw(Stream.reset, 0, draws++, 0)
      return Math.floor(n * random.uniform(0))
    }
    let numRendered = 0
    const { render } = tokenizer.chatTemplate!
    Object.assign(tokenizer.chatTemplate!, {
      render: (messages: Message[], options: object) => {
        numRendered = Math.max(numRendered, messages.length)
        return render.call(tokenizer.chatTemplate, messages, options)
      },
    })
    for (let i = 0; i < 60; i++) {
      const before: Message[] = []
      while (before.length < 14 + below(20) || before.at(-1)!.role !== 'assistant') {
        const role = ['system', 'user', 'assistant', 'tool'][below(4)]!
        before.push({ role, content: ['x', 'a b', '<|im_end|>', ' y '][below(4)]! })
      }
      const more = Array.from({ length: 1 + below(3) }, () => ({ role: ['user', 'tool'][below(2)]!, content: 'new' }))
      const asked = [before, [...before, ...more], [1, tokenizer.endIds[0]!][below(2)]!] as const
      const expected = nextTurn(whole(tokenizer), ...asked)
      numRendered = 0
      expect(nextTurn(tokenizer, ...asked)).toEqual(expected)
      if (!expected.isRewritten) expect(numRendered).toBeLessThan(13)
    }
  })
})
