/** Chat templates of published families, as the package TRL has them, against transformers: the same bytes for the same conversations. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import type { Message } from '../../src/environments/text.ts'
import { jinjaTemplate, type TemplateArguments } from '../../src/language/templates/chat-template.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Writes each family's template, and what transformers renders with it: null where the template refuses a conversation. */
const SCRIPT = `
import json, sys
from pathlib import Path
import trl
from transformers.utils.chat_template_utils import render_jinja_template
asked, answer = sys.argv[1:]
given = json.load(open(asked))
out = {}
for family in given["families"]:
    source = (Path(trl.__file__).parent / "chat_templates" / f"{family}.jinja").read_text()
    said = []
    for each in given["texts" if family in given["takesText"] else "conversations"]:
        try:
            rendered, _ = render_jinja_template(
                conversations=[each["messages"]], tools=each.get("tools"), chat_template=source,
                add_generation_prompt=each["addGenerationPrompt"], **given["variables"], **each["variables"])
            said.append(rendered[0])
        except Exception as error:
            said.append({"error": f"{type(error).__name__}: {error}"[:200]})
    out[family] = {"source": source, "said": said}
json.dump(out, open(answer, "w"))
`

/** The templates by the names that TRL gives them; the number of conversations that each renders at least, as some refuse roles. */
const FAMILIES = {
  cohere2: 60,
  deepseek_r1_distill: 150,
  deepseekv3: 100,
  gemma3: 60,
  glm4moe: 150,
  lfm2_v2: 150,
  llama3_1: 100,
  llama3_2: 100,
  nemotron_3_nano: 150,
  phi3_5: 100,
  qwen2_5: 150,
  qwen3: 150,
  qwen3_6: 100,
} as const
type Family = keyof typeof FAMILIES
/** Those that take the arguments of a call as a JSON text alone. */
const TAKES_TEXT: readonly Family[] = ['deepseekv3']

const NUM_CONVERSATIONS = 200
const VARIABLES = { bos_token: '<bos>', eos_token: '<eos>', pad_token: '<pad>', date_string: '26 Jul 2024' }

const WORDS = [
  'hello',
  'Größe',
  '数',
  "it's",
  '<b>&amp;',
  '"q"',
  'a\\b',
  '\n',
  '\n\n',
  '  ',
  '🙂',
  '{{ x }}',
  '<|im_end|>',
  '1.50',
]
const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'The weather of a place, in "degrees".',
      parameters: {
        type: 'object',
        properties: {
          place: { type: 'string', description: 'Where: Zürich, 東京 …' },
          days: { type: 'integer', description: 'How many', default: 1 },
          units: { type: 'string', enum: ['C', 'F'] },
        },
        required: ['place'],
      },
    },
  },
  {
    type: 'function',
    function: {
      name: 'add',
      description: 'Adds numbers.',
      parameters: { type: 'object', properties: { terms: { type: 'array', items: { type: 'number' } } } },
    },
  },
]
const ARGUMENTS = [
  { place: 'Zürich', days: 2 },
  { terms: [1, 2.5, -0.125, 12345678901] },
  { place: '"東京"\n', units: null, deep: { a: [true, false, {}], b: [] } },
  {},
]

interface Conversation {
  readonly messages: readonly Message[]
  readonly tools?: readonly object[]
  readonly addGenerationPrompt: boolean
  readonly variables: TemplateArguments
}

/** Conversation i: system messages, several turns, calls of tools with their answers, and thinking, each now and then. */
function conversation(i: number): Conversation {
  const random = new Random(7)
  let n = 0
  const below = (limit: number): number => {
    random.draw(Stream.reset, i, n++, 0)
    return random.words[0]! % limit
  }
  const text = (): string =>
    Array.from({ length: 1 + below(5) }, () => WORDS[below(WORDS.length)]!).join(below(2) ? ' ' : '')
  const messages: Message[] = below(2) ? [{ role: 'system', content: text() }] : []
  const hasTools = i % 2 === 1
  for (let turn = below(3); turn >= 0; turn--) {
    messages.push({ role: 'user', content: text() })
    if (hasTools && below(3) > 0) {
      const calls = Array.from({ length: 1 + (below(4) === 0 ? 1 : 0) }, (_, at) => ({
        id: `call${i}${at}`,
        type: 'function',
        function: { name: below(2) ? 'weather' : 'add', arguments: ARGUMENTS[below(ARGUMENTS.length)] },
      }))
      const thought = below(2) ? { reasoning_content: text() } : {}
      messages.push({ role: 'assistant', content: below(2) ? text() : '', tool_calls: calls, ...thought })
      for (const { id, function: called } of calls) {
        messages.push({ role: 'tool', name: called.name, tool_call_id: id, content: text() })
      }
    }
    if (turn === 0 && below(2)) break
    const [thought, said] = [below(3), text()]
    if (thought === 0) messages.push({ role: 'assistant', content: `<think>\n${text()}\n</think>\n\n${said}` })
    else messages.push({ role: 'assistant', content: said, ...(thought === 1 && { reasoning_content: text() }) })
  }
  const variables = below(4) === 0 ? { enable_thinking: below(2) === 0 } : {}
  const isAsked = messages.at(-1)!.role !== 'assistant'
  return { messages, ...(hasTools && { tools: TOOLS }), addGenerationPrompt: isAsked, variables }
}

const conversations = Array.from({ length: NUM_CONVERSATIONS }, (_, i) => conversation(i))
/** The same with arguments as texts. */
const texts = conversations.map((each) => ({
  ...each,
  messages: each.messages.map((message) => {
    const calls = message.tool_calls as { function: { arguments: object } }[] | undefined
    if (calls === undefined) return message
    const told = calls.map((call) => {
      return { ...call, function: { ...call.function, arguments: JSON.stringify(call.function.arguments) } }
    })
    return { ...message, tool_calls: told }
  }),
}))
let theirs: Record<string, { readonly source: string; readonly said: readonly (string | { readonly error: string })[] }>
let why = ''

beforeAll(async () => {
  const found = await findInstalled('trl, transformers')
  if (!('python' in found)) {
    why = found.why
    console.warn(`SKIPPED: chat templates in transformers (${why})`)
    return
  }
  const folder = await temporaryFolder()
  const [asked, answer] = [join(folder, 'asked.json'), join(folder, 'answer.json')]
  const question = {
    families: Object.keys(FAMILIES),
    ...{ conversations, texts, takesText: TAKES_TEXT, variables: VARIABLES },
  }
  await writeFile(asked, JSON.stringify(question))
  const { code, stderr } = await attempt(found.python, ['-c', SCRIPT, asked, answer])
  if (code !== 0) throw new Error(stderr)
  theirs = JSON.parse(await readFile(answer, 'utf8'))
}, PYTHON_MS)

beforeEach((context) => {
  context.skip(why !== '', why)
})

describe('chat templates of published families', () => {
  test.each(Object.keys(FAMILIES) as Family[])(
    '%s: the bytes of transformers for each conversation',
    async (family) => {
      const { source, said } = theirs[family]!
      const template = await jinjaTemplate(family, { default: source }, VARIABLES)
      const readsTools = source.includes('tools')
      let rendered = 0
      for (const [i, { messages, tools, addGenerationPrompt, variables }] of (TAKES_TEXT.includes(family)
        ? texts
        : conversations
      ).entries()) {
        const own = Object.fromEntries(Object.entries(variables).filter(([name]) => template.reads!.includes(name)))
        const options = { addGenerationPrompt, variables: own, ...(readsTools && tools !== undefined && { tools }) }
        const expected = said[i]!
        const render = () => template.render(messages, options)
        if (typeof expected === 'string') {
          expect(render(), `${family}, conversation ${i}`).toBe(expected)
          rendered++
        } else expect(render, `${family}, conversation ${i}: ${expected.error}`).toThrow()
      }
      expect(rendered).toBeGreaterThanOrEqual(FAMILIES[family])
    },
  )
})
