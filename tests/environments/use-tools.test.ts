import { describe, expect, test } from 'vitest'
import { type ScriptStep, scriptedEngine } from '../../src/engines/scripted.ts'
import { toolArithmetic } from '../../src/environments/tasks/tool-arithmetic.ts'
import { type AgentModel, defineAgent } from '../../src/environments/tools/agent.ts'
import { defineTool, toolSchemas } from '../../src/environments/tools/tool.ts'
import { useTools } from '../../src/environments/tools/use-tools.ts'
import { lessonOf, startOf } from '../../src/language/examples.ts'
import { type LanguageModelDefinition, languageModel } from '../../src/language/language-model.ts'
import { jinjaTemplate } from '../../src/language/templates/chat-template.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import type { Tokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { evaluateText } from '../../src/training/text/evaluate/evaluate.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'

/** Hermes' form, as small as it gets. */
const TEMPLATE =
  "{% if tools %}{{ '<|system|>' + (tools | tojson) + '<|end|>' }}{% endif %}{% for message in messages %}" +
  "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"

async function hermes(): Promise<Tokenizer> {
  return { ...byteTokenizer(), chatTemplate: await jinjaTemplate('its template', { default: TEMPLATE }) }
}

/** A small model whose conversations go by that template. */
const policy: LanguageModelDefinition = {
  ...languageModel({ width: 8, layers: 1, heads: 2, context: 1024, anyText: true }),
  async open(environment) {
    const opened = await languageModel({ width: 8, layers: 1, heads: 2, context: 1024, anyText: true }).open(
      environment,
    )
    return { ...opened, tokenizer: await hermes() }
  },
}

/** An engine whose turns say these texts, one after another, in each conversation. */
function saying(tokenizer: Tokenizer, turnOf: (prompt: string) => string) {
  return scriptedEngine((turn, ids): ScriptStep => {
    const said = ids.slice(turn.ids.length)
    const wanted = [...tokenizer.encode(turnOf(tokenizer.decode(turn.ids))), tokenizer.endIds[0]!]
    return { token: wanted[said.length]!, logprob: -1 }
  })
}

const add = defineTool({
  name: 'add',
  description: 'The sum of two numbers.',
  parameters: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
  },
  run: ({ a, b }) => (a as number) + (b as number),
})
const call = (name: string, given: object) => `<tool_call>${JSON.stringify({ name, arguments: given })}</tool_call>`

function adding(run: AgentModel['run']) {
  return defineAgent({
    id: 'text/adding',
    settings: {},
    make: () => ({
      numExamples: 3,
      maxTurns: 4,
      maxTokens: 200,
      example: (index) => ({
        prompt: [{ role: 'user', content: `${index}+40?` }],
        answer: String(index + 40),
        tools: toolSchemas([add]),
      }),
      run,
    }),
  })()
}

const judged: AgentModel['run'] = async (context) => {
  const { turn, calls, errors } = await useTools(context, { tools: [add] })
  return { reward: turn.completion === context.example.answer ? 1 : 0, components: { calls, errors } }
}

/** What is said in one conversation where the model says what `turnOf` makes of what stands. */
async function talk(run: AgentModel['run'], turnOf: (prompt: string) => string) {
  const tokenizer = await hermes()
  const engine = saying(tokenizer, turnOf)
  const world = await talkWorld({ environment: adding(run), policy, numLanes: 1, engine })
  const [row] = await talkUntil(world, 1)
  const { token, lossMask, reward, components, error } = row!
  const said = tokenizer.decode(token.filter((_, t) => lossMask[t] === 1))
  const heard = tokenizer.decode(token.filter((_, t) => lossMask[t] === 0))
  return { whole: tokenizer.decode(token), said, heard, reward, components, error }
}

const last = (prompt: string) => prompt.slice(prompt.lastIndexOf('<|tool|>') + '<|tool|>'.length).split('<|end|>')[0]!

describe('An agent with tools', () => {
  test('is told of them by the template, calls them, and hears of them with mask 0', async () => {
    const { whole, said, heard, reward, components } = await talk(judged, (prompt) => {
      if (prompt.includes('<|tool|>')) return last(prompt)
      const [, a] = /<\|user\|>(\d)\+40/.exec(prompt)!
      return `I add. ${call('add', { a: Number(a), b: 40 })}`
    })
    expect(whole).toContain('<|system|>[{"type": "function", "function": {"name": "add"')
    expect(heard).toMatch(/<\|tool\|>4[012]<\|end\|><\|assistant\|>$/)
    expect(said).toMatch(/^I add\. <tool_call>\{"name":"add",.*<\/tool_call><\|end\|>4[012]<\|end\|>$/)
    expect([reward, components]).toEqual([1, { calls: 1, errors: 0 }])
  })

  test('hears what went wrong, may try again, and is counted', async () => {
    const { heard, reward, components } = await talk(judged, (prompt) => {
      const rounds = prompt.split('<|assistant|>').length - 2
      const [, a] = /<\|user\|>(\d)\+40/.exec(prompt)!
      return [`${call('sum', {})}${call('add', { a: 1 })}`, call('add', { a: Number(a), b: 40 }), last(prompt)][rounds]!
    })
    expect(heard).toContain(
      '<|tool|>error: no tool "sum"; there are add<|end|><|tool|>error: add: b is missing<|end|><|assistant|>',
    )
    expect([reward, components]).toEqual([1, { calls: 3, errors: 2 }])
  })

  test('calls no more than its rounds: what it says after them is its answer', async () => {
    const run: AgentModel['run'] = async (context) => {
      const { turn, calls } = await useTools(context, { tools: [add], maxRounds: 2 })
      return { reward: turn.turn, components: { calls, isCall: turn.completion.startsWith('<tool_call>') ? 1 : 0 } }
    }
    const { reward, components } = await talk(run, () => call('add', { a: 1, b: 1 }))
    expect([reward, components]).toEqual([2, { calls: 2, isCall: 1 }])
  })

  test('has no reward where its tools are not its template’s', async () => {
    const plain = { ...policy, open: languageModel({ width: 8, layers: 1, heads: 2, anyText: true }).open }
    const world = await talkWorld({ environment: adding(judged), policy: plain, numLanes: 1 })
    await expect(talkUntil(world, 1)).rejects.toThrow('tools, which it cannot render')
  })

  test('is refused with tools that are none, and with a demonstration that does not end with the model', async () => {
    const environment = adding(judged)
    const reader = (part: object) => ({
      environment: { ...environment, id: 'text/x', example: () => ({ ...environment.example(0), ...part }) },
      ...{ tokenizer, context: 64, maxTokens: 8, tooLong: 'error' as const },
    })
    const tokenizer = await hermes()
    expect(() => startOf(reader({ tools: 'add' }), 0)).toThrow(
      'text/x, example 0, tools: got "add", expected a list of JSON schemas',
    )
    for (const demonstration of [
      [],
      'no',
      [
        { role: 'assistant', content: '1' },
        { role: 'user', content: '2' },
      ],
    ]) {
      expect(() => lessonOf(reader({ demonstration }), 0)).toThrow('text/x, example 0, demonstration: got')
    }
  })
})

describe('text/tool-arithmetic', () => {
  const environment = toolArithmetic()
  const tokenizer = byteTokenizer({ alphabet: environment.alphabet! })

  /** What the policy that answers so is worth, over many questions of another seed. */
  async function worth(turnOf: (prompt: string) => string, callCost = 0.1) {
    const engine = saying(tokenizer, turnOf)
    const world = await talkWorld({ environment: toolArithmetic({ seed: 5, callCost }), engine, numLanes: 16 })
    const rows = await talkUntil(world, 400)
    const mean = (values: readonly (number | null | undefined)[]) => {
      const known = values.filter((value) => typeof value === 'number')
      return known.reduce((sum, value) => sum + value, 0) / known.length
    }
    return {
      reward: mean(rows.map(({ reward }) => reward)),
      told: mean(rows.map(({ components }) => components.best)),
      needed: mean(rows.map(({ components }) => components.callsNeeded)),
      notNeeded: mean(rows.map(({ components }) => components.callsNotNeeded)),
      errors: mean(rows.map(({ components }) => components.callErrors)),
      part: rows.filter(({ components }) => components.callsNeeded !== null).length / rows.length,
    }
  }
  const expression = (prompt: string) => /^(\d+)([+*])(\d+)=/.exec(prompt)!
  const best = (prompt: string) => {
    const [question, a, operator, b] = expression(prompt)
    if (operator === '+') return String(Number(a) + Number(b))
    return prompt === question ? `[${a}*${b}]` : /\](?:<\|end\|>)?(\d+)=$/.exec(prompt)![1]!
  }

  test('is worth 0.95 to who calls its tool where it is needed, and nowhere else', async () => {
    const { reward, told, needed, notNeeded, errors, part } = await worth(best)
    expect([needed, notNeeded, errors]).toEqual([1, 0, 0])
    expect(reward).toBeCloseTo(told, 12)
    expect(reward).toBeCloseTo(1 - 0.1 * part, 10)
    expect((await worth(best, 0.3)).reward).toBeCloseTo(1 - 0.3 * part, 10)
    expect(part).toBeGreaterThan(0.42)
    expect(part).toBeLessThan(0.58)
  })

  test('is worth less to who calls it always, never, or wrongly', async () => {
    const always = await worth((prompt) => (expression(prompt)[0] === prompt ? '[1*1]' : best(prompt)))
    expect([always.needed, always.notNeeded]).toEqual([1, 1])
    const never = await worth((prompt) => (prompt.includes('*') ? '7' : best(prompt)))
    expect(never.needed).toBe(0)
    expect(never.reward).toBeCloseTo(1 - never.part, 10)
    const wrong = await worth((prompt) => (prompt.includes('+') || prompt.includes('!') ? '7' : '[7'))
    expect(wrong.needed).toBe(1)
    expect(wrong.errors).toBeCloseTo(wrong.part, 10)
    expect(wrong.reward).toBeLessThan(0.1)
  })

  test('shows calls in as many demonstrations as it is told, each of which is worth what it shows', async () => {
    const part = (shown: number) => {
      const products = Array.from({ length: 2000 }, (_, i) =>
        toolArithmetic({ shownFraction: shown }).example(i),
      ).filter(({ needsTool }) => needsTool)
      return products.filter(({ demonstration }) => demonstration!.length === 3).length / products.length
    }
    expect([part(0), part(1)]).toEqual([0, 1])
    expect(part(0.1)).toBeGreaterThan(0.07)
    expect(part(0.1)).toBeLessThan(0.13)
    const shown = toolArithmetic({ shownFraction: 1 })
    const example = shown.example(Array.from({ length: 20 }, (_, i) => i).find((i) => shown.example(i).needsTool)!)
    const [first, heard, second] = example.demonstration!
    expect(best(example.prompt as string)).toBe(first!.content)
    expect(best(`${example.prompt}${first!.content}${heard!.content}`)).toBe(second!.content)
  })

  test('tells what its components come to, over those that know', async () => {
    const { components } = await evaluateText({
      environment: toolArithmetic(),
      policy: languageModel({ width: 8, layers: 1, heads: 2 }),
      episodes: 20,
    })
    expect(components.right).toBe(0)
    expect(Object.keys(components)).toEqual(['right', 'callsNeeded', 'callsNotNeeded', 'callErrors', 'best'])
  })
})
