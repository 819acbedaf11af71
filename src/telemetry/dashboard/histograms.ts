/** Histograms of the columns of recorded rows. */
import type { Field, Table } from '../../tables/table.ts'

/** Columns shown first; other columns are shown if they have fractions, since whole numbers such as a lane's are names. */
const FIRST = ['reward', 'episodeReturn', 'return', 'advantage', 'action', 'appliedAction', 'value', 'logprob']
/** Bars of a histogram, and the widest column of which all numbers are counted together. */
const [BARS, WIDTH_MAX] = [24, 8]

export interface Histogram {
  readonly name: string
  /** Numbers that were counted. */
  readonly count: number
  readonly mean: number
  /** Ends of the first and the last bar. */
  readonly low: number
  readonly high: number
  /** Whether each bar is one whole number, `low` the first of them. */
  readonly isWhole: boolean
  readonly counts: readonly number[]
}

/**
 * Histograms of a table's columns with numbers: of valid rows, and of `episodeReturn` those that end an episode. Numbers that are not
 * finite are left out, and so are columns without numbers.
 */
export function histogramsOf({ fields }: Pick<Table, 'fields'>): Histogram[] {
  const column = (name: string) => fields.find((field) => field.name === name)?.column
  const [valid, terminated, truncated] = ['valid', 'terminated', 'truncated'].map(column)
  const isEnd = (row: number) => terminated?.[row] === 1 || truncated?.[row] === 1
  const isCounted = (name: string) => (row: number) =>
    (valid === undefined || valid[row] === 1) && (name !== 'episodeReturn' || terminated === undefined || isEnd(row))
  const rank = ({ name }: Field) => (FIRST.indexOf(name) + FIRST.length + 1) % (FIRST.length + 1)
  return fields
    .filter(({ name, column, width }) =>
      FIRST.includes(name)
        ? width <= WIDTH_MAX
        : width === 1 && (column instanceof Float32Array || column instanceof Float64Array),
    )
    .sort((a, b) => rank(a) - rank(b))
    .flatMap(({ name, column, width, rows }) => {
      const isIn = isCounted(name)
      const values: number[] = []
      for (let i = 0; i < column.length; i++) {
        const place = Math.floor(i / width)
        if (Number.isFinite(column[i]) && isIn(rows?.[place] ?? place)) values.push(Number(column[i]))
      }
      return values.length === 0 ? [] : [histogramOf(name, values)]
    })
}

/** A histogram of finite numbers, at least one: a bar for each whole number if they are few, otherwise bars of one width. */
function histogramOf(name: string, values: readonly number[]): Histogram {
  let [low, high, sum] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0]
  for (const value of values) {
    low = Math.min(low, value)
    high = Math.max(high, value)
    sum += value
  }
  const isWhole = high - low < BARS && values.every(Number.isInteger)
  const counts = Array<number>(isWhole ? high - low + 1 : low === high ? 1 : BARS).fill(0)
  const width = isWhole ? 1 : (high - low) / counts.length
  for (const value of values) {
    const bar = width === 0 ? 0 : Math.floor((value - low) / width)
    counts[Math.min(counts.length - 1, bar)]!++
  }
  return { name, count: values.length, mean: sum / values.length, low, high, isWhole, counts }
}
