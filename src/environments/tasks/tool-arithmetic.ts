/**
 * Arithmetic with a calculator: sums of a two-digit and a one-digit number, which the model can learn to do alone, and products of
 * two-digit numbers, for which it must learn to call its tool.
 */
import { fraction, integer, type Settings } from '../../base/settings.ts'
import type { Example, Message } from '../text.ts'
import { defineAgent } from '../tools/agent.ts'
import { defineTool } from '../tools/tool.ts'
import type { ToolFormat } from '../tools/tool-format.ts'
import { useTools } from '../tools/use-tools.ts'
import { ExampleNumbers } from './characters.ts'

const settings = {
  shownFraction: fraction(0.1, 'fraction of the demonstrations that call the tool; the others only give the answer'),
  callCost: fraction(0.1, 'penalty for each call of the tool'),
  numExamples: integer(20_000, 'number of examples', { min: 1 }),
  seed: integer(0, 'seed of the examples', { min: 0 }),
} satisfies Settings

const calculator = defineTool({
  name: 'calculator',
  description: 'The product of two whole numbers, written as a*b.',
  parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  run({ expression }) {
    const [, a, b] = /^(\d{1,6})\*(\d{1,6})$/.exec(expression as string) ?? []
    if (a === undefined) throw new Error('not a product')
    return Number(a) * Number(b!)
  },
})

/** For models with few characters: `[37*48]` calls the calculator, and the model gets `1776=`, or `!` after an error. */
const bracketFormat: ToolFormat = {
  calls({ completion }) {
    if (!completion.startsWith('[')) return []
    const [, expression] = /^\[([^\]]*)\]$/.exec(completion) ?? []
    if (expression === undefined) return [{ malformed: 'a call without ]' }]
    return [{ name: 'calculator', arguments: { expression } }]
  },
  answers: (results) => results.map(({ content, isError }) => heard(isError ? '!' : `${content}=`)),
}

function heard(content: string): Message {
  return { role: 'tool', content }
}

/**
 * The answer to `38+4=` is `42`; to `37*48=` it is `[37*48]` and then `1776`. A right answer is worth 1 minus the cost of its calls. The
 * component `best` is the reward of the best policy, which calls the tool only for products.
 */
export const toolArithmetic = defineAgent({
  id: 'text/tool-arithmetic',
  module: import.meta.url,
  settings,
  make: ({ shownFraction, callCost, numExamples, seed }) => ({
    numExamples,
    maxTurns: 2,
    maxTokens: 8,
    alphabet: '0123456789+*=[]!',
    example(index): Example {
      const drawn = new ExampleNumbers(seed, index)
      const needsTool = drawn.between(0, 1) === 1
      const a = drawn.between(10, 99)
      const b = needsTool ? drawn.between(10, 99) : drawn.between(0, 9)
      const answer = String(needsTool ? a * b : a + b)
      const said = { role: 'assistant', content: answer }
      if (!needsTool) return { prompt: `${a}+${b}=`, answer, needsTool }
      const isShown = drawn.between(0, 999) < 1000 * shownFraction
      const call = { role: 'assistant', content: `[${a}*${b}]` }
      const demonstration = isShown ? [call, heard(`${answer}=`), said] : [said]
      return { prompt: `${a}*${b}=`, answer, needsTool, demonstration }
    },
    async run(context) {
      const { example } = context
      const { turn, calls, errors } = await useTools(context, {
        tools: [calculator],
        format: bracketFormat,
        maxRounds: 1,
      })
      const isRight = turn.completion === example.answer
      return {
        reward: isRight ? 1 - callCost * calls : 0,
        components: {
          right: isRight ? 1 : 0,
          callsNeeded: example.needsTool ? calls : null,
          callsNotNeeded: example.needsTool ? null : calls,
          callErrors: errors,
          best: example.needsTool ? Math.max(0, 1 - callCost) : 1,
        },
      }
    },
  }),
})
