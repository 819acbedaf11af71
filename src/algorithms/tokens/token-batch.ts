/**
 * Batches of ragged sequences, cut into micro-batches of a bounded number of rows. A sequence of n tokens takes n − 1 rows,
 * each of which predicts the token after it; a token of the batch is the target of the row before it.
 *
 * A batch says where its sequences lie. Their tokens stay where they are, and what is worked out of each token has the
 * token's own place in other columns.
 */
import { InputError } from '../../base/errors.ts'
import type { TokenSpans } from '../../kernels/bind.ts'
import type { TokenCandidates } from '../../language/transformer/packed.ts'

/** Sequences as tables have them: those of sequence i are tokens begin[i] … end[i] − 1. */
export interface TokenSequences extends TokenSpans {
  readonly token: ArrayLike<number>
  /** 1 for tokens to learn from. */
  readonly lossMask: ArrayLike<number>
  /** From how many tokens each was drawn, where a filter had left some out; 0 where none had, −1 where nobody knows. */
  readonly candidateCount?: ArrayLike<number>
  /** Their ids, those of a sequence's tokens one after another, and where each sequence's begin. */
  readonly candidateIds?: Int32Array
  readonly candidateBegin?: ArrayLike<number>
}

/** Sequences in the order of their micro-batches. */
export interface TokenBatch {
  /** The sequences' places in what the batch was made of. */
  readonly order: readonly number[]
  /** Micro-batch b has the sequences parts[b] … parts[b + 1] − 1 of the batch. */
  readonly parts: readonly number[]
  /** Minibatch m has the micro-batches cuts[m] … cuts[m + 1] − 1. */
  readonly cuts: readonly number[]
  /** Where the tokens of each sequence of the batch lie in the columns. */
  readonly spans: TokenSpans
  readonly token: ArrayLike<number>
  readonly lossMask: ArrayLike<number>
  /** Null where no token was drawn from a part of the vocabulary only. */
  readonly candidates: TokenCandidates | null
}

/**
 * Orders sequences into micro-batches of at most `maxRows` rows, by first-fit decreasing: the longest first, each into the
 * first micro-batch that has room. The same sequences always give the same micro-batches.
 * `minibatches` are the sequences of each, all of them once; default one of all.
 * @throws InputError for a sequence that is too long for any, or that has no token to predict.
 */
export function packBatch(
  sequences: TokenSequences,
  maxRows: number,
  minibatches: readonly (readonly number[])[] = [Array.from(sequences.begin, (_, i) => i)],
): TokenBatch {
  const { begin, end, token, lossMask } = sequences
  const rows = Array.from(begin, (from, i) => end[i]! - from - 1)
  rows.forEach((length, i) => {
    if (length >= 1 && length <= maxRows) return
    throw new InputError(
      `sequence ${i}`,
      `${length + 1} tokens`,
      `2 to ${maxRows + 1}, the rows of a micro-batch and one`,
    )
  })
  const bins: number[][] = []
  const cuts = [0]
  for (const members of minibatches) {
    bins.push(...fill(rows, members, maxRows))
    cuts.push(bins.length)
  }
  const order = bins.flat()
  const parts = [0]
  for (const members of bins) parts.push(parts.at(-1)! + members.length)
  const spans = { begin: Int32Array.from(order, (i) => begin[i]!), end: Int32Array.from(order, (i) => end[i]!) }
  return { order, parts, cuts, spans, token, lossMask, candidates: candidatesOf(sequences, order) }
}

/** Some of the sequences, by how many rows each takes, in micro-batches. */
function fill(rows: readonly number[], some: readonly number[], maxRows: number): number[][] {
  const bins: { room: number; members: number[] }[] = []
  const longestFirst = some.toSorted((a, b) => rows[b]! - rows[a]! || a - b)
  for (const i of longestFirst) {
    let bin = bins.find(({ room }) => room >= rows[i]!)
    if (bin === undefined) {
      bin = { room: maxRows, members: [] }
      bins.push(bin)
    }
    bin.room -= rows[i]!
    bin.members.push(i)
  }
  return bins.map(({ members }) => members)
}

/** A minibatch of the batch: the same tokens, of which its micro-batches alone are worked on. */
export function minibatchOf(batch: TokenBatch, index: number): TokenBatch {
  const [from, to] = [batch.cuts[index]!, batch.cuts[index + 1]!]
  return { ...batch, parts: batch.parts.slice(from, to + 1), cuts: [0, to - from] }
}

/**
 * The conversations of a batch, each as its sequences' places in the batch, by segment; in the order of their first ones.
 * `segment` is a row a sequence of what the batch was made of, where the segments of a conversation follow each other.
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
  { candidateCount, candidateIds, candidateBegin }: TokenSequences,
  order: readonly number[],
): TokenCandidates | null {
  if (candidateCount === undefined || candidateIds === undefined || candidateIds.length === 0) return null
  return { begin: Int32Array.from(order, (i) => candidateBegin![i]!), length: candidateCount, ids: candidateIds }
}

/**
 * Writes which tokens of the batch are learned from: those of its loss mask, but each sequence's first, which follows nothing,
 * so that nobody predicted it. Other elements stay as they are.
 */
export function markLearned(learned: Uint8Array, { spans: { begin, end }, lossMask }: TokenBatch): void {
  for (let i = 0; i < begin.length; i++) {
    learned[begin[i]!] = 0
    for (let t = begin[i]! + 1; t < end[i]!; t++) learned[t] = lossMask[t]!
  }
}
