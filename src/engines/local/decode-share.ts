/** One thread's share of a step of the local engine: it feeds ids and chooses the next token of its slots. */
import type { TransformerDecoder } from '../../language/transformer/decoder.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import type { DecodingColumns, LocalColumns } from './local-columns.ts'

export interface DecodingThread extends Omit<DecodingColumns, 'decoder'> {
  readonly decoder: TransformerDecoder
  readonly context: number
  readonly sampling: Sampling
  readonly explore: boolean
  /** Buffer for a list of slots. */
  readonly slots: Int32Array
  /** Per slot with a turn: the slot with the same ids from which it copies keys and values; −1: none. */
  readonly source: Int32Array
  /** Per slot: the last custom sampling that this thread used; empty before the first. */
  readonly samplings: Sampling[]
}

/** Feeds uncached ids and chooses a token for the slots of share `index` of `numShares`. Does nothing for an empty share. */
export function decodeShare(thread: DecodingThread, index: number, numShares: number): void {
  const { turns, ids, decoder, slots, context, sampling, explore } = thread
  const { slot, lane, episode, draw, forward } = decoder.columns
  if (index >= numShares) return
  const count = listActive(thread)
  const from = shareBegin(count, index, numShares)
  const to = shareBegin(count, index + 1, numShares)
  feed(thread, from, to)
  for (let i = from, row = 0; i < to; i++, row++) {
    const n = slots[i]!
    const last = turns.length[n]! - 1
    slot[row] = n
    // Random numbers depend on the conversation, not on its slot.
    lane[row] = turns.group[n]!
    episode[row] = turns.member[n]!
    draw[row] = turns.tokensBefore[n]! + last
    forward.token[row] = ids[n * context + last]!
    forward.position[row] = last
  }
  let isOwn = false
  for (let i = from; i < to; i++) {
    const n = slots[i]!
    if (turns.ownDrawing[n] === 1 || turns.masked[n] === 1 || turns.changed[n] === 1) isOwn = true
  }
  if (isOwn) drawEach(thread, to - from)
  else decoder.advance(to - from, sampling, explore)
}

/** Chooses the tokens of the first `count` rows. Adjacent rows with the same sampling are sampled together. */
function drawEach(thread: DecodingThread, count: number): void {
  const { turns, decoder, sampling, explore } = thread
  const { slot, mask } = decoder.columns
  decoder.computeLogits(count)
  changeLogits(thread, count)
  for (let row = 0; row < count; row++) mask[row] = turns.masked[slot[row]!] === 1 ? slot[row]! : -1
  for (let begin = 0, row = 1; row <= count; row++) {
    const n = slot[begin]!
    if (row < count && drawAlike(turns, n, slot[row]!)) continue
    if (turns.ownDrawing[n] === 1)
      decoder.drawRows(begin, row, samplingOf(thread, n), turns.explore[n] === 1, turns.mask)
    else decoder.drawRows(begin, row, sampling, explore, turns.mask)
    begin = row
  }
}

function changeLogits({ turns, ids, decoder, context }: DecodingThread, count: number): void {
  const { slot, changed } = decoder.columns
  let isChanged = false
  for (let row = 0; row < count; row++) {
    const n = slot[row]!
    changed.change[row] = turns.changed[n] === 1 ? n : -1
    changed.first[row] = n * context
    changed.answer[row] = n * context + turns.answer[n]!
    changed.end[row] = n * context + turns.length[n]!
    isChanged ||= turns.changed[n] === 1
  }
  if (isChanged) decoder.changeLogits(count, ids, turns.changes)
}

/** Whether the turns of two slots have the same sampling. */
function drawAlike(turns: LocalColumns['turns'], a: number, b: number): boolean {
  const { ownDrawing, temperature, topK, topP, minP, explore } = turns
  if (ownDrawing[a] === 0 || ownDrawing[b] === 0) return ownDrawing[a] === ownDrawing[b]
  const isSameFilter = topK[a] === topK[b] && topP[a] === topP[b] && minP[a] === minP[b]
  return isSameFilter && temperature[a] === temperature[b] && explore[a] === explore[b]
}

/** The custom sampling of slot n. Returns the same object while its values do not change, since a decoder is bound to it. */
function samplingOf({ turns, samplings }: DecodingThread, n: number): Sampling {
  const [temperature, topK, topP, minP] = [turns.temperature[n]!, turns.topK[n]!, turns.topP[n]!, turns.minP[n]!]
  const last = samplings[n]
  const isSame = last?.temperature === temperature && last.topK === topK && last.topP === topP && last.minP === minP
  if (isSame) return last
  samplings[n] = { temperature, topK, topP, minP }
  return samplings[n]
}

export function listActive({ turns, slots }: Pick<DecodingThread, 'turns' | 'slots'>): number {
  let count = 0
  for (let n = 0; n < slots.length; n++) if (turns.active[n] === 1) slots[count++] = n
  return count
}

/** The first row of a share. */
export function shareBegin(count: number, index: number, numShares: number): number {
  return Math.floor((index * count) / numShares)
}

/**
 * Feeds the uncached ids of the slots at places `from` to `to`, except their last ids. A slot with the same ids as an earlier slot, as
 * for answers to one prompt, copies its keys and values, which are equal to the bit.
 */
function feed({ turns, ids, decoder, context, slots, source }: DecodingThread, from: number, to: number): void {
  const { cached, length } = turns
  let before = -1
  for (let i = from; i < to; i++) {
    const n = slots[i]!
    const last = length[n]! - 1
    source[n] = -1
    if (cached[n]! >= last) continue
    if (before >= 0 && hasSameIds(turns, ids, context, n, before)) source[n] = before
    else {
      decoder.feed(n, ids.subarray(n * context + cached[n]!, n * context + last), cached[n]!)
      before = n
    }
  }
  decoder.flush()
  for (let i = from; i < to; i++) {
    const n = slots[i]!
    if (source[n]! >= 0) decoder.copyCache(n, source[n]!, cached[n]!, length[n]! - 1)
    cached[n] = length[n]!
  }
}

/** Whether two slots have the same ids. */
function hasSameIds(
  { length }: LocalColumns['turns'],
  ids: Int32Array,
  context: number,
  a: number,
  b: number,
): boolean {
  if (length[a] !== length[b]) return false
  for (let i = 0; i < length[a]!; i++) if (ids[a * context + i] !== ids[b * context + i]) return false
  return true
}
