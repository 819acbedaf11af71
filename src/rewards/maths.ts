/**
 * Whether a mathematical answer is right. Numbers are compared exactly, as fractions of whole numbers; what is more
 * than a number is read as LaTeX and compared symbolically, in a worker that is killed where that takes too long: an
 * answer may be `9^{9^{9^9}}`.
 */
import { InputError, show } from '../errors.ts'
import { choice, number } from '../settings.ts'
import { extractBoxedAnswer, extractFinalAnswer, normalizeMathAnswer, parseExactNumber } from './answers.ts'
import { answerOf } from './basic.ts'
import type { MathsTask, MathsVerdict } from './maths-worker.ts'
import { isSame } from './rational.ts'
import { defineReward, type FailureKind } from './reward.ts'
import { WorkerPool } from './workers.ts'

/** Characters of an answer that is read. */
const MAX_LENGTH = 1000

let pool: WorkerPool | undefined

/** Whether two answers are the same; or why that was not found out. */
export type MathEquality = { readonly isEqual: boolean } | { readonly failure: FailureKind; readonly error: string }

/**
 * Whether an answer is the reference. Both are LaTeX or plain text: numbers (also with separators of thousands, as
 * fractions, mixed numbers or percentages: 50 % is 1/2), expressions, equations and inequalities, lists and sets in any
 * order, tuples and intervals, matrices of numbers. A unit or the name before an equals sign counts only where both
 * have one. Words are compared as words. An answer that cannot be read, or has more than 1,000 characters, is not the
 * reference; a reference that cannot be read, numbers too large to be computed, and a comparison that takes longer than
 * `timeoutMs` are failures.
 * @throws InputError if the reference is empty or has more than 1,000 characters.
 */
export async function mathEqual(
  answer: string,
  reference: string,
  { timeoutMs = 2000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
): Promise<MathEquality> {
  if (reference.trim() === '' || reference.length > MAX_LENGTH) {
    throw new InputError('reference', show(reference), `an answer of 1 to ${MAX_LENGTH} characters`)
  }
  if (answer.length > MAX_LENGTH) return { isEqual: false }
  const [given, wanted] = [normalizeMathAnswer(answer), normalizeMathAnswer(reference)]
  if (given === wanted) return { isEqual: true }
  if (given === '') return { isEqual: false }
  const [p, q] = [parseExactNumber(given), parseExactNumber(wanted)]
  if (p !== null && q !== null) return { isEqual: isSame(p, q) }
  pool ??= new WorkerPool(new URL('./maths-worker.js', import.meta.url))
  const outcome = await pool.run<MathsVerdict>({ answer, reference } satisfies MathsTask, timeoutMs, signal)
  if ('failure' in outcome) return outcome
  if (outcome.answer === 'undecided') {
    return { failure: 'undecided', error: `the reference ${show(reference)} cannot be read` }
  }
  return { isEqual: outcome.answer === 'equal' }
}

/**
 * 1 where the completion's answer is the example's, else 0; null where that cannot be told. The answer is looked for in
 * what is boxed (`boxed`), or else also after `####` or "answer is" and in the last number (`final`). A completion
 * without an answer is wrong.
 */
export const mathAccuracyReward = defineReward({
  id: 'mathAccuracy',
  settings: {
    extract: choice('final', ['final', 'boxed'], 'where the answer stands'),
    timeoutMs: number(2000, 'milliseconds that a comparison may take', { above: 0, max: 2 ** 31 - 1 }),
  },
  make:
    ({ extract, timeoutMs }) =>
    async (_, completion, example, signal) => {
      const reference = answerOf(example)
      if (typeof reference !== 'string') return reference
      const answer = extract === 'boxed' ? extractBoxedAnswer(completion) : extractFinalAnswer(completion)
      if (answer === null) return 0
      const wanted = extractBoxedAnswer(reference) ?? reference.split('####').at(-1)!.trim()
      const equality = await mathEqual(answer, wanted, { timeoutMs, signal })
      return 'failure' in equality ? { value: null, ...equality } : equality.isEqual ? 1 : 0
    },
})
