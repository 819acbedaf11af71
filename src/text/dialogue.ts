/**
 * From what is said to ids: the prompt that a conversation begins with, and what the environment says later. Ids that stand
 * are never made anew; what is added is tokenized alone, at the boundary that the model itself saw.
 */
import type { Example, Message } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import type { Tokenizer } from './tokenizer.ts'

/** The ids of an example's prompt; `subject` names it in errors. */
export function promptIds(tokenizer: Tokenizer, { prompt }: Example, subject: string): number[] {
  const ids = typeof prompt === 'string' ? tokenizer.encode(prompt) : noTemplate(subject)
  if (ids.length === 0) throw new InputError(subject, `the prompt ${show(prompt)}`, 'at least one token')
  return ids
}

/** What was said before the model's first turn. */
export function promptMessages({ prompt }: Example): Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : [...prompt]
}

/** The ids that the model hears after its turn, up to its next one. */
export function replyIds(
  tokenizer: Tokenizer,
  _before: readonly Message[],
  said: readonly Message[],
  _subject: string,
): number[] {
  return tokenizer.encode(said.map(({ content }) => content).join(''))
}

function noTemplate(subject: string): never {
  throw new InputError(subject, 'a prompt of messages', 'plain text')
}

/**
 * An example as supervised fine-tuning sees it: the prompt, the answer, and the token that ends it; `lossMask` is 1 for what
 * the model itself has to say.
 * @throws InputError for an example without an answer, or longer than the context.
 */
export function trainingExample(
  tokenizer: Tokenizer,
  example: Example,
  context: number,
  subject: string,
): { ids: number[]; lossMask: number[] } {
  if (example.answer === undefined) throw new InputError(subject, 'no answer', 'one, to learn from')
  const [end] = tokenizer.endIds
  if (end === undefined) throw new InputError(`tokenizer ${tokenizer.id}`, 'no end id', 'one, to end an answer with')
  const prompt = promptIds(tokenizer, example, subject)
  const ids = [...prompt, ...tokenizer.encode(example.answer), end]
  if (ids.length > context) throw new InputError(subject, `${ids.length} tokens`, `at most the context of ${context}`)
  return { ids, lossMask: ids.map((_, i) => (i < prompt.length ? 0 : 1)) }
}
