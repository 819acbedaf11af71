/** What a row of a dataset must be to serve as an example; errors say where the row stands. */
import { checkCount, InputError, show } from '../../base/errors.ts'
import { isMessage, type Message } from '../../environments/text.ts'

/** A row as a prompt: a text, or messages, that say something. @throws InputError for what is neither. */
export function promptOf(value: unknown, place: string): string | readonly Message[] {
  if (Array.isArray(value)) return messagesOf(value, place)
  return textOf(value, place, 'a text that is not empty, or messages')
}

/** A row as text that is not empty. @throws InputError for what is none. */
export function textOf(value: unknown, place: string, expected = 'a text that is not empty'): string {
  if (typeof value === 'string' && value !== '') return value
  throw new InputError(place, value === undefined || value === null ? 'none' : show(value), expected)
}

/** A row as messages, one at least, each with its role and content. @throws InputError that says which is none. */
export function messagesOf(value: unknown, place: string): readonly Message[] {
  if (!Array.isArray(value) || value.length === 0) {
    const got = Array.isArray(value) ? 'no message' : value === undefined || value === null ? 'none' : show(value)
    throw new InputError(place, got, 'one or more messages')
  }
  value.forEach((message: unknown, i) => {
    if (isMessage(message)) return
    const expected = 'a message with role and content, as texts; content may be null where there are tool_calls'
    throw new InputError(`${place}[${i}]`, show(message), expected)
  })
  return value
}

/** @throws InputError for what is no limit. */
export function checkLimit(limit: number | undefined): void {
  if (limit !== undefined) checkCount('limit', limit)
}
