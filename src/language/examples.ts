/**
 * Examples as ids, no longer than the context: what conversations begin with, and what supervised fine-tuning learns. All of
 * a training can be looked at before it begins, so that none ends it in its middle.
 *
 * A run tokenizes all of them before its folder is claimed: one that is too long, or has nothing to learn, is an error
 * then, or is passed over or cut (`tooLong`), and counted.
 */
import { checkCount, InputError } from '../base/errors.ts'
import type { Example, TextEnvironmentModel } from '../environments/text.ts'
import { type HeldOut, isHeldOut, questionHash } from './held-out.ts'
import { promptIds, trainingRows } from './templates/dialogue.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import type { TrainingExample } from './tokenizers/turn-ids.ts'
import { checkSampling } from './transformer/sampling.ts'
import { turnDrawing } from './turn-sampling.ts'

/** What becomes of an example that is longer than the context: an error, it is passed over, or what is too much is cut off. */
export const tooLongs = ['error', 'skip', 'cut'] as const
export type TooLong = (typeof tooLongs)[number]

/**
 * Where examples that are too long are an error, tokens that are looked at once there is one. It says how many there are, and
 * twenty thousand examples of sixty thousand tokens would take minutes to count.
 */
const TOKENS_COUNTED = 2 ** 20

/** What examples are made into ids with. */
export interface ExampleReader {
  readonly environment: Pick<TextEnvironmentModel, 'example' | 'numExamples'> & { readonly id: string }
  readonly tokenizer: Tokenizer
  readonly context: number
  /** Tokens of a turn, at most, where the example does not say. */
  readonly maxTokens: number
  readonly tooLong: TooLong
}

/** What examples are for: conversations that begin with them, or supervised fine-tuning. */
export interface ExampleUse {
  readonly asked: boolean
  readonly learned: boolean
}

/** The examples that can be used. */
export interface UsableExamples {
  /** Their numbers, in rising order. */
  readonly numbers: Uint32Array
  /** Examples that are longer than the context: how many are passed over, and how many are cut. */
  readonly numSkipped: number
  readonly numCut: number
  /** Different questions among them; null where none are held out. */
  readonly numQuestions: number | null
}

/**
 * What the conversation of an example begins with, and the tokens of a turn, at most. A prompt that is cut loses its beginning,
 * and leaves room for a turn where it can.
 * @throws InputError for an example without a prompt, one that tokenizer or template refuse or that has no room in the context,
 * a `maxTokens` of its own that is no whole number ≥ 1, and a `sampling` that is none.
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
    const got = prompt === '' ? 'a text without a prompt' : 'a conversation in which the assistant has the last word'
    throw new InputError(subject, got, 'a message to answer: existing answers can be trained on (mode=sft)')
  }
  const { maxTokens: budget = maxTokens } = example
  checkCount(`${subject}, maxTokens`, budget)
  if (example.sampling !== undefined) turnDrawing(example.sampling, NO_DRAWING, tokenizer) // Refuses what is none.
  return { example, ids, budget }
}

/** Stands for a cohort's, where what an example asks for is checked. */
const NO_DRAWING = { sampling: checkSampling({}), stopStrings: [] }

/**
 * What supervised fine-tuning learns of an example: a row, or several where the chat template rewrites earlier turns. A row that
 * is cut loses its end; one in which nothing is left to learn is left out.
 * @throws InputError for an example that has nothing to learn, or is longer than the context, and as `trainingRows` does.
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

function longestOf(rows: readonly TrainingExample[]): number {
  return rows.reduce((most, { ids }) => Math.max(most, ids.length), 0)
}

/** What of rows is within the context, where something to learn is left. */
function rowsWithin(context: number, rows: readonly TrainingExample[]): TrainingExample[] {
  return rows
    .map(({ ids, lossMask }) => ({ ids: ids.slice(0, context), lossMask: lossMask.slice(0, context) }))
    .filter(({ lossMask }) => lossMask.includes(1))
}

/**
 * Looks at all examples of an environment, for what they are to be used; each is made once. Where one that is too long is an
 * error, and there is one, it looks at no more than the examples of 2²⁰ tokens. Where questions are held out, only the examples
 * of those that `heldOut.use` names are left.
 * @throws InputError for one that cannot be used, or is too long where that is an error, and where none is left; with how many
 * are too long, and the longest; and where there are fewer than two questions, so that none can be held out.
 */
export function usableExamples(
  reader: ExampleReader,
  { asked, learned }: ExampleUse,
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
    const rows = learned ? trainingRows(tokenizer, example, `${environment.id}, example ${index}`) : []
    const length = Math.max(prompt, longestOf(rows))
    numTokens += length
    const fits = prompt < context && rows.every(({ ids }) => ids.length <= context)
    if (!fits) {
      tooLongOnes.push(index)
      longest = Math.max(longest, length)
      if (tooLong === 'skip' || (learned && rowsWithin(context, rows).length === 0)) {
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
  const got = `${numTooLong} of ${looked} examples too long, the longest of ${longest} tokens (example ${tooLongOnes[0]} is the first)`
  if (numTooLong > 0 && tooLong === 'error') {
    throw new InputError(`${environment.id}, tooLong`, got, `${what} the context of ${context}, or tooLong skip or cut`)
  }
  if (numbers.length === 0) throw new InputError(`${environment.id}, tooLong ${tooLong}`, got, 'one that is left')
  const counted = { numSkipped, numCut: numTooLong - numSkipped }
  if (heldOut === null) return { numbers: Uint32Array.from(numbers), ...counted, numQuestions: null }
  const isOut = isHeldOut(environment.id, hashes, heldOut.fraction)
  const isUsed = (i: number): boolean => isOut(hashes[i]!) === (heldOut.use === 'evaluation')
  const used = Uint32Array.from(numbers.filter((_, i) => isUsed(i)))
  return { numbers: used, ...counted, numQuestions: new Set(hashes.filter((_, i) => isUsed(i))).size }
}
