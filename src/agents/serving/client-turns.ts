/** Connects a client's request to the engine: prompt ids, token budget, answers. Gateways keep a session's turns. */
import type { Message } from '../../environments/text.ts'
import type { TemplateArguments } from '../../language/templates/chat-template.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { renderIds, type Tools } from '../../language/tokenizers/turn-ids.ts'
import type { Generation } from './batcher.ts'
import { checkRoom } from './naming.ts'
import type { ServedModel } from './served-model.ts'

/** The chat template's input besides messages. */
export interface TemplateInput {
  readonly tools?: Tools | undefined
  readonly variables?: TemplateArguments
}

/** Messages, and their ids up to the start of the assistant's turn. */
export interface ClientPrompt {
  readonly ids: Int32Array
  /** Null if the client sent a text or ids. */
  readonly messages: readonly Message[] | null
  readonly input: TemplateInput
}

export interface ClientAnswer {
  readonly prompt: ClientPrompt
  readonly turn: Generation
  /** As the client receives it. */
  readonly message: Message
}

export interface ClientTurns {
  /** The turns' owner: slot caches are not shared between owners. */
  readonly owner?: object
  /** @throws InputError as the tokenizer and its chat template do. */
  promptOf(messages: readonly Message[], input: TemplateInput): ClientPrompt
  /** Maximum tokens of an answer if `asked` are requested (null: all). `param` names the ids. @throws RequestError */
  budgetOf(ids: Int32Array, asked: number | null, param: string): number
  /** Called once for each answer that was not aborted, before its end is sent. */
  answered(answer: ClientAnswer): void
}

/** Reports an answer, unless it was aborted or the client is gone. */
export function tellAnswer(client: ClientTurns, answer: ClientAnswer, signal: AbortSignal): void {
  if (answer.turn.end !== 'aborted' && !signal.aborted) client.answered(answer)
}

/** An anonymous client of a server that keeps no state. */
export function anyClient(served: ServedModel): ClientTurns {
  return {
    promptOf: (messages, input) => ({ messages, input, ids: promptOf(served.tokenizer, messages, input) }),
    budgetOf: (ids, asked, param) => checkRoom(ids, asked, param, served),
    answered() {},
  }
}

/** The ids of messages up to the start of the assistant's turn. */
export function promptOf(tokenizer: Tokenizer, messages: readonly Message[], input: TemplateInput): Int32Array {
  const { tools, variables = {} } = input
  const options = { addGenerationPrompt: true, variables, ...(tools === undefined ? {} : { tools }) }
  return Int32Array.from(renderIds(tokenizer, messages, options))
}
