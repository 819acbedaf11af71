/** Every setting of a reward or verifier does something: changed, it changes what is said of some completion, or is refused. */
import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import type { Settings } from '../../../src/base/settings.ts'
import {
  getRewardFunction,
  getVerifierFunction,
  listRegisteredFunctions,
} from '../../../src/language/rewards/registry.ts'

type Values = Readonly<Record<string, unknown>>

/** What a setting is changed to, and what holds beside it. */
interface Shown {
  readonly to: unknown
  readonly with?: Values
}

const completions = [
  'four and five make nine',
  'Hello, maybe it is four',
  'perhaps perhaps perhaps perhaps perhaps perhaps perhaps',
  'maybe, probably, possibly four and five',
  '<think>four</think> <answer>five</answer>',
  '<plan>four</plan>',
  'word '.repeat(45),
  'word and '.repeat(300),
  'ahoy',
  'maybe four and five',
  'one two three four one two three five',
  '',
]
const example = { prompt: 'four and five?', answer: 'four and five make 9', facts: ['four', 'five', 'nine'] }

const keywords = { keywords: ['four', 'five'] }
const table: Readonly<Record<string, Shown>> = {
  'reward length.targetLength': { to: 40 },
  'reward length.tolerance': { to: 0.05 },
  'reward keyword.keywords': { to: ['nine'], with: keywords },
  'reward keyword.bonusMultiplier': { to: 3, with: keywords },
  'reward accuracy.similarityThreshold': { to: 0.5 },
  'reward format.tags': { to: ['plan'] },
  'verifier length.minLength': { to: 0 },
  'verifier length.maxLength': { to: 20 },
  'verifier toxicity.words': { to: ['nine'], with: { words: ['four'] } },
  'verifier coherence.minCoherenceScore': { to: 0.9 },
  'verifier factual.minFactualScore': { to: 0.3 },
  'verifier factual.maxUncertaintyCount': { to: 0 },
  'verifier factual.uncertaintyWords': { to: ['make'] },
  'verifier hasGreeting.greetings': { to: ['ahoy'] },
  'verifier containsKeywords.keywords': { to: ['nine'], with: keywords },
  'verifier containsKeywords.all': { to: false, with: keywords },
}

/** Judged in threads, or elsewhere: each has its tests. */
const elsewhere: Readonly<Record<string, string>> = {
  'reward mathAccuracy': 'tests/language/rewards/maths.test.ts',
  'reward code': 'tests/language/rewards/code.test.ts',
  'reward model': 'tests/training/text/preferences.test.ts',
  'reward remote': 'tests/language/rewards/remote.test.ts',
}

const { rewards, verifiers } = listRegisteredFunctions()
const all = [
  ...rewards.map((id) => ['reward', id, getRewardFunction(id)] as const),
  ...verifiers.map((id) => ['verifier', id, getVerifierFunction(id)] as const),
]

test.each(all)('every setting of the %s %s acts', async (kind, id, factory) => {
  const make = factory as unknown as (
    values: Values,
  ) => (prompt: string, completion: string, example: object) => unknown
  const settings = factory.settings as Settings
  const file = elsewhere[`${kind} ${id}`]
  if (file !== undefined) {
    const text = await readFile(new URL(`../../../${file}`, import.meta.url), 'utf8')
    for (const key of Object.keys(settings))
      expect(text, `${file} shows nothing of ${key}`).toMatch(new RegExp(`\\b${key}\\b`))
    return
  }
  const told = (values: Values): string => {
    try {
      const judge = make(values)
      return JSON.stringify(completions.map((completion) => judge(example.prompt, completion, example)))
    } catch (error) {
      if (error instanceof InputError) return `refused: ${error.message}`
      throw error
    }
  }
  for (const key of Object.keys(settings)) {
    const shown = table[`${kind} ${id}.${key}`]
    expect(shown, `no other value of ${kind} ${id}.${key} is known: name one in the table`).toBeDefined()
    const before = told(shown?.with ?? {})
    const changed = told({ ...shown?.with, [key]: shown?.to })
    expect(before, key).not.toMatch(/^refused/)
    expect(changed, key).not.toMatch(/^refused/)
    expect(changed, `${key} does nothing`).not.toBe(before)
  }
})
