/** Rows with preferences as examples: a chosen and a rejected answer, or one answer with a label. */
import { InputError, show } from '../../base/errors.ts'
import type { Example, Message } from '../../environments/text.ts'
import { promptOf, textOf } from './example.ts'
import { spokenOf } from './known-columns.ts'

type Row = Readonly<Record<string, unknown>>
type Places = (column: 'prompt' | 'chosen' | 'rejected' | 'completion' | 'label' | 'margin') => string

/** An answer: a text, or messages of which the last is the assistant's. */
type Answer = string | readonly Message[]

/**
 * A pair as an example. Answers are texts, messages after the prompt, or whole conversations. Without a prompt, or with whole
 * conversations, what both answers begin with is the prompt.
 * @throws InputError, with the row's place, for answers of two forms, without a common prompt, or equal from the beginning.
 */
export function pairOf(row: Row, at: Places): Example {
  const { prompt, chosen, rejected, margin, ...others } = row
  const [good, bad] = [answerOf(chosen, at('chosen')), answerOf(rejected, at('rejected'))]
  const hasMargin = margin !== undefined && margin !== null
  if (hasMargin && !Number.isFinite(margin)) throw new InputError(at('margin'), show(margin), 'a finite number')
  const more = { ...others, ...(hasMargin ? { margin: margin as number } : {}) }
  if (typeof good !== typeof bad)
    throw new InputError(at('rejected'), 'another form than chosen', 'texts, or messages, in both')
  const hasPrompt = prompt !== undefined && prompt !== null && prompt !== ''
  if (typeof good === 'string') {
    if (hasPrompt) return { ...more, prompt: plainPrompt(prompt, at), answer: good, rejected: bad as string }
    const length = commonLength(good, bad as string)
    const asked = good.slice(0, length)
    if (asked === '') throw new InputError(at('prompt'), 'none', 'a prompt, or answers that begin alike')
    return {
      ...more,
      prompt: asked,
      answer: rest(good, length, at('chosen')),
      rejected: rest(bad as string, length, at('rejected')),
    }
  }
  return { ...more, ...conversationsOf(good, bad as readonly Message[], hasPrompt ? prompt : undefined, at) }
}

/**
 * An answer with a label, 1 or true for a good one, as an example.
 * @throws InputError, with the row's place, for another label, and for an answer that is neither a text nor messages.
 */
export function labelledOf(row: Row, at: Places): Example {
  const { prompt, completion, label, ...others } = row
  if (![true, false, 0, 1].includes(label as number)) throw new InputError(at('label'), show(label), 'true or false')
  const given = answerOf(completion, at('completion'))
  const asked = promptOf(typeof given === 'string' ? prompt : asMessages(prompt, at), at('prompt'))
  if (!label) return { ...others, prompt: asked, rejected: given }
  return { ...others, prompt: asked, ...(typeof given === 'string' ? { answer: given } : { demonstration: given }) }
}

function answerOf(value: unknown, place: string): Answer {
  return typeof value === 'string' ? textOf(value, place) : spokenOf(value, place)
}

/** Texts after a prompt of messages are the assistant's; after a text they continue it. */
function plainPrompt(prompt: unknown, at: Places): string | readonly Message[] {
  return Array.isArray(prompt) ? spokenOf(prompt, at('prompt')) : promptOf(prompt, at('prompt'))
}

function asMessages(prompt: unknown, at: Places): readonly Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : spokenOf(prompt, at('prompt'))
}

/** The prompt and both answers, from answers of messages that may contain the prompt. */
function conversationsOf(chosen: readonly Message[], rejected: readonly Message[], prompt: unknown, at: Places) {
  const isWhole = chosen[0]!.role !== 'assistant'
  if (!isWhole && prompt === undefined)
    throw new InputError(at('prompt'), 'none', 'a prompt, or answers that begin with it')
  if (!isWhole) return { prompt: asMessages(prompt, at), demonstration: chosen, rejected }
  const length = Math.min(
    chosen.findIndex((message, i) => JSON.stringify(message) !== JSON.stringify(rejected[i])) >>> 0,
    chosen.length - 1,
    rejected.length - 1,
  )
  if (length === 0)
    throw new InputError(at('rejected'), 'another first message than chosen', 'conversations that begin alike')
  return { prompt: chosen.slice(0, length), demonstration: chosen.slice(length), rejected: rejected.slice(length) }
}

/** The number of characters that two texts share at the beginning. A space before the first difference belongs to the answers. */
function commonLength(a: string, b: string): number {
  let length = 0
  while (length < Math.min(a.length, b.length) - 1 && a[length] === b[length]) length++
  return length > 0 && a[length - 1] === ' ' ? length - 1 : length
}

function rest(text: string, from: number, place: string): string {
  return textOf(text.slice(from), place, 'more than what both answers begin with')
}
