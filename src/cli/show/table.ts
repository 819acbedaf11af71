import { printable } from '../../base/errors.ts'

/** Rows of words as lines of equal columns: the first `numLeft` columns begin below one another, the others end there. */
export function alignWords(rows: readonly (readonly string[])[], numLeft: number): string[] {
  const plain = rows.map((row) => row.map(printable))
  const widths = plain[0]!.map((_, column) => Math.max(...plain.map((row) => row[column]!.length)))
  const cell = (word: string, i: number) => (i < numLeft ? word.padEnd(widths[i]!) : word.padStart(widths[i]!))
  return plain.map((row) => row.map(cell).join('  ').trimEnd())
}
