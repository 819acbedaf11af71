/** How an agent lets the model use tools: it calls them as often as the model asks, and tells it what came of each. */
import { checkGiven } from '../../base/errors.ts'
import type { Turn } from '../text.ts'
import type { AgentContext, ModelCall } from './agent.ts'
import { callTool, type Tool } from './tool.ts'
import { type ToolFormat, templateFormat } from './tool-format.ts'

/** How tools are used. */
export interface ToolUse {
  /** Those that the model may call; the example's `tools` tell the chat template of them. */
  readonly tools: readonly Tool[]
  /** How the model writes its calls; default that of its chat template. */
  readonly format?: ToolFormat
  /** Turns with calls, at most; what the model says in the one after is taken as it is. Default 8. */
  readonly maxRounds?: number
  /** What the model is told first; nothing where it answers the example's prompt. */
  readonly call?: ModelCall
}

/** What came of it. */
export interface ToolUsed {
  /** The first turn that calls no tool, or the one after the last round. */
  readonly turn: Turn
  /** Calls of tools, and those of them that went wrong. */
  readonly calls: number
  readonly errors: number
}

/**
 * Lets the model take turns until one calls no tool. Calls of one turn run side by side; the model hears of them in their order.
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
