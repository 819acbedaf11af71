/** The Arrow files of a run, as the page is sent them. */
import { mkdir, stat, truncate, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  Field,
  Float64,
  Int32,
  Int64,
  List,
  Struct,
  Table,
  tableFromArrays,
  tableToIPC,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Dashboard, openDashboard } from '../../../src/entries/loggers.ts'
import { ArrowPages, listArrowFiles } from '../../../src/telemetry/dashboard/arrow-rows.ts'
import { parseFilter } from '../../../src/telemetry/dashboard/filter.ts'
import { metricLines, writeRun } from '../../support/run-folders.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const HOSTILE = '<img src=x onerror=alert(1)>'
const rewards = Array.from({ length: 300 }, (_, i) => i / 8)
const answers = rewards.map((_, i) => (i === 7 ? HOSTILE : i % 2 === 0 ? 'left' : null))

let folder: string
let run: string
let opened: Dashboard | undefined
beforeEach(async () => {
  folder = await temporaryFolder()
  run = join(folder, 'one')
  await writeRun(run, { metrics: metricLines({ update: 0 }), status: 'complete' })
  await mkdir(join(run, 'rollouts'))
  const lists = rewards.map((_, i) => Array.from({ length: i % 30 }, (_, k) => k))
  const whole = new Table({
    reward: vectorFromArray(Float64Array.from(rewards)),
    count: vectorFromArray(BigInt64Array.from(rewards, (_, i) => BigInt(i))),
    answer: vectorFromArray(answers),
    lists: vectorFromArray(lists, new List(new Field('item', new Int32()))),
  })
  await writeFile(join(run, 'rollouts/2.arrow'), tableToIPC(whole, 'file'))
  await writeFile(join(run, 'rollouts/1.arrow'), tableToIPC(tableFromArrays({ a: Int32Array.of(1) }), 'file'))
  await writeFile(join(run, 'rollouts/notes.txt'), 'none')
})
afterEach(async () => {
  await opened?.close()
  opened = undefined
})

const pageOf = (from: number, count: number, ...filters: string[]) =>
  new ArrowPages().page(
    join(run, 'rollouts/2.arrow'),
    from,
    count,
    filters.map((text) => parseFilter(text)!),
  )

describe('rows of an Arrow file', () => {
  test('are asked by SQL only where DuckDB-Wasm is installed, which is said', async () => {
    const path = join(run, 'rollouts/2.arrow')
    const why = 'SQL: got no package @duckdb/duckdb-wasm, expected npm install @duckdb/duckdb-wasm'
    await expect(new ArrowPages().sql(path, 0, 1, 'FROM rows')).rejects.toThrow(why)
  })

  test('come as pages, in words', async () => {
    const { columns, numRows, numFound, places, rows } = await pageOf(6, 3)
    expect(columns.map(({ name }) => name)).toEqual(['reward', 'count', 'answer', 'lists'])
    expect(columns[0]!.type).toBe('Float64')
    expect({ numRows, numFound, places }).toEqual({ numRows: 300, numFound: 300, places: [6, 7, 8] })
    expect(rows).toEqual([
      ['0.75', '6', 'left', '[0, 1, 2, 3, 4, 5]'],
      ['0.875', '7', HOSTILE, '[0, 1, 2, 3, 4, 5, 6]'],
      ['1', '8', 'left', '[0, 1, 2, 3, 4, 5, 6, 7]'],
    ])
    expect((await pageOf(29, 1)).rows[0]![3]).toMatch(/^\[0, 1, .* 23, … 5 more\]$/)
    expect((await pageOf(0, 10_000)).rows).toHaveLength(200)
    expect((await pageOf(298, 50)).places).toEqual([298, 299])
    expect((await pageOf(300, 50)).places).toEqual([])
  })

  test.each([
    ['reward > 1', rewards.filter((reward) => reward > 1).length],
    ['reward>=1', rewards.filter((reward) => reward >= 1).length],
    ['reward < 1', 8],
    ['reward <= 1', 9],
    ['count = 7', 1],
    ['count != 7', 299],
    ['answer = left', answers.filter((answer) => answer === 'left').length],
    ['answer ~ ONERROR', 1],
    ['answer = ', answers.filter((answer) => answer === null).length],
    ['answer > a', answers.filter((answer) => answer !== null && answer > 'a').length],
  ])('are filtered by %s', async (filter, numFound) => {
    const page = await pageOf(0, 10, filter)
    expect(page.numFound).toBe(numFound)
    expect(page.numRows).toBe(300)
  })

  test('have cells of any kind in words that are not too long', async () => {
    const path = join(run, 'rollouts/3.arrow')
    const parts = new Struct([new Field('a', new Int64(), true), new Field('b', new Utf8(), true)])
    const whole = new Table({
      half: vectorFromArray([1 / 3, null], new Float64()),
      long: vectorFromArray(['x'.repeat(2001), null], new Utf8()),
      whole: vectorFromArray(['x'.repeat(2000), null], new Utf8()),
      parts: vectorFromArray([{ a: 1n, b: 'y' }, null], parts),
    })
    await writeFile(path, tableToIPC(whole, 'file'))
    const pages = new ArrowPages()
    const { rows } = await pages.page(path, 0, 2, [])
    const [cut, uncut] = [`${'x'.repeat(2000)} … 1 more characters`, 'x'.repeat(2000)]
    expect(rows[0]).toEqual(['0.333333', cut, uncut, '{"a":"1","b":"y"}'])
    expect(rows[1]).toEqual(['', '', '', ''])
    for (const operator of ['<', '<=', '>', '>=']) {
      const { places } = await pages.page(path, 0, 2, [parseFilter(`half ${operator} 0.4`)!])
      expect(places).toEqual(operator.startsWith('<') ? [0] : []) // What is not there is on neither side.
    }
  })

  test('are not read of a file that is too large', async () => {
    const path = join(run, 'rollouts/1.arrow')
    await truncate(path, 2 ** 29 + 1)
    const why = `got ${2 ** 29 + 1} bytes, expected at most ${2 ** 29} to be shown here`
    await expect(new ArrowPages().page(path, 0, 1, [])).rejects.toThrow(why)
    await expect(new ArrowPages().sql(path, 0, 1, 'FROM rows')).rejects.toThrow(why)
  })

  test('pass all filters', async () => {
    const { places, numFound } = await pageOf(1, 2, 'reward > 1', 'answer = left')
    const wanted = rewards.flatMap((reward, i) => (reward > 1 && answers[i] === 'left' ? [i] : []))
    expect({ places, numFound }).toEqual({ places: wanted.slice(1, 3), numFound: wanted.length })
  })

  test('of a column that is not there are an error; what is no filter is null', async () => {
    await expect(pageOf(0, 1, 'rewards > 1')).rejects.toThrow(
      'filter: got column rewards, expected one of reward, count, answer, lists',
    )
    for (const text of ['', 'reward', '> 3', 'two words = 1']) expect(parseFilter(text)).toBe(null)
  })

  test('are read anew where the file has changed, and a damaged one is an error', async () => {
    const pages = new ArrowPages()
    const path = join(run, 'rollouts/1.arrow')
    expect((await pages.page(path, 0, 5, [])).rows).toEqual([['1']])
    await writeFile(path, tableToIPC(tableFromArrays({ a: Int32Array.of(5, 6) }), 'file'))
    expect((await pages.page(path, 0, 5, [])).rows).toEqual([['5'], ['6']])
    await writeFile(path, 'ARROW1 and no more')
    await expect(pages.page(path, 0, 5, [])).rejects.toThrow(/1\.arrow/)
    // Also where neither its length nor its time tells that it is whole now.
    const whole = tableToIPC(tableFromArrays({ a: Int32Array.of(7) }), 'file')
    await writeFile(path, Buffer.alloc(whole.length))
    const { atime, mtime } = await stat(path)
    await utimes(path, atime, mtime)
    await expect(pages.page(path, 0, 5, [])).rejects.toThrow(/1\.arrow/)
    await writeFile(path, whole)
    await utimes(path, atime, mtime)
    expect((await pages.page(path, 0, 5, [])).rows).toEqual([['7']])
  })
})

describe('the server', () => {
  const ask = async (path: string) => {
    opened ??= await openDashboard({ folder, port: 0 })
    // The page answers what it knows by then, which on a busy machine is no run yet.
    const runs = async () =>
      ((await (await fetch(`${opened!.url}/api/runs`)).json()) as { runs: { id: string }[] }).runs
    while (!(await runs()).some(({ id }) => id === 'one')) await new Promise((resolve) => setTimeout(resolve, 20))
    const response = await fetch(`${opened.url}/${path}`)
    return { status: response.status, answer: (await response.json()) as Record<string, unknown> }
  }

  test('lists the Arrow files of a run, and sends rows of one', async () => {
    expect((await listArrowFiles(run)).map(({ path }) => path)).toEqual(['rollouts/1.arrow', 'rollouts/2.arrow'])
    const { answer } = await ask('api/files?run=one')
    const sizes = await Promise.all(
      ['1', '2'].map(async (name) => (await stat(join(run, `rollouts/${name}.arrow`))).size),
    )
    expect(answer.files).toEqual(sizes.map((bytes, i) => ({ path: `rollouts/${i + 1}.arrow`, bytes })))
    expect((await ask('api/rows?run=one&file=rollouts/2.arrow')).answer).toMatchObject({
      places: Array.from({ length: 50 }, (_, i) => i),
    })
    const sql = await ask('api/rows?run=one&file=rollouts/2.arrow&sql=FROM+rows')
    expect([sql.status, sql.answer.error]).toMatchObject([
      400,
      { message: expect.stringContaining('npm install @duckdb/duckdb-wasm') },
    ])
    const rows = await ask(
      `api/rows?run=one&file=rollouts/2.arrow&from=0&count=2&where=${encodeURIComponent('reward > 2')}`,
    )
    expect(rows).toMatchObject({ status: 200, answer: { places: [17, 18], numRows: 300 } })
  })

  test.each([
    ['api/files?run=none', 404, /run: got "none", expected a run of this page/],
    ['api/files', 404, /run: got null/],
    ['api/rows?run=one&file=config.json', 404, /file: got "config\.json", expected a file of the run/],
    ['api/rows?run=one&file=rollouts/../../secret.arrow', 404, /file: got/],
    ['api/rows?run=one&file=rollouts/2.arrow&from=-1', 400, /from: got "-1", expected a whole number/],
    ['api/rows?run=one&file=rollouts/2.arrow&count=x', 400, /count: got "x"/],
    [
      'api/rows?run=one&file=rollouts/2.arrow&where=reward',
      400,
      /filter: got "reward", expected a filter like reward > 0\.5/,
    ],
    ['api/rows?run=one&file=rollouts/2.arrow&where=x%3D1', 400, /filter: got column x/],
  ])('answers %s with %i', async (path, status, message) => {
    const { status: got, answer } = await ask(path)
    expect(got).toBe(status)
    expect((answer.error as { message: string }).message).toMatch(message)
  })
})
