/**
 * How tokens are drawn from a model's logits, and from which of them: what sampling and training have to agree on. Where
 * top-k, top-p or min-p leave tokens out, the ids that remain are recorded with the token (its candidate set), and what is
 * recorded and trained is the distribution renormalized over them: other logits become −10⁹ in sampling and training
 * alike.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'

/** The distribution that tokens are drawn from: the filters work in this order, each on what the one before has left. */
export interface Sampling {
  /** What logits are divided by; default 1. */
  readonly temperature: number
  /** The most probable tokens that are left, the lower id first of equals; default 0: all. */
  readonly topK: number
  /** The fewest most probable tokens that have this probability together are left; default 1: all. */
  readonly topP: number
  /** Tokens of at least this part of the most probable one's probability are left; default 0: all. */
  readonly minP: number
}

/**
 * The settings with their defaults.
 * @throws InputError for a name that is none of theirs, a temperature that is not above 0, a topK that is no whole number from 0, a topP outside (0, 1], and
 * a minP outside [0, 1].
 */
export function checkSampling(sampling: Partial<Sampling>): Sampling {
  if (typeof sampling !== 'object' || sampling === null) {
    throw new InputError('sampling', show(sampling), 'an object, like { temperature: 0.7 }')
  }
  const { temperature = 1, topK = 0, topP = 1, minP = 0, ...others } = sampling
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw unknownWord('sampling', unknown, ['temperature', 'topK', 'topP', 'minP'])
  inverseOf(temperature)
  if (!(Number.isSafeInteger(topK) && topK >= 0)) {
    throw new InputError('topK', show(topK), 'a whole number ≥ 1, or 0 for all tokens')
  }
  if (!(topP > 0 && topP <= 1)) throw new InputError('topP', show(topP), 'a number above 0 and at most 1')
  if (!(minP >= 0 && minP <= 1)) throw new InputError('minP', show(minP), 'a number from 0 to 1')
  return { temperature, topK, topP, minP }
}

/** The factor on logits that a temperature is. */
export function inverseOf(temperature: number): number {
  if (!(temperature > 0 && temperature < Infinity)) {
    throw new InputError('temperature', show(temperature), 'a number above 0')
  }
  return 1 / temperature
}

/** Number of 32-bit words of a mask, which has one bit per token of the vocabulary. */
export function maskWords(vocabularySize: number): number {
  return Math.ceil(vocabularySize / 32)
}

/** Ids of a token's candidate set, on average, where no `topK` bounds it. */
const CANDIDATES = 128

/** Ids planned for a token's candidate set: as many as it can have, or on average; 0 where every token can be chosen. */
export function candidatesPerToken({ topK, topP, minP }: Sampling, vocabularySize: number): number {
  if (topK > 0 && topK < vocabularySize) return topK
  return topP < 1 || minP > 0 ? Math.min(CANDIDATES, vocabularySize) : 0
}
