/**
 * From what is said to ids: the prompt that a conversation begins with, and what the environment says later. A prompt of
 * messages goes by the model's chat template, plain text as it stands; ids that stand are never made anew.
 */
import { InputError, show } from '../../base/errors.ts'
import { type Example, isMessage, type Message } from '../../environments/text.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'
import * as turns from '../tokenizers/turn-ids.ts'

/**
 * The ids of an example's prompt; `subject` names it in errors.
 * @throws InputError for a prompt without a token, or that the tokenizer or its template refuses.
 */
export function promptIds(tokenizer: Tokenizer, example: Example, subject: string): number[] {
  if (typeof example !== 'object' || example === null) throw new InputError(subject, show(example), 'one with a prompt')
  const { prompt } = example
  if (typeof prompt !== 'string' && !Array.isArray(prompt)) {
    throw new InputError(`${subject}, prompt`, show(prompt), 'a text, or a list of messages')
  }
  if (Array.isArray(prompt) && prompt.length === 0) {
    throw new InputError(`${subject}, prompt`, 'no message', 'at least one') // A template alone has tokens, and asks nothing.
  }
  const ids = named(subject, () => turns.promptIds(tokenizer, prompt, toolsOf(example, subject)))
  if (ids.length === 0) throw new InputError(subject, `the prompt ${show(prompt)}`, 'at least one token')
  return ids
}

/** The tools of an example, where it has some. */
function toolsOf({ tools }: Example, subject: string): turns.Tools | undefined {
  if (tools === undefined) return undefined
  const isTools = Array.isArray(tools) && tools.every((tool) => typeof tool === 'object' && tool !== null)
  if (!isTools) throw new InputError(`${subject}, tools`, show(tools), 'a list of JSON schemas')
  return tools.length === 0 ? undefined : tools
}

/** Tells in errors of the tokenizer and its template which example they refuse: one among thousands cannot be found else. */
function named<T>(subject: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    throw new InputError(`${subject}: ${error.subject}`, error.got, error.expected, { cause: error })
  }
}

/** What was said before the model's first turn. */
export function promptMessages({ prompt }: Example): Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : [...prompt]
}

/**
 * The ids that are appended after the model's turn, up to its next one: those that follow what stands, or, where the chat template
 * has rewritten that, all from the first one on. `before` ends with what the model said, whose last id is `lastId`.
 */
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

/**
 * What the model said as a message. Special tokens among it are no words, but where a template renders the message again
 * they are what they were: `spelled` has them.
 */
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
 * An example as supervised fine-tuning sees it: the prompt, the answer, and the token that ends it; or the prompt and its
 * demonstration; or a conversation that ends with what the assistant says; a row, or several where the chat template rewrites earlier turns. `lossMask` is 1 for
 * what the model itself has to say.
 * @throws InputError for an example without an answer, and as `promptIds` does.
 */
export function trainingRows(tokenizer: Tokenizer, example: Example, subject: string): turns.TrainingExample[] {
  const { prompt, demonstration, answer = demonstration } = example ?? {}
  if (demonstration !== undefined) checkDemonstration(demonstration, subject)
  if (prompt !== '' || answer === undefined) promptIds(tokenizer, example, subject) // A text that is learned whole has none.
  const isWhole = typeof prompt !== 'string' && prompt.at(-1)?.role === 'assistant'
  if (answer === undefined && !isWhole) throw new InputError(subject, 'no answer', 'one, to learn from')
  const lesson =
    answer === undefined ? (prompt as readonly Message[]) : { prompt, answer: demonstration ?? (answer as string) }
  return named(subject, () => turns.trainingRows(tokenizer, lesson, toolsOf(example, subject)))
}

function checkDemonstration(demonstration: unknown, subject: string): void {
  const isList = Array.isArray(demonstration) && demonstration.every(isMessage)
  if (isList && demonstration.at(-1)?.role === 'assistant') return
  const expected = "messages, of which the last is the assistant's"
  throw new InputError(`${subject}, demonstration`, show(demonstration), expected)
}
