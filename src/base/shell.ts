import { printable } from './errors.ts'

/** Quotes a word for a shell. */
export function shellWord(word: string): string {
  return /^[\w./=:@%+,-]+$/.test(word) ? word : `'${printable(word).replaceAll("'", `'\\''`)}'`
}
