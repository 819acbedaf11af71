/**
 * Decides whether a mathematical answer is right. Numbers are compared exactly, as fractions of integers; other answers
 * are parsed as LaTeX and compared symbolically. An answer may be `9^{9^{9^9}}`: its length, nesting, numbers and
 * comparison work are limited, and an answer beyond a limit is wrong. If it were unknown, it would cost nothing, and a
 * policy would learn to write it. The worker is killed only after a time that no comparison within the limits takes, so
 * only a faulty judge is killed.
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

const MAX_LENGTH = 1000

/** A number that is compared in this thread. */
const SHORT_NUMBER = /^[-+\d./ ]{1,40}$/

/** Milliseconds before a worker is killed: more than 20 times the slowest comparison (docs/rewards.md). */
const LIMIT_MS = 60_000

let pool: WorkerPool | undefined

/** Whether two answers are equal, or why that is unknown; `excess` and `reason` tell which limit an answer exceeded. */
export type MathEquality =
  | { readonly isEqual: boolean; readonly excess?: ExcessKind; readonly reason?: string }
  | { readonly failure: FailureKind; readonly error: string }

/**
 * Whether an answer equals the reference. Both are LaTeX or plain text: numbers (also with thousands separators, as
 * fractions, mixed numbers or percentages: 50 % is 1/2), expressions, equations and inequalities, lists and sets in any
 * order, tuples and intervals, matrices of numbers. A unit, or a name before an equals sign, counts only if both have
 * one. Words are compared as words. An answer that cannot be parsed or exceeds a limit (1,000 characters, 50 nested
 * brackets, 64 entries, numbers of 65,536 bits, a million units of work) is wrong; for such a reference the comparison
 * fails.
 * @throws InputError for a reference that is empty or has more than 1,000 characters.
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
    return { failure: 'undecided', error: `the reference ${show(reference)} cannot be compared: ${why.reason}` }
  }
  return { isEqual: verdict === 'equal', ...why }
}

/**
 * 1 if the completion's answer equals the example's, otherwise 0; null if that is unknown. `boxed` accepts boxed
 * answers only; `final` also an answer after `####` or "answer is", and the last number. A completion without an answer
 * is wrong, and so is an answer beyond a limit: the component `excess` is 1 then.
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
