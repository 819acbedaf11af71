/**
 * How models write calls of tools, as their chat templates teach them, and how they are answered. The call stays in the
 * conversation as the ids that were sampled, and the answer follows as messages of the role `tool`.
 */
import type { Message, Turn } from '../text.ts'
import type { ToolResult } from './tool.ts'
import { readToolCalls, type ToolCall } from './tool-calls.ts'

/** How a model calls tools, and is told what came of it. */
export interface ToolFormat {
  /** The calls of a turn, in order; none where the model calls nothing. */
  calls(turn: Pick<Turn, 'completion' | 'raw'>): readonly ToolCall[]
  /** What the model is told of them, in the order of its calls. */
  answers(results: readonly ToolResult[], calls: readonly ToolCall[]): readonly Message[]
}

/** The form of the model's own chat template: which of those that are known is seen by what the model writes. */
export const templateFormat: ToolFormat = {
  calls: ({ raw }) => readToolCalls(raw).flatMap(({ call }) => call ?? []),
  answers: (results, calls) =>
    results.map(({ content }, i) => {
      const call = calls[i]!
      return { role: 'tool', content, ...('name' in call ? { name: call.name } : {}) }
    }),
}
