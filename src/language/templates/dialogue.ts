/** Turns a conversation's prompt and later messages into ids. Existing ids are never tokenized again. */
import { InputError, show } from '../../base/errors.ts'
import { type Example, isMessage, type Message } from '../../environments/text.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'
import * as turns from '../tokenizers/turn-ids.ts'

/** The ids of an example's prompt. @throws InputError for an empty prompt, or one that the tokenizer refuses. */
export function promptIds(tokenizer: Tokenizer, example: Example, subject: string): number[] {
  if (typeof example !== 'object' || example === null)
    throw new InputError(subject, show(example), 'an example with a prompt')
  const { prompt } = example
  if (typeof prompt !== 'string' && !Array.isArray(prompt)) {
    throw new InputError(`${subject}, prompt`, show(prompt), 'a text, or a list of messages')
  }
  if (Array.isArray(prompt) && prompt.length === 0) {
    throw new InputError(`${subject}, prompt`, 'no message', 'at least one') // A template alone has tokens, but no question.
  }
  const ids = named(subject, () => turns.promptIds(tokenizer, prompt, toolsOf(example, subject)))
  if (ids.length === 0) throw new InputError(subject, `the prompt ${show(prompt)}`, 'at least one token')
  return ids
}

function toolsOf({ tools }: Example, subject: string): turns.Tools | undefined {
  if (tools === undefined) return undefined
  const isTools = Array.isArray(tools) && tools.every((tool) => typeof tool === 'object' && tool !== null)
  if (!isTools) throw new InputError(`${subject}, tools`, show(tools), 'a list of JSON schemas')
  return tools.length === 0 ? undefined : tools
}

/** Adds the example to errors of the tokenizer and its template: otherwise the user could not find it among thousands. */
function named<T>(subject: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    throw new InputError(`${subject}: ${error.subject}`, error.got, error.expected, { cause: error })
  }
}

/** The messages before the model's first turn. */
export function promptMessages({ prompt }: Example): Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : [...prompt]
}

/** The ids up to the model's next turn: those to append, or all after a rewrite. `before` ends with its turn. */
export function replyIds(
  tokenizer: Tokenizer,
  example: Example,
  before: readonly Message[],
  said: readonly Message[],
  lastId: number,
): turns.NextTurn {
  if (typeof example.prompt !== 'string') {
    return turns.nextTurn(tokenizer, before, [...before, ...said], lastId, toolsOf(example, 'example'))
  }
  const words = said.map(({ content }) => content ?? '').join('')
  return { ids: tokenizer.encode(words, { continues: true }), isRewritten: false }
}

/** The model's tokens as a message: text without special tokens, which `spelled` keeps for rendering it again. */
export function spelledMessage(tokenizer: Tokenizer, said: ArrayLike<number>): Message {
  const content = tokenizer.decode(said, { skipSpecial: true })
  const text = tokenizer.decode(said)
  if (text === content) return { role: 'assistant', content }
  const special: number[] = []
  const ids = Array.from(said)
  for (let i = 0; i < ids.length; i++) {
    const token = tokenizer.decode([ids[i]!])
    if (!tokenizer.specialTokens.includes(token) || tokenizer.decode([ids[i]!], { skipSpecial: true }) !== '') continue
    special.push(tokenizer.decode(ids.slice(0, i + 1)).length - token.length)
  }
  return { role: 'assistant', content, spelled: { text, special } }
}

/**
 * The training rows of an example: a prompt with its answer and end token, a prompt with its demonstration, or a
 * conversation that ends with the assistant. There are several rows if the chat template rewrites earlier turns.
 * `lossMask` is 1 for tokens that the model has to say.
 * @throws InputError for an example without an answer, and as `promptIds` does.
 */
export function trainingRows(tokenizer: Tokenizer, example: Example, subject: string): turns.TrainingExample[] {
  const { prompt, demonstration, answer = demonstration } = example ?? {}
  if (demonstration !== undefined) checkDemonstration(demonstration, subject)
  if (prompt !== '' || answer === undefined) promptIds(tokenizer, example, subject) // A text that is learned whole has no prompt.
  const isWhole = typeof prompt !== 'string' && prompt.at(-1)?.role === 'assistant'
  if (answer === undefined && !isWhole) throw new InputError(subject, 'no answer', 'an answer to learn from')
  const lesson =
    answer === undefined ? (prompt as readonly Message[]) : { prompt, answer: demonstration ?? (answer as string) }
  return named(subject, () => turns.trainingRows(tokenizer, lesson, toolsOf(example, subject)))
}

/**
 * The row of an example's chosen or rejected answer, of which only the answer is learned; null if the example has none.
 * @throws InputError for an answer of which the chat template rewrites earlier turns, and as `trainingRows` does.
 */
export function answerRow(
  tokenizer: Tokenizer,
  example: Example,
  side: 'chosen' | 'rejected',
  subject: string,
): turns.TrainingExample | null {
  const { prompt, demonstration, answer = demonstration, rejected } = example
  const given = side === 'chosen' ? (demonstration ?? answer) : rejected
  if (given === undefined || given === null) return null
  if (typeof given !== 'string') checkDemonstration(given, subject, side === 'chosen' ? 'demonstration' : 'rejected')
  if (prompt === '')
    throw new InputError(subject, 'an answer without a prompt', 'a prompt, since answers to it are compared')
  promptIds(tokenizer, example, subject)
  const lesson = { prompt, answer: given, answerOnly: true }
  const rows = named(subject, () => turns.trainingRows(tokenizer, lesson, toolsOf(example, subject)))
  if (rows.length === 1) return rows[0]!
  throw new InputError(
    subject,
    `an answer of ${rows.length} rows`,
    'a conversation whose earlier turns the chat template keeps',
  )
}

function checkDemonstration(demonstration: unknown, subject: string, field = 'demonstration'): void {
  const isList = Array.isArray(demonstration) && demonstration.every(isMessage)
  if (isList && demonstration.at(-1)?.role === 'assistant') return
  const expected = "messages, of which the last is the assistant's"
  throw new InputError(`${subject}, ${field}`, show(demonstration), expected)
}
