/**
 * Calls of tools in what a model writes. Chat templates tell a model of tools and show it how calls are written; what a call looks
 * like is found by letting the template write one. Known are `<tool_call>{…}</tool_call>` (Hermes, Qwen) and
 * `[TOOL_CALLS][{…}]` (Mistral).
 */
import { InputError } from '../errors.ts'
import type { Tokenizer } from '../text/tokenizer.ts'

/** How a template writes calls; null where it is none of those that are known. */
export type ToolFormat = 'hermes' | 'mistral' | null

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

/** Finds out how a template writes calls. */
export function toolFormatOf({ chatTemplate }: Tokenizer): ToolFormat {
  if (chatTemplate === null) return null
  const call = { id: 'abcdefghi', type: 'function', function: { name: 'probe', arguments: { key: 'value' } } }
  let text: string
  try {
    text = chatTemplate.render([USER, { role: 'assistant', content: null, tool_calls: [call] }])
  } catch (error) {
    if (error instanceof InputError) return null // It refuses calls.
    throw error
  }
  if (/<tool_call>\s*\{[\s\S]*probe[\s\S]*\}\s*<\/tool_call>/.test(text)) return 'hermes'
  return /\[TOOL_CALLS\]\s*\[\s*\{[\s\S]*probe/.test(text) ? 'mistral' : null
}

/**
 * The calls in what the model said, and what it said beside them. A call that cannot be read, or of a tool that nobody gave, stays
 * text: `calls` has only what can be carried out.
 */
export function readToolCalls(
  text: string,
  format: ToolFormat,
  names: readonly string[],
  newId: () => string,
): { readonly content: string; readonly calls: readonly ToolCall[] } {
  const calls: ToolCall[] = []
  const take = (value: unknown): boolean => {
    const { name, arguments: given = {} } = (value ?? {}) as { name?: unknown; arguments?: unknown }
    if (typeof name !== 'string' || !names.includes(name) || typeof given !== 'object' || given === null) return false
    calls.push({ id: newId(), type: 'function', function: { name, arguments: JSON.stringify(given) } })
    return true
  }
  if (format === 'mistral') {
    const [, before, list] = /^([\s\S]*?)\[TOOL_CALLS\]\s*(\[[\s\S]*\])\s*$/.exec(text) ?? []
    const values = list === undefined ? undefined : parsed(list)
    if (!Array.isArray(values) || !values.every(take)) return { content: text, calls: [] }
    return { content: before!.trim(), calls }
  }
  if (format === null) return { content: text, calls }
  const content = text.replace(/\s*<tool_call>\s*([\s\S]*?)\s*<\/tool_call>/g, (whole, json: string) =>
    take(parsed(json)) ? '' : whole,
  )
  return { content, calls }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return undefined
  }
}
