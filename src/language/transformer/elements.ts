/** Checks of a pass's tokens, and loops over its elements. */
import { InputError, show } from '../../base/errors.ts'
import type { TransformerShape } from './config.ts'

/** @throws InputError for a token outside the vocabulary, and for a position beyond the context. */
export function checkToken(
  { vocabularySize }: TransformerShape,
  context: number,
  token: number,
  position: number,
): void {
  if (!(Number.isInteger(token) && token >= 0 && token < vocabularySize)) {
    const expected = `a whole number from 0 to ${vocabularySize - 1}, the vocabulary's last`
    throw new InputError('token', show(token), expected)
  }
  if (!(position >= 0 && position < context))
    throw new InputError('sequence', `a token at position ${position}`, `${context} tokens at most`)
}

/** Positions that columns were planned for. */
export function contextOf({ cosine }: { readonly cosine: Float32Array }, { rotaryWidth }: TransformerShape): number {
  return cosine.length / (rotaryWidth / 2 || 1)
}

/** Copies element by element: `set` would allocate a view for each layer of each pass. */
export function copyElements(to: Float32Array, from: Float32Array, count: number): void {
  for (let i = 0; i < count; i++) to[i] = from[i]!
}

export function addElements(to: Float32Array, from: Float32Array, count: number): void {
  for (let i = 0; i < count; i++) to[i] = to[i]! + from[i]!
}
