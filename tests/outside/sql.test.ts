/** SQL over a run's Arrow files by the DuckDB-Wasm of the registry. Asked by `npm run test:page` alone. */
import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setEnvironmentData } from 'node:worker_threads'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Dashboard, openDashboard } from '../../src/entries/loggers.ts'
import { cached, installPackages } from '../support/cache.ts'
import { skipLoudly } from '../support/command.ts'
import { metricLines, writeConversations, writeRun } from '../support/run-folders.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PACKAGE = '@duckdb/duckdb-wasm@1.32.0'

let why = ''
let folder: string
let dashboard: Dashboard | undefined

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'SQL by DuckDB-Wasm (npm run test:page asks it)'
    return
  }
  const made = await cached(PACKAGE.replaceAll('/', '-'), (path, run) => installPackages(path, run, [PACKAGE]))
  if ('why' in made) {
    why = made.why
    return
  }
  setEnvironmentData('colonnade.program', join(made.folder, 'program.mjs'))
  folder = await temporaryFolder()
  await writeRun(join(folder, 'run'), { metrics: metricLines({ update: 0 }), status: 'complete' })
  await mkdir(join(folder, 'run/rollouts'))
  await writeConversations(join(folder, 'run/trajectories/1.arrow'), ['one', 'two'])
  await writeRewards(8)
  dashboard = await openDashboard({ folder, port: 0 })
  await fetch(`${dashboard.url}/api/runs`) // As the page does first.
})
afterAll(async () => {
  await dashboard?.close()
})

/** Rewards 0, ½, … in four lanes. */
async function writeRewards(numRows: number) {
  const rows = {
    lane: Uint32Array.from({ length: numRows }, (_, i) => i % 4),
    reward: Float32Array.from({ length: numRows }, (_, i) => i / 2),
  }
  await writeFile(join(folder, 'run/rollouts/1.arrow'), tableToIPC(tableFromArrays(rows), 'file'))
}

async function ask(sql: string, more: Record<string, string> = {}) {
  const query = new URLSearchParams({ run: 'run', file: 'rollouts/1.arrow', sql, ...more })
  const response = await fetch(`${dashboard!.url}/api/rows?${query}`)
  return { status: response.status, answer: await response.json() }
}

test('answers queries a page at a time, of the file as it is', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const means = 'SELECT lane, avg(reward) AS mean, count(*) AS n FROM rows GROUP BY lane ORDER BY lane DESC; '
  expect(await ask(means)).toEqual({
    status: 200,
    answer: {
      columns: [
        { name: 'lane', type: 'Uint32' },
        { name: 'mean', type: 'Float64' },
        { name: 'n', type: 'Int64' },
      ],
      ...{ numRows: 4, numFound: 4, places: [0, 1, 2, 3] },
      rows: [
        ['3', '2.5', '2'],
        ['2', '2', '2'],
        ['1', '1.5', '2'],
        ['0', '1', '2'],
      ],
    },
  })
  const second = await ask('FROM rows -- all of them', { from: '5', count: '2' })
  expect(second.answer).toMatchObject({
    numFound: 8,
    places: [5, 6],
    rows: [
      ['1', '2.5'],
      ['2', '3'],
    ],
  })
  await writeRewards(12)
  expect((await ask('SELECT sum(reward), sum(lane) FROM rows')).answer.rows).toEqual([['33', '18']])
  const summary = await ask('summarize rows', { file: 'trajectories/1.arrow' })
  expect(summary.status).toBe(200)
  expect(summary.answer.rows.length).toBeGreaterThan(15)
}, 60_000)

test('says what is wrong with a query, and reads and writes nothing but the file', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const refusals: [query: string, why: RegExp][] = [
    ['SELECT nothing FROM rows', /"nothing\\" not found.*LINE 1/],
    ['SELEC 1', /syntax error/],
    [`SELECT * FROM read_text('/etc/hostname')`, /disabled by configuration/],
    [`SELECT 1); COPY rows TO '${folder}/copied.csv'; SELECT * FROM (SELECT 1`, /disabled by configuration/],
    ['SELECT 1); SET enable_external_access = true; SELECT * FROM (SELECT 1', /locked/],
  ]
  for (const [query, message] of refusals) {
    const { status, answer } = await ask(query)
    expect([query, status]).toEqual([query, 400])
    expect(JSON.stringify(answer)).toMatch(message)
  }
  expect(existsSync(join(folder, 'copied.csv'))).toBe(false)
  expect((await ask('SELECT count(*) FROM rows')).answer.rows).toEqual([['12']])
}, 60_000)

test('gives a query up when nobody waits for it any more', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const endless = new URLSearchParams({
    ...{ run: 'run', file: 'rollouts/1.arrow' },
    sql: 'SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000000) b',
  })
  const waiting = new AbortController()
  const asked = fetch(`${dashboard!.url}/api/rows?${endless}`, { signal: waiting.signal })
  setTimeout(() => waiting.abort(), 500)
  await expect(asked).rejects.toThrow('abort')
  expect((await ask('SELECT count(*) FROM rows')).answer.rows).toEqual([['12']])
}, 50_000) // Less than a query may take.
