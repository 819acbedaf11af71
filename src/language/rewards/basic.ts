/** Rewards that need only the text and the example. Lengths are in words. Rewards do not see log-probabilities. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { integer, number, strings } from '../../base/settings.ts'
import type { Example } from '../../environments/text.ts'
import { defineReward, failed, type Judgment } from './reward.ts'
import { containsPhrase, normalizedText, wordsOf } from './words.ts'

/** 1 within `tolerance` (a fraction of the target length), then falling linearly to 0, by 1 per target length. */
export const lengthReward = defineReward({
  id: 'length',
  inTime: true,
  settings: {
    targetLength: integer(50, 'target number of words of a completion', { min: 1 }),
    tolerance: number(0.2, 'tolerance, as a fraction of the target', { min: 0 }),
  },
  make:
    ({ targetLength, tolerance }) =>
    (_, completion) => {
      const deviation = Math.abs(wordsOf(completion).length - targetLength) / targetLength
      return Math.max(0, 1 - Math.max(0, deviation - tolerance))
    },
})

/** Fraction of keywords that occur as whole words, times `bonusMultiplier` for all. @throws InputError without any. */
export const keywordReward = defineReward({
  id: 'keyword',
  inTime: true,
  settings: {
    keywords: strings([], 'words or phrases that should occur'),
    bonusMultiplier: number(1, 'factor if all of them occur', { min: 0 }),
  },
  make: ({ keywords, bonusMultiplier }) => {
    checkWords('keyword.keywords', keywords)
    return (_, completion) => {
      const found = keywords.filter((keyword) => containsPhrase(completion, keyword)).length
      return (found / keywords.length) * (found === keywords.length ? bonusMultiplier : 1)
    }
  },
})

/** 1 for the example's answer (up to case, spaces, punctuation) or word F1 ≥ `similarityThreshold`; otherwise 0. */
export const accuracyReward = defineReward({
  id: 'accuracy',
  inTime: true,
  settings: {
    similarityThreshold: number(1, 'least F1 over words of a right answer', { above: 0, max: 1 }),
  },
  make:
    ({ similarityThreshold }) =>
    (_, completion, example) => {
      const answer = answerOf(example)
      if (typeof answer !== 'string') return answer
      const wanted = normalizedText(answer)
      if (wanted === '' ? completion === answer : normalizedText(completion) === wanted) return 1
      return similarityThreshold < 1 && computeF1Score(completion, answer) >= similarityThreshold ? 1 : 0
    },
})

/** Word F1 of the completion and the example's answer. */
export const f1ScoreReward = defineReward({
  id: 'f1Score',
  inTime: true,
  settings: {},
  make: () => (_, completion, example) => {
    const answer = answerOf(example)
    return typeof answer === 'string' ? computeF1Score(completion, answer) : answer
  },
})

/**
 * 1 if the completion consists of these tags in order, each once and none empty: `<think>…</think> <answer>…</answer>`;
 * otherwise 0 (DeepSeek-R1's format reward, arXiv:2501.12948).
 * @throws InputError without tags, or for an invalid tag name.
 */
export const formatReward = defineReward({
  id: 'format',
  inTime: true,
  settings: { tags: strings(['think', 'answer'], 'the tags, in order') },
  make: ({ tags }) => {
    checkWords('format.tags', tags)
    const odd = tags.find((tag) => !/^[\w-]+$/.test(tag))
    if (odd !== undefined) throw new InputError('format.tags', show(odd), 'letters, digits, _ and - only')
    return (_, completion) => (hasFormat(completion, tags) ? 1 : 0)
  },
})

function hasFormat(completion: string, tags: readonly string[]): boolean {
  let rest = completion.trim()
  for (const tag of tags) {
    const [open, close] = [`<${tag}>`, `</${tag}>`]
    const end = rest.indexOf(close)
    if (!rest.startsWith(open) || end < 0) return false
    const inside = rest.slice(open.length, end)
    if (inside.trim() === '' || tags.some((other) => inside.includes(`<${other}>`) || inside.includes(`</${other}>`))) {
      return false
    }
    rest = rest.slice(end + close.length).trimStart()
  }
  return rest === ''
}

/**
 * Word F1, counting repetitions: 2PR / (P + R), where P is the fraction of the completion's words in the answer, and R
 * that of the answer's words in the completion (SQuAD, arXiv:1606.05250). Articles are ignored unless there is nothing
 * else. 1 if neither has words.
 */
export function computeF1Score(completion: string, answer: string): number {
  checkGiven('completion of computeF1Score', completion, 'a text')
  checkGiven('answer of computeF1Score', answer, 'a text')
  const given = withoutArticles(wordsOf(completion))
  const wanted = withoutArticles(wordsOf(answer))
  if (given.length + wanted.length === 0) return 1
  const left = new Map<string, number>()
  for (const word of wanted) left.set(word, (left.get(word) ?? 0) + 1)
  let common = 0
  for (const word of given) {
    const count = left.get(word) ?? 0
    if (count > 0) {
      common++
      left.set(word, count - 1)
    }
  }
  return (2 * common) / (given.length + wanted.length)
}

function withoutArticles(list: readonly string[]): readonly string[] {
  const rest = list.filter((word) => word !== 'a' && word !== 'an' && word !== 'the')
  return rest.length === 0 ? list : rest
}

/** The example's answer, or a judgment that there is none. */
export function answerOf(example: Example): string | Judgment {
  const { answer } = example
  return typeof answer === 'string'
    ? answer
    : failed('noReference', `the example's answer is ${show(answer)}, not a text`)
}

/** Throws an InputError for an empty list of words. */
export function checkWords(subject: string, list: readonly string[]): void {
  if (list.length === 0) throw new InputError(subject, 'an empty list', 'at least one word')
}
