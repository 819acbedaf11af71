/** Rows of the table of runs: filtered, grouped and sorted; and what settings explain. */
import { explainedShare } from '../../explained.ts'
import { parseFilter, passesFilter } from '../filter.ts'
import type { ShownRun } from '../runs.ts'
import type { View } from './view.ts'

/** A row: runs that belong together, in the order of the folder. */
export interface Row {
  /** The first run's id. */
  readonly key: string
  readonly name: string
  readonly runs: readonly ShownRun[]
}

/** The value of a cell: of all runs the same, or the numbers' mean and sample standard deviation, or several words. */
export type Cell =
  | { readonly value: string | number }
  | { readonly mean: number; readonly std: number; readonly count: number }
  | { readonly several: number }

/** Results by which runs are compared, the best known first. */
const RESULTS = ['evaluation/mean', 'episodeReturn', 'reward']
/** Columns that every run has. */
const OWN = ['environment', 'algorithm', 'status', 'updates'] as const
/** Columns of different settings that are shown without being chosen. */
const MAX_DIFFERENT = 6

const own = (values: Readonly<Record<string, unknown>>, name: string) =>
  Object.hasOwn(values, name) ? values[name] : undefined

/** What a run has by this name: a column of its own, a setting, or the last value of a metric. */
export function columnValue(run: ShownRun, name: string): string | number | undefined {
  if (name === 'updates') return run.lines
  if (name === 'run') return run.id
  if (name === 'tags') return run.annotation.tags.join(' ') || undefined
  if (name === 'note') return run.annotation.note || undefined
  if (name === 'environment' || name === 'algorithm' || name === 'status') return run[name]
  const setting = own(run.settings, name) ?? own(run.last, name) ?? undefined
  return setting === undefined || typeof setting === 'number' ? setting : String(setting)
}

/** The first of the usual results that a run has. */
export const resultOf = (runs: readonly ShownRun[]): string | null =>
  RESULTS.find((name) => runs.some(({ last }) => Object.hasOwn(last, name))) ?? null

/** Settings that differ between runs of one environment and algorithm, the seed aside. */
export function differentSettings(runs: readonly ShownRun[]): string[] {
  const found = new Set<string>()
  for (const some of grouped(runs, ({ environment, algorithm }) => JSON.stringify([environment, algorithm])).values()) {
    const keys = new Set(some.flatMap(({ settings }) => Object.keys(settings)))
    for (const key of keys)
      if (key !== 'seed' && new Set(some.map(({ settings }) => String(own(settings, key)))).size > 1) found.add(key)
  }
  return [...found].sort()
}

/** The columns of the table after the runs' names. */
export function columnsOf(runs: readonly ShownRun[], { columns }: Pick<View, 'columns'>): string[] {
  if (columns !== null) return [...columns]
  const result = resultOf(runs)
  const own = OWN.filter(
    (name) => name === 'status' || name === 'updates' || new Set(runs.map((run) => run[name])).size > 1,
  )
  const written = ['tags', 'note'].filter((name) => runs.some((run) => columnValue(run, name) !== undefined))
  return [...own, ...written, ...(result === null ? [] : [result]), ...differentSettings(runs).slice(0, MAX_DIFFERENT)]
}

/** All names that a column can have. */
export function columnNames(runs: readonly ShownRun[]): string[] {
  return [
    ...new Set([
      ...OWN,
      'tags',
      'note',
      ...runs.flatMap(({ settings, last }) => [...Object.keys(last), ...Object.keys(settings)]),
    ]),
  ]
}

/**
 * Whether a run passes all words of a filter: `ppo.learningRate>=0.001` compares a column, a setting or a metric's last value, and any
 * other word is looked for in the run's name, environment, algorithm, status, tags and note, and so is `rate=0.1` if the run has no `rate`.
 */
export function passes(run: ShownRun, filter: string): boolean {
  return filter
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => {
      const parsed = parseFilter(word)
      const value = parsed === null ? undefined : columnValue(run, parsed.column)
      if (value !== undefined) return passesFilter(value, parsed!)
      const { tags, note } = run.annotation
      return [run.id, run.environment, run.algorithm, run.status, note, ...tags].some((each) =>
        each.toLowerCase().includes(word.toLowerCase()),
      )
    })
}

export function cellOf(runs: readonly ShownRun[], column: string): Cell | null {
  const values = runs.map((run) => columnValue(run, column)).filter((value) => value !== undefined)
  if (values.length === 0) return null
  if (new Set(values).size === 1) return { value: values[0]! }
  if (values.some((value) => typeof value === 'string')) return { several: new Set(values).size }
  return { ...spreadOf(values as number[]), count: values.length }
}

export function grouped<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group === undefined) groups.set(keyOf(item), [item])
    else group.push(item)
  }
  return groups
}

function spreadOf(values: readonly number[]): { mean: number; std: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const square = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return { mean, std: Math.sqrt(square / Math.max(1, values.length - 1)) }
}

/** The rows of the table: runs that pass the filter, grouped, sorted, those that are pinned first. */
export function rowsOf(runs: readonly ShownRun[], view: Pick<View, 'filter' | 'groupBy' | 'sort' | 'pinned'>): Row[] {
  const { filter, groupBy, sort, pinned } = view
  const keyOf = (run: ShownRun) => {
    if (groupBy === 'runs') return run.id
    if (groupBy === 'seeds') return JSON.stringify([run.kind, run.environment, run.algorithm, run.group])
    return JSON.stringify([run.environment, columnValue(run, groupBy)])
  }
  const passing = runs.filter((run) => passes(run, filter))
  const isOne = new Set(passing.map(({ environment }) => environment)).size === 1
  const groups = [...grouped(passing, keyOf).values()]
  const rows = groups.map((some): Row => ({ key: some[0]!.id, name: nameOf(some, groupBy, isOne), runs: some }))
  const column = sort.replace(/^-/, '')
  const isDown = sort.startsWith('-')
  const isPinned = ({ runs }: Row) => runs.some(({ id }) => pinned.has(id))
  const sorted = column === '' ? rows : rows.toSorted((a, b) => compareCells(a, b, column, isDown ? -1 : 1))
  return [...sorted.filter(isPinned), ...sorted.filter((row) => !isPinned(row))]
}

/** A row's name; `isOne`: all rows have one environment. */
function nameOf(runs: readonly ShownRun[], groupBy: string, isOne: boolean): string {
  const [{ id, environment }] = runs as [ShownRun]
  if (groupBy !== 'runs' && groupBy !== 'seeds') {
    const value = `${groupBy} ${columnValue(runs[0]!, groupBy) ?? 'not set'}`
    return isOne || groupBy === 'environment' ? value : `${value}, ${environment}`
  }
  const parent = id.includes('/') ? id.slice(0, id.lastIndexOf('/')) : id
  const areTogether = runs.length > 1 && runs.every((run) => run.id.startsWith(`${parent}/`))
  return areTogether ? parent : id
}

/** Orders two rows by a column, up (1) or down (-1); rows without it are last. */
function compareCells(a: Row, b: Row, column: string, sign: number): number {
  const [one, two] = [a, b].map((row) => {
    if (column === 'run') return row.name
    const cell = cellOf(row.runs, column)
    if (cell === null) return null
    return 'mean' in cell ? cell.mean : 'value' in cell ? cell.value : `${cell.several} values`
  })
  if (one === null || two === null) return Number(one === null) - Number(two === null)
  if (typeof one === 'number' && typeof two === 'number') return sign * (one - two)
  return sign * String(one).localeCompare(String(two), 'en', { numeric: true })
}

/** How much of a result's variance a setting explains alone, and the value with the best mean. */
export interface Explained {
  readonly setting: string
  /** 0 to 1. */
  readonly share: number
  readonly best: string
  readonly mean: number
  /** Runs with that value. */
  readonly count: number
}

/** Numbers with more values than this are put into as many ranges with equally many runs. */
const MAX_VALUES = 4

/**
 * The share of a result's variance between runs that each differing setting explains alone (`explainedShare`), the largest first. A setting
 * with one run for each value is left out: its effect cannot be told from chance.
 */
export function explainedBy(runs: readonly ShownRun[], result: string): Explained[] {
  const known = runs.flatMap((run) => {
    const value = columnValue(run, result)
    return typeof value === 'number' && Number.isFinite(value) ? [{ run, value }] : []
  })
  return differentSettings(known.map(({ run }) => run))
    .flatMap((setting) => {
      const levels = levelsOf(known, setting)
      const share = explainedShare(levels.values())
      if (Number.isNaN(share)) return []
      const means = [...levels].map(([best, values]) => ({ best, mean: spreadOf(values).mean, count: values.length }))
      return [{ setting, share, ...means.reduce((a, b) => (b.mean > a.mean ? b : a)) }]
    })
    .sort((a, b) => b.share - a.share)
}

/** Results by a setting's value, or by the range in which it lies. */
function levelsOf(known: readonly { run: ShownRun; value: number }[], setting: string): Map<string, number[]> {
  const given = known.map(({ run, value }) => ({ at: columnValue(run, setting) ?? 'not set', value }))
  const distinct = new Set(given.map(({ at }) => at))
  const isNumeric = given.every(({ at }) => typeof at === 'number')
  const levels = new Map<string, number[]>()
  const add = (name: string, value: number) => levels.set(name, [...(levels.get(name) ?? []), value])
  if (!isNumeric || distinct.size <= MAX_VALUES || distinct.size * 2 <= known.length) {
    for (const { at, value } of given) add(String(at), value)
    return levels
  }
  const sorted = given.toSorted((a, b) => (a.at as number) - (b.at as number))
  for (let i = 0; i < MAX_VALUES; i++) {
    const part = sorted.slice((i * sorted.length) / MAX_VALUES, ((i + 1) * sorted.length) / MAX_VALUES)
    const name = `${Number((part[0]!.at as number).toPrecision(3))} to ${Number((part.at(-1)!.at as number).toPrecision(3))}`
    for (const { value } of part) add(name, value)
  }
  return levels
}
