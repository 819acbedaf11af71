/**
 * Examples as ids that fit the context: prompts of conversations, and rows of supervised fine-tuning. A run tokenizes
 * all of them before it claims its folder, so that no example stops it midway: one that is too long or has nothing to
 * learn is an error, or is skipped or cut (`tooLong`) and counted.
 */
import { checkCount, InputError, show } from '../base/errors.ts'
import type { Example, TextEnvironmentModel } from '../environments/text.ts'
import { type HeldOut, isHeldOut, questionHash } from './held-out.ts'
import { answerRow, promptIds, trainingRows } from './templates/dialogue.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import type { TrainingExample } from './tokenizers/turn-ids.ts'
import { checkSampling } from './transformer/sampling.ts'
import { turnDrawing } from './turn-sampling.ts'

/** What to do with an example longer than the context: an error, skip it, or cut it. */
export const tooLongs = ['error', 'skip', 'cut'] as const
export type TooLong = (typeof tooLongs)[number]

/** Tokens to tokenize after a too long example, to count others for the error. A full count may take minutes. */
const TOKENS_COUNTED = 2 ** 20

export interface ExampleReader {
  readonly environment: Pick<TextEnvironmentModel, 'example' | 'numExamples'> & { readonly id: string }
  readonly tokenizer: Tokenizer
  readonly context: number
  /** Maximum tokens per turn, if the example has no own. */
  readonly maxTokens: number
  readonly tooLong: TooLong
}

/** The use of examples: prompts of conversations, or supervised fine-tuning. */
export interface ExampleUse {
  readonly asked: boolean
  readonly learned: boolean
  /** Learned by comparison: as pairs of answers, or as single answers. Default null: by imitation. */
  readonly compared?: Comparison | null
}

/** Pairs of answers, pairs by the scores after their last tokens, or single answers. */
export type Comparison = 'pair' | 'score' | 'answer'

export interface UsableExamples {
  /** Their indices, in ascending order. */
  readonly numbers: Uint32Array
  /** Examples longer than the context that were skipped or cut. */
  readonly numSkipped: number
  readonly numCut: number
  /** The number of different questions; null without held-out questions. */
  readonly numQuestions: number | null
}

/**
 * The prompt ids of an example, and its maximum tokens per turn. A cut prompt loses its beginning, and leaves room for
 * a turn if possible.
 * @throws InputError for an example that has no prompt, is refused by the tokenizer or template, leaves no room in the
 * context, or has an invalid `maxTokens` or `sampling`.
 */
export function startOf(reader: ExampleReader, index: number): { example: Example; ids: number[]; budget: number } {
  const { environment, context, tooLong } = reader
  const subject = `${environment.id}, example ${index}`
  const { example, ids, budget } = promptOf(reader, index, environment.example(index))
  if (ids.length < context) return { example, ids, budget }
  if (tooLong !== 'cut') {
    throw new InputError(subject, `a prompt of ${ids.length} tokens`, `fewer than the context of ${context}`)
  }
  return { example, ids: ids.slice(-Math.max(1, context - budget)), budget }
}

function promptOf({ environment, tokenizer, maxTokens }: ExampleReader, index: number, example: Example) {
  const subject = `${environment.id}, example ${index}`
  const ids = promptIds(tokenizer, example, subject)
  const { prompt, answer } = example
  const isLesson =
    prompt === '' ? answer !== undefined : typeof prompt !== 'string' && prompt.at(-1)!.role === 'assistant'
  if (isLesson) {
    const got = prompt === '' ? 'a text without a prompt' : 'a conversation that ends with the assistant'
    throw new InputError(subject, got, 'a message to answer: existing answers can be trained on (mode=sft)')
  }
  const { maxTokens: budget = maxTokens } = example
  checkCount(`${subject}, maxTokens`, budget)
  if (example.sampling !== undefined) turnDrawing(example.sampling, NO_DRAWING, tokenizer) // Refuses invalid values.
  return { example, ids, budget }
}

/** Replaces the cohort's when an example's own values are checked. */
const NO_DRAWING = { sampling: checkSampling({}), stopStrings: [] }

/**
 * The training rows of an example: one, or several if the chat template rewrites earlier turns. A cut row loses its
 * end; a row with nothing left to learn is dropped.
 * @throws InputError for an example with nothing to learn or longer than the context, and as `trainingRows` does.
 */
export function lessonOf(reader: ExampleReader, index: number): TrainingExample[] {
  const { environment, tokenizer, context, tooLong } = reader
  const subject = `${environment.id}, example ${index}`
  const rows = trainingRows(tokenizer, environment.example(index), subject)
  const longest = longestOf(rows)
  if (longest <= context) return rows
  if (tooLong !== 'cut') throw new InputError(subject, `${longest} tokens`, `at most the context of ${context}`)
  return rowsWithin(context, rows)
}

/** An answer that is compared with others. */
export interface ComparedAnswer extends TrainingExample {
  readonly isGood: boolean
  /** The example's. */
  readonly margin: number
}

/**
 * The answers of an example to compare: of a pair the chosen one, then the rejected one; as single answers those that it has. A cut answer
 * loses its end. The result is empty if an answer has nothing left to learn.
 * @throws InputError for a missing answer, and as `lessonOf` does.
 */
export function answersOf(reader: ExampleReader, index: number, comparison: Comparison): ComparedAnswer[] {
  const { context, tooLong, environment } = reader
  const answers = comparedRows(reader, index, comparison)
  const longest = longestOf(answers)
  if (longest <= context) return answers
  if (tooLong !== 'cut') {
    const subject = `${environment.id}, example ${index}`
    throw new InputError(subject, `${longest} tokens`, `at most the context of ${context}`)
  }
  return cutAnswers(context, answers)
}

function comparedRows(
  { environment, tokenizer }: ExampleReader,
  index: number,
  comparison: Comparison,
): ComparedAnswer[] {
  const subject = `${environment.id}, example ${index}`
  const example = environment.example(index)
  const { margin = 0 } = example
  if (!Number.isFinite(margin)) throw new InputError(`${subject}, margin`, show(margin), 'a finite number')
  const answers = (['chosen', 'rejected'] as const).flatMap((side) => {
    const row = answerRow(tokenizer, example, side, subject)
    if (row === null) return []
    return [{ ...(comparison === 'score' ? scoredRow(row) : row), isGood: side === 'chosen', margin }]
  })
  const [first, second] = answers
  if (comparison !== 'answer' && second === undefined) {
    const got = first === undefined ? 'no answer' : first.isGood ? 'no rejected answer' : 'no chosen answer'
    throw new InputError(subject, got, 'a chosen and a rejected one, to compare')
  }
  if (first === undefined) throw new InputError(subject, 'no answer', 'a good or a bad one')
  return answers
}

/** A row whose last token has a successor, at whose place the value head scores the row. */
export function scoredRow({ ids, lossMask }: TrainingExample): TrainingExample {
  return { ids: [...ids, ids.at(-1)!], lossMask: [...lossMask, 0] }
}

/** Cuts answers to the context: all of an example, or none if one of them has nothing left to learn. */
function cutAnswers(context: number, answers: readonly ComparedAnswer[]): ComparedAnswer[] {
  const cut = answers.map((answer) => ({ ...answer, ...cutRow(context, answer) }))
  return cut.every(({ lossMask }) => lossMask.includes(1)) ? cut : []
}

function cutRow(context: number, { ids, lossMask }: TrainingExample): TrainingExample {
  return { ids: ids.slice(0, context), lossMask: lossMask.slice(0, context) }
}

/** The prompt of one example with the first answer of another, cut to the context; null if nothing of it is left. */
export function mismatchedRow(reader: ExampleReader, index: number, other: number): TrainingExample | null {
  const { environment, tokenizer, context } = reader
  const { answer, demonstration, rejected } = environment.example(other)
  const { demonstration: _, ...asked } = environment.example(index)
  const given = demonstration ?? answer ?? rejected
  const told = typeof given === 'string' ? { answer: given } : { demonstration: given! }
  const row = answerRow(tokenizer, { ...asked, ...told }, 'chosen', `${environment.id}, example ${index}`)!
  const cut = cutRow(context, row)
  return cut.lossMask.includes(1) ? cut : null
}

function longestOf(rows: readonly TrainingExample[]): number {
  return rows.reduce((most, { ids }) => Math.max(most, ids.length), 0)
}

/** Cuts rows to the context. Drops rows with nothing left to learn. */
function rowsWithin(context: number, rows: readonly TrainingExample[]): TrainingExample[] {
  return rows.map((row) => cutRow(context, row)).filter(({ lossMask }) => lossMask.includes(1))
}

/**
 * Checks all examples of an environment for their use. If a too long example is an error and one was found, it stops
 * after 2²⁰ tokens. With `heldOut`, only examples of the side that `heldOut.use` names count.
 * @throws InputError for an unusable example; for too long ones if they are an error, with their number and the
 * longest; if no example is left; and with `heldOut` for fewer than two questions.
 */
export function usableExamples(
  reader: ExampleReader,
  { asked, learned, compared = null }: ExampleUse,
  heldOut: HeldOut | null = null,
): UsableExamples {
  const { environment, tokenizer, context, tooLong } = reader
  const { numExamples } = environment
  const numbers: number[] = []
  const hashes: number[] = []
  const tooLongOnes: number[] = []
  let longest = 0
  let numSkipped = 0
  let numTokens = 0
  let index = 0
  for (; index < numExamples; index++) {
    const isTold = tooLong === 'error' && tooLongOnes.length > 0
    if (isTold && numTokens > TOKENS_COUNTED) break
    const example = environment.example(index)
    const prompt = asked ? promptOf(reader, index, example).ids.length : 0
    const rows = !learned
      ? []
      : compared === null
        ? trainingRows(tokenizer, example, `${environment.id}, example ${index}`)
        : comparedRows(reader, index, compared)
    const length = Math.max(prompt, longestOf(rows))
    numTokens += length
    const fits = prompt < context && rows.every(({ ids }) => ids.length <= context)
    if (!fits) {
      tooLongOnes.push(index)
      longest = Math.max(longest, length)
      const left = compared === null ? rowsWithin(context, rows) : cutAnswers(context, rows as ComparedAnswer[])
      if (tooLong === 'skip' || (learned && left.length === 0)) {
        numSkipped++
        continue
      }
    }
    numbers.push(index)
    if (heldOut !== null) hashes.push(questionHash(example, heldOut.seed))
  }
  const numTooLong = tooLongOnes.length
  const what = learned ? 'at most' : 'fewer than'
  const looked = index === numExamples ? `${index}` : `the first ${index} of ${numExamples}`
  const got = `${numTooLong} of ${looked} examples too long, the longest with ${longest} tokens (the first is example ${tooLongOnes[0]})`
  if (numTooLong > 0 && tooLong === 'error') {
    throw new InputError(`${environment.id}, tooLong`, got, `${what} the context of ${context}, or tooLong skip or cut`)
  }
  if (numbers.length === 0)
    throw new InputError(`${environment.id}, tooLong ${tooLong}`, got, 'at least one usable example')
  const counted = { numSkipped, numCut: numTooLong - numSkipped }
  if (heldOut === null) return { numbers: Uint32Array.from(numbers), ...counted, numQuestions: null }
  const isOut = isHeldOut(environment.id, hashes, heldOut.fraction)
  const isUsed = (i: number): boolean => isOut(hashes[i]!) === (heldOut.use === 'evaluation')
  const used = Uint32Array.from(numbers.filter((_, i) => isUsed(i)))
  return { numbers: used, ...counted, numQuestions: new Set(hashes.filter((_, i) => isUsed(i))).size }
}
