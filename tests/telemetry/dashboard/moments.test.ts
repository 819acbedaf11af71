/** What was made at updates: marks beside the curves, pictures, and histograms of rows. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { describe, expect, onTestFinished, test } from 'vitest'
import { openDashboard } from '../../../src/entries/loggers.ts'
import { histogramsOf } from '../../../src/telemetry/dashboard/histograms.ts'
import { apart } from '../../../src/telemetry/dashboard/page/marks.ts'
import { metricLines, writeRun } from '../../support/run-folders.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const field = (name: string, column: Float32Array | Int32Array | Uint8Array, width = 1) => ({ name, column, width })

describe('histograms', () => {
  test('count few whole numbers each, and others in 24 bars of one width', () => {
    const rewards = Float32Array.from({ length: 480 }, (_, i) => i / 10)
    const [reward, action] = histogramsOf({
      fields: [
        field('action', Int32Array.of(1, 3, 1, -1)),
        field('lane', Int32Array.of(0, 1)),
        field('reward', rewards),
      ],
    })
    expect(action).toEqual({
      ...{ name: 'action', count: 4, mean: 1, low: -1, high: 3, isWhole: true },
      counts: [1, 0, 2, 0, 1],
    })
    expect(reward).toMatchObject({ name: 'reward', count: 480, low: 0, isWhole: false })
    expect([reward!.counts.length, reward!.counts.every((each) => each === 20)]).toEqual([24, true])
    expect(reward!.mean).toBeCloseTo(23.95, 4)
  })

  test('have valid rows alone, returns of ended episodes, and no numbers that are not finite', () => {
    const fields = [
      field('reward', Float32Array.of(1, 2, 4, Number.NaN, 8)),
      field('valid', Uint8Array.of(1, 1, 0, 1, 1)),
      field('episodeReturn', Float32Array.of(1, 3, 7, 7, 8)),
      field('terminated', Uint8Array.of(0, 1, 1, 0, 0)),
      field('truncated', Uint8Array.of(0, 0, 0, 0, 1)),
      field('value', Float32Array.of(Number.NaN)),
    ]
    expect(histogramsOf({ fields }).map(({ name, count, mean }) => [name, count, mean])).toEqual([
      ['reward', 3, 11 / 3],
      ['episodeReturn', 2, 5.5],
    ])
  })

  test('count present rows of a column that not all have, and all numbers of a narrow list', () => {
    const present = { ...field('advantage', Float32Array.of(0.5, 0.5)), rows: Uint32Array.of(0, 2) }
    const fields = [
      present,
      field('valid', Uint8Array.of(1, 1, 0)),
      field('action', Float32Array.of(1, 2, 3, 4, 5, 6), 2),
    ]
    expect(histogramsOf({ fields }).map(({ name, count, counts }) => [name, count, counts])).toEqual([
      ['advantage', 1, [1]],
      ['action', 4, [1, 1, 1, 1]],
    ])
  })
})

test('marks nearer than 24 pixels to a newer one are left out', () => {
  expect(apart([100, 110, 124, 10, 123], (each) => each)).toEqual([124, 100, 10])
})

test('the page is told what a run has of its updates, at their places on the axis, and shows it', async () => {
  const folder = await temporaryFolder()
  const run = join(folder, 'one')
  const lines = Array.from({ length: 10 }, (_, i) => ({ update: i + 1, steps: 100 * (i + 1) }))
  await writeRun(run, { metrics: metricLines(...lines) })
  await mkdir(join(run, 'rollouts'))
  const rows = tableToIPC(tableFromArrays({ reward: Float64Array.of(1, 2, 2) }), 'file')
  for (const name of ['00000004.arrow', '00000099.arrow', 'notes.txt'])
    await writeFile(join(run, 'rollouts', name), rows)
  await writeFile(join(run, 'replay-7.gif'), 'GIF89a7')
  await writeFile(join(run, 'replay-x.gif'), 'no')
  const page = await openDashboard({ folder, port: 0, pollMs: 5 })
  onTestFinished(() => page.close())
  const get = async (path: string) => fetch(`${page.url}/api/${path}`)
  const json = async (path: string) => (await get(path)).json()
  await expect.poll(async () => (await json('runs')).runs[0]?.replayTime).toBeGreaterThan(1e12)
  const { moments, newest } = await json('moments?over=steps&run=one')
  expect(newest).toEqual([])
  expect(moments.one).toEqual([
    { kind: 'rows', update: 4, file: 'rollouts/00000004.arrow', x: 400 },
    { kind: 'picture', update: 7, file: 'replay-7.gif', x: 700 },
    { kind: 'rows', update: 99, file: 'rollouts/00000099.arrow', x: 1000 }, // Beyond the last line: at the end.
  ])
  expect((await json('moments?over=nothing&run=one')).moments.one[0].x).toBe(null)
  expect(await (await get('replay?run=one&file=replay-7.gif')).text()).toBe('GIF89a7')
  for (const file of ['replay-x.gif', '../one/replay-7.gif', 'config.json'])
    expect((await get(`replay?run=one&file=${encodeURIComponent(file)}`)).status, file).toBe(404)
  const { histograms } = await json('histograms?run=one&file=rollouts/00000004.arrow')
  expect(histograms).toEqual([
    { name: 'reward', count: 3, mean: 5 / 3, low: 1, high: 2, isWhole: true, counts: [1, 2] },
  ])
  expect((await get('histograms?run=one&file=config.json')).status).toBe(404)
  expect((await get('moments?run=two')).status).toBe(404)
})
