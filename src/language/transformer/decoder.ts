/** Decodes many lanes' tokens over a cache. A prompt is fed without its last token, which the first `advance` takes. */
import { assert, InputError } from '../../base/errors.ts'
import type { Random } from '../../base/random.ts'
import { type ColumnSpec, type Columns, column, type Plan } from '../../components/column.ts'
import type { TurnChanges } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { Forward, type KeyValueCache } from './forward.ts'
import { forwardPlan } from './forward-plan.ts'
import type { LoraAdapter, LoraModel } from './lora.ts'
import type { TransformerModel, WeightBits } from './model.ts'
import type { BaseWeights } from './quantized.ts'
import { changedRowsPlan, checkSampling, inverseOf, maskWords, type Sampling } from './sampling.ts'

/** Rows of prompts that are batched before they run, to amortize the copy of the weights in a matrix product. */
const FED_ROWS = 128

/** Nothing is differentiated while tokens are drawn. */
const UNREAD = new Uint8Array(0)

/** The columns of one thread that decodes up to `slots` sequences at once, each of at most `context` tokens. */
export function decoderPlan(
  model: TransformerModel,
  slots: number,
  context: number,
  lora: LoraModel | null = null,
  weightBits: WeightBits = 32,
) {
  const { numKeyHeads, headWidth, numLayers } = model.shape
  const width = numKeyHeads * headWidth
  const cached = (): ColumnSpec<'f32' | 'u32'> =>
    model.cacheBits === 16 ? column('u32', slots * context, width / 2) : column('f32', slots * context, width)
  return {
    /** For each layer: (slot · context + position) × (numKeyHeads · headWidth), in f32 or in bf16, two in a word. */
    cache: Object.fromEntries(
      Array.from({ length: numLayers }, (_, index) => [index, { key: cached(), value: cached() }]),
    ),
    ...decoderShare(model, slots, context, lora, weightBits),
  } satisfies Plan
}

/** A decoder's columns without a cache: a further thread decodes up to `slots` rows over the first thread's cache. */
export function decoderShare(
  model: TransformerModel,
  slots: number,
  context: number,
  lora: LoraModel | null,
  weightBits: WeightBits,
) {
  const rows = Math.max(slots, FED_ROWS)
  const { vocabularySize } = model.shape
  return {
    forward: forwardPlan(model, rows, context, 'one', lora, weightBits),
    /** A row's place in the cache: slot · context + position. */
    cacheRow: column('i32', rows),
    /** Inputs of `advance`, one row each: the sequence's slot, and the three numbers that key its random draws. */
    slot: column('i32', rows),
    lane: column('u32', slots),
    episode: column('u32', slots),
    draw: column('i32', slots),
    /** Logits of each row, slots × vocabulary. Outside a candidate set they are masked. */
    logits: column('f32', slots, vocabularySize),
    /** Candidates of row i in ascending order, candidateOffset[i] to candidateOffset[i + 1]; none without a filter. */
    candidates: column('i32', slots, vocabularySize),
    candidateOffset: column('i32', slots + 1),
    /** The index of each row's mask, -1 for none. Written by the caller before `drawRows`. */
    mask: column('i32', slots),
    /** Which logits `changeLogits` changes. Written by the caller. */
    changed: changedRowsPlan(slots, vocabularySize, context),
    uniform: column('f32', slots),
    words: column('u32', 4),
    chosen: column('i32', slots),
  } satisfies Plan
}

export type DecoderColumns = Columns<ReturnType<typeof decoderPlan>>

/** The columns that choosing tokens reads and writes, of all rows or of some. */
type DrawnColumns = Pick<
  DecoderColumns,
  'logits' | 'uniform' | 'words' | 'lane' | 'episode' | 'draw' | 'chosen' | 'candidates' | 'candidateOffset' | 'mask'
> & {
  readonly forward: Pick<
    DecoderColumns['forward'],
    'max' | 'sum' | 'weighted' | 'targetLogit' | 'logprob' | 'entropy' | 'token'
  >
}

/** A transformer that generates tokens, in one thread. */
export class TransformerDecoder {
  readonly columns: DecoderColumns
  readonly #forward: Forward
  readonly #random: Random
  readonly #caches: readonly KeyValueCache[]
  readonly #context: number
  readonly #slots: number
  /** Rows that were fed and have not run yet. */
  #numFed = 0
  /** The sampling of the last call, and its draw function. All calls of a cohort have the same. */
  #sampling: Partial<Sampling> | null = null
  #drawTokens: DrawTokens
  readonly #candidateEnd: Int32Array

  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: DecoderColumns,
    kernels: Kernels,
    random: Random,
    adapter: LoraAdapter | null = null,
  ) {
    this.columns = columns
    this.#forward = new Forward(model, weights, columns.forward, kernels, adapter)
    this.#random = random
    this.#caches = Object.values(columns.cache)
    this.#context = this.#forward.context
    const { numKeyHeads, headWidth } = model.shape
    this.#slots = this.#caches[0]!.key.byteLength / (this.#context * numKeyHeads * headWidth * (model.cacheBits / 8))
    this.#candidateEnd = columns.candidateOffset.subarray(1)
    this.#drawTokens = drawingOf(this.#forward, random, checkSampling({}))
  }

  /**
   * Queues tokens of a sequence for its slot's cache, at positions `from` on. `flush` runs them, so that tokens of many
   * sequences go through the network together. A sequence's tokens must be fed in order.
   * @throws InputError for a token outside the vocabulary, a sequence beyond the context, or an unknown slot.
   */
  feed(slot: number, tokens: ArrayLike<number>, from = 0): void {
    const { token, position } = this.columns.forward
    // Check all tokens first, so that a refused sequence queues nothing.
    for (let i = 0; i < tokens.length; i++) this.#check(slot, tokens[i]!, from + i)
    for (let i = 0; i < tokens.length; i++) {
      if (this.#numFed === token.length) this.flush()
      const row = this.#numFed
      token[row] = tokens[i]!
      position[row] = from + i
      this.columns.slot[row] = slot
      this.#place(row)
      this.#numFed++
    }
  }

  /** Runs the tokens that were fed and frees their rows for `advance`. */
  flush(): void {
    const count = this.#numFed
    this.#numFed = 0
    if (count > 0) this.#forward.run(count, this.#caches, this.columns.cacheRow)
  }

  /** Copies the keys and values of positions `begin` to `end` from slot `from`, for sequences with a common prefix. */
  copyCache(to: number, from: number, begin: number, end: number): void {
    const { numKeyHeads, headWidth } = this.#forward.model.shape
    const keyWidth = (numKeyHeads * headWidth * this.#forward.model.cacheBits) / 32
    const at = (slot: number, position: number) => (slot * this.#context + position) * keyWidth
    for (const { key, value } of this.#caches) {
      key.copyWithin(at(to, begin), at(from, begin), at(from, end))
      value.copyWithin(at(to, begin), at(from, begin), at(from, end))
    }
  }

  /**
   * Takes `token` at `position` of `slot` for rows 0 … count ≤ slots, and chooses the next token of each from
   * softmax(logits / temperature), renormalized over the candidate set that `sampling` leaves. Writes `chosen`, its
   * `logprob`, the `entropy` of that distribution in nats, and `candidates`. With `explore` it samples with the random
   * number that seed, lane, episode and draw give; otherwise it takes the most probable token.
   * @throws InputError as `feed` and `checkSampling` do.
   */
  advance(count: number, sampling: Partial<Sampling>, explore: boolean): void {
    this.computeLogits(count)
    this.#draw(this.columns, this.#candidateEnd, count, sampling, explore, null)
  }

  /** The first half of `advance`: takes the tokens of rows 0 … count and computes the logits after each. */
  computeLogits(count: number): void {
    const { lane, logits, forward } = this.columns
    assert(count <= lane.length, 'count is above the rows of the columns') // A message with numbers would allocate at each call.
    this.#run(count)
    const { kernels, model, weights } = this.#forward
    const { vocabularySize, logitCap } = model.shape
    this.#forward.multiply(logits, forward.hidden, weights.wholeHead, count)
    if (logitCap > 0) kernels.capElements(logits, logitCap, count * vocabularySize)
  }

  /**
   * Fills a slot's cache with the tokens of a sequence except the last. Calls `each` for every token except the first, with its index, its
   * log-probability at temperature 1 over the whole vocabulary, and its logits, which are overwritten later.
   * @throws InputError as `feed` does.
   */
  score(slot: number, tokens: Int32Array, each: (at: number, logprob: number, logits: Float32Array) => void): void {
    const { logits, chosen, forward } = this.columns
    const { token, position, max, sum, weighted, targetLogit, logprob, entropy } = forward
    const { kernels, model } = this.#forward
    const { vocabularySize } = model.shape
    this.#forward.check(tokens.at(-1)!, tokens.length - 1)
    for (let begin = 0; begin < tokens.length - 1; begin += chosen.length) {
      const count = Math.min(chosen.length, tokens.length - 1 - begin)
      for (let row = 0; row < count; row++) {
        this.columns.slot[row] = slot
        token[row] = tokens[begin + row]!
        position[row] = begin + row
        chosen[row] = tokens[begin + row + 1]!
      }
      this.computeLogits(count)
      kernels.sumVocabulary(max, sum, weighted, targetLogit, logits, chosen, 1, count, 0, vocabularySize)
      kernels.evaluateVocabulary(logprob, entropy, max, sum, weighted, targetLogit, count)
      for (let row = 0; row < count; row++) {
        each(begin + row + 1, logprob[row]!, logits.subarray(row * vocabularySize, (row + 1) * vocabularySize))
      }
    }
  }

  /** Changes the logits of rows 0 … count by the columns `changed`, whose `ids` hold the rows' sequences. */
  changeLogits(count: number, ids: Int32Array, changes: TurnChanges): void {
    const { kernels, model } = this.#forward
    const { logits, changed } = this.columns
    const { vocabularySize } = model.shape
    kernels.changeVocabulary(logits, UNREAD, ids, changed, changes, count, 0, vocabularySize, false)
  }

  /**
   * The second half of `advance`, for rows `from` to `to`, in ascending calls: candidate sets are appended. With `masks`,
   * a row is drawn only from the tokens of the mask that the column `mask` names, filtered by `sampling`.
   */
  drawRows(from: number, to: number, sampling: Partial<Sampling>, explore: boolean, masks: Int32Array | null): void {
    const { columns } = this
    const { vocabularySize } = this.#forward.model.shape
    const { logits, uniform, words, lane, episode, draw, chosen, candidates, candidateOffset, mask, forward } = columns
    const { max, sum, weighted, targetLogit, logprob, entropy, token } = forward
    const begin = from === 0 ? 0 : candidateOffset[from]!
    const offsets = candidateOffset.subarray(from, to + 1)
    this.#draw(
      {
        logits: logits.subarray(from * vocabularySize, to * vocabularySize),
        candidates: candidates.subarray(begin),
        candidateOffset: offsets,
        mask: mask.subarray(from, to),
        words,
        ...{ uniform: uniform.subarray(from, to), chosen: chosen.subarray(from, to) },
        ...{ lane: lane.subarray(from, to), episode: episode.subarray(from, to), draw: draw.subarray(from, to) },
        forward: {
          ...{ max: max.subarray(from, to), sum: sum.subarray(from, to), weighted: weighted.subarray(from, to) },
          ...{ targetLogit: targetLogit.subarray(from, to), token: token.subarray(from, to) },
          ...{ logprob: logprob.subarray(from, to), entropy: entropy.subarray(from, to) },
        },
      },
      offsets.subarray(1),
      to - from,
      sampling,
      explore,
      masks,
    )
    for (let i = 0; i < offsets.length; i++) offsets[i] = offsets[i]! + begin
  }

  #draw(
    columns: DrawnColumns,
    candidateEnd: Int32Array,
    count: number,
    sampling: Partial<Sampling>,
    explore: boolean,
    masks: Int32Array | null,
  ): void {
    if (sampling !== this.#sampling) {
      this.#drawTokens = drawingOf(this.#forward, this.#random, checkSampling(sampling))
      this.#sampling = sampling
    }
    this.#drawTokens(columns, candidateEnd, count, explore, masks)
  }

  #run(count: number): void {
    const { slot, cacheRow, forward } = this.columns
    assert(this.#numFed === 0, 'fed tokens have not run yet')
    for (let row = 0; row < count; row++) {
      this.#check(slot[row]!, forward.token[row]!, forward.position[row]!)
      this.#place(row)
    }
    this.#forward.run(count, this.#caches, cacheRow)
  }

  #check(slot: number, token: number, position: number): void {
    this.#forward.check(token, position)
    if (slot >= 0 && slot < this.#slots) return
    throw new InputError('slot', String(slot), `a whole number from 0 to ${this.#slots - 1}`)
  }

  /** Computes where a row's keys and values go, and where its sequence begins in the cache. */
  #place(row: number): void {
    const { slot, cacheRow, forward } = this.columns
    forward.firstKey[row] = slot[row]! * this.#context
    cacheRow[row] = slot[row]! * this.#context + forward.position[row]!
  }
}

/** Chooses the tokens of rows 0 … count. Their candidate sets end at `candidateEnd`. */
type DrawTokens = (
  columns: DrawnColumns,
  candidateEnd: Int32Array,
  count: number,
  explore: boolean,
  masks: Int32Array | null,
) => void

/** Returns the draw function for `sampling`. It captures the numbers: object fields would be boxed at each call. */
function drawingOf(
  { kernels, model }: Forward,
  { key0, key1 }: Random,
  { temperature, topK, topP, minP }: Sampling,
): DrawTokens {
  const inverse = inverseOf(temperature)
  const { vocabularySize } = model.shape
  const numWords = maskWords(vocabularySize)
  const isFiltered = (topK > 0 && topK < vocabularySize) || topP < 1 || minP > 0
  return (columns, candidateEnd, count, explore, masks) => {
    const { logits, uniform, words, lane, episode, draw, chosen, candidates, candidateOffset, mask, forward } = columns
    const { max, sum, weighted, targetLogit, logprob, entropy, token } = forward
    if (masks !== null) kernels.maskVocabulary(logits, masks, mask, inverse, count, 0, vocabularySize, numWords)
    kernels.sumVocabulary(max, sum, weighted, targetLogit, logits, token, inverse, count, 0, vocabularySize)
    if (isFiltered) {
      kernels.selectCandidates(
        candidates,
        candidateOffset,
        logits,
        max,
        sum,
        inverse,
        topK,
        topP,
        minP,
        count,
        vocabularySize,
      )
      kernels.restrictVocabulary(logits, candidates, candidateOffset, candidateEnd, inverse, count, 0, vocabularySize)
      kernels.sumVocabulary(max, sum, weighted, targetLogit, logits, token, inverse, count, 0, vocabularySize)
    } else candidateOffset.fill(0)
    if (explore) {
      kernels.drawUniform(uniform, words, lane, episode, draw, key0, key1, count, 1, 0)
      kernels.sampleVocabulary(chosen, targetLogit, logits, max, sum, uniform, inverse, count, vocabularySize)
    } else kernels.modeOfVocabulary(chosen, targetLogit, logits, inverse, count, vocabularySize)
    kernels.evaluateVocabulary(logprob, entropy, max, sum, weighted, targetLogit, count)
  }
}
