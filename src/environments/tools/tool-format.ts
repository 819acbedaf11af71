/**
 * How models write tool calls, according to their chat templates, and how results are returned. The call stays in the conversation as the
 * sampled ids; the results follow as messages with the role `tool`.
 */
import type { Message, Turn } from '../text.ts'
import type { ToolResult } from './tool.ts'
import { readToolCalls, type ToolCall } from './tool-calls.ts'

/** The format of a model's tool calls and their results. */
export interface ToolFormat {
  /** Returns the calls of a turn, in order; empty if it has none. */
  calls(turn: Pick<Turn, 'completion' | 'raw'>): readonly ToolCall[]
  answers(results: readonly ToolResult[], calls: readonly ToolCall[]): readonly Message[]
}

/** The format of the model's own chat template, detected from its output. */
export const templateFormat: ToolFormat = {
  calls: ({ raw }) => readToolCalls(raw).flatMap(({ call }) => call ?? []),
  answers: (results, calls) =>
    results.map(({ content }, i) => {
      const call = calls[i]!
      return { role: 'tool', content, ...('name' in call ? { name: call.name } : {}) }
    }),
}
