/** Runs a loop of tool calls for an agent: executes each call and returns its result to the model. */
import { checkGiven } from '../../base/errors.ts'
import type { Turn } from '../text.ts'
import type { AgentContext, ModelCall } from './agent.ts'
import { callTool, type Tool } from './tool.ts'
import { type ToolFormat, templateFormat } from './tool-format.ts'

/** Options of `useTools`. */
export interface ToolUse {
  /** The tools that the model may call; the example's `tools` describe them to the chat template. */
  readonly tools: readonly Tool[]
  /** Format of calls; default: that of the model's chat template. */
  readonly format?: ToolFormat
  /** Maximum turns with calls; calls in the turn after these are not executed. Default 8. */
  readonly maxRounds?: number
  /** The first messages to the model; omit it to answer the example's prompt. */
  readonly call?: ModelCall
}

/** The result of a loop of tool calls. */
export interface ToolUsed {
  /** The first turn that calls no tool, or the one after the last round. */
  readonly turn: Turn
  /** Number of tool calls, and of failed ones. */
  readonly calls: number
  readonly errors: number
}

/**
 * Lets the model take turns until one calls no tool. Calls of one turn run concurrently; the model gets their results in order.
 * @example
 * async run(context) {
 *   const { turn, calls } = await useTools(context, { tools: [calculator] })
 *   return { reward: turn.completion === context.example.answer ? 1 : 0, components: { calls } }
 * }
 */
export async function useTools(given: AgentContext, use: ToolUse): Promise<ToolUsed> {
  checkGiven('context of useTools', given, ['generate', 'signal'])
  const { generate, signal } = given
  checkGiven('use of useTools', use, ['tools'])
  const { tools, format = templateFormat, maxRounds = 8, call } = use
  let turn = await generate(call)
  let [calls, errors] = [0, 0]
  for (let round = 0; round < maxRounds; round++) {
    const asked = format.calls(turn)
    if (asked.length === 0) break
    const results = await Promise.all(asked.map((each) => callTool(tools, each, signal)))
    calls += results.length
    errors += results.filter(({ isError }) => isError).length
    turn = await generate({ messages: format.answers(results, asked) })
  }
  return { turn, calls, errors }
}
