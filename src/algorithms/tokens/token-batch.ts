/**
 * Batches of ragged sequences, divided into micro-batches of bounded size. A sequence of n tokens has n − 1 rows, each of which predicts
 * the next token; a token is the target of the row before it. A batch only records where its sequences lie: their tokens are not moved,
 * and results per token use the same positions in other columns.
 */
import { InputError } from '../../base/errors.ts'
import type { TokenSpans } from '../../kernels/bind.ts'
import type { TokenCandidates, TokenChanges, TokenMasks } from '../../language/transformer/packed.ts'

/** Sequences as in tables: sequence i has tokens begin[i] … end[i] − 1. */
export interface TokenSequences extends TokenSpans {
  readonly token: ArrayLike<number>
  /** 1 for tokens to learn from. */
  readonly lossMask: ArrayLike<number>
  /** Number of candidates from which each token was sampled, if a filter removed tokens; 0: no filter, −1: unknown. */
  readonly candidateCount?: ArrayLike<number>
  /** Candidate ids, concatenated over a sequence's tokens, and the begin of each sequence. */
  readonly candidateIds?: Int32Array
  readonly candidateBegin?: ArrayLike<number>
  /** The masks of constrained tokens without ids. */
  readonly masks?: TokenMasks | null
  /** The tokens whose logits were changed. */
  readonly changes?: TokenChanges | null
  /** Adjacent sequences with the same number, such as a pair of answers, stay in one micro-batch. Default: each sequence alone. */
  readonly unit?: ArrayLike<number>
}

/** Sequences in the order of their micro-batches. */
export interface TokenBatch {
  /** Positions of the sequences in the source. */
  readonly order: readonly number[]
  /** Micro-batch b has sequences parts[b] … parts[b + 1] − 1 of the batch. */
  readonly parts: readonly number[]
  /** Minibatch m has micro-batches cuts[m] … cuts[m + 1] − 1. */
  readonly cuts: readonly number[]
  /** Token range of each sequence of the batch. */
  readonly spans: TokenSpans
  readonly token: ArrayLike<number>
  readonly lossMask: ArrayLike<number>
  /** Null if every token was sampled from the whole vocabulary. */
  readonly candidates: TokenCandidates | null
}

/** What a learner reads of a batch. */
export type PackedBatch = Pick<TokenBatch, 'parts' | 'spans' | 'token' | 'candidates'>

/**
 * Packs sequences into micro-batches of at most `maxRows` rows by first-fit decreasing: the longest first, each into the first
 * micro-batch with room. The result is deterministic. `minibatches` lists the sequences of each minibatch, every sequence once; default:
 * one minibatch.
 * @throws InputError for a sequence that is too long for a micro-batch or has no token to predict.
 */
export function packBatch(
  sequences: TokenSequences,
  maxRows: number,
  minibatches: readonly (readonly number[])[] = [Array.from(sequences.begin, (_, i) => i)],
): TokenBatch {
  const { begin, end, token, lossMask, unit } = sequences
  const rows = Array.from(begin, (from, i) => end[i]! - from - 1)
  rows.forEach((length, i) => {
    if (length >= 1 && length <= maxRows) return
    throw new InputError(
      `sequence ${i}`,
      `${length + 1} tokens`,
      `2 to ${maxRows + 1}, one more than the rows of a micro-batch`,
    )
  })
  const bins: number[][] = []
  const cuts = [0]
  for (const members of minibatches) {
    bins.push(...fill(rows, unit === undefined ? members.map((i) => [i]) : unitsOf(members, unit), maxRows))
    cuts.push(bins.length)
  }
  const order = bins.flat()
  const parts = [0]
  for (const members of bins) parts.push(parts.at(-1)! + members.length)
  const spans = { begin: Int32Array.from(order, (i) => begin[i]!), end: Int32Array.from(order, (i) => end[i]!) }
  return { order, parts, cuts, spans, token, lossMask, candidates: candidatesOf(sequences, order) }
}

function unitsOf(members: readonly number[], unit: ArrayLike<number>): number[][] {
  const units: number[][] = []
  members.forEach((i, place) => {
    if (place > 0 && unit[i] === unit[members[place - 1]!]) units.at(-1)!.push(i)
    else units.push([i])
  })
  return units
}

/** Packs units of sequences into micro-batches by their numbers of rows. */
function fill(rows: readonly number[], units: readonly (readonly number[])[], maxRows: number): number[][] {
  const bins: { room: number; members: number[] }[] = []
  const sized = units.map((members) => ({ members, size: members.reduce((sum, i) => sum + rows[i]!, 0) }))
  const longestFirst = sized.toSorted((a, b) => b.size - a.size || a.members[0]! - b.members[0]!)
  for (const { members, size } of longestFirst) {
    if (size > maxRows) {
      const got = `${size + members.length} tokens together`
      throw new InputError(`sequences ${members.join(', ')}`, got, `at most ${maxRows + members.length}`)
    }
    let bin = bins.find(({ room }) => room >= size)
    if (bin === undefined) {
      bin = { room: maxRows, members: [] }
      bins.push(bin)
    }
    bin.room -= size
    bin.members.push(...members)
  }
  return bins.map(({ members }) => members)
}

/** A minibatch of the batch: the same tokens, restricted to its micro-batches. */
export function minibatchOf(batch: TokenBatch, index: number): TokenBatch {
  const [from, to] = [batch.cuts[index]!, batch.cuts[index + 1]!]
  return { ...batch, parts: batch.parts.slice(from, to + 1), cuts: [0, to - from] }
}

/**
 * Groups the batch's sequences into conversations, each a list of batch positions ordered by segment. Conversations are in the order of
 * their first sequences. `segment` has one row per source sequence; the segments of a conversation are adjacent.
 */
export function conversationsOf({ order }: TokenBatch, segment: ArrayLike<number>): number[][] {
  const place = new Int32Array(order.length)
  order.forEach((i, at) => {
    place[i] = at
  })
  const isListed = new Uint8Array(order.length)
  const conversations: number[][] = []
  for (const i of order) {
    const first = i - segment[i]!
    if (isListed[first] === 1) continue
    isListed[first] = 1
    const places = [place[first]!]
    for (let next = first + 1; next < order.length && segment[next] !== 0; next++) places.push(place[next]!)
    conversations.push(places)
  }
  return conversations
}

function candidatesOf(
  { candidateCount, candidateIds, candidateBegin, masks = null, changes = null }: TokenSequences,
  order: readonly number[],
): TokenCandidates | null {
  if (candidateCount === undefined || candidateIds === undefined) return null
  if (candidateIds.length === 0 && masks === null && changes === null) return null
  const begin = Int32Array.from(order, (i) => candidateBegin![i]!)
  return { begin, length: candidateCount, ids: candidateIds, masks, changes }
}

/**
 * Writes which tokens of the batch are trained: those of its loss mask, except each sequence's first token, which no row predicts. Other
 * elements do not change.
 */
export function markLearned(learned: Uint8Array, { spans: { begin, end }, lossMask }: TokenBatch): void {
  for (let i = 0; i < begin.length; i++) {
    learned[begin[i]!] = 0
    for (let t = begin[i]! + 1; t < end[i]!; t++) learned[t] = lossMask[t]!
  }
}
