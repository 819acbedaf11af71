/** What the page reads: metrics files in whatever state, and run folders. */
import { appendFile, copyFile, mkdir, open, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { startRun } from '../../../src/index.ts'
import { MetricsFile } from '../../../src/telemetry/dashboard/metrics-file.ts'
import { readIndex, writeIndex } from '../../../src/telemetry/dashboard/metrics-index.ts'
import { Runs } from '../../../src/telemetry/dashboard/runs.ts'
import { metricLines, writeRun } from '../../support/run-folders.ts'
import { smallRun } from '../../support/small-training.ts'
import { temporaryFolder } from '../../support/temporary.ts'

async function metricsFile(text: string) {
  const path = join(await temporaryFolder(), 'metrics.jsonl')
  await writeFile(path, text)
  return { path, file: new MetricsFile(path) }
}

describe('a metrics file', () => {
  test('is read further as it grows; a line that is being written is read when it is whole', async () => {
    const { path, file } = await metricsFile(
      metricLines({ steps: 10, loss: 1 }, { steps: 20, loss: null, kl: { k1: 3 } }),
    )
    expect(await file.read()).toBe(true)
    expect(await file.read()).toBe(false)
    expect(file.names).toEqual(['line', 'steps', 'loss', 'kl/k1'])
    await appendFile(path, '{"steps":30,"lo')
    await file.read()
    expect(file.lines).toBe(2)
    await appendFile(path, 'ss":"é"}\n{"steps":40,"loss":5}\n')
    await file.read()
    expect([file.lines, file.damaged]).toEqual([4, 0])
    expect(await file.curve('loss', 'steps')).toEqual({ x: [10, 40], y: [1, 5] })
    expect(await file.curve('kl/k1', 'line')).toEqual({ x: [2], y: [3] })
    expect(await file.curve('nothing', 'line')).toEqual({ x: [], y: [] })
    expect(file.last).toEqual({ line: 4, steps: 40, loss: 5 })
  })

  test('that is cut, or that another has taken the place of, is read anew', async () => {
    const { path, file } = await metricsFile(metricLines({ loss: 1 }, { loss: 2 }, { loss: 3 }))
    await file.read()
    await truncate(path, metricLines({ loss: 1 }).length)
    await file.read()
    expect((await file.curve('loss', 'line')).y).toEqual([1])
    await writeFile(`${path}.new`, metricLines({ loss: 7 }, { loss: 8 }, { loss: 9 }, { loss: 10 }))
    await rename(`${path}.new`, path)
    await file.read()
    expect((await file.curve('loss', 'line')).y).toEqual([7, 8, 9, 10])
  })

  test('leaves out what is damaged, and counts it', async () => {
    const { file } = await metricsFile(`{"loss":1}\nnull\n\n{"loss":}\n[1]\n\u0000\n{"loss":1e999}\n{"loss":2}\n`)
    await file.read()
    expect([file.lines, file.damaged]).toEqual([3, 4])
    expect(await file.curve('loss', 'line')).toEqual({ x: [1, 3], y: [1, 2] })
  })

  test('draws a figure where it has both numbers: lines that lack either are left out', async () => {
    const { file } = await metricsFile(
      metricLines({ steps: 10, loss: 1 }, { loss: 2 }, { steps: 30 }, { steps: 40, loss: 4 }),
    )
    await file.read()
    expect(await file.curve('loss', 'steps')).toEqual({ x: [10, 40], y: [1, 4] })
    expect(await file.curve('loss', 'late')).toEqual({ x: [], y: [] })
  })

  test('has the lines beside one that is too long to be read, which is counted', async () => {
    const { path, file } = await metricsFile('{"loss":1}\n')
    await truncate(path, 70 * 2 ** 20)
    await appendFile(path, '\n{"loss":2}\n')
    await file.read()
    expect([file.lines, file.damaged]).toEqual([2, 1])
    expect((await file.curve('loss', 'line')).y).toEqual([1, 2])
  })

  test('of any length takes so many points, each the mean of its lines', async () => {
    const count = 40_000
    const { file } = await metricsFile(
      Array.from({ length: count }, (_, i) => `{"loss":${i}${i < 30_000 ? '' : ',"late":1'}}\n`).join(''),
    )
    await file.read()
    const { x, y } = await file.curve('loss', 'line')
    expect(y).toHaveLength(count / 32)
    expect(y.slice(0, 2)).toEqual([15.5, 47.5])
    expect(x.slice(0, 2)).toEqual([16.5, 48.5])
    expect(y.at(-1)).toBe(count - 16.5)
    // Lines 29,985 to 30,016 are one point; of them, those that have the figure are from 30,001 on.
    expect(await file.curve('late', 'line')).toMatchObject({ x: expect.arrayContaining([30_000.5]) })
    expect(file.last.line).toBe(count)
  })

  test('has a point for each line up to 2047, and half as many points from the next line on', async () => {
    const { path, file } = await metricsFile(metricLines(...Array.from({ length: 2047 }, (_, i) => ({ loss: i }))))
    await file.read()
    expect((await file.curve('loss', 'line')).x).toHaveLength(2047)
    await appendFile(path, metricLines({ loss: 2047 }))
    await file.read()
    const { x, y } = await file.curve('loss', 'line')
    expect([x.length, x[0], x.at(-1), y[0], y.at(-1)]).toEqual([1024, 1.5, 2047.5, 0.5, 2046.5])
  })
})

describe('an index of a metrics file', () => {
  const line = (i: number) => ({ steps: 10 * i, loss: Math.sin(i), ...(i % 3 === 0 && { kl: { k1: i } }) })
  const lines = (from: number, to: number) =>
    metricLines(...Array.from({ length: to - from }, (_, i) => line(from + i)))
  const COUNT = 9000
  const curves = async (file: MetricsFile) => [
    ...[await file.curve('loss', 'steps'), await file.curve('kl/k1', 'line'), file.names, file.last],
    ...[file.lines, file.damaged, file.isSkimmed],
  ]
  /** A file with an index of its lines, and whatever reads it anew. */
  async function indexed() {
    const { path, file } = await metricsFile(lines(0, COUNT))
    await file.read()
    await file.keepIndex()
    return { path, index: path.replace('jsonl', 'index'), file }
  }
  async function reader(path: string) {
    const file = new MetricsFile(path)
    expect(await file.skim()).toBe(false) // Nothing has to be sampled.
    await file.read()
    return file
  }
  /** What is read without an index. */
  async function plain(path: string) {
    const copy = join(await temporaryFolder(), 'metrics.jsonl')
    await copyFile(path, copy)
    const file = new MetricsFile(copy)
    await file.read()
    return curves(file)
  }

  test('has what its lines have, which are not read, and goes on with further ones', async () => {
    const { path, file } = await indexed()
    const expected = await plain(path)
    const handle = await open(path, 'r+')
    await handle.write('#'.repeat(1000), 0) // Whoever reads these lines counts them as damaged.
    await handle.close()
    expect(await curves(await reader(path))).toEqual(expected)

    const later = await reader(path)
    await appendFile(path, `${lines(COUNT, COUNT + 500)}{"loss`)
    await later.read()
    await file.read()
    const grown = await curves(file)
    expect(await curves(later)).toEqual(grown)
    await file.keepIndex() // Without the line that is being written.
    await appendFile(path, '":7}\n')
    await file.read()
    const last = await curves(file)
    expect(last.slice(3, 6)).toEqual([{ line: COUNT + 501, loss: 7 }, COUNT + 501, 0])
    expect(await curves(await reader(path))).toEqual(last)
  })

  test('is not used for a file that was cut, written anew or replaced, nor if it is damaged', async () => {
    const { path, index } = await indexed()
    const whole = await readFile(index)
    for (const bytes of [
      whole.subarray(0, -8),
      whole.subarray(0, 3),
      Buffer.from(`\xff\xff\xff\xff`, 'latin1'),
      Buffer.alloc(64),
    ]) {
      await writeFile(index, bytes)
      const file = new MetricsFile(path)
      await file.read()
      expect(await curves(file)).toEqual(await plain(path))
    }
    await writeFile(index, whole)
    for (const text of [lines(0, COUNT - 1), lines(0, COUNT - 1) + metricLines(line(COUNT)) + lines(7, 500)]) {
      await writeFile(path, text)
      const file = new MetricsFile(path)
      await file.read()
      expect(await curves(file)).toEqual(await plain(path))
    }
  })

  test.each([
    { stride: 0 },
    { stride: 0.5 },
    { offset: -1 },
    { lines: '9000' },
    { damaged: null },
    { tail: 5 },
    { last: null },
    { names: ['line', 'line', 'loss', 'kl/k1'] },
    { names: [1, 2, 3, 4] },
    { points: null },
    { points: [1, 1, 1] },
    { version: 0 },
    { lines: 2 ** 50 }, // A new line would be the point of that number.
  ])('whose head has %o is not used', async (wrong) => {
    const { path, index } = await indexed()
    const { head } = (await readIndex(index))!
    const text = Buffer.from(JSON.stringify({ ...head, ...wrong }))
    const numbers = (await readFile(index)).subarray((await readIndex(index))!.places[0]!)
    const begin = Buffer.alloc(8 * Math.ceil((4 + text.length) / 8))
    begin.writeUInt32LE(text.length)
    begin.set(text, 4)
    await writeFile(index, Buffer.concat([begin, numbers]))
    const file = new MetricsFile(path)
    await file.read()
    expect(await curves(file)).toEqual(await plain(path))
  })

  test('that claims more points than a curve has, or a longer head than a line, is not used', async () => {
    const { index } = await indexed()
    const { head } = (await readIndex(index))!
    const handle = await open(index, 'r+')
    const text = Buffer.from(JSON.stringify({ ...head, points: head.points.map(() => 2 ** 30) }))
    const begin = Buffer.alloc(8 * Math.ceil((4 + text.length) / 8))
    begin.writeUInt32LE(text.length)
    begin.set(text, 4)
    await handle.write(begin, 0, begin.length, 0)
    await handle.truncate(begin.length + 16 * 2 ** 30 * head.points.length) // It has holes.
    expect(await readIndex(index)).toBeNull()
    begin.writeUInt32LE(2 ** 32 - 1)
    await handle.write(begin, 0, 4, 0)
    expect(await readIndex(index)).toBeNull()
    await handle.close()
  })

  test('whose last line is nested too deeply is not used', async () => {
    const { index } = await indexed()
    const { head } = (await readIndex(index))!
    for (const [depth, isUsed] of [
      [100, true],
      [2000, false],
    ] as const) {
      await writeIndex(index, { ...head, last: JSON.parse(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`) }, new Map())
      expect((await readIndex(index)) !== null).toBe(isUsed)
    }
  })

  test('is not kept where metrics are omitted, so that those that are shown go on', async () => {
    const many = (value: number) => metricLines(Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [i, value])))
    const { path, file } = await metricsFile(many(1).repeat(20))
    await file.read()
    await file.keepIndex()
    expect(file.isCut).toBe(true)
    const later = new MetricsFile(path)
    await later.read()
    await appendFile(path, many(2))
    await later.read()
    expect((await later.curve('17', 'line')).y.at(-1)).toBe(2)
  })

  test('of as many metrics as are kept goes on with all of them', async () => {
    const many = (value: number) => metricLines(Object.fromEntries(Array.from({ length: 4095 }, (_, i) => [i, value])))
    const { path, file } = await metricsFile(many(1).repeat(20))
    await file.read()
    await file.keepIndex()
    const later = await reader(path)
    await appendFile(path, many(2))
    await later.read()
    expect([later.isCut, (await later.curve('17', 'line')).y.at(-1)]).toEqual([false, 2])
  })

  test('is read by curves while lines are added, and none is lost', async () => {
    const { path } = await indexed()
    const later = await reader(path)
    await appendFile(path, lines(COUNT, COUNT + 500))
    let isReading = true
    const reading = later.read().finally(() => {
      isReading = false
    })
    const asked: Promise<unknown>[] = []
    while (isReading) {
      asked.push(later.curve('loss', 'steps'))
      await new Promise(setImmediate)
    }
    await Promise.all([reading, ...asked])
    expect(await curves(later)).toEqual(await plain(path))
  })

  test('that is replaced while its numbers are still in it makes the file start over', async () => {
    const { path, file } = await indexed()
    const follower = await reader(path)
    await appendFile(path, lines(COUNT, COUNT + 10))
    await file.read()
    await file.keepIndex()
    expect(await follower.curve('loss', 'line')).toEqual({ x: [], y: [] })
    expect(await follower.read()).toBe(true) // So that the curve is requested again, without further lines.
    expect(await follower.read()).toBe(false)
    expect(await curves(follower)).toEqual(await plain(path))
  })

  test('is kept by a run at its checkpoints', async () => {
    const run = await startRun(await smallRun('checkpointEvery=1'), join(await temporaryFolder(), 'run'))
    await writeFile(join(run.folder, 'metrics.jsonl'), lines(0, COUNT))
    const { updates } = await run.train()
    const index = await readIndex(join(run.folder, 'metrics.index'))
    expect(index!.head.lines).toBe(COUNT + updates)
  })

  test('that cannot be written does not end a run, which says so once', async () => {
    const run = await startRun(await smallRun('checkpointEvery=1'), join(await temporaryFolder(), 'run'))
    await writeFile(join(run.folder, 'metrics.jsonl'), lines(0, COUNT))
    await mkdir(join(run.folder, 'metrics.index', 'taken'), { recursive: true })
    expect(await run.train()).toMatchObject({ status: 'complete' })
    const log = await readFile(join(run.folder, 'run.log'), 'utf8')
    expect(log.split('the dashboard reads metrics.jsonl instead')).toHaveLength(2)
  })

  test('is kept of long files alone', async () => {
    const { path, file } = await metricsFile(lines(0, 1000))
    await file.read()
    await file.keepIndex()
    expect(await readFile(path.replace('jsonl', 'index')).catch(({ code }) => code)).toBe('ENOENT')
  })
})

describe('the figures of a metrics file', () => {
  const nested = (depth: number): object => (depth === 0 ? { loss: 1 } : { a: nested(depth - 1) })

  test('stand in up to 64 objects in one another; a line with more is damaged', async () => {
    const { file } = await metricsFile(metricLines(nested(64), nested(65)))
    await file.read()
    expect([file.names, file.lines, file.damaged]).toEqual([['line', `${'a/'.repeat(64)}loss`], 1, 1])
  })

  test('are 4096 at most, and the objects that have some count too; what is known goes on', async () => {
    const figures = (count: number, value: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, value]))
    const { path, file } = await metricsFile(metricLines(figures(4092, 1), { of: { a: 1 } })) // And the line's number.
    await file.read()
    expect([file.names.length, file.isCut]).toEqual([4094, false])
    await appendFile(path, metricLines({ ...figures(4093, 3), of: { a: 3, b: 3 }, more: { a: 3 } }))
    await file.read()
    expect([file.names.length, file.isCut, file.names.at(-1)]).toEqual([4095, true, 'f4092'])
    expect((await file.curve('of/a', 'line')).y).toEqual([1, 3])
    expect(file.last).toEqual({ line: 3, ...figures(4093, 3), 'of/a': 3 })
  })

  test('of one name are one figure, in a key with a slash or in an object', async () => {
    const { file } = await metricsFile(metricLines({ 'a/b': 1, a: { b: 3, list: [5] } }))
    await file.read()
    expect([file.names, await file.curve('a/b', 'line')]).toEqual([['line', 'a/b'], { x: [1], y: [2] }])
  })

  test('that only early lines have keep their means when points become fewer', async () => {
    const lines = Array.from({ length: 2048 }, (_, i) => (i < 3 ? { loss: i, early: 4 + i } : { loss: i }))
    const { file } = await metricsFile(metricLines(...lines))
    await file.read()
    expect(await file.curve('early', 'line')).toEqual({ x: [1.5, 3.5], y: [4.5, 6] })
  })
})

describe('a long metrics file', () => {
  const count = 40_000
  const text = Array.from({ length: count }, (_, i) => `{"loss":${i}${i % 1000 === 999 ? ',"rare":{"a":1}' : ''}}\n`)

  test('is skimmed: all lines are counted and some are read, the last one among them', async () => {
    const { path, file } = await metricsFile(text.join(''))
    expect(await file.skim()).toBe(true)
    expect([file.isSkimmed, file.lines, file.damaged]).toEqual([true, count, 0])
    expect(file.last).toEqual({ line: count, loss: count - 1, 'rare/a': 1 })
    const { x, y } = await file.curve('loss', 'line')
    expect(y).toEqual(x.map((line) => line - 1)) // Each at its own line.
    expect(x.length).toBeGreaterThan(200)
    expect(x.length).toBeLessThanOrEqual(257)
    expect([x[0], x.at(-1)]).toEqual([1, count])
    for (let i = 1; i < x.length; i++) expect(x[i]! - x[i - 1]!).toBeLessThan((2 * count) / 200)

    await appendFile(path, '{"loss":7}\n')
    expect(await file.read()).toBe(true)
    expect([file.isSkimmed, file.lines]).toEqual([false, count + 1])
    expect((await file.curve('loss', 'line')).y[0]).toBe(15.5)
    expect((await file.curve('rare/a', 'line')).y).toHaveLength(count / 1000)
    expect(await file.skim()).toBe(false)
  })

  test('whose reading is broken off stays skimmed, and is read on from there', async () => {
    const { file } = await metricsFile(text.join(''))
    await file.skim()
    expect(await file.read(AbortSignal.abort())).toBe(false)
    expect(file.isSkimmed).toBe(true)
    expect(await file.read()).toBe(true)
    expect([file.isSkimmed, file.lines]).toEqual([false, count])
  })

  test('that is short is not skimmed', async () => {
    const { file } = await metricsFile('{"loss":1}\n')
    expect(await file.skim()).toBe(false)
    expect(file.lines).toBe(0)
  })

  test('of an ended run gets an index, by which the next server has the same curves without reading it', async () => {
    const folder = await temporaryFolder()
    const hasIndex = (name: string) => readIndex(join(folder, name, 'metrics.index')).then((index) => index !== null)
    for (const [name, status] of Object.entries({ ended: 'complete', goesOn: undefined }))
      await writeRun(join(folder, name), { metrics: text.join(''), ...(status !== undefined && { status }) })
    await mkdir(join(folder, 'goesOn', '.owner-1'))
    await (await Runs.open(folder, true)).read()
    expect(await hasIndex('ended')).toBe(false)
    const first = await Runs.open(folder)
    await first.read()
    expect([await hasIndex('ended'), await hasIndex('goesOn')]).toEqual([true, false])
    const handle = await open(join(folder, 'ended', 'metrics.jsonl'), 'r+')
    await handle.write('#'.repeat(1000), 0) // Whoever reads these lines counts them as damaged.
    await handle.close()
    const second = await Runs.open(folder)
    await second.read()
    expect(second.shown()[0]).toMatchObject({ id: 'ended', lines: count, notes: [], isSkimmed: false })
    for (const runs of [first, second])
      expect(await runs.curve('ended', 'rare/a', 'loss')).toEqual(await first.curve('goesOn', 'rare/a', 'loss'))
    await appendFile(join(folder, 'ended', 'metrics.jsonl'), '{"loss":-7}\n')
    await first.read()
    expect(first.shown()[0]).toMatchObject({ lines: count + 1, last: { loss: -7 } })
    expect((await first.curve('ended', 'loss', 'line')).y[0]).toBe(15.5)
  })

  test('gets its index once, when its run has ended and nobody owns its folder', async () => {
    const folder = await temporaryFolder()
    const [run, owner] = [join(folder, 'one'), join(folder, 'one', '.owner-1')]
    await writeRun(run, { metrics: text.join(''), status: 'complete' })
    await mkdir(owner) // As while it ends, and while it is resumed.
    const runs = await Runs.open(folder)
    await runs.read()
    const offset = async () => (await readIndex(join(run, 'metrics.index')))?.head.offset
    expect(await offset()).toBe(undefined)
    await rm(owner, { recursive: true })
    await runs.read() // No line came.
    const all = text.join('').length
    expect(await offset()).toBe(all)
    await appendFile(join(run, 'metrics.jsonl'), text.join(''))
    await runs.read()
    expect(await offset()).toBe(all)
    await (await Runs.open(folder)).read()
    expect(await offset()).toBe(2 * all)
  })

  test('whose place a longer one with an index takes leaves that index as it is', async () => {
    const { path, file } = await metricsFile(text.join(''))
    await file.read()
    await writeFile(`${path}.new`, text.join('') + text.join(''))
    await rename(`${path}.new`, path)
    const other = new MetricsFile(path)
    await other.read()
    await other.keepIndex()
    const index = () => readFile(path.replace(/jsonl$/, 'index'))
    const before = await index()
    await file.keepIndex(true)
    expect((await index()).equals(before)).toBe(true)
    await file.read()
    expect(file.lines).toBe(2 * count)
  })

  test('is told of when it is skimmed, before another is read in full, and again when it is read', async () => {
    const folder = await temporaryFolder()
    for (const name of ['a', 'b']) await writeRun(join(folder, name), { metrics: text.join('') })
    const runs = await Runs.open(folder)
    expect([runs.found.length, runs.shown()]).toEqual([2, []])
    const told: unknown[] = []
    await runs.read((id) => told.push([id, runs.shown().map(({ isSkimmed }) => isSkimmed)]))
    expect(told).toEqual([
      ['a', []],
      ['b', [true]],
      ['a', [false, true]],
      ['b', [false, false]],
    ])
  })
})

describe('runs below a folder', () => {
  test('are told of by what their files say', async () => {
    const folder = await temporaryFolder()
    const metrics = metricLines({ update: 1, episodeReturn: 9 })
    await writeRun(join(folder, 'b', 'run-10'), { seed: 10, metrics, status: 'complete' })
    await writeRun(join(folder, 'b', 'run-9'), { seed: 9, learningRate: 0.2 })
    await writeRun(join(folder, 'a'), { seed: 4, version: '99.0.0', metrics: 'x\n' })
    await mkdir(join(folder, 'a', '.owner-1'))
    await mkdir(join(folder, 'empty'))
    await mkdir(join(folder, 'other'))
    await writeFile(join(folder, 'other', 'config.json'), '{"architectures":[]}') // Of a model.
    const runs = await Runs.open(folder)
    const changed = async (): Promise<string[]> => {
      const ids = new Set<string>()
      await runs.read((id) => ids.add(id))
      return [...ids].sort()
    }
    expect(await changed()).toEqual(['a', 'b/run-10', 'b/run-9'])
    const shown = runs.shown()
    expect(shown.map(({ id, status, lines }) => [id, status, lines])).toEqual([
      ...[
        ['a', 'running', 0],
        ['b/run-9', 'stopped', 0],
        ['b/run-10', 'complete', 1],
      ],
    ])
    expect(shown[0]!.notes).toEqual([
      'metrics.jsonl: 1 damaged lines were skipped',
      expect.stringMatching(/^written by version 99.0.0; this page has version/),
    ])
    expect(shown[2]).toMatchObject({
      ...{ kind: 'episodes', environment: 'CartPole-v1', algorithm: 'ppo', notes: [] },
      last: { line: 1, update: 1, episodeReturn: 9 },
      settings: { seed: 10, 'ppo.learningRate': 0.1, 'mlp.hidden': '8,4', environment: 'CartPole-v1' },
    })
    // Seeds alone make no other group; a setting does.
    const [a, nine, ten] = shown.map(({ group }) => group)
    expect(a).toBe(ten)
    expect(nine).not.toBe(ten)
    expect(await runs.curve('b/run-10', 'episodeReturn', 'line')).toEqual({ x: [1], y: [9] })
    expect(await runs.curve('../secret', 'episodeReturn', 'line')).toEqual({ x: [], y: [] })

    expect(await changed()).toEqual([])
    await appendFile(join(folder, 'b', 'run-10', 'metrics.jsonl'), metrics)
    await writeFile(join(folder, 'b', 'run-9', 'config.json'), '{"colonnade":')
    await rm(join(folder, 'a'), { recursive: true })
    expect(await changed()).toEqual(['a', 'b/run-10', 'b/run-9'])
    expect(runs.shown().map(({ id, notes }) => [id, notes])).toEqual([
      ...[
        ['b/run-9', ['config.json cannot be read (no JSON object)']],
        ['b/run-10', []],
      ],
    ])
  })

  test('are of two groups where something is laid around the environment of one', async () => {
    const folder = await temporaryFolder()
    const wrappers = [{ id: 'frameStack', parameters: { frames: 4 } }]
    await writeRun(join(folder, 'bare'))
    await writeRun(join(folder, 'stacked'), { wrappers })
    const runs = await Runs.open(folder)
    await runs.read()
    const [bare, stacked] = runs.shown()
    expect(stacked!.settings).toEqual({ ...bare!.settings, wrappers: 'frameStack', 'frameStack.frames': 4 })
    expect(stacked!.group).not.toBe(bare!.group)
  })

  test('are told of when their end, or the picture of an episode, is all that has changed', async () => {
    const folder = await temporaryFolder()
    const run = join(folder, 'one')
    await writeRun(run)
    await mkdir(join(run, '.owner-1'))
    const runs = await Runs.open(folder)
    const changed = async () => {
      const ids: string[] = []
      await runs.read((id) => ids.push(id))
      return [ids, runs.shown()[0]!.status, runs.shown()[0]!.replayTime !== null, runs.shown()[0]!.notes]
    }
    expect(await changed()).toEqual([['one'], 'running', false, []])
    expect(await changed()).toEqual([[], 'running', false, []])
    await rm(join(run, '.owner-1'), { recursive: true })
    expect(await changed()).toEqual([['one'], 'stopped', false, []])
    await writeFile(join(run, 'replay.gif'), 'GIF89a')
    expect(await changed()).toEqual([['one'], 'stopped', true, []])
    await mkdir(join(run, 'summary.json'))
    expect(await changed()).toEqual([[], 'stopped', true, [expect.stringMatching(/^summary.json cannot be read/)]])
  })

  test('are not those of packages, not what a run keeps, not hidden ones, and none more than three folders below', async () => {
    const folder = await temporaryFolder()
    const own = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter', 'tensorboard', 'node_modules', '.old']
    for (const name of ['mine', 'a/b/c', 'd/e/f/g', ...own.map((each) => `${each}/theirs`)])
      await writeRun(join(folder, name))
    const runs = await Runs.open(folder)
    await runs.read()
    expect([runs.found.length, runs.shown().map(({ id }) => id)]).toEqual([2, ['a/b/c', 'mine']])
  })

  test('are told of with what of their files cannot be read or shown', async () => {
    const folder = await temporaryFolder()
    const [damaged, kept, none, deep] = ['damaged', 'kept', 'none', 'deep'].map((name) => join(folder, name)) as [
      ...[string, string, string, string],
    ]
    for (const name of ['metrics.jsonl', 'config.json', 'replay.gif'])
      await mkdir(join(damaged, name), { recursive: true })
    for (const name of ['checkpoints', 'config.json']) await mkdir(join(kept, name), { recursive: true })
    await mkdir(join(none, 'config.json'), { recursive: true }) // Nothing says that it is a run.
    await writeRun(deep, { metrics: metricLines({ loss: 1 }) })
    const settings = `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`
    await writeFile(join(deep, 'config.json'), `{"colonnade":"0.1.0","settings":${settings}}`)
    const runs = await Runs.open(folder)
    await runs.read()
    const unread = 'config.json cannot be read (a folder)'
    expect(runs.shown().map(({ id, notes, replayTime }) => [id, notes, replayTime])).toEqual([
      [
        'damaged',
        [unread, 'metrics.jsonl cannot be read (a folder)', 'replay.gif cannot be read (not a plain file)'],
        null,
      ],
      ['deep', [expect.stringMatching(/^config\.json cannot be shown \(.*call stack/)], null],
      ['kept', [unread], null],
    ])
    expect(runs.shown()[1]).toMatchObject({ settings: {}, lines: 1 })
    await rm(join(damaged, 'metrics.jsonl'), { recursive: true })
    await writeFile(join(damaged, 'metrics.jsonl'), metricLines({ loss: 1 }))
    await runs.read()
    expect(runs.shown()[0]).toMatchObject({ lines: 1, notes: [unread, expect.stringMatching(/^replay/)] })
  })

  test('are told of by the kind that they are, in words that are not too long', async () => {
    const folder = await temporaryFolder()
    const long = 'x'.repeat(2001)
    const parts = (...all: object[]) => Object.fromEntries(all.map((each, i) => [i, each]))
    for (const [name, config] of Object.entries(
      parts(
        { environment: { id: long }, algorithm: { id: long.slice(1) }, settings: { a: long, b: long.slice(1), c: 1 } },
        { environment: { id: 3 }, rl: { id: 'rl', parameters: { loss: 'grpo' } } },
        { sft: { id: 'sft', parameters: {} } },
        {},
      ),
    )) {
      await mkdir(join(folder, name))
      await writeFile(join(folder, name, 'config.json'), JSON.stringify({ colonnade: '0.0.1', ...config }))
    }
    const many = Object.fromEntries(Array.from({ length: 4096 }, (_, i) => [`f${i}`, 1]))
    await writeFile(join(folder, '3', 'metrics.jsonl'), metricLines(many))
    const runs = await Runs.open(folder)
    await runs.read()
    const [first, second, third, fourth] = runs.shown()
    const cut = `${long.slice(1)}…`
    expect(first).toMatchObject({ kind: 'episodes', environment: cut, algorithm: long.slice(1), notes: [] })
    expect(first!.settings).toMatchObject({ a: cut, b: long.slice(1), c: 1 })
    expect(second).toMatchObject({ kind: 'episodes', environment: '3', algorithm: 'grpo', notes: [] })
    expect(third).toMatchObject({ kind: 'conversations', environment: 'unknown', algorithm: 'sft', notes: [] })
    expect(fourth).toMatchObject({
      ...{ kind: 'episodes', environment: 'unknown', settings: {} },
      notes: ['metrics.jsonl has more than the 4096 metrics that are shown'],
    })
  })

  test.each([
    ['complete', 'complete'],
    ['solved', 'solved'],
    ['plateau', 'plateau'],
    ['interrupted', 'interrupted'],
    ['elsewhere', 'stopped'],
  ])('have ended as their summary says: %s', async (said, status) => {
    const folder = await temporaryFolder()
    await writeRun(join(folder, 'one'), { status: said })
    const runs = await Runs.open(folder)
    await runs.read()
    expect(runs.shown()[0]!.status).toBe(status)
  })

  test('of a look that is broken off are not told of', async () => {
    const folder = await temporaryFolder()
    await writeRun(join(folder, 'one'), { metrics: metricLines({ loss: 1 }) })
    const runs = await Runs.open(folder)
    const told: string[] = []
    await runs.read((id) => told.push(id), AbortSignal.abort())
    expect([told, runs.shown()]).toEqual([[], []])
    await runs.read((id) => told.push(id))
    expect([told, runs.shown()[0]!.lines]).toEqual([['one', 'one'], 1])
  })

  test('may be one, which the folder is, or none', async () => {
    const folder = await temporaryFolder()
    const none = await Runs.open(folder)
    await none.read()
    expect(none.shown()).toEqual([])
    await writeRun(join(folder, 'mine'))
    const one = await Runs.open(join(folder, 'mine'))
    await one.read()
    expect(one.shown().map(({ id }) => id)).toEqual(['mine'])
    await expect(Runs.open(join(folder, 'nowhere'))).rejects.toThrow(
      /nowhere: got no such folder, expected a folder with runs, like runs$/,
    )
  })
})
