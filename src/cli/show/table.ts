import { printable } from '../../base/errors.ts'

/** Rows of words as aligned lines: the first `numLeft` columns to the left, the others to the right. */
export function alignWords(rows: readonly (readonly string[])[], numLeft: number): string[] {
  const plain = rows.map((row) => row.map(printable))
  const widths = plain[0]!.map((_, column) => Math.max(...plain.map((row) => row[column]!.length)))
  const cell = (word: string, i: number) => (i < numLeft ? word.padEnd(widths[i]!) : word.padStart(widths[i]!))
  return plain.map((row) => row.map(cell).join('  ').trimEnd())
}
