/**
 * How tokens are drawn from a model's logits. Sampling and training must agree on it. If top-k, top-p or min-p exclude
 * tokens, the remaining ids are recorded with the token (its candidate set), and the distribution renormalized over
 * them is recorded and trained: other logits become −10⁹ in both.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { column } from '../../components/column.ts'

/** The distribution that tokens are drawn from. Each filter, in this order, applies to the tokens left by the last. */
export interface Sampling {
  /** Logits are divided by it; default 1. */
  readonly temperature: number
  /** Keeps this many of the most probable tokens; ties go to the lower id. Default 0: all. */
  readonly topK: number
  /** Keeps the fewest most probable tokens whose probabilities sum to this; default 1: all. */
  readonly topP: number
  /** Keeps tokens of at least this fraction of the highest probability; default 0: all. */
  readonly minP: number
}

/**
 * Returns the settings with their defaults.
 * @throws InputError for an unknown name, a temperature that is not above 0, a topK that is not a whole number ≥ 0, a
 * topP outside (0, 1], and a minP outside [0, 1].
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

/** 1 / temperature, the factor on logits. */
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

/** The columns of rows whose logits are changed (`changeVocabulary`), in chunks of `tokens` of the vocabulary. */
export function changedRowsPlan(rows: number, tokens: number, context: number) {
  const each = () => column('i32', rows)
  return {
    ...{ change: each(), first: each(), answer: each(), end: each() },
    times: column('i32', tokens),
    seen: column('i32', Math.min(tokens, context)),
  }
}

/** Average ids per candidate set that are planned for if `topK` does not bound it. */
const CANDIDATES = 128

/** Ids planned per token's candidate set: the maximum, or the average; 0 if every token can be chosen. */
export function candidatesPerToken({ topK, topP, minP }: Sampling, vocabularySize: number): number {
  if (topK > 0 && topK < vocabularySize) return topK
  return topP < 1 || minP > 0 ? Math.min(CANDIDATES, vocabularySize) : 0
}

/** Refuses the candidate set `ids` from `begin` to `end` of a token unless it rises and has the token's id. */
export function checkCandidates(
  token: number,
  id: number,
  ids: Int32Array,
  begin: number,
  end: number,
  vocabularySize: number,
): void {
  if (begin === end) return
  if (!(begin >= 0 && begin < end && end <= ids.length)) {
    throw wrongCandidates(token, `ids ${begin} to ${end}`, `a part of the ${ids.length} there are`)
  }
  let isThere = false
  for (let i = begin; i < end; i++) {
    const each = ids[i]!
    if (each < (i === begin ? 0 : ids[i - 1]! + 1) || each >= vocabularySize) {
      throw wrongCandidates(token, show([...ids.subarray(begin, end)]), 'ids of the vocabulary, in rising order')
    }
    isThere ||= each === id
  }
  if (!isThere) throw wrongCandidates(token, show([...ids.subarray(begin, end)]), `some, with ${id} among them`)
}

function wrongCandidates(token: number, got: string, expected: string): InputError {
  return new InputError(`candidate set of token ${token}`, got, expected)
}
