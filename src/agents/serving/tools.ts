/** Tools in OpenAI's format. Rendering a call shows whether calls in a chat template's format can be parsed. */
import { InputError } from '../../base/errors.ts'
import { readToolCalls, type TurnPiece } from '../../environments/tools/tool-calls.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'

export interface ToolCall {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

const USER = { role: 'user', content: 'x' }

/** Whether the template renders tools. */
export function tellsTools(tokenizer: Tokenizer, tools: readonly object[]): boolean {
  const { chatTemplate } = tokenizer
  if (chatTemplate === null) return false
  const options = { addGenerationPrompt: true }
  return chatTemplate.render([USER], options) !== chatTemplate.render([USER], { ...options, tools })
}

/** The text of a call of `probe` as the template writes it, if it can be parsed; otherwise null. */
function probedCall({ chatTemplate }: Tokenizer): string | null {
  if (chatTemplate === null) return null
  const call = { id: 'abcdefghi', type: 'function', function: { name: 'probe', arguments: { key: 'value' } } }
  let text: string
  try {
    text = chatTemplate.render([USER, { role: 'assistant', content: null, tool_calls: [call] }])
  } catch (error) {
    if (error instanceof InputError) return null // The template refuses calls.
    throw error
  }
  const isProbe = ({ call }: TurnPiece) => call !== null && 'name' in call && call.name === 'probe'
  return readToolCalls(text).find(isProbe)?.text ?? null
}

/** Whether the template writes calls in a format that can be parsed. */
export function writesCalls(tokenizer: Tokenizer): boolean {
  return probedCall(tokenizer) !== null
}

/** The text around a call's name and arguments. */
export interface CallForm {
  readonly open: string
  readonly between: string
  readonly close: string
}

/** How the template writes a call as JSON between tags; null if it does not. */
export function callForm(tokenizer: Tokenizer): CallForm | null {
  const text = probedCall(tokenizer)
  const [, open, between, close] = /^(<.*?)probe(.*?)\{\s*"key":\s*"value"\s*\}(.*)$/s.exec(text ?? '') ?? []
  if (open === undefined || !close!.endsWith(CALL_END)) return null
  return { open, between: between!, close: close! }
}

/** The end tag of a call in the format of Hermes and Qwen. */
export const CALL_END = '</tool_call>'

/** Whether each call that the template writes ends with `CALL_END`. */
export function endsCalls(tokenizer: Tokenizer): boolean {
  return probedCall(tokenizer)?.endsWith(CALL_END) ?? false
}

/** Splits the model's text into executable calls and other text, including malformed calls and unknown tools. */
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
