/** Converts rows with the columns of known formats to rows with the columns of examples. */
import { InputError, show } from '../../base/errors.ts'
import { isMessage, type Message } from '../../environments/text.ts'
import { messagesOf, textOf } from './example.ts'

type Row = Readonly<Record<string, unknown>>

const SPEAKERS: Readonly<Record<string, string>> = {
  human: 'user',
  user: 'user',
  gpt: 'assistant',
  chatgpt: 'assistant',
  assistant: 'assistant',
  bot: 'assistant',
  model: 'assistant',
  function_call: 'assistant',
  system: 'system',
  tool: 'tool',
  observation: 'tool',
  function_response: 'tool',
}

/** Columns that show that a row needs no conversion. */
const OURS = ['prompt', 'messages', 'text'] as const

/**
 * Converts a row of a known format: ShareGPT's `conversations` (or `conversation`) of `from` and `value` become `messages`; Alpaca's
 * `instruction`, `input`, `output`, `system` and `history` become a prompt of messages and its completion. `tools` as JSON becomes a list.
 * Other rows stay unchanged.
 * @throws InputError, with the row's place, for a speaker or column of such a format that cannot be read.
 */
export function inKnownColumns(row: Row, place: string): Row {
  const told = withTools(row, place)
  const isThere = (column: string) => told[column] !== undefined && told[column] !== null
  if (OURS.some(isThere)) return told
  const conversation = ['conversations', 'conversation'].find((column) => Array.isArray(told[column]))
  if (conversation !== undefined) return fromShareGpt(told, conversation, place)
  return isThere('instruction') && isThere('output') ? fromAlpaca(told, place) : told
}

function withTools(row: Row, place: string): Row {
  if (row.tools === null || row.tools === undefined) return row
  if (typeof row.tools !== 'string') return row
  if (row.tools.trim() === '') return { ...row, tools: undefined }
  try {
    return { ...row, tools: JSON.parse(row.tools) }
  } catch (cause) {
    throw new InputError(`${place}, tools`, show(row.tools), 'a list of JSON schemas', { cause })
  }
}

function fromShareGpt(row: Row, column: string, place: string): Row {
  const { [column]: given, system, chosen, rejected, ...others } = row
  const turns = spokenOf(given, `${place}, ${column}`)
  const messages = typeof system === 'string' && system !== '' ? [{ role: 'system', content: system }, ...turns] : turns
  if (chosen === undefined || chosen === null || rejected === undefined || rejected === null)
    return { ...others, messages }
  // A preference: the conversation is the prompt of both answers.
  return { ...others, prompt: messages, chosen, rejected }
}

function fromAlpaca(row: Row, place: string): Row {
  const { instruction, input, output, system, history, ...others } = row
  const words = [instruction, input].filter((part) => part !== undefined && part !== null && part !== '')
  const prompt: Message[] = []
  if (typeof system === 'string' && system !== '') prompt.push({ role: 'system', content: system })
  if (history !== undefined && history !== null && !Array.isArray(history)) {
    throw new InputError(`${place}, history`, show(history), 'pairs of an instruction and its answer')
  }
  for (const [i, turn] of ((history ?? []) as unknown[]).entries()) {
    const [asked, said] = Array.isArray(turn) ? turn : []
    prompt.push({ role: 'user', content: textOf(asked, `${place}, history[${i}]`) })
    prompt.push({ role: 'assistant', content: textOf(said, `${place}, history[${i}]`) })
  }
  prompt.push({ role: 'user', content: words.map((part) => textOf(part, `${place}, instruction`)).join('\n\n') })
  const completion = [{ role: 'assistant', content: textOf(output, `${place}, output`) }]
  return { ...others, prompt, completion }
}

/** Messages of `role` and `content`, or of ShareGPT's `from` and `value`. @throws InputError for an unknown speaker. */
export function spokenOf(value: unknown, place: string): readonly Message[] {
  const list = Array.isArray(value) ? value : [value]
  return messagesOf(
    list.map((turn: unknown, i) => {
      const { from, value: said, ...others } = (turn ?? {}) as Record<string, unknown>
      if (isMessage(turn) || typeof from !== 'string') return turn
      const role = Object.hasOwn(SPEAKERS, from) ? SPEAKERS[from] : undefined
      if (role === undefined) {
        throw new InputError(`${place}[${i}], from`, show(from), `one of ${Object.keys(SPEAKERS).join(', ')}`)
      }
      return { ...others, role, content: said }
    }),
    place,
  )
}
