/**
 * Batches of ragged sequences, cut into micro-batches of a bounded number of rows. A sequence of n tokens takes n − 1 rows,
 * each of which predicts the token after it; a token of the batch is the target of the row before it.
 */
import { InputError } from '../errors.ts'
import type { TokenSupports } from '../policies/transformer/packed.ts'

/** Sequences as tables have them: those of sequence i are tokens offsets[i] … offsets[i + 1] − 1. */
export interface TokenSequences {
  readonly offsets: ArrayLike<number>
  readonly token: ArrayLike<number>
  /** 1 for tokens to learn from. */
  readonly lossMask: ArrayLike<number>
  /**
   * From how many tokens each was drawn, where a filter had left some out, and all their ids; neither where none had. Of one
   * that nobody knows this of (−1) the whole vocabulary is taken.
   */
  readonly supportLength?: ArrayLike<number>
  readonly supportIds?: ArrayLike<number>
}

/** Sequences in the order of their micro-batches. */
export interface TokenBatch {
  /** The sequences' places in what the batch was made of. */
  readonly order: readonly number[]
  /** Micro-batch b has the sequences parts[b] … parts[b + 1] − 1 of the batch. */
  readonly parts: readonly number[]
  /** Minibatch m has the micro-batches cuts[m] … cuts[m + 1] − 1. */
  readonly cuts: readonly number[]
  readonly offsets: Int32Array
  readonly token: Int32Array
  readonly lossMask: Uint8Array
  /** Null where no token was drawn from a part of the vocabulary only. */
  readonly supports: TokenSupports | null
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
  minibatches: readonly (readonly number[])[] = [Array.from({ length: sequences.offsets.length - 1 }, (_, i) => i)],
): TokenBatch {
  const { offsets } = sequences
  const count = offsets.length - 1
  const rows = Array.from({ length: count }, (_, i) => offsets[i + 1]! - offsets[i]! - 1)
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
  return { order, parts, cuts, ...inOrder(sequences, order), supports: supportsInOrder(sequences, order) }
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

function inOrder({ offsets: from, token, lossMask }: TokenSequences, order: readonly number[]) {
  const offsets = new Int32Array(order.length + 1)
  order.forEach((i, place) => {
    offsets[place + 1] = offsets[place]! + from[i + 1]! - from[i]!
  })
  const batch = { offsets, token: new Int32Array(offsets.at(-1)!), lossMask: new Uint8Array(offsets.at(-1)!) }
  order.forEach((i, place) => {
    for (let t = from[i]!, to = offsets[place]!; t < from[i + 1]!; t++, to++) {
      batch.token[to] = token[t]!
      batch.lossMask[to] = lossMask[t]!
    }
    batch.lossMask[offsets[place]!] = 0 // The first token follows nothing, so nobody predicted it.
  })
  return batch
}

function supportsInOrder(
  { offsets, supportLength, supportIds }: TokenSequences,
  order: readonly number[],
): TokenSupports | null {
  if (supportLength === undefined || supportIds === undefined || supportIds.length === 0) return null
  const begin = [0] // Where each token's support begins in what was given.
  for (let t = 0; t < supportLength.length; t++) begin.push(begin[t]! + Math.max(0, supportLength[t]!))
  const ends = [0]
  const ids: number[] = []
  for (const i of order) {
    for (let t = offsets[i]!; t < offsets[i + 1]!; t++) {
      for (let k = begin[t]!; k < begin[t + 1]!; k++) ids.push(supportIds[k]!)
      ends.push(ids.length)
    }
  }
  return { offsets: ends, ids: Int32Array.from(ids) }
}

/** A column of tokens in the batch's order. NaN, of what is not recorded, becomes 0 where there is nothing to learn from. */
export function tokensInOrder(
  { order, offsets, lossMask }: TokenBatch,
  from: ArrayLike<number>,
  column: ArrayLike<number>,
): Float32Array {
  const ordered = new Float32Array(offsets.at(-1)!)
  order.forEach((i, place) => {
    for (let t = from[i]!, to = offsets[place]!; t < from[i + 1]!; t++, to++) {
      ordered[to] = lossMask[to] === 0 && Number.isNaN(column[t]) ? 0 : column[t]!
    }
  })
  return ordered
}
