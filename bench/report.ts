/** What a room reports: a table for people, then one JSON line. */
import type { Figure, Ratio, Spread, Wanted } from './measure.ts'

/** What a room measured, and what it had to leave out, with the reason. */
export interface RoomReport {
  readonly room: string
  readonly figures: readonly Figure[]
  readonly skipped: readonly string[]
}

/** Prints the table, and the room as the last line. */
export function reportRoom(room: string, figures: readonly Figure[], skipped: readonly string[] = []): void {
  printTable(figures)
  for (const reason of skipped) console.log(`SKIPPED: ${reason}`)
  console.log(JSON.stringify({ room, figures, skipped } satisfies RoomReport))
}

function printTable(figures: readonly Figure[]): void {
  const cells = figures.map(cellsOf)
  for (const line of alignColumns([['', 'median', 'min–max', 'ratio (min–max)'], ...cells])) console.log(line)
}

/** The name, the median, the spread and the ratios of a figure. */
function cellsOf(figure: Figure): string[] {
  return [
    figure.name,
    `${short(figure.median)} ${figure.unit}${verdict(figure, figure.wanted)}`,
    `${short(figure.min)}–${short(figure.max)}${isNoisy(figure) ? ' (noisy)' : ''}`,
    (figure.ratios ?? []).map(ratioText).join(', '),
  ]
}

/** A room's table as Markdown, and what it left out. */
export function markdownOf({ figures, skipped }: RoomReport): string {
  const rows = figures.map((figure) => `| ${cellsOf(figure).join(' | ')} |`)
  const table = ['| what | median | min–max | ratio (min–max) |', '|---|---|---|---|', ...rows]
  const left = skipped.map((reason) => `- Left out: ${reason.replaceAll('\n', ' ')}`)
  return [...table, ...(left.length > 0 ? ['', ...left] : [])].join('\n')
}

/** Runs that differ by more than half: something else was at work, and a median of these says little. */
function isNoisy({ min, max }: Spread): boolean {
  return min > 0 && max > 1.5 * min
}

function ratioText(ratio: Ratio): string {
  const { to, median, min, max, wanted } = ratio
  return `${short(median)} × ${to} (${short(min)}–${short(max)})${verdict(ratio, wanted)}`
}

/** Names of the figures that some run of theirs does not reach. */
export function missed(figures: readonly Figure[]): string[] {
  return figures
    .filter(({ min, max, wanted = {} }) => min < (wanted.atLeast ?? min) || max > (wanted.atMost ?? max))
    .map(({ name }) => name)
}

/** What is wanted, and whether the median reaches it; `noisy` where the spread lies on both sides of it. */
function verdict({ median, min, max }: Spread, wanted: Wanted | undefined): string {
  if (wanted === undefined) return ''
  const reaches = (value: number) => value >= (wanted.atLeast ?? value) && value <= (wanted.atMost ?? value)
  const goal = wanted.atLeast === undefined ? `≤ ${wanted.atMost}` : `≥ ${wanted.atLeast}`
  return ` [${goal}: ${reaches(median) ? 'reached' : 'MISSED'}${reaches(min) === reaches(max) ? '' : ', noisy'}]`
}

/** Rows of cells as lines of equal columns. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  )
}

/** Three digits, with k and M. */
export function short(value: number): string {
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`
  return Math.abs(value) >= 1e4 ? `${Number((value / 1e3).toPrecision(3))}k` : String(Number(value.toPrecision(3)))
}
