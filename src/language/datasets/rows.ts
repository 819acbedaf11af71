/** Reads rows, with their place, of files (JSON Lines, JSON, Arrow, Parquet) and hub datasets, all or a slice. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { isThere, readWhole } from '../../base/files/files.ts'
import { ownFile } from '../../base/files/own-files.ts'
import type { ReadLimits } from '../../base/threads/guarded.ts'
import { readJsonLines } from '../../tables/json-lines.ts'
import { DATASET_ENDINGS, downloadDataset, endingOf, type SplitOptions } from './hub-dataset.ts'

/** A row and its place: `path:line` in JSON Lines, otherwise `path, row n` (from 0). */
export interface DatasetRow {
  readonly place: string
  readonly row: Readonly<Record<string, unknown>>
}

/** Which rows of a source to read, and the limits of reading. */
export interface RowOptions extends SplitOptions {
  /** For Arrow and Parquet files, which are read in a thread that is killed at its limits. */
  readonly limits?: ReadLimits
}

/** Rows `from` to `to` − 1 of a file, counted from 0. */
interface Slice {
  readonly path: string
  readonly limits: ReadLimits | undefined
  readonly from: number
  readonly to: number
}

type Reader = (slice: Slice) => AsyncGenerator<{ place: string; value: unknown }, void, undefined>
const READERS: Readonly<Record<(typeof DATASET_ENDINGS)[number], Reader>> = {
  jsonl: readLines,
  ndjson: readLines,
  json: readJson,
  arrow: readArrowRows,
  feather: readArrowRows,
  parquet: readParquet,
}

/**
 * The rows of a file, by its ending: .jsonl, .json (a list), .arrow, .parquet. If no file is named `source`, it is the
 * id (owner/name) of a hub dataset, and the rows of its split are read. `…@[a:b]` selects rows a to b − 1; either
 * number may be left out.
 * @throws InputError for a file that cannot be read or has another ending, a split or subset given for a file, a row
 * that is not an object, no rows, and as `downloadDataset` does.
 */
export async function* readRows(
  source: string,
  { limits, ...options }: RowOptions = {},
): AsyncGenerator<DatasetRow, void, undefined> {
  const slice = { ...sliceOf(source), limits }
  const files = await filesOf(slice.path, options)
  let count = 0
  for await (const { place, value } of files.length === 1
    ? read({ ...slice, path: files[0]! })
    : readAll(files, slice)) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new InputError(place, show(value), 'an object with one field per column')
    }
    count++
    yield { place, row: value as Record<string, unknown> }
  }
  if (count === 0) throw new InputError(source, 'no row', 'at least one')
}

function read(slice: Slice): ReturnType<Reader> {
  return READERS[endingOf(slice.path) as keyof typeof READERS](slice)
}

/** The rows of several files in order. A file's number of rows is known only after reading it. */
async function* readAll(files: readonly string[], { from, to, limits }: Slice) {
  let number = 0
  for (const path of files) {
    for await (const row of read({ path, from: 0, to: to - number, limits })) if (number++ >= from) yield row
    if (number >= to) return
  }
}

async function filesOf(path: string, options: SplitOptions): Promise<string[]> {
  const ending = endingOf(path)
  const { split, subset } = options
  if (Object.hasOwn(READERS, ending)) {
    const given = Object.entries({ split, subset }).find(([, value]) => value !== undefined)
    if (given === undefined) return [path]
    throw new InputError(given[0], `${show(given[1])} of the file ${path}`, 'the id of a dataset of the hub')
  }
  if (/^\w[\w.-]*\/\w[\w.-]*$/.test(path) && !(await isThere(path))) return downloadDataset(path, options)
  const known = DATASET_ENDINGS.map((name) => `.${name}`).join(', ')
  const expected = `a path that ends in ${known}, or the id of a dataset of the hub, owner/name`
  throw new InputError(path, ending === '' ? 'no ending' : `.${ending}`, expected)
}

function sliceOf(source: string): Omit<Slice, 'limits'> {
  checkGiven('source of rows', source, 'a text')
  const at = source.lastIndexOf('@[')
  if (at === -1) return { path: source, from: 0, to: Number.POSITIVE_INFINITY }
  const found = /^@\[(\d*):(\d*)\]$/.exec(source.slice(at))
  const from = Number(found?.[1] || 0)
  const to = found?.[2] ? Number(found[2]) : Number.POSITIVE_INFINITY
  if (found === null || from >= to) {
    throw new InputError(source, `the slice ${source.slice(at)}`, '@[a:b] with whole numbers a < b, or one left out')
  }
  return { path: source.slice(0, at), from, to }
}

async function* readLines({ path, from, to }: Slice) {
  let number = 0
  for await (const line of readJsonLines(path)) {
    if (number >= to) return
    if (number >= from) yield line
    number++
  }
}

async function* readJson({ path, from, to }: Slice) {
  const bytes = await readWhole(path, 'a readable JSON file')
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (cause) {
    throw new InputError(path, (cause as Error).message, 'JSON in UTF-8', { cause })
  }
  if (!Array.isArray(value)) throw new InputError(path, show(value), 'a list of rows')
  for (let i = from; i < Math.min(to, value.length); i++) yield { place: `${path}, row ${i}`, value: value[i] }
}

async function* readArrowRows({ path, from, to, limits }: Slice) {
  const { arrowRows, readArrowFiles } = await import('../../tables/read-arrow.ts')
  const table = await readArrowFiles([path], limits)
  const rows = await arrowRows(table)
  for (let i = from; i < Math.min(to, table.numRows); i++) {
    const place = `${path}, row ${i}`
    yield { place, value: plain(rows(i), place) }
  }
}

const PARQUET_FILE = 'a Parquet file that can be read'

async function* readParquet({ path, from, to, limits }: Slice) {
  const { readGuarded } = await import('../../base/threads/guarded.ts')
  const ask = <T>(task: { rows?: [from: number, to: number] }): Promise<T> =>
    readGuarded<T>(ownFile(new URL('./parquet-worker.js', import.meta.url)), path, task, PARQUET_FILE, limits)
  let first = 0
  for (const count of await ask<number[]>({})) {
    const [rowStart, rowEnd] = [Math.max(from, first), Math.min(to, first + count)]
    first += count
    if (rowStart >= rowEnd) continue
    const rows = await ask<Record<string, unknown>[]>({ rows: [rowStart, rowEnd] })
    for (const [i, row] of rows.entries()) {
      const place = `${path}, row ${rowStart + i}`
      yield { place, value: plain(row, place) }
    }
  }
}

/** Converts 64-bit integers to numbers. @throws InputError for one that is not below 2⁵³. */
function plain(value: unknown, place: string): unknown {
  if (typeof value === 'bigint') {
    if (!Number.isSafeInteger(Number(value))) throw new InputError(place, show(value), 'whole numbers below 2^53')
    return Number(value)
  }
  if (Array.isArray(value)) return value.map((element) => plain(element, place))
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value
  return Object.fromEntries(Object.entries(value).map(([name, element]) => [name, plain(element, place)]))
}
