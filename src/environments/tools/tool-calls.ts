/**
 * Parses tool calls in a model's output and detects the format by its marks: Hermes and Qwen (`<tool_call>` around JSON, or around
 * `<function=name>` with parameters), Mistral (`[TOOL_CALLS]`) and Llama (the whole turn is JSON with name and parameters).
 */
import { jsonOrText } from '../../base/files/files.ts'

/** Arguments of a tool call by name, as the model wrote them in JSON. */
export type ToolArguments = Readonly<Record<string, unknown>>

/** A tool call of the model, or why it is malformed. */
export type ToolCall = { readonly name: string; readonly arguments: ToolArguments } | { readonly malformed: string }

/** A piece of the output: a call with its source text, or text between calls. */
export interface TurnPiece {
  readonly text: string
  readonly call: ToolCall | null
}

/** Splits a turn into pieces in order, which together are the whole text. Calls within thinking are text. */
export function readToolCalls(raw: string): readonly TurnPiece[] {
  const end = raw.lastIndexOf('</think>')
  const from = end === -1 ? 0 : end + '</think>'.length
  const pieces = [piece(raw.slice(0, from)), ...piecesOf(raw.slice(from))]
  return pieces.filter(({ text }) => text !== '')
}

function piece(text: string, call: ToolCall | null = null): TurnPiece {
  return { text, call }
}

const MISTRAL = '[TOOL_CALLS]'

function piecesOf(text: string): readonly TurnPiece[] {
  if (text.includes('<tool_call>')) return text.split(/(?=<tool_call>)/).flatMap(taggedPieces)
  if (text.includes(MISTRAL)) {
    const at = text.indexOf(MISTRAL)
    return [piece(text.slice(0, at)), ...mistralPieces(text.slice(at))]
  }
  const whole = text.trim().replace(/^<\|python_tag\|>/, '')
  if (!/^\{\s*"(name|type|function)"/.test(whole)) return [piece(text)]
  return whole.split(/;\s*(?=\{)/).map((part) => piece(part, jsonCall(part)))
}

/** Parses a call between its tags, and the text after it. */
function taggedPieces(text: string): readonly TurnPiece[] {
  if (!text.startsWith('<tool_call>')) return [piece(text)]
  const [open, close] = ['<tool_call>', '</tool_call>']
  const end = text.indexOf(close)
  if (end === -1) return [piece(text, { malformed: `a call without ${close}` })]
  const body = text.slice(open.length, end)
  const call = /^\s*<function=/.test(body) ? functionCall(body) : jsonCall(body)
  return [piece(text.slice(0, end + close.length), call), piece(text.slice(end + close.length))]
}

/** Parses a JSON list after the mark, or a name with arguments after each mark. */
function mistralPieces(text: string): readonly TurnPiece[] {
  const body = text.slice(MISTRAL.length).trim()
  if (body.startsWith('[')) {
    const list = jsonOrText(body)
    if (!Array.isArray(list)) return [piece(text, { malformed: 'calls that are no list in JSON' })]
    return list.map((said) => piece(JSON.stringify(said), callFrom(said)))
  }
  return body.split(MISTRAL).map((part) => {
    const [, name, given] = /^\s*([\w.-]+)(?:\[ARGS\])?\s*(\{[\s\S]*)$/.exec(part) ?? []
    const call =
      name === undefined ? { malformed: 'a call without name and arguments' } : callOf(name, jsonOrText(given!))
    return piece(`${MISTRAL}${part}`, call)
  })
}

function jsonCall(text: string): ToolCall {
  return callFrom(jsonOrText(text.trim()))
}

/** A call from JSON: name and arguments, or parameters. */
function callFrom(said: unknown): ToolCall {
  if (typeof said !== 'object' || said === null) return { malformed: 'a call that is no JSON object' }
  const { name, function: named, arguments: given, parameters } = said as Record<string, unknown>
  const tool = typeof named === 'object' && named !== null ? (named as Record<string, unknown>) : { name: named }
  const called = name ?? tool.name
  if (typeof called !== 'string') return { malformed: 'a call without a name' }
  return callOf(called, given ?? parameters ?? tool.arguments ?? {})
}

/** Some models write the arguments as JSON in a string. */
function callOf(name: string, given: unknown): ToolCall {
  const said = typeof given === 'string' ? jsonOrText(given) : given
  if (typeof said !== 'object' || said === null || Array.isArray(said)) {
    return { malformed: `${name}: arguments that are no JSON object` }
  }
  return { name, arguments: said as ToolArguments }
}

/** Parses `<function=name><parameter=a>value</parameter></function>`; values are JSON, otherwise strings. */
function functionCall(text: string): ToolCall {
  const [, name, body] = /<function=([^>\s]+)>([\s\S]*?)<\/function>/.exec(text) ?? []
  if (name === undefined) return { malformed: 'a call without </function>' }
  const given: Record<string, unknown> = {}
  for (const [, key, value] of body!.matchAll(/<parameter=([^>\s]+)>\n?([\s\S]*?)\n?<\/parameter>/g)) {
    given[key!] = jsonOrText(value!) ?? value
  }
  return { name, arguments: given }
}
