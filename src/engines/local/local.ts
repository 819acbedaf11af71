/**
 * The engine in this process: a transformer over the world's memory. It reads ids in the cohort's columns, appends each token there, and
 * returns the decoder's columns without a copy. Each step adds one token to every slot with a turn. Other trainer threads take shares of
 * the slots; the tokens do not depend on the number of threads.
 */
import { InputError } from '../../base/errors.ts'
import type { Constraint } from '../../environments/text.ts'
import { type Grammars, grammarsOf, type Matcher } from '../../language/grammars/grammars.ts'
import { StopStrings } from '../../language/tokenizers/stop-strings.ts'
import { type DecoderColumns, TransformerDecoder } from '../../language/transformer/decoder.ts'
import { bitsOf } from '../../language/transformer/quantized.ts'
import { checkSampling, type Sampling } from '../../language/transformer/sampling.ts'
import {
  checkTurn,
  type DecodingWorkers,
  type Engine,
  type EngineContext,
  type EngineDefinition,
  type EngineThreads,
  type GeneratedTokens,
  type Polled,
  type TurnEnd,
  type TurnRequest,
  type WeightsDelivery,
} from '../engine.ts'
import { type DecodingColumns, type LocalColumns, localEnginePlan, SHARE_SLOTS } from './local-columns.ts'

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
  for (let i = from; i < to; i++) if (turns.ownDrawing[slots[i]!] === 1 || turns.masked[slots[i]!] === 1) isOwn = true
  if (isOwn) drawEach(thread, to - from)
  else decoder.advance(to - from, sampling, explore)
}

/** Chooses the tokens of the first `count` rows. Adjacent rows with the same sampling are sampled together. */
function drawEach(thread: DecodingThread, count: number): void {
  const { turns, decoder, sampling, explore } = thread
  const { slot, mask } = decoder.columns
  decoder.computeLogits(count)
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

function listActive({ turns, slots }: Pick<DecodingThread, 'turns' | 'slots'>): number {
  let count = 0
  for (let n = 0; n < slots.length; n++) if (turns.active[n] === 1) slots[count++] = n
  return count
}

/** The first row of a share. */
function shareBegin(count: number, index: number, numShares: number): number {
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

/** The error of a turn that no token can continue. */
const STUCK = 'no token of the vocabulary can continue an answer that meets the constraint'

/** A block of tokens as a thread's decoder wrote it. */
type Block = { -readonly [K in keyof GeneratedTokens]: GeneratedTokens[K] }

const NONE: readonly GeneratedTokens[] = []

export class LocalEngine implements Engine, EngineThreads {
  readonly id = 'local'
  readonly logprobs = 'candidates'
  readonly constrains = true
  readonly arrival = null
  readonly threads = this
  /** Null if this thread decodes alone, which is always so outside a trainer with ready workers. */
  workers: DecodingWorkers | null = null
  readonly decoder: TransformerDecoder
  readonly turns: LocalColumns['turns']
  readonly #context: Omit<EngineContext, 'tell'>
  /** The decoder columns of each thread, this thread first. All share one cache. */
  readonly #decoders: readonly DecoderColumns[]
  readonly #thread: DecodingThread
  readonly #blocks: readonly Block[]
  /** Per slot: tokens that its turn may still generate, and its stop-string matcher. */
  readonly #left: Int32Array
  readonly #stops: StopStrings[]
  readonly #ownStops: readonly StopStrings[]
  /** The matcher of each slot's constraint; null without one. */
  readonly #matchers: (Matcher | null)[]
  readonly #grammars: Grammars
  /** Why the last turn that failed did. */
  #failure = STUCK
  #version = 0
  /** Settles when turns are resumed; null if they are not paused. */
  #held: Promise<void> | null = null
  #holders = 0
  #letGo = () => {}
  /** The last step that other threads helped with. */
  #together: Promise<void> | null = null
  #polled: { tokens: readonly GeneratedTokens[]; ends: TurnEnd[] } = { tokens: NONE, ends: [] }
  #next: { tokens: readonly GeneratedTokens[]; ends: TurnEnd[] } = { tokens: NONE, ends: [] }
  /** The first k blocks for each number of shares k, created once so that a tick allocates no list. */
  readonly #blocksOf: readonly (readonly GeneratedTokens[])[]

  constructor(context: Omit<EngineContext, 'tell'>) {
    const { model, weights, kernels, random, adapter, numSlots, ids, sampling, explore } = context
    const { turns, decoder, decoders } = context.columns as unknown as LocalColumns
    this.#context = context
    this.turns = turns
    this.decoder = new TransformerDecoder(model, weights, decoder, kernels, random, adapter)
    this.#decoders = [decoder, ...Object.values(decoders).map((share) => ({ ...share, cache: decoder.cache }))]
    const slots = new Int32Array(numSlots)
    this.#thread = {
      turns,
      ids,
      decoder: this.decoder,
      context: context.context,
      sampling,
      explore,
      slots,
      source: new Int32Array(numSlots),
      samplings: [],
    }
    this.#blocks = this.#decoders.map(({ slot, chosen, forward, candidates, candidateOffset }) => ({
      ...{ count: 0, slot, token: chosen, logprob: forward.logprob },
      version: new Int32Array(chosen.length),
      ...{ candidate: candidates, candidateOffset },
    }))
    this.#blocksOf = this.#blocks.map((_, i) => this.#blocks.slice(0, i + 1))
    this.#left = new Int32Array(numSlots)
    this.#ownStops = Array.from({ length: numSlots }, () => new StopStrings(context.tokenizer, context.stopStrings))
    this.#stops = [...this.#ownStops]
    this.#matchers = new Array(numSlots).fill(null)
    this.#grammars = grammarsOf(context.tokenizer, model.shape.vocabularySize)
  }

  get version(): number {
    return this.#version
  }

  prepare(constraint: Constraint): void {
    const mask = this.#grammars.matcherOf(constraint).next()
    if (mask?.every((word) => word === 0)) throw new InputError('constraint', STUCK, 'one that some answer meets')
  }

  submit(turn: TurnRequest): void {
    const { slot, ids, generated, unchanged, maxTokens, key } = turn
    const { numSlots, context } = this.#context
    const { active, length, cached, group, member, tokensBefore } = this.turns
    checkTurn(this.id, turn, numSlots, context, active[slot] === 1)
    this.#takeDrawing(turn)
    this.#takeConstraint(turn)
    const window = this.#context.ids.subarray(slot * context, (slot + 1) * context)
    if (ids.buffer !== window.buffer || ids.byteOffset !== window.byteOffset) window.set(ids)
    length[slot] = ids.length
    cached[slot] = Math.min(cached[slot]!, unchanged)
    group[slot] = key[0]
    member[slot] = key[1]
    tokensBefore[slot] = key[2]
    this.#left[slot] = maxTokens
    const stops = this.#stops[slot]!
    stops.clear()
    for (const id of ids.subarray(ids.length - generated)) stops.push(id)
    active[slot] = 1
  }

  /** Writes a turn's sampling to the shared columns and sets up its stop strings. */
  #takeDrawing({ slot, sampling, explore, stopStrings }: TurnRequest): void {
    const own = this.#context
    const isAlike = (a: object, b: object) => a === b || JSON.stringify(a) === JSON.stringify(b)
    const draws = explore !== own.explore || !isAlike(sampling, own.sampling)
    if (draws) checkSampling(sampling)
    this.#stops[slot] = isAlike(stopStrings, own.stopStrings)
      ? this.#ownStops[slot]!
      : new StopStrings(own.tokenizer, stopStrings)
    const { turns } = this
    turns.ownDrawing[slot] = draws ? 1 : 0
    turns.temperature[slot] = sampling.temperature
    turns.topK[slot] = sampling.topK
    turns.topP[slot] = sampling.topP
    turns.minP[slot] = sampling.minP
    turns.explore[slot] = explore ? 1 : 0
  }

  /** Starts the matcher of a constrained turn. Tokens that the turn already generated are part of the answer. */
  #takeConstraint({ slot, ids, generated, constraint }: TurnRequest): void {
    this.#release(slot)
    if (constraint === undefined) return
    const matcher = this.#grammars.matcherOf(constraint)
    this.#matchers[slot] = matcher
    const isOfForm = ids.subarray(ids.length - generated).every((id) => matcher.accept(id))
    if (!isOfForm || !this.#mask(slot, matcher)) {
      this.#release(slot)
      throw new InputError(
        'turn of engine local, constraint',
        'an answer that no token can continue',
        'one that some can',
      )
    }
  }

  /** Writes the mask of slot's next token. Returns false if no token is allowed. */
  #mask(slot: number, matcher: Matcher): boolean {
    const { numWords } = this.#grammars
    const mask = matcher.next()
    if (mask === null || mask.every((word) => word === 0)) return false
    this.turns.mask.set(mask, slot * numWords)
    this.turns.masked[slot] = 1
    return true
  }

  /** Removes the constraint of a slot. */
  #release(slot: number): void {
    this.turns.masked[slot] = 0
    this.#matchers[slot] = null
  }

  advance(): void | Promise<void> {
    if (this.#held !== null) return this.#held.then(() => this.advance())
    if (this.#next.tokens.length > 0) throw new InputError('engine local', 'unpolled tokens', 'poll() first')
    const count = listActive(this.#thread)
    if (count === 0) return
    const numShares = this.workers === null ? 1 : this.#numSharesOf(count)
    if (this.workers !== null && numShares > 1) {
      this.#together = this.#advanceTogether(count, numShares, this.workers)
      return this.#together
    }
    decodeShare(this.#thread, 0, 1)
    this.#conclude(count, 1)
  }

  async hold(): Promise<() => void> {
    this.#holders++
    this.#held ??= new Promise((resolve) => {
      this.#letGo = resolve
    })
    await this.#together?.catch(() => {}) // Who advances is told.
    let isReleased = false
    return () => {
      if (isReleased) return
      isReleased = true
      if (--this.#holders > 0) return
      this.#held = null
      this.#letGo()
    }
  }

  async #advanceTogether(count: number, numShares: number, workers: DecodingWorkers): Promise<void> {
    await workers.begin(numShares)
    decodeShare(this.#thread, 0, numShares)
    await workers.finish()
    this.#conclude(count, numShares)
  }

  /**
   * The number of threads that share `count` slots; it does not change the tokens. A pass over two rows takes as long as one over four,
   * since both read all weights once; synchronizing the threads takes about 50 µs.
   */
  #numSharesOf(count: number): number {
    if (count * this.#context.model.numParameters < 2 ** 21) return 1
    return Math.min(this.#decoders.length, Math.floor(count / SHARE_SLOTS))
  }

  /** Collects the tokens of all shares of the `count` slots. */
  #conclude(count: number, numShares: number): void {
    const { ends } = this.#next
    this.#next.tokens = this.#blocksOf[numShares - 1]!
    for (let index = 0; index < numShares; index++) {
      const block = this.#blocks[index]!
      block.count = shareBegin(count, index + 1, numShares) - shareBegin(count, index, numShares)
      for (let row = 0; row < block.count; row++) {
        const slot = block.slot[row]!
        const reason = this.#take(slot, block.token[row]!)
        if (reason === null) continue
        this.#release(slot)
        ends.push(reason === 'failed' ? { slot, reason, error: this.#failure } : { slot, reason })
      }
    }
  }

  /** Appends a token to slot n's ids. Returns why the turn ends, or null if it continues. */
  #take(n: number, token: number): 'stop' | 'length' | 'failed' | null {
    const { context, tokenizer, ids } = this.#context
    const { length, active } = this.turns
    ids[n * context + length[n]!] = token
    length[n] = length[n]! + 1
    this.#left[n] = this.#left[n]! - 1
    const isStopped = this.#stops[n]!.push(token) !== null || tokenizer.endIds.includes(token)
    const goesOn = !isStopped && this.#left[n]! > 0
    if (goesOn && this.#goesOn(n, token)) return null
    active[n] = 0
    return goesOn ? 'failed' : isStopped ? 'stop' : 'length'
  }

  /** Whether some token may follow this one. If not, `#failure` says why. */
  #goesOn(n: number, token: number): boolean {
    const matcher = this.#matchers[n]!
    if (matcher === null) return true
    this.#failure = STUCK
    try {
      return matcher.accept(token) && this.#mask(n, matcher)
    } catch (error) {
      // A constraint with too many readings of the answer so far: the other turns continue.
      if (!(error instanceof InputError)) throw error
      this.#failure = error.message
      return false
    }
  }

  poll(): Polled {
    const polled = this.#next
    this.#next = this.#polled
    this.#next.tokens = NONE
    if (this.#next.ends.length > 0) this.#next.ends = []
    this.#polled = polled
    return polled
  }

  abort(slot: number): void {
    if (this.turns.active[slot] !== 1) return
    this.turns.active[slot] = 0
    this.#release(slot)
    this.#next.ends.push({ slot, reason: 'aborted' })
  }

  /** Copies weights unless the learner has changed them in place. The cache is invalid because other weights computed it. */
  setWeights({ version, weights }: WeightsDelivery): number {
    const { adapter } = this.#context
    const own = adapter?.weights ?? this.#context.weights
    if (!(own instanceof Float32Array)) {
      throw new InputError(
        'weights of engine local',
        `a model in ${bitsOf(own)} bits`,
        'an adapter or an unquantized model',
      )
    }
    if (weights.length !== own.length) {
      throw new InputError(
        'weights of engine local',
        `${weights.length} numbers`,
        `${own.length} numbers, the model's size`,
      )
    }
    if (weights.buffer !== own.buffer || weights.byteOffset !== own.byteOffset) own.set(weights)
    this.turns.cached.fill(0)
    this.#version = version
    for (const block of this.#blocks) block.version.fill(version)
    return version
  }

  columnsOf(index: number): DecodingColumns {
    return { turns: this.turns, ids: this.#context.ids, decoder: this.#decoders[index]! }
  }

  close(): void {}
}

/** The engine of a cohort that names none. */
export const localEngine: EngineDefinition = {
  id: 'local',
  plan: localEnginePlan,
  create: (context) => new LocalEngine(context),
}
