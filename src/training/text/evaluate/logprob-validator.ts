/**
 * Checks of log-probabilities: whether a model gives the same for whole sequences, token by token, and in batches, and
 * whether its gradient is their derivative. For our transformers, which must give the same bits, and for any model
 * behind two functions, with tolerances.
 */
import { checkCount, checkGiven, InputError, show } from '../../../base/errors.ts'
import { Random, Stream } from '../../../base/random.ts'

type Awaitable<T> = T | Promise<T>

/** A model for `LogprobValidator`. All logarithms are natural. */
export interface LogprobModel {
  /** Tokens are 0 … vocabularySize − 1. */
  readonly vocabularySize: number
  /** Maximum tokens of a sequence: a whole number ≥ 4. */
  readonly context: number
  /** For each sequence of n tokens n − 1 numbers: log p(token t | tokens 0 … t − 1) for t = 1 … n − 1. */
  logprobs(sequences: readonly (readonly number[])[]): Awaitable<readonly ArrayLike<number>[]>
  /** log p of every vocabulary token after the prefix, which has at least one token. */
  nextLogprobs?(prefix: readonly number[]): Awaitable<ArrayLike<number>>
  /** The derivative of the sum of all outputs of `logprobs` by `weights`, which the validator changes and restores. */
  readonly gradient?: {
    readonly weights: Float32Array | Float64Array
    of(sequences: readonly (readonly number[])[]): Awaitable<ArrayLike<number>>
  }
  /** The same model with its logits scaled, until the next call of the model itself. */
  scaled?(factor: number): Awaitable<LogprobModel>
}

/** Tolerances of the checks. */
export interface LogprobTolerances {
  /** Between two computations of a log-probability, in nats; 0: bit for bit. */
  readonly logprob: number
  /** Of the vocabulary's total probability from 1, and of a log-probability above 0. */
  readonly probability: number
  /** Between a derivative and its finite difference, relative to the largest. */
  readonly gradient: number
  /** Step of weights for finite differences. */
  readonly step: number
}

const TOLERANCES: LogprobTolerances = { logprob: 1e-4, probability: 1e-3, gradient: 0.02, step: 5e-3 }

/** The names of the checks. */
export const logprobChecks = [
  'autoregressiveIndexing',
  'teacherForcingConsistency',
  'batchProcessing',
  'edgeCases',
  'numericalStability',
  'gradientComputation',
] as const

/** The result of one check. */
export interface LogprobCheck {
  readonly name: (typeof logprobChecks)[number]
  /** `unchecked`: the model lacks the functions that the check needs. */
  readonly status: 'held' | 'failed' | 'unchecked'
  /** Why it failed or was not checked. */
  readonly why: string | null
  /** The largest difference, in nats, or relative for gradients; null if nothing was compared. */
  readonly difference: number | null
}

/** The results of all checks. */
export interface LogprobReport {
  /** `failed` if a check failed, otherwise `unchecked` if one was not possible. */
  readonly status: LogprobCheck['status']
  readonly checks: readonly LogprobCheck[]
}

class Failure extends Error {}
/** Thrown by a check that is not possible. */
class Unchecked extends Error {}

/** The largest scale of logits, near the limit of f32 differences. */
const EXTREME = 1e4
/** Weights changed one by one for finite differences: half random, half with the largest derivatives. */
const SAMPLED_WEIGHTS = 16

/** Checks a model's log-probabilities, one property per `test…`. A model that throws fails the check. */
export class LogprobValidator {
  readonly #model: LogprobModel
  readonly #tolerances: LogprobTolerances
  readonly #random: Random
  #draws = 0
  #worst: number | null = null

  /** `seed` keys the sampled sequences and weights. @throws InputError for an incomplete model. */
  constructor(
    model: LogprobModel,
    { tolerances = {}, seed = 0 }: { readonly tolerances?: Partial<LogprobTolerances>; readonly seed?: number } = {},
  ) {
    checkGiven('model of LogprobValidator', model, [])
    const { vocabularySize, context, logprobs } = model
    if (typeof logprobs !== 'function') throw new InputError('model.logprobs', show(logprobs), 'a function')
    checkCount('model.vocabularySize', vocabularySize, 2)
    checkCount('model.context', context, 4)
    this.#model = model
    this.#tolerances = { ...TOLERANCES, ...tolerances }
    this.#random = new Random(seed)
  }

  /** A token's number does not depend on later tokens, and the vocabulary's probabilities sum to 1. */
  testAutoregressiveIndexing(): Promise<LogprobCheck> {
    return this.#check('autoregressiveIndexing', async () => {
      const tokens = this.#sequence(Math.min(this.#model.context - 1, 12))
      const whole = await this.#logprobsOf(tokens)
      for (let j = 1; j < tokens.length; j++) {
        const changed = await this.#logprobsOf(this.#replaced(tokens, j))
        for (let t = 1; t < j; t++) {
          this.#compare(changed[t - 1]!, whole[t - 1]!, `log p of token ${t} with another token ${j} after it`)
        }
      }
      const short = tokens.slice(0, 3)
      if (this.#model.nextLogprobs === undefined) {
        const all = Array.from({ length: this.#model.vocabularySize }, (_, v) => [...short, v])
        const last: number[] = []
        for (let at = 0; at < all.length; at += 64) {
          last.push(...(await this.#logprobs(all.slice(at, at + 64))).map((each) => each.at(-1)!))
        }
        this.#checkDistribution(last, 'after three tokens')
        const before = await this.#logprobsOf(this.#replaced(tokens, tokens.length - 2))
        if (before.at(-1) === whole.at(-1)) {
          throw new Failure('the token just before a token does not matter: numbers are shifted')
        }
        return
      }
      for (let t = 1; t < tokens.length; t++) {
        const next = await this.#nextLogprobs(tokens.slice(0, t))
        this.#compare(whole[t - 1]!, next[tokens[t]!]!, `log p of token ${t}, and nextLogprobs of the ${t} before it`)
      }
    })
  }

  /** A whole sequence gives the same as its prefixes, and as `nextLogprobs` step by step. */
  testTeacherForcingConsistency(): Promise<LogprobCheck> {
    return this.#check('teacherForcingConsistency', async () => {
      const tokens = this.#sequence(Math.min(this.#model.context - 1, 16))
      const whole = await this.#logprobsOf(tokens)
      for (let t = 1; t < tokens.length; t++) {
        const prefix = await this.#logprobsOf(tokens.slice(0, t + 1))
        this.#compare(prefix[t - 1]!, whole[t - 1]!, `log p of token ${t} as the last one, and among ${tokens.length}`)
        if (this.#model.nextLogprobs === undefined) continue
        const next = await this.#nextLogprobs(tokens.slice(0, t))
        this.#compare(next[tokens[t]!]!, whole[t - 1]!, `log p of token ${t} decoded, and in a whole sequence`)
      }
    })
  }

  /** A sequence gives the same in any batch as alone. */
  testBatchProcessing(): Promise<LogprobCheck> {
    return this.#check('batchProcessing', async () => {
      const lengths = [2, 3, 7, 5, 7, 4].map((length) => Math.min(length, this.#model.context - 1))
      const sequences = lengths.map((length) => this.#sequence(length))
      const alone: number[][] = []
      for (const tokens of sequences) alone.push(await this.#logprobsOf(tokens))
      const order = sequences.map((_, i) => i)
      for (const members of [order, order.toReversed(), [2, 2, 4], [4, 0]]) {
        const together = await this.#logprobs(members.map((i) => sequences[i]!))
        members.forEach((i, place) => {
          for (const [at, value] of together[place]!.entries()) {
            const what = `log p of token ${at + 1} of ${lengths[i]}, at place ${place} of ${members.length}, and alone`
            this.#compare(value, alone[i]![at]!, what)
          }
        })
      }
    })
  }

  /** A prompt of one token, a single token, the vocabulary's first and last, repeated tokens, and the context's end. */
  testEdgeCases(): Promise<LogprobCheck> {
    return this.#check('edgeCases', async () => {
      const { vocabularySize, context, nextLogprobs } = this.#model
      await this.#logprobs([[0], [vocabularySize - 1]])
      await this.#logprobs([
        [0, vocabularySize - 1],
        [vocabularySize - 1, 0],
        [1, 1, 1, 1],
      ])
      const prefix = this.#sequence(context - 1)
      const last = Array.from({ length: Math.min(8, vocabularySize) }, (_, v) => v)
      const full: number[] = []
      for (const token of last) full.push((await this.#logprobsOf([...prefix, token])).at(-1)!)
      const sum = full.reduce((total, value) => total + Math.exp(value), 0)
      if (sum > 1 + this.#tolerances.probability) {
        throw new Failure(`at the context's end ${last.length} tokens have a probability of ${sum} together`)
      }
      if (nextLogprobs === undefined) return
      const next = await this.#nextLogprobs(prefix)
      for (const token of last) this.#compare(full[token]!, next[token]!, "log p of the token at the context's end")
    })
  }

  /** Numbers are finite and not above 0, and probabilities sum to 1, even with logits scaled by ten thousand. */
  testNumericalStability(): Promise<LogprobCheck> {
    return this.#check('numericalStability', async () => {
      const tokens = this.#sequence(Math.min(this.#model.context, 16))
      await this.#logprobsOf(tokens)
      if (this.#model.nextLogprobs !== undefined) this.#checkDistribution(await this.#nextLogprobs(tokens.slice(1)), '')
      const { scaled } = this.#model
      if (scaled === undefined) throw new Unchecked('the model has no scaled(): extreme logits were not tried')
      const extreme = await this.#ask('scaled', () => this.#model.scaled!(EXTREME))
      const validator = new LogprobValidator(extreme, { tolerances: this.#tolerances })
      await validator.#logprobsOf(tokens)
      const where = `with logits times ${EXTREME}`
      if (extreme.nextLogprobs !== undefined) {
        this.#checkDistribution(await validator.#nextLogprobs(tokens.slice(1)), where)
      }
    })
  }

  /** The gradient equals finite differences: along itself, and for sampled weights. */
  testGradientComputation(): Promise<LogprobCheck> {
    return this.#check('gradientComputation', async () => {
      const { gradient, context } = this.#model
      if (gradient === undefined) throw new Unchecked('the model has no gradient')
      const sequences = [4, 7, 2].map((length) => this.#sequence(Math.min(length, context)))
      const slopes = Float64Array.from(await this.#ask('gradient', () => gradient.of(sequences)))
      const { weights } = gradient
      if (slopes.length !== weights.length) {
        throw new Failure(`a gradient of ${slopes.length} elements, and ${weights.length} weights`)
      }
      const norm = Math.sqrt(slopes.reduce((sum, value) => sum + value * value, 0))
      if (!Number.isFinite(norm)) throw new Failure(`a gradient of norm ${norm}`)
      const before = weights.slice()
      const { step, gradient: tolerance } = this.#tolerances
      /** The slope along a direction, without the term in step². */
      const slopeAlong = async (move: (distance: number) => void): Promise<number> => {
        const at = async (distance: number) => {
          move(distance)
          const each = await this.#logprobs(sequences)
          return each.flat().reduce((sum, value) => sum + value, 0)
        }
        try {
          const near = (await at(step)) - (await at(-step))
          return (8 * near - ((await at(2 * step)) - (await at(-2 * step)))) / (12 * step)
        } finally {
          weights.set(before as never)
        }
      }
      const compare = (slope: number, given: number, largest: number, what: string): void => {
        const difference = Math.abs(slope - given) / Math.max(Math.abs(slope), largest)
        if (!(slope === given)) this.#worst = Math.max(this.#worst ?? 0, difference)
        if (slope === given || difference <= tolerance) return
        throw new Failure(`the derivative ${what} is ${given}, and by finite differences ${slope}`)
      }
      const unit = slopes.map((value) => (norm === 0 ? 0 : value / norm))
      const along = await slopeAlong((distance) => {
        for (let i = 0; i < weights.length; i++) weights[i] = before[i]! + distance * unit[i]!
      })
      compare(along, norm, norm, 'along the gradient')
      const largest = largestOf(slopes, SAMPLED_WEIGHTS / 2)
      const drawn = Array.from({ length: SAMPLED_WEIGHTS / 2 }, () => this.#below(weights.length))
      for (const i of [...largest, ...drawn]) {
        const slope = await slopeAlong((distance) => {
          weights[i] = before[i]! + distance
        })
        compare(slope, slopes[i]!, Math.abs(slopes[largest[0]!]!), `by weight ${i}`)
      }
    })
  }

  async runFullValidation(): Promise<LogprobReport> {
    const checks = [
      await this.testAutoregressiveIndexing(),
      await this.testTeacherForcingConsistency(),
      await this.testBatchProcessing(),
      await this.testEdgeCases(),
      await this.testNumericalStability(),
      await this.testGradientComputation(),
    ]
    const worst = (['failed', 'unchecked'] as const).find((status) => checks.some((check) => check.status === status))
    return { status: worst ?? 'held', checks }
  }

  async #check(name: LogprobCheck['name'], body: () => Promise<void>): Promise<LogprobCheck> {
    this.#worst = null
    try {
      await body()
      return { name, status: 'held', why: null, difference: this.#worst }
    } catch (error) {
      if (!(error instanceof Failure || error instanceof Unchecked)) throw error
      const status = error instanceof Failure ? 'failed' : 'unchecked'
      return { name, status, why: error.message, difference: this.#worst }
    }
  }

  /** Calls the model; its errors become failures of the check. */
  async #ask<T>(name: string, call: () => Awaitable<T>): Promise<T> {
    try {
      return await call()
    } catch (cause) {
      throw new Failure(`${name} threw: ${(cause as Error).message}`, { cause })
    }
  }

  async #logprobs(sequences: readonly (readonly number[])[]): Promise<number[][]> {
    const answer = await this.#ask('logprobs', () => this.#model.logprobs(sequences))
    if (answer.length !== sequences.length) {
      throw new Failure(`logprobs of ${sequences.length} sequences gave ${answer.length} lists`)
    }
    return sequences.map((tokens, i) => {
      const values = Array.from(answer[i]!)
      if (values.length !== tokens.length - 1) {
        throw new Failure(`logprobs of ${tokens.length} tokens gave ${values.length} numbers, not ${tokens.length - 1}`)
      }
      for (const [at, value] of values.entries()) {
        if (value <= this.#tolerances.probability && value > Number.NEGATIVE_INFINITY) continue
        throw new Failure(`log p of token ${at + 1} of ${tokens.length} is ${value}`)
      }
      return values
    })
  }

  async #logprobsOf(tokens: readonly number[]): Promise<number[]> {
    return (await this.#logprobs([tokens]))[0]!
  }

  async #nextLogprobs(prefix: readonly number[]): Promise<ArrayLike<number>> {
    const next = await this.#ask('nextLogprobs', () => this.#model.nextLogprobs!(prefix))
    const { vocabularySize } = this.#model
    if (next.length !== vocabularySize) {
      throw new Failure(`nextLogprobs gave ${next.length} numbers of a vocabulary of ${vocabularySize}`)
    }
    return next
  }

  #checkDistribution(logprobs: ArrayLike<number>, where: string): void {
    const sum = Array.from(logprobs).reduce((total, value) => total + Math.exp(value), 0)
    if (Math.abs(sum - 1) <= this.#tolerances.probability) return
    throw new Failure(`the vocabulary's probabilities sum to ${sum}${where === '' ? '' : `, ${where}`}`)
  }

  #compare(got: number, wanted: number, what: string): void {
    const difference = Math.abs(got - wanted)
    this.#worst = Math.max(this.#worst ?? 0, difference)
    if (difference <= this.#tolerances.logprob) return
    throw new Failure(`${what}: ${got} and ${wanted}, ${difference.toPrecision(2)} apart`)
  }

  #sequence(length: number): number[] {
    return Array.from({ length }, () => this.#below(this.#model.vocabularySize))
  }

  /** The sequence with another token at one index. */
  #replaced(tokens: readonly number[], at: number): number[] {
    const { vocabularySize } = this.#model
    return tokens.with(at, (tokens[at]! + 1 + this.#below(vocabularySize - 1)) % vocabularySize)
  }

  #below(count: number): number {
    this.#random.draw(Stream.initialize, 0, 0, this.#draws++)
    return Math.floor(this.#random.uniform(0) * count)
  }
}

/**
 * Runs all checks. @example await validateLogprobImplementation({ vocabularySize, context, logprobs })
 */
export function validateLogprobImplementation(
  model: LogprobModel,
  options: ConstructorParameters<typeof LogprobValidator>[1] = {},
): Promise<LogprobReport> {
  return new LogprobValidator(model, options).runFullValidation()
}

/** Indices of the elements of largest magnitude, in descending order. */
function largestOf(values: Float64Array, count: number): number[] {
  const found: number[] = []
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]!)
    if (found.length === count && size <= Math.abs(values[found.at(-1)!]!)) continue
    const place = found.findIndex((other) => Math.abs(values[other]!) < size)
    found.splice(place < 0 ? found.length : place, 0, i)
    found.length = Math.min(found.length, count)
  }
  return found
}
