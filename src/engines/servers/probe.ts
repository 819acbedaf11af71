/** How an engine that is elsewhere is held to weights that it was given: by its log-probabilities after a fixed prompt. */
import { type DecoderColumns, TransformerDecoder } from '../../language/transformer/decoder.ts'
import type { EngineContext } from '../engine.ts'

/** Ids of the prompt, and of what is generated behind it. */
const PROBE_PROMPT = 8
export const PROBE_TOKENS = 8
/** Tokens that the columns of a decoder have to have room for. */
export const PROBE_CONTEXT = PROBE_PROMPT + PROBE_TOKENS

/** The prompt, of ids that every tokenizer of so many has. */
export function probePrompt(vocabularySize: number): number[] {
  return Array.from({ length: PROBE_PROMPT }, (_, i) => (7 + 31 * i) % vocabularySize)
}

/** A token that was chosen after the prompt, and its log-probability in nats. */
export interface ProbedToken {
  readonly token: number
  readonly logprob: number
}

/**
 * How far apart, in nats at most, the log-probabilities of two answers to the prompt are, up to the first token in which they differ;
 * NaN where `now` ends before, or tells no number.
 */
export function probeDistance(before: readonly ProbedToken[], now: readonly ProbedToken[]): number {
  let most = 0
  for (const [i, { token, logprob }] of before.entries()) {
    const said = now[i]
    most = Math.max(most, Math.abs(logprob - (said?.logprob ?? Number.NaN)))
    if (said?.token !== token) break // What follows is of other tokens.
  }
  return most
}

/**
 * How far log-probabilities of the most probable tokens behind the prompt are from those of the weights in this process, in nats at most;
 * NaN where there is no token. The columns of `context` have those of a decoder as `probe`.
 */
export function learnerDistance(context: EngineContext, said: readonly ProbedToken[]): number {
  const { probe } = context.columns as { probe: DecoderColumns }
  const own = probeLogprobs(
    context,
    probe,
    said.map(({ token }) => token),
  )
  return said.length === 0 ? Number.NaN : Math.max(...said.map(({ logprob }, i) => Math.abs(logprob - own[i]!)))
}

/** What the weights in this process say of tokens that follow each other behind the prompt, in nats. */
function probeLogprobs(context: EngineContext, columns: DecoderColumns, tokens: readonly number[]): number[] {
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
