/** The contract of dialects: another API's requests become chat completions, and the answers are written back. */
import type { Body, RequestError } from '../../base/http/server.ts'
import type { Naming } from '../serving/naming.ts'
import type { ServedModel } from '../serving/served-model.ts'
import type { ToolCall } from '../serving/tools.ts'
import type { Hints } from './hints.ts'

/** A served model: its engine, its names, and the counts of hints. */
export interface ModelHost {
  readonly served: ServedModel
  readonly naming: Naming
  readonly hints: Hints
}

/** The fields of a chat completion that dialects read. */
export interface ChatAnswered {
  readonly model: string
  readonly choices: readonly {
    readonly message: { readonly content: string | null; readonly tool_calls?: readonly ToolCall[] }
    readonly finish_reason: string | null
    readonly stop_reason?: string | null
  }[]
  readonly usage: {
    readonly prompt_tokens: number
    readonly completion_tokens: number
    readonly prompt_tokens_details: { readonly cached_tokens: number }
  }
}

/** A chunk of a streamed chat completion. */
export interface ChatChunk {
  readonly model: string
  readonly choices: readonly {
    readonly delta: { readonly content?: string; readonly tool_calls?: readonly ToolCall[] }
    readonly finish_reason: string | null
    readonly stop_reason?: string | null
  }[]
  readonly usage?: ChatAnswered['usage']
}

/** An API. `asked` is the request's body. */
export interface Dialect {
  /** The request as a chat completion. @throws RequestError for unsupported requests. */
  toChat(body: Body, hints: Hints): Body
  answer(answered: ChatAnswered, asked: Body): object
  /** The events of a stream, each with its `type`. */
  events(chunks: AsyncIterable<ChatChunk>, asked: Body): AsyncIterable<object>
  readonly errorBody?: (error: RequestError) => object
}

export function finishOf({ finish_reason: reason }: { readonly finish_reason: string | null }): string {
  return reason ?? 'stop'
}
