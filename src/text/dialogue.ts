/**
 * From what is said to ids: the prompt that a conversation begins with, and what the environment says later. A prompt of
 * messages goes by the model's chat template, plain text as it stands; ids that stand are never made anew.
 */
import type { Example, Message } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import type { Tokenizer } from './tokenizer.ts'
import * as turns from './turn-ids.ts'

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
  const ids = named(subject, () => turns.promptIds(tokenizer, prompt))
  if (ids.length === 0) throw new InputError(subject, `the prompt ${show(prompt)}`, 'at least one token')
  return ids
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
 * The ids that the model hears after its turn, up to its next one. `before` ends with what the model said, whose last id is
 * `lastId`.
 */
export function replyIds(
  tokenizer: Tokenizer,
  { prompt }: Example,
  before: readonly Message[],
  said: readonly Message[],
  lastId: number,
): number[] {
  if (typeof prompt !== 'string') return turns.turnIds(tokenizer, before, [...before, ...said], lastId)
  return tokenizer.encode(said.map(({ content }) => content).join(''), { continues: true })
}

/**
 * An example as supervised fine-tuning sees it: the prompt, the answer, and the token that ends it; or a conversation that
 * ends with what the assistant says. `lossMask` is 1 for what the model itself has to say.
 * @throws InputError for an example without an answer, or longer than the context, and as `promptIds` does.
 */
export function trainingExample(
  tokenizer: Tokenizer,
  example: Example,
  context: number,
  subject: string,
): turns.TrainingExample {
  promptIds(tokenizer, example, subject)
  const { prompt, answer } = example
  const isWhole = typeof prompt !== 'string' && prompt.at(-1)?.role === 'assistant'
  if (answer === undefined && !isWhole) throw new InputError(subject, 'no answer', 'one, to learn from')
  const trained = named(subject, () =>
    turns.trainingExample(tokenizer, answer === undefined ? (prompt as readonly Message[]) : { prompt, answer }),
  )
  const { length } = trained.ids
  if (length > context) throw new InputError(subject, `${length} tokens`, `at most the context of ${context}`)
  return trained
}
