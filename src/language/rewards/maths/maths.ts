/**
 * Whether a mathematical answer is right. Numbers are compared exactly, as fractions of whole numbers; what is more
 * than a number is read as LaTeX and compared symbolically. An answer may be `9^{9^{9^9}}`: how long it is, how deeply it is
 * nested, how large its numbers are and how many operations the comparison takes is bounded, and what is beyond is wrong.
 * Were it unknown, it would cost nothing, and a policy would learn to write it. The worker that compares is killed at a
 * time that no comparison within the bounds takes, so only a judge that is at fault meets it.
 */
import { checkGiven, InputError, show } from '../../../base/errors.ts'
import { ownFile } from '../../../base/files/own-files.ts'
import { choice } from '../../../base/settings.ts'
import { WorkerPool } from '../../../base/threads/workers.ts'
import { answerOf } from '../basic.ts'
import type { MathsTask, MathsVerdict } from '../comparison.ts'
import { defineReward, type ExcessKind, type FailureKind } from '../reward.ts'
import { extractBoxedAnswer, extractFinalAnswer, normalizeMathAnswer, parseExactNumber } from './answers.ts'
import { isSame } from './rational.ts'

/** Characters of an answer that is read. */
const MAX_LENGTH = 1000

/** A number that is compared at once. */
const SHORT_NUMBER = /^[-+\d./ ]{1,40}$/

/** Milliseconds after which a worker is killed: more than 20 times the slowest comparison (docs/rewards.md). */
const LIMIT_MS = 60_000

let pool: WorkerPool | undefined

/**
 * Whether two answers are the same; `excess` and `reason` say what of an answer went beyond what is compared. Or why that
 * was not found out.
 */
export type MathEquality =
  | { readonly isEqual: boolean; readonly excess?: ExcessKind; readonly reason?: string }
  | { readonly failure: FailureKind; readonly error: string }

/**
 * Whether an answer is the reference. Both are LaTeX or plain text: numbers (also with separators of thousands, as
 * fractions, mixed numbers or percentages: 50 % is 1/2), expressions, equations and inequalities, lists and sets in any
 * order, tuples and intervals, matrices of numbers. A unit or the name before an equals sign counts only where both
 * have one. Words are compared as words. An answer that cannot be read, or goes beyond what is compared (1,000
 * characters, 50 brackets in brackets, 64 entries, numbers of 65,536 bits, a million units of work) is not the
 * reference; a reference that cannot be read, or goes beyond it, is a failure.
 * @throws InputError if the reference is empty or has more than 1,000 characters.
 */
export async function mathEqual(
  answer: string,
  reference: string,
  { signal }: { signal?: AbortSignal } = {},
): Promise<MathEquality> {
  checkGiven('answer of mathEqual', answer, 'a text')
  checkGiven('reference of mathEqual', reference, 'a text')
  if (reference.trim() === '' || reference.length > MAX_LENGTH) {
    throw new InputError('reference', show(reference), `an answer of 1 to ${MAX_LENGTH} characters`)
  }
  if (answer.length > MAX_LENGTH) {
    return { isEqual: false, excess: 'length', reason: `more than ${MAX_LENGTH} characters are not compared` }
  }
  const [given, wanted] = [normalizeMathAnswer(answer), normalizeMathAnswer(reference)]
  if (given === wanted) return { isEqual: true }
  if (given === '') return { isEqual: false }
  if (SHORT_NUMBER.test(given) && SHORT_NUMBER.test(wanted)) {
    const [p, q] = [parseExactNumber(given), parseExactNumber(wanted)]
    if (p !== null && q !== null) return { isEqual: isSame(p, q) }
  }
  pool ??= new WorkerPool(ownFile(new URL('./maths-worker.js', import.meta.url)))
  const task: MathsTask = { answer, reference }
  const outcome = await pool.run<MathsVerdict>(task, LIMIT_MS, signal)
  if ('failure' in outcome) return outcome
  const { verdict, ...why } = outcome.answer
  if (verdict === 'undecided') {
    return { failure: 'undecided', error: `the reference ${show(reference)} cannot be compared with: ${why.reason}` }
  }
  return { isEqual: verdict === 'equal', ...why }
}

/**
 * 1 where the completion's answer is the example's, else 0; null where that cannot be told. The answer is looked for in
 * what is boxed (`boxed`), or else also after `####` or "answer is" and in the last number (`final`). A completion
 * without an answer is wrong, and so is one whose answer goes beyond what is compared: the component `excess` is 1 then.
 */
export const mathAccuracyReward = defineReward({
  id: 'mathAccuracy',
  inTime: true,
  settings: {
    extract: choice('final', ['final', 'boxed'], 'where the completion has its answer'),
  },
  make:
    ({ extract }) =>
    async (_, completion, example, signal) => {
      const reference = answerOf(example)
      if (typeof reference !== 'string') return reference
      const answer = extract === 'boxed' ? extractBoxedAnswer(completion) : extractFinalAnswer(completion)
      if (answer === null) return { value: 0, reason: 'no answer was found', components: { excess: 0 } }
      const wanted = extractBoxedAnswer(reference) ?? reference.split('####').at(-1)!.trim()
      const equality = await mathEqual(answer, wanted, signal === undefined ? {} : { signal })
      if ('failure' in equality) return { value: null, ...equality }
      const { isEqual, ...why } = equality
      return { value: isEqual ? 1 : 0, components: { excess: why.excess === undefined ? 0 : 1 }, ...why }
    },
})
