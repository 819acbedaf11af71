/**
 * How models write calls of tools, as their chat templates teach them, and how they are answered. The call stays in the
 * conversation as the ids that were sampled, and the answer follows as messages of the role `tool`.
 *
 * Known are the forms of Hermes and Qwen (`<tool_call>` around JSON, or around `<function=name>` with parameters), Mistral
 * (`[TOOL_CALLS]`) and Llama (the whole turn is JSON with name and parameters).
 */
import type { Message, Turn } from './text.ts'
import type { ToolArguments, ToolCall, ToolResult } from './tool.ts'

/** How a model calls tools, and hears of them. */
export interface ToolFormat {
  /** The calls of a turn, in order; none where the model calls nothing. */
  calls(turn: Pick<Turn, 'completion' | 'raw'>): readonly ToolCall[]
  /** What the model hears of them, in the order of its calls. */
  answers(results: readonly ToolResult[], calls: readonly ToolCall[]): readonly Message[]
}

/** The form of the model's own chat template: which of those that are known is seen by what the model writes. */
export const templateFormat: ToolFormat = {
  calls: ({ raw }) => callsOf(raw),
  answers: (results, calls) =>
    results.map(({ content }, i) => {
      const call = calls[i]!
      return { role: 'tool', content, ...('name' in call ? { name: call.name } : {}) }
    }),
}

/** The calls that a turn writes, behind its thinking. */
function callsOf(raw: string): ToolCall[] {
  const text = raw.split('</think>').at(-1)!
  if (text.includes('<tool_call>')) {
    return text
      .split('<tool_call>')
      .slice(1)
      .map((part) => {
        const [body, ...rest] = part.split('</tool_call>')
        if (rest.length === 0) return { malformed: 'a call without </tool_call>' }
        return /^\s*<function=/.test(body!) ? functionCall(body!) : jsonCall(body!)
      })
  }
  const marker = '[TOOL_CALLS]'
  if (text.includes(marker)) {
    const body = text.slice(text.indexOf(marker) + marker.length).trim()
    if (body.startsWith('[')) return jsonCalls(body)
    return body.split(marker).map((part) => {
      const [, name, given] = /^\s*([\w.-]+)(?:\[ARGS\])?\s*(\{[\s\S]*)$/.exec(part) ?? []
      return name === undefined ? { malformed: 'a call without name and arguments' } : callOf(name, parsed(given!))
    })
  }
  const whole = text.trim().replace(/^<\|python_tag\|>/, '')
  if (!/^\{\s*"(name|type|function)"/.test(whole)) return []
  return whole.split(/;\s*(?=\{)/).map(jsonCall)
}

/** A JSON text as what it says; undefined where it is none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function jsonCalls(text: string): ToolCall[] {
  const list = parsed(text)
  if (!Array.isArray(list)) return [{ malformed: 'calls that are no list in JSON' }]
  return list.map(callFrom)
}

function jsonCall(text: string): ToolCall {
  return callFrom(parsed(text.trim()))
}

/** A call as JSON says it: name and arguments, or parameters. */
function callFrom(said: unknown): ToolCall {
  if (typeof said !== 'object' || said === null) return { malformed: 'a call that is no JSON object' }
  const { name, function: named, arguments: given, parameters } = said as Record<string, unknown>
  const tool = typeof named === 'object' && named !== null ? (named as Record<string, unknown>) : { name: named }
  const called = name ?? tool.name
  if (typeof called !== 'string') return { malformed: 'a call without a name' }
  return callOf(called, given ?? parameters ?? tool.arguments ?? {})
}

/** Some write the arguments as JSON in a text. */
function callOf(name: string, given: unknown): ToolCall {
  const said = typeof given === 'string' ? parsed(given) : given
  if (typeof said !== 'object' || said === null || Array.isArray(said)) {
    return { malformed: `${name}: arguments that are no JSON object` }
  }
  return { name, arguments: said as ToolArguments }
}

/** `<function=name><parameter=a>value</parameter></function>`: values are JSON, or else texts. */
function functionCall(text: string): ToolCall {
  const [, name, body] = /<function=([^>\s]+)>([\s\S]*?)<\/function>/.exec(text) ?? []
  if (name === undefined) return { malformed: 'a call without </function>' }
  const given: Record<string, unknown> = {}
  for (const [, key, value] of body!.matchAll(/<parameter=([^>\s]+)>\n?([\s\S]*?)\n?<\/parameter>/g)) {
    given[key!] = parsed(value!) ?? value
  }
  return { name, arguments: given }
}
