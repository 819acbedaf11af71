/** Recognizes repeated requests by their numbers, so that each runs once. */
import { createHash } from 'node:crypto'
import { type Body, RequestError } from '../../base/http/server.ts'

/** Number of requests of a model or sampling session that are recognized if repeated. */
export const KNOWN_REQUESTS = 1024

/** The hash of a request, and its answer. */
export interface KnownRequest {
  readonly hash: string
  readonly answer: object
}

/**
 * Returns the answer to the request with this number, the same one if it is repeated. Negative: no number.
 * @throws RequestError 409 if another request had the number.
 */
export function once(
  known: Map<number, KnownRequest>,
  name: string,
  seq: number,
  body: Body,
  answer: () => object,
): object {
  if (seq < 0) return answer()
  const hash = createHash('sha256').update(JSON.stringify(body)).digest('base64')
  const before = known.get(seq)
  if (before !== undefined) {
    if (before.hash === hash) return before.answer
    throw new RequestError(409, `${name}: got ${seq} for another request, expected a new number`)
  }
  const answered = answer()
  known.set(seq, { hash, answer: answered })
  for (const oldest of known.keys()) {
    if (known.size <= KNOWN_REQUESTS) break
    known.delete(oldest)
  }
  return answered
}
