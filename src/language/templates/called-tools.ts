/**
 * Converts conversations for templates that require `tool_calls` before a message of role `tool` (some of Qwen, Llama
 * and Mistral). A model writes its calls as text, and the conversation keeps that text; the template gets an equivalent
 * form. Its rendering is used only for the text that follows: the ids that the model sampled stay.
 */
import { InputError } from '../../base/errors.ts'
import type { Message } from '../../environments/text.ts'
import { readToolCalls, type ToolCall } from '../../environments/tools/tool-calls.ts'

type ReadCall = Exclude<ToolCall, { malformed: string }>

/**
 * Returns `work(messages)`. If the template refuses the messages, it tries again with the assistant's written calls as
 * `tool_calls`: with arguments as an object, then as a JSON text.
 * @throws InputError of the first try, if all forms are refused.
 */
export function asTemplateWants<T>(messages: readonly Message[], work: (messages: readonly Message[]) => T): T {
  try {
    return work(messages)
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    for (const form of [(given: object) => given, (given: object) => JSON.stringify(given)]) {
      const called = withToolCalls(messages, form)
      if (called === null) throw error
      try {
        return work(called)
      } catch (again) {
        if (!(again instanceof InputError)) throw again
      }
    }
    throw error
  }
}

/** The messages with the assistant's calls in `tool_calls`; null if no tool message follows a written call. */
function withToolCalls(messages: readonly Message[], form: (given: object) => unknown): Message[] | null {
  const told = [...messages]
  let [isOther, numCalls] = [false, 0]
  for (const [i, message] of messages.entries()) {
    if (message.role !== 'assistant' || message.tool_calls !== undefined || messages[i + 1]?.role !== 'tool') continue
    const { words, calls } = callsIn(message)
    if (calls.length === 0) continue
    const ids = calls.map(() => `call${String(numCalls++).padStart(5, '0')}`) // Mistral's ids have nine letters and digits.
    const toolCalls = calls.map((call, k) => ({
      ...{ id: ids[k], type: 'function' },
      function: { name: call.name, arguments: form(call.arguments) },
    }))
    told[i] = { ...words, tool_calls: toolCalls }
    for (let k = 0; messages[i + 1 + k]?.role === 'tool'; k++) {
      const id = ids[k]
      told[i + 1 + k] = { ...(id === undefined ? {} : { tool_call_id: id }), ...messages[i + 1 + k]! }
    }
    isOther = true
  }
  return isOther ? told : null
}

/** The calls written in an assistant message, and the message without them. */
function callsIn(message: Message): { words: Message; calls: ReadCall[] } {
  const { spelled, content, ...others } = message
  const { text, special } = (spelled ?? { text: content ?? '', special: [] }) as { text: string; special: number[] }
  const pieces = readToolCalls(text)
  const calls = pieces.flatMap(({ call, text: written }) => {
    if (call === null) return []
    return 'name' in call ? [call] : [{ name: 'malformed', arguments: { written } }] // A malformed call gets an answer too: an error.
  })
  const first = pieces.findIndex(({ call }) => call !== null)
  const before = pieces.slice(0, Math.max(0, first)).map((piece) => piece.text)
  const kept = before.join('')
  const words = { ...others, content: kept }
  if (special.every((place) => place >= kept.length)) return { words, calls }
  return {
    words: { ...words, spelled: { text: kept, special: special.filter((place) => place < kept.length) } },
    calls,
  }
}
