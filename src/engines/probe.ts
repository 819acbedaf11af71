/** How an engine that is elsewhere is held to weights that it was given: by its log-probabilities after a fixed prompt. */
import { type DecoderColumns, TransformerDecoder } from '../policies/transformer/decoder.ts'
import type { EngineContext } from './engine.ts'

/** Ids of the prompt, and of what is generated behind it. */
const PROBE_PROMPT = 8
export const PROBE_TOKENS = 8
/** Tokens that the columns of a decoder have to have room for. */
export const PROBE_CONTEXT = PROBE_PROMPT + PROBE_TOKENS

/** The prompt, of ids that every tokenizer of so many has. */
export function probePrompt(vocabularySize: number): number[] {
  return Array.from({ length: PROBE_PROMPT }, (_, i) => (7 + 31 * i) % vocabularySize)
}

/** What the weights in this process say of tokens that follow each other behind the prompt, in nats. */
export function probeLogprobs(context: EngineContext, columns: DecoderColumns, tokens: readonly number[]): number[] {
  const { model, weights, kernels, random, adapter } = context
  const decoder = new TransformerDecoder(model, weights, columns, kernels, random, adapter)
  const ids = [...probePrompt(model.shape.vocabularySize), ...tokens]
  const logprobs: number[] = []
  for (const [position, id] of ids.slice(0, -1).entries()) {
    columns.slot[0] = 0
    columns.forward.token[0] = id
    columns.forward.position[0] = position
    decoder.advance(1, {}, false)
    const next = ids[position + 1]!
    const { logits, chosen, forward } = columns
    if (position + 1 >= PROBE_PROMPT) logprobs.push(forward.logprob[0]! + logits[next]! - logits[chosen[0]!]!)
  }
  return logprobs
}
