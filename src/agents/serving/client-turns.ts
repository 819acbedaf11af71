/**
 * What lies between a client's request and the engine: the ids that its messages become, how many tokens it may have, and who is
 * told of its answers. A server knows no client: each request stands for itself. A gateway keeps what was said in a session.
 */
import type { Message } from '../../environments/text.ts'
import type { TemplateArguments } from '../../language/templates/chat-template.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { renderIds, type Tools } from '../../language/tokenizers/turn-ids.ts'
import type { Generation } from './batcher.ts'
import { checkRoom } from './naming.ts'
import type { ServedModel } from './served-model.ts'

/** What a chat template is told beside messages. */
export interface TemplateInput {
  readonly tools?: Tools | undefined
  readonly variables?: TemplateArguments
}

/** Messages, and the ids that they are up to where the assistant's turn begins. */
export interface ClientPrompt {
  readonly ids: Int32Array
  /** Null where the client sent a text or ids. */
  readonly messages: readonly Message[] | null
  readonly input: TemplateInput
}

/** An answer that is over. */
export interface ClientAnswer {
  readonly prompt: ClientPrompt
  readonly turn: Generation
  /** As the client is told of it. */
  readonly message: Message
}

/** One client's turns. */
export interface ClientTurns {
  /** Whose turns they are: another owner is not told what the engine's slots keep of them. */
  readonly owner?: object
  /** @throws InputError as the tokenizer and its chat template do. */
  promptOf(messages: readonly Message[], input: TemplateInput): ClientPrompt
  /**
   * How many tokens an answer to these ids may have, at most, where `asked` are asked for; null: as many as there can be. `param` is the
   * field that the ids came from.
   * @throws RequestError where there is no room.
   */
  budgetOf(ids: Int32Array, asked: number | null, param: string): number
  /** Called once for each answer that was not broken off, before its end is sent. */
  answered(answer: ClientAnswer): void
}

/** Tells of an answer, unless it was broken off, or nobody is there any more to take it. */
export function tellAnswer(client: ClientTurns, answer: ClientAnswer, signal: AbortSignal): void {
  if (answer.turn.end !== 'aborted' && !signal.aborted) client.answered(answer)
}

/** Any client of a server that keeps nothing of what was said. */
export function anyClient(served: ServedModel): ClientTurns {
  return {
    promptOf: (messages, input) => ({ messages, input, ids: promptOf(served.tokenizer, messages, input) }),
    budgetOf: (ids, asked, param) => checkRoom(ids, asked, param, served),
    answered() {},
  }
}

/** The ids of messages, up to where the assistant's turn begins. */
export function promptOf(tokenizer: Tokenizer, messages: readonly Message[], input: TemplateInput): Int32Array {
  const { tools, variables = {} } = input
  const options = { addGenerationPrompt: true, variables, ...(tools === undefined ? {} : { tools }) }
  return Int32Array.from(renderIds(tokenizer, messages, options))
}
