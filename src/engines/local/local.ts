/**
 * The engine in this process: a transformer over the world's memory. It reads ids in the cohort's columns, appends each token there, and
 * returns the decoder's columns without a copy. Each step adds one token to every slot with a turn. Other trainer threads take shares of
 * the slots; the tokens do not depend on the number of threads.
 */
import { InputError } from '../../base/errors.ts'
import { type Constraint, LOGIT_CHANGES } from '../../environments/text.ts'
import { type Grammars, grammarsOf, type Matcher } from '../../language/grammars/grammars.ts'
import { StopStrings } from '../../language/tokenizers/stop-strings.ts'
import { type DecoderColumns, TransformerDecoder } from '../../language/transformer/decoder.ts'
import { checkSampling } from '../../language/transformer/sampling.ts'
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
import { type DecodingThread, decodeShare, listActive, shareBegin } from './decode-share.ts'
import { type DecodingColumns, type LocalColumns, localEnginePlan, MOST_BIASES, SHARE_SLOTS } from './local-columns.ts'

/** The error of a turn that no token can continue. */
const STUCK = 'no token of the vocabulary can continue an answer that meets the constraint'

/** A block of tokens as a thread's decoder wrote it. */
type Block = { -readonly [K in keyof GeneratedTokens]: GeneratedTokens[K] }

const NONE: readonly GeneratedTokens[] = []

export class LocalEngine implements Engine, EngineThreads {
  readonly id = 'local'
  readonly logprobs = 'candidates'
  readonly constrains = true
  readonly changes = LOGIT_CHANGES
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
  /** Number of tokens that each slot's answer has before it may end. */
  readonly #minTokens: Int32Array
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
    this.#minTokens = new Int32Array(numSlots)
    this.#grammars = grammarsOf(context.tokenizer, model.shape.vocabularySize)
  }

  get version(): number {
    return this.#version
  }

  prepare(constraint: Constraint): void {
    const mask = this.#grammars.matcherOf(constraint).next()
    if (mask?.every((word) => word === 0))
      throw new InputError('constraint', STUCK, 'a constraint that some answer meets')
  }

  submit(turn: TurnRequest): void {
    const { slot, ids, generated, unchanged, maxTokens, key } = turn
    const { numSlots, context } = this.#context
    const { active, length, cached, group, member, tokensBefore } = this.turns
    checkTurn(this.id, turn, numSlots, context, active[slot] === 1)
    this.#takeDrawing(turn)
    this.turns.answer[slot] = ids.length - generated
    this.#takeChanges(turn)
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

  /**
   * Calls `each` for the tokens of a prompt except the first, with log-probabilities at temperature 1, as `TransformerDecoder.score` does.
   */
  scorePrompt(slot: number, each: Parameters<TransformerDecoder['score']>[2]): void {
    const { context, ids } = this.#context
    const { length, cached } = this.turns
    this.decoder.score(slot, ids.subarray(slot * context, slot * context + length[slot]!), each)
    cached[slot] = length[slot]! - 1
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

  /** Writes a turn's changes of logits to the shared columns. */
  #takeChanges({ slot, changes = {} }: TurnRequest): void {
    const { bias = {}, repetition = 1, frequency = 0, presence = 0, minTokens = 0 } = changes
    const { vocabularySize } = this.#context.model.shape
    const biases = Object.entries(bias)
    const isId = ([id]: [string, number]) => Number.isSafeInteger(Number(id)) && Number(id) < vocabularySize
    if (biases.length > MOST_BIASES || !biases.every(isId)) {
      const expected = `at most ${MOST_BIASES}, by ids below ${vocabularySize}`
      throw new InputError('turn of engine local, bias', `${biases.length} biases`, expected)
    }
    const { changed, changes: columns } = this.turns
    this.#minTokens[slot] = minTokens
    changed[slot] = biases.length > 0 || repetition !== 1 || frequency !== 0 || presence !== 0 ? 1 : 0
    columns.repetition[slot] = repetition
    columns.frequency[slot] = frequency
    columns.presence[slot] = presence
    const begin = slot * MOST_BIASES
    columns.biasBegin[slot] = begin
    columns.biasEnd[slot] = begin + biases.length
    for (const [i, [id, value]] of biases.entries()) {
      columns.biasId[begin + i] = Number(id)
      columns.bias[begin + i] = value
    }
  }

  /** Starts the matcher of a constrained turn. Tokens that the turn already generated are part of the answer. */
  #takeConstraint({ slot, ids, generated, constraint }: TurnRequest): void {
    this.#release(slot)
    const matcher = constraint === undefined ? null : this.#grammars.matcherOf(constraint)
    this.#matchers[slot] = matcher
    const isOfForm = matcher === null || ids.subarray(ids.length - generated).every((id) => matcher.accept(id))
    if (!isOfForm || !this.#mask(slot, generated)) {
      this.#release(slot)
      throw new InputError(
        'turn of engine local, constraint',
        'an answer that no token of the vocabulary can continue',
        'a constraint that the vocabulary can follow',
      )
    }
  }

  /** Writes the mask of the slot's token after the first `numSaid` tokens of its answer. Returns false if no token is allowed. */
  #mask(slot: number, numSaid: number): boolean {
    const { numWords } = this.#grammars
    const matcher = this.#matchers[slot]!
    const isEarly = numSaid < this.#minTokens[slot]!
    this.turns.masked[slot] = 0
    if (matcher === null && !isEarly) return true
    const allowed = matcher === null ? this.#grammars.all : matcher.next()
    if (allowed === null) return false
    const mask = isEarly ? this.#grammars.withoutEnds(allowed) : allowed
    if (mask.every((word) => word === 0)) return false
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
    await this.#together?.catch(() => {}) // Reported to the caller of `advance`.
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
    const isEarly = length[n]! - this.turns.answer[n]! < this.#minTokens[n]!
    const isEnd = this.#stops[n]!.push(token) !== null || tokenizer.endIds.includes(token)
    const isStopped = isEnd && !isEarly
    const goesOn = !isStopped && this.#left[n]! > 0
    if (goesOn && this.#goesOn(n, token)) return null
    active[n] = 0
    return goesOn ? 'failed' : isStopped ? 'stop' : 'length'
  }

  /** Whether some token may follow this one. If not, `#failure` says why. */
  #goesOn(n: number, token: number): boolean {
    const matcher = this.#matchers[n]!
    this.#failure = STUCK
    try {
      return matcher?.accept(token) !== false && this.#mask(n, this.turns.length[n]! - this.turns.answer[n]!)
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
      throw new InputError('weights of engine local', 'a quantized model', 'an adapter or an unquantized model')
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
