/** Verifies the weights of a remote engine through its log-probabilities after a fixed prompt. */
import { type DecoderColumns, TransformerDecoder } from '../../language/transformer/decoder.ts'
import type { EngineContext } from '../engine.ts'

/** Number of ids of the prompt, and of tokens generated after it. */
const PROBE_PROMPT = 8
export const PROBE_TOKENS = 8
/** Context that a probing decoder needs, in tokens. */
export const PROBE_CONTEXT = PROBE_PROMPT + PROBE_TOKENS

/** The prompt. Its ids exist in every vocabulary of this size. */
export function probePrompt(vocabularySize: number): number[] {
  return Array.from({ length: PROBE_PROMPT }, (_, i) => (7 + 31 * i) % vocabularySize)
}

/** A token chosen after the prompt, with its log-probability in nats. */
export interface ProbedToken {
  readonly token: number
  readonly logprob: number
}

/**
 * The largest difference in nats between the log-probabilities of two answers to the prompt, up to the first token that differs. NaN if
 * `now` ends earlier or has a value that is not a number.
 */
export function probeDistance(before: readonly ProbedToken[], now: readonly ProbedToken[]): number {
  let most = 0
  for (const [i, { token, logprob }] of before.entries()) {
    const said = now[i]
    most = Math.max(most, Math.abs(logprob - (said?.logprob ?? Number.NaN)))
    if (said?.token !== token) break // Later log-probabilities follow different tokens.
  }
  return most
}

/**
 * The largest difference in nats between the given log-probabilities after the prompt and those of the weights in this process. NaN if
 * there is no token. `context.columns.probe` holds a decoder's columns.
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

/** The log-probabilities in nats of consecutive tokens after the prompt, by the weights in this process. */
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
