/** Checks that a row of a dataset can be an example. Errors give the row's place. */
import { checkCount, InputError, show } from '../../base/errors.ts'
import { isMessage, type Message } from '../../environments/text.ts'

/** Checks a prompt: a non-empty text, or messages. @throws InputError for other values. */
export function promptOf(value: unknown, place: string): string | readonly Message[] {
  if (Array.isArray(value)) return messagesOf(value, place)
  return textOf(value, place, 'a text that is not empty, or messages')
}

/** Checks a non-empty text. @throws InputError for other values. */
export function textOf(value: unknown, place: string, expected = 'a text that is not empty'): string {
  if (typeof value === 'string' && value !== '') return value
  throw new InputError(place, value === undefined || value === null ? 'none' : show(value), expected)
}

/** Checks a non-empty list of messages with role and content. @throws InputError that names the wrong one. */
export function messagesOf(value: unknown, place: string): readonly Message[] {
  if (!Array.isArray(value) || value.length === 0) {
    const got = Array.isArray(value) ? 'no message' : value === undefined || value === null ? 'none' : show(value)
    throw new InputError(place, got, 'one or more messages')
  }
  value.forEach((message: unknown, i) => {
    if (isMessage(message)) return
    const expected = 'a message with role and content, as texts; content may be null if there are tool_calls'
    throw new InputError(`${place}[${i}]`, show(message), expected)
  })
  return value
}

/** @throws InputError for an invalid limit. */
export function checkLimit(limit: number | undefined): void {
  if (limit !== undefined) checkCount('limit', limit)
}
