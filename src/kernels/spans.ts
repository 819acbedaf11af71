import { checkGiven } from '../base/errors.ts'

/**
 * The places of sequences in columns of tokens: sequence i has the tokens begin[i] … end[i] − 1. Sequences may lie
 * anywhere and in any order, so a batch is a list of places and no tokens are moved.
 */
export interface TokenSpans {
  readonly begin: Int32Array
  readonly end: Int32Array
}

/** The spans of sequences that follow one another, as Arrow keeps lists: sequence i is offsets[i] … offsets[i + 1] − 1. */
export function spansOf(offsets: ArrayLike<number>): TokenSpans {
  checkGiven('offsets of spansOf', offsets, ['length'])
  const whole = offsets instanceof Int32Array ? offsets : Int32Array.from(offsets)
  return { begin: whole.subarray(0, whole.length - 1), end: whole.subarray(1) }
}
