/**
 * Tools in OpenAI's shapes. Chat templates tell a model of tools and show it how calls are written; whether such calls can be read is
 * found by letting the template write one.
 */
import { InputError } from '../../base/errors.ts'
import { readToolCalls, type TurnPiece } from '../../environments/tools/tool-calls.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'

/** A call as OpenAI's API tells it. */
export interface ToolCall {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

const USER = { role: 'user', content: 'x' }

/** True where the template tells the model of tools. */
export function tellsTools(tokenizer: Tokenizer, tools: readonly object[]): boolean {
  const { chatTemplate } = tokenizer
  if (chatTemplate === null) return false
  const options = { addGenerationPrompt: true }
  return chatTemplate.render([USER], options) !== chatTemplate.render([USER], { ...options, tools })
}

/** The text of a call of `probe` as the template writes it, in a form that can be read; null where there is none. */
function probedCall({ chatTemplate }: Tokenizer): string | null {
  if (chatTemplate === null) return null
  const call = { id: 'abcdefghi', type: 'function', function: { name: 'probe', arguments: { key: 'value' } } }
  let text: string
  try {
    text = chatTemplate.render([USER, { role: 'assistant', content: null, tool_calls: [call] }])
  } catch (error) {
    if (error instanceof InputError) return null // It refuses calls.
    throw error
  }
  const isProbe = ({ call }: TurnPiece) => call !== null && 'name' in call && call.name === 'probe'
  return readToolCalls(text).find(isProbe)?.text ?? null
}

/** True where the template writes calls in a form that can be read. */
export function writesCalls(tokenizer: Tokenizer): boolean {
  return probedCall(tokenizer) !== null
}

/** What stands around the name and the arguments of a call. */
export interface CallForm {
  readonly open: string
  readonly between: string
  readonly close: string
}

/** How the template writes a call as JSON between tags; null where it does not. */
export function callForm(tokenizer: Tokenizer): CallForm | null {
  const text = probedCall(tokenizer)
  const [, open, between, close] = /^(<.*?)probe(.*?)\{\s*"key":\s*"value"\s*\}(.*)$/s.exec(text ?? '') ?? []
  if (open === undefined || !close!.endsWith(CALL_END)) return null
  return { open, between: between!, close: close! }
}

/** What ends a call in the form of Hermes and Qwen. */
export const CALL_END = '</tool_call>'

/** True where each call that the template writes ends with `CALL_END`. */
export function endsCalls(tokenizer: Tokenizer): boolean {
  return probedCall(tokenizer)?.endsWith(CALL_END) ?? false
}

/**
 * The calls in what the model said, and what it said beside them. A call that cannot be read, or of a tool that nobody gave, stays
 * text: `calls` has only what can be carried out.
 */
export function callsIn(
  text: string,
  names: readonly string[],
  newId: () => string,
): { readonly content: string; readonly calls: readonly ToolCall[] } {
  const calls: ToolCall[] = []
  let content = ''
  for (const { text: piece, call } of readToolCalls(text)) {
    if (call !== null && 'name' in call && names.includes(call.name)) {
      const { name, arguments: given } = call
      calls.push({ id: newId(), type: 'function', function: { name, arguments: JSON.stringify(given) } })
    } else content += piece
  }
  return calls.length === 0 ? { content: text, calls } : { content: content.trim(), calls }
}
