/** Deals prompts in a new order each epoch. Its state is two numbers, so resuming neither loses nor repeats any. */
import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import { checkSeed, Random } from '../../base/random.ts'
import type { Message } from '../../environments/text.ts'
import { shuffleRows } from '../../kernels/bind.ts'
import { readJsonLines } from '../../tables/json-lines.ts'
import { checkLimit, promptOf } from './example.ts'

/** A buffer's state. It and the prompts determine what comes next. */
export interface BufferState {
  readonly seed: number
  /** How often all prompts have been dealt. */
  readonly epochId: number
  /** Prompts dealt in this epoch. */
  readonly sampleOffset: number
}

/** A buffer's saved state, with the number and the checksum of its prompts. */
export interface SavedBufferState extends BufferState {
  readonly numPrompts: number
  /** SHA-256 of the prompts as JSON. */
  readonly prompts: string
}

/** A dealt prompt. Epoch and promptId together are unique, and so is the group. */
export interface DealtPrompt<P> {
  readonly prompt: P
  readonly promptId: number
  readonly epoch: number
  /** Counts all dealt prompts from 0: the group of the samples for this prompt. */
  readonly group: number
}

/** Replaces the update in the random key, so that a seed gives the same order here and in conversations. */
const NO_UPDATE = 0xffffffff
const COUNT_MAX = 2 ** 31 - 1

/** Returns the next `n` prompts and the state after them. `n` above their number wraps around. */
export function getSamples<P>(
  prompts: readonly P[],
  state: BufferState,
  n: number,
): { samples: DealtPrompt<P>[]; state: BufferState } {
  checkGiven('prompts of getSamples', prompts, 'a list')
  checkGiven('state of getSamples', state, ['seed', 'epochId', 'sampleOffset'])
  if (prompts.length === 0) throw new InputError('prompts', 'none', 'at least one')
  checkCount('n', n, 1, COUNT_MAX)
  checkState(state, prompts.length)
  let { epochId, sampleOffset } = state
  let order = epochOrder(state.seed, epochId, prompts.length)
  const samples: DealtPrompt<P>[] = []
  while (samples.length < n) {
    if (sampleOffset === prompts.length) {
      epochId++
      sampleOffset = 0
      order = epochOrder(state.seed, epochId, prompts.length)
    }
    const promptId = order[sampleOffset]!
    const group = epochId * prompts.length + sampleOffset
    samples.push({ prompt: prompts[promptId]!, promptId, epoch: epochId, group })
    sampleOffset++
  }
  return { samples, state: { seed: state.seed, epochId, sampleOffset } }
}

function epochOrder(seed: number, epoch: number, numPrompts: number): Uint32Array {
  const { key0, key1, words } = new Random(seed)
  const order = Uint32Array.from({ length: numPrompts }, (_, i) => i)
  shuffleRows(order, words, numPrompts, epoch, NO_UPDATE, key0, key1)
  return order
}

/**
 * Deals prompts, epoch after epoch. Prompts may be texts, messages or whole examples.
 * @example
 * const buffer = new DataBuffer(await loadRlPrompts('prompts.jsonl'), 1)
 * const prompts = buffer.getPrompts(32)
 */
export class DataBuffer<P> {
  readonly prompts: readonly P[]
  #state: BufferState
  #checksum: string | undefined

  /** @throws InputError for an empty list or an invalid seed. */
  constructor(prompts: readonly P[], seed = 1) {
    checkGiven('prompts of DataBuffer', prompts, 'a list')
    if (prompts.length === 0) throw new InputError('prompts', 'none', 'at least one')
    this.prompts = [...prompts]
    this.#state = { seed: checkSeed(seed), epochId: 0, sampleOffset: 0 }
  }

  get seed(): number {
    return this.#state.seed
  }

  get epochId(): number {
    return this.#state.epochId
  }

  get sampleOffset(): number {
    return this.#state.sampleOffset
  }

  /** The next `n` prompts. `n` above their number wraps around. */
  getPrompts(n: number): DealtPrompt<P>[] {
    const { samples, state } = getSamples(this.prompts, this.#state, n)
    this.#state = state
    return samples
  }

  async saveState(): Promise<SavedBufferState> {
    const state = this.#state
    return { ...state, numPrompts: this.prompts.length, prompts: await this.#promptsChecksum() }
  }

  /** Restores another buffer's state for the same prompts. @throws InputError for another state, changing nothing. */
  async loadState(saved: SavedBufferState): Promise<void> {
    const { seed, epochId, sampleOffset, numPrompts, prompts } = saved
    const state = { seed, epochId, sampleOffset }
    if (numPrompts !== this.prompts.length) {
      throw new InputError(
        'buffer state',
        `a state of ${show(numPrompts)} prompts`,
        `a state of these ${this.prompts.length} prompts`,
      )
    }
    checkState(state, numPrompts)
    if (prompts !== (await this.#promptsChecksum())) {
      throw new InputError('buffer state', 'a state of other prompts, or of another order', 'a state of these prompts')
    }
    this.#state = state
  }

  async #promptsChecksum(): Promise<string> {
    const { createHash } = await import('node:crypto')
    if (this.#checksum === undefined) {
      const hash = createHash('sha256')
      for (const prompt of this.prompts) hash.update(`${JSON.stringify(prompt)}\n`)
      this.#checksum = hash.digest('hex')
    }
    return this.#checksum
  }
}

function checkState({ seed, epochId, sampleOffset }: BufferState, numPrompts: number): void {
  checkSeed(seed)
  checkCount('epochId', epochId, 0, COUNT_MAX)
  checkCount('sampleOffset', sampleOffset, 0, numPrompts)
}

/** Checks prompts for a `DataBuffer`: texts or messages. @throws InputError with the place of a wrong one. */
export function loadPromptsFromList(prompts: readonly unknown[]): (string | readonly Message[])[] {
  checkGiven('prompts of loadPromptsFromList', prompts, 'a list')
  if (prompts.length === 0) throw new InputError('prompts', 'none', 'at least one')
  return prompts.map((prompt, i) => promptOf(prompt, `prompts[${i}]`))
}

/** Which prompts of a file to read. */
export interface PromptFileOptions {
  /** The prompt's field; default `prompt`. */
  readonly promptKey?: string
  readonly limit?: number
}

/** A JSONL file's prompts: texts or messages. @throws InputError for an empty file, and a wrong line by number. */
export async function loadPromptsFromJsonl(
  path: string,
  { promptKey = 'prompt', limit }: PromptFileOptions = {},
): Promise<(string | readonly Message[])[]> {
  checkLimit(limit)
  const prompts: (string | readonly Message[])[] = []
  for await (const { place, value } of readJsonLines(path)) {
    if (prompts.length === limit) break
    prompts.push(promptOf((value as Record<string, unknown> | null)?.[promptKey], `${place}, ${promptKey}`))
  }
  if (prompts.length === 0) throw new InputError(path, 'no line', 'at least one prompt')
  return prompts
}

/** A `DataBuffer` of a JSONL file's prompts. */
export async function createBufferFromJsonl(
  path: string,
  { seed = 1, ...options }: PromptFileOptions & { readonly seed?: number } = {},
): Promise<DataBuffer<string | readonly Message[]>> {
  return new DataBuffer(await loadPromptsFromJsonl(path, options), seed)
}
