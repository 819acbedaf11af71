/** Pages of rows, as text, from the Arrow files of a run, with filters. A file is read on demand and kept until another is read. */
import { lstat, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { listFolder, within } from '../../base/files/files.ts'
import { ownFile } from '../../base/files/own-files.ts'
import { type ArrowTable, arrowPlain, fromArrow, readArrow } from '../../tables/read-arrow.ts'
import '../../base/files/packages.ts' // Finds the program's packages from here, for the SQL thread.
import { WorkerPool } from '../../base/threads/workers.ts'
import { groupOf, type ShownGroup } from './conversations.ts'
import { passesFilter, type RowFilter } from './filter.ts'
import { type Histogram, histogramsOf } from './histograms.ts'
import type { SqlTask } from './sql-task.ts'

/** Folders of a run with Arrow files. */
const FOLDERS = ['rollouts', 'trajectories']
/** Limits: rows of a page, shown elements of a list, shown characters of a text, and bytes of a file. */
const [ROWS_MAX, ELEMENTS_MAX, LETTERS_MAX, BYTES_MAX] = [200, 24, 2000, 2 ** 29]
/** Limits of a query in milliseconds, and of the SQL thread's heap in MiB. */
const [SQL_MS, HEAP_MIB] = [60_000, 4096]
/** Significant digits of shown numbers. */
const DIGITS = 6

export interface ArrowFile {
  /** Path relative to the run's folder. */
  readonly path: string
  readonly bytes: number
}

/** Some rows of a file. */
export interface ArrowPage {
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  readonly numRows: number
  /** Number of rows that pass the filters. */
  readonly numFound: number
  /** Indices of these rows in the file, from 0. */
  readonly places: readonly number[]
  readonly rows: readonly (readonly string[])[]
}

/** The Arrow files of a run's folder, newest last. @throws InputError if one of its folders is a link. */
export async function listArrowFiles(folder: string): Promise<ArrowFile[]> {
  const files: ArrowFile[] = []
  for (const name of FOLDERS) {
    const names = await listFolder(await within(folder, name)) // Missing folders are empty.
    for (const file of names.filter((each) => each.endsWith('.arrow')).sort()) {
      const path = `${name}/${file}`
      files.push({ path, bytes: (await lstat(join(folder, path))).size })
    }
  }
  return files
}

/** Reads pages of Arrow files and keeps the last file. */
export class ArrowPages {
  #key = ''
  #table: Promise<ArrowTable> | undefined
  #threads: WorkerPool | undefined

  /**
   * Returns a page of the rows that pass the filters, starting at `from`.
   * @throws Error for a file that is too large or cannot be read, and a filter with an unknown column.
   */
  async page(path: string, from: number, count: number, filters: readonly RowFilter[]): Promise<ArrowPage> {
    const table = await this.#open(path)
    const plain = await arrowPlain()
    const names = table.schema.fields.map(({ name }) => name)
    const passes = filters.map((filter) => {
      const { column } = filter
      const at = names.indexOf(column)
      if (at === -1) throw new Error(`filter: got column ${column}, expected one of ${names.join(', ')}`)
      const vector = table.getChildAt(at)!
      return (row: number) => passesFilter(plain(vector.get(row)), filter, inWords)
    })
    const places: number[] = []
    let numFound = 0
    for (let row = 0; row < table.numRows; row++) {
      if (!passes.every((pass) => pass(row))) continue
      if (numFound >= from && places.length < Math.min(count, ROWS_MAX)) places.push(row)
      numFound++
    }
    return { ...(await inPage(table, places)), numRows: table.numRows, numFound, places }
  }

  /**
   * Returns a page of DuckDB-Wasm's answer to a query of the file's table `rows`, starting at `from`.
   * @throws Error for a file that is too large or cannot be read, a query that fails or exceeds the time limit, and if DuckDB-Wasm is not
   * installed.
   */
  async sql(path: string, from: number, count: number, query: string, signal?: AbortSignal): Promise<ArrowPage> {
    const task: SqlTask = { path, key: await keyOf(path), query, from, count: Math.min(count, ROWS_MAX) }
    this.#threads ??= new WorkerPool(ownFile(new URL('./sql-worker.js', import.meta.url)), {
      size: 1,
      memoryMib: HEAP_MIB,
    })
    const outcome = await this.#threads.run<ArrowPage>(task, SQL_MS, signal)
    if ('answer' in outcome) return outcome.answer
    const { failure, error } = outcome
    throw new Error(failure === 'hung' ? `the query had no answer in ${SQL_MS / 1000} s` : error)
  }

  /**
   * Returns a group of conversations by its index in the file; null if there is none.
   * @throws Error for a file that is too large, cannot be read, or has other contents.
   */
  async group(path: string, place: number): Promise<ShownGroup | null> {
    return groupOf(await this.#open(path), place)
  }

  /** Histograms of the columns of a file. @throws Error for one that is too large or cannot be read. */
  async histograms(path: string): Promise<Histogram[]> {
    return histogramsOf(fromArrow(await this.#open(path)))
  }

  async #open(path: string): Promise<ArrowTable> {
    const key = await keyOf(path)
    if (key !== this.#key) {
      this.#key = key
      this.#table = readArrow(path)
    }
    try {
      return await this.#table!
    } catch (error) {
      this.#key = '' // The file may be complete next time.
      throw error
    }
  }
}

async function keyOf(path: string): Promise<string> {
  const { size, mtimeMs } = await stat(path)
  if (size <= BYTES_MAX) return `${path} ${size} ${mtimeMs}`
  throw new Error(`${path}: got ${size} bytes, expected at most ${BYTES_MAX} to be shown here`)
}

/** The columns of a table, and the given rows, as text. */
export async function inPage(
  table: ArrowTable,
  places: readonly number[],
): Promise<Pick<ArrowPage, 'columns' | 'rows'>> {
  const plain = await arrowPlain()
  const { fields } = table.schema
  const vectors = fields.map((_, i) => table.getChildAt(i)!)
  return {
    columns: fields.map(({ name, type }) => ({ name, type: String(type) })),
    rows: places.map((row) => vectors.map((vector) => inWords(plain(vector.get(row))))),
  }
}

/** Formats a value for a cell. */
function inWords(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (typeof value === 'number')
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(DIGITS)))
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    const all = [...(value as Iterable<unknown>)]
    const more = all.length > ELEMENTS_MAX ? `, … ${all.length - ELEMENTS_MAX} more` : ''
    return `[${all.slice(0, ELEMENTS_MAX).map(inWords).join(', ')}${more}]`
  }
  const text =
    typeof value === 'object'
      ? JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? String(each) : each))
      : String(value)
  return text.length > LETTERS_MAX
    ? `${text.slice(0, LETTERS_MAX)} … ${text.length - LETTERS_MAX} more characters`
    : text
}
