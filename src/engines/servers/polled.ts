/** Growing columns for engines that receive tokens one at a time. */
import type { GeneratedTokens, Polled, TurnEnd } from '../engine.ts'

/** Tokens and ends for the next poll, and those of the last poll, whose columns are reused after it. */
export class PolledColumns {
  #next: GrowingTokens
  #polled: GrowingTokens
  #ends: TurnEnd[] = []

  /** Without `tellsCandidates`, polled blocks have no candidate sets. */
  constructor(tellsCandidates: boolean) {
    this.#next = new GrowingTokens(tellsCandidates)
    this.#polled = new GrowingTokens(tellsCandidates)
  }

  /** Adds a token with its candidate set; an empty set means that every token was possible. */
  add(slot: number, token: number, logprob: number, version: number, candidates: readonly number[]): void {
    this.#next.add(slot, token, logprob, version, candidates)
  }

  /** Adds the end of a turn. Add its last token first. */
  end(end: TurnEnd): void {
    this.#ends.push(end)
  }

  /** Returns what was added since the last call. */
  take(): Polled {
    const [tokens, ends] = [this.#next, this.#ends]
    this.#next = this.#polled
    this.#next.clear()
    this.#polled = tokens
    this.#ends = []
    return { tokens: tokens.count === 0 ? [] : [tokens], ends }
  }
}

/** Columns of tokens that double when full. */
class GrowingTokens implements GeneratedTokens {
  count = 0
  slot = new Int32Array(64)
  token = new Int32Array(64)
  logprob = new Float32Array(64)
  version = new Int32Array(64)
  candidate: Int32Array | null
  candidateOffset = new Int32Array(65)

  constructor(tellsCandidates: boolean) {
    this.candidate = tellsCandidates ? new Int32Array(64) : null
  }

  add(slot: number, token: number, logprob: number, version: number, candidates: readonly number[]): void {
    const i = this.count++
    if (i === this.slot.length) {
      this.slot = doubled(this.slot)
      this.token = doubled(this.token)
      this.version = doubled(this.version)
      this.logprob = doubled(this.logprob)
      this.candidateOffset = doubled(this.candidateOffset)
    }
    this.slot[i] = slot
    this.token[i] = token
    this.logprob[i] = logprob
    this.version[i] = version
    if (this.candidate === null) return
    const from = this.candidateOffset[i]!
    while (from + candidates.length > this.candidate.length) this.candidate = doubled(this.candidate)
    this.candidate.set(candidates, from)
    this.candidateOffset[i + 1] = from + candidates.length
  }

  clear(): void {
    this.count = 0
  }
}

function doubled<C extends Int32Array | Float32Array>(column: C): C {
  const larger = new (column.constructor as new (length: number) => C)(2 * column.length)
  larger.set(column)
  return larger
}
