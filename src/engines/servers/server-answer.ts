/** A server's answer to a turn in one format for all kinds of servers, with the checks that it must pass before use. */
import { show } from '../../base/errors.ts'
import type { LogprobKind } from '../engine.ts'

/** An unchecked answer: lists with one entry per token. Null: not reported. */
export interface ClaimedTurn {
  readonly tokens: unknown
  /** In nats. NaN, which JSON cannot express, if the server is known to report none. */
  readonly logprobs: unknown
  /** The token id of each log-probability, for servers that report it. */
  readonly logprobTokens: unknown
  /** The candidate ids of each token. */
  readonly candidates: unknown
  /** Runs of one version: `{ version, start, end }`, from the first token to the last. */
  readonly versions: unknown
  /** Why the turn ended; known values are `stop`, `length` and `abort`. */
  readonly reason: unknown
}

export interface SaidToken {
  readonly token: number
  readonly logprob: number
  /** In ascending order; empty if every token was possible. */
  readonly candidates: readonly number[]
  /** The server's name of the weights that chose it; null if not reported. */
  readonly version: string | null
}

export interface SaidTurn {
  readonly tokens: readonly SaidToken[]
  readonly reason: string
  /** Whether it reports the version of each token. */
  readonly hasVersions: boolean
}

/** How far above 0 a log-probability may be: servers compute in single precision or less. */
const ABOVE_ZERO = 1e-5

/** Checks an answer. @throws Error with the invalid field. */
export function readTurn(claimed: ClaimedTurn, vocabularySize: number, kind: LogprobKind): SaidTurn {
  const { tokens, logprobs, logprobTokens, candidates, versions, reason } = claimed
  const isId = (id: unknown) => Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < vocabularySize
  if (!Array.isArray(tokens) || !tokens.every(isId)) throw wrong('token ids', tokens, `ids below ${vocabularySize}`)
  const { length } = tokens
  const listed = (what: string, given: unknown, expected: string): readonly unknown[] | null => {
    if (given === null || given === undefined) return null
    if (!Array.isArray(given) || given.length !== length) throw wrong(what, given, expected)
    return given
  }
  const told = kind === 'none' ? null : listed('log-probabilities', logprobs, `${length} of them`)
  if (kind !== 'none' && told === null) throw wrong('log-probabilities', logprobs, `${length} of them`)
  const ids = listed('ids of log-probabilities', logprobTokens, `${length} of them`)
  const sets = kind === 'candidates' ? listed('candidate sets', candidates, `${length} of them`) : null
  const spans = versionsOf(versions ?? null, length)
  if (spans === undefined) throw wrong('versions', versions, `runs of them from token 0 to ${length}`)
  return {
    tokens: tokens.map((token: number, i) => ({
      token,
      logprob: told === null ? Number.NaN : logprobOf(i, token, told[i], ids?.[i]),
      candidates: candidatesOf(i, token, sets?.[i], vocabularySize),
      version: spans?.[i] ?? null,
    })),
    reason: String(reason),
    hasVersions: spans !== null,
  }
}

function logprobOf(i: number, token: number, logprob: unknown, id: unknown): number {
  const isOfToken = id === undefined || id === null || id === token
  const isOne = typeof logprob === 'number' && !(logprob > ABOVE_ZERO)
  if (isOne && isOfToken) return logprob
  throw wrong(`log-probability ${i}`, { token: id, logprob }, `a number ≤ 0 of token ${token}`)
}

function candidatesOf(i: number, token: number, set: unknown, vocabularySize: number): readonly number[] {
  if (set === undefined || set === null) return []
  const isSet = Array.isArray(set) && set.every((id) => Number.isSafeInteger(id) && id >= 0 && id < vocabularySize)
  if (!isSet || (set.length > 0 && !set.includes(token)))
    throw wrong(`candidate set ${i}`, set, `ids with ${token} among them`)
  return set.length === vocabularySize ? [] : set.toSorted((a, b) => a - b)
}

/** The version of each token, from runs of versions; null if there are none, undefined if they are invalid. */
function versionsOf(spans: unknown, length: number): string[] | null | undefined {
  if (spans === null) return null
  if (!Array.isArray(spans)) return undefined
  const versions: string[] = []
  for (const { version, start, end } of spans as { version?: unknown; start?: unknown; end?: unknown }[]) {
    if (start !== versions.length || !Number.isSafeInteger(end) || (end as number) <= versions.length) return undefined
    if ((end as number) > length) return undefined
    while (versions.length < (end as number)) versions.push(String(version))
  }
  return versions.length === length ? versions : undefined
}

function wrong(what: string, got: unknown, expected: string): Error {
  return new Error(`answer, ${what}: got ${show(got)}, expected ${expected}`)
}
