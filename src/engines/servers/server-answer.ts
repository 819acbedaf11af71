/** What a server says of a turn, in the same words whatever its kind; and the checks without which nothing of it is used. */
import { show } from '../../base/errors.ts'
import type { LogprobKind } from '../engine.ts'

/** An answer as it came, unchecked: lists with an entry a token. Null: the server does not tell. */
export interface ClaimedTurn {
  readonly tokens: unknown
  /** In nats; NaN, which no JSON has, where it is known that the server tells none. */
  readonly logprobs: unknown
  /** Of which token each log-probability is said to be, for those that say so. */
  readonly logprobTokens: unknown
  /** The ids that each token was drawn from. */
  readonly candidates: unknown
  /** Runs of one version: `{ version, start, end }`, from the first token to the last. */
  readonly versions: unknown
  /** Why the turn ended: `stop`, `length` and `abort` are known. */
  readonly reason: unknown
}

/** What a server says of a token. */
export interface SaidToken {
  readonly token: number
  readonly logprob: number
  /** In rising order; none where every token could be chosen. */
  readonly candidates: readonly number[]
  /** What the server calls the weights that chose it; null where it does not say. */
  readonly version: string | null
}

/** An answer that can be what the server chose. */
export interface SaidTurn {
  readonly tokens: readonly SaidToken[]
  readonly reason: string
  /** Whether it tells the version of each token. */
  readonly hasVersions: boolean
}

/** How far above 0 a log-probability may be: servers compute in single precision, or less. */
const ABOVE_ZERO = 1e-5

/** Checks an answer. @throws Error that says what cannot be, and what came. */
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

/** What each token's version is called, by runs of them; null where there are none, undefined where they do not fit. */
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
