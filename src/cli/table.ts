/** Rows of words as lines of equal columns: the first `numLeft` columns begin below one another, the others end there. */
export function alignWords(rows: readonly (readonly string[])[], numLeft: number): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  const cell = (word: string, i: number) => (i < numLeft ? word.padEnd(widths[i]!) : word.padStart(widths[i]!))
  return rows.map((row) => row.map(cell).join('  ').trimEnd())
}
