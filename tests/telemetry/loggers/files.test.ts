/** Loggers that write files. */
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { csv, jsonl, type LogEntry, type LoggedTraining, tensorboard } from '../../../src/entries/loggers.ts'
import { crc32c } from '../../../src/telemetry/loggers/crc32c.ts'
import { entryOf, flatKeys, flatParts } from '../../../src/telemetry/loggers/entry.ts'
import { crc32c as bitwise, eventFiles, readEvents } from '../../support/event-file.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const training = (folder: string | null, done = 0): LoggedTraining => ({
  ...{ name: 'run', folder, done, metrics: {} },
  settings: { seed: 3, 'ppo.gamma': 0.95, annealed: true, environment: 'CartPole-v1' },
})
const entry = (step: number, values: Record<string, number>): LogEntry => ({
  ...{ step, time: 1_700_000_000_000 + step, values },
  ...{ distributions: {}, texts: {} },
})

describe('an entry', () => {
  test('is a line of metrics, flat, by kinds of values', () => {
    const line = {
      ...{ phase: 'rl', loss: -0.5, reward: null, entropy: Number.NaN, ratio: Number.POSITIVE_INFINITY },
      ...{ kl: { k1: 0.25, k3: 0 }, groupRewards: [1, 0, 0.5], drops: {}, empty: [] },
      ...{ unknown: [1, null], names: ['a'] }, // Neither is a distribution.
      staleness: { mean: 0.75, max: 2, counts: [4, 0, 2] },
    }
    const { time, ...rest } = entryOf(7, line)
    expect(time).toBeGreaterThan(1.6e12)
    expect(rest).toEqual({
      step: 7,
      values: {
        ...{ loss: -0.5, ratio: Number.POSITIVE_INFINITY, 'kl/k1': 0.25, 'kl/k3': 0 },
        ...{ 'staleness/mean': 0.75, 'staleness/max': 2 },
      },
      distributions: { groupRewards: { values: [1, 0, 0.5] }, staleness: { values: [0, 1, 2], counts: [4, 0, 2] } },
      texts: { phase: 'rl' },
    })
    expect(Object.keys(entryOf(1, { loss: 1 }, 'talker').values)).toEqual(['talker/loss'])
  })

  test('settings are flat keys', () => {
    expect(flatKeys({ gamma: 0.9, hidden: [8, 4], loss: { beta: null, on: false } }, 'rl.')).toEqual({
      ...{ 'rl.gamma': 0.9, 'rl.hidden': '8,4', 'rl.loss.on': false },
    })
  })

  test('what a run is made of is, too: each part by its name, with what is laid around an environment', () => {
    const part = (id: string, parameters: object = {}) => ({ id, parameters })
    const wrappers = [part('frameStack', { frames: 4 }), part('timeLimit')]
    const parts = {
      environment: { ...part('Coin-v0', { sides: [2, 3] }), wrappers },
      systems: [part('normalizeRewards', { clip: 10 }), part('own')],
      ...{ sft: part('sft', { updates: 3 }), rl: null, recorded: null, colonnade: '0.1.0', broken: [3, null, {}] },
    }
    expect(flatParts(parts)).toEqual({
      ...{ environment: 'Coin-v0', 'Coin-v0.sides': '2,3', wrappers: 'frameStack,timeLimit', 'frameStack.frames': 4 },
      ...{ systems: 'normalizeRewards,own', 'normalizeRewards.clip': 10, 'sft.updates': 3 },
    })
  })
})

test('the checksum is that of the standard, for any bytes', () => {
  expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283)
  const bytes = Uint8Array.from({ length: 1000 }, (_, i) => (i * i * 31) & 255)
  expect(crc32c(bytes)).toBe(bitwise(bytes))
})

describe('tensorboard', () => {
  test('writes numbers, distributions, texts that change, and settings', async () => {
    const folder = await temporaryFolder()
    const logger = await tensorboard().open(training(folder))
    const first: LogEntry = {
      ...{ ...entry(1, { loss: 0.1, steps: 123_456 }), texts: { phase: 'sft' } },
      distributions: { rewards: { values: [0, 1, 1, 4] }, age: { values: [0, 1, 2], counts: [5, 0, 3] } },
    }
    const same = { values: [2, 2] }
    const many = { values: Array.from({ length: 200_000 }, (_, i) => i) }
    const second = { ...entry(2, { loss: -3e-7 }), texts: { phase: 'sft' }, distributions: { same, many } }
    await logger.write([first, second])
    await logger.write([{ ...entry(300, { 'kl/k1': 1e9 }), texts: { phase: 'rl é' } }])
    await logger.close?.('complete')
    expect(logger.place).toBe(join(folder, 'tensorboard'))
    const [path, ...others] = eventFiles(join(folder, 'tensorboard'))
    expect(others).toEqual([])
    const events = readEvents(path!)
    expect(events[0]!.version).toBe('brain.Event:2')
    const { hyperparameters } = events[1]!
    expect(hyperparameters).toEqual({ seed: 3, 'ppo.gamma': 0.95, annealed: true, environment: 'CartPole-v1' })
    expect(events.at(-1)!.hyperparameters).toEqual({ status: 1 })
    const told = events.slice(2, -1)
    expect(told.map(({ step, scalars, texts }) => ({ step, scalars, texts }))).toEqual([
      { step: 1, scalars: { loss: Math.fround(0.1), steps: 123_456 }, texts: { phase: 'sft' } },
      { step: 2, scalars: { loss: Math.fround(-3e-7) }, texts: {} },
      { step: 300, scalars: { 'kl/k1': 1e9 }, texts: { phase: 'rl é' } },
    ])
    expect(told[0]!.time).toBeCloseTo(1_700_000_000.001, 5)
    const { rewards, age } = told[0]!.histograms
    expect(rewards).toMatchObject({ min: 0, max: 4, num: 4, sum: 6, squares: 18 })
    expect([rewards!.limits.at(-1), rewards!.limits.length, rewards!.counts.length]).toEqual([4, 30, 30])
    // The bucket of a value is the first whose limit is not below it.
    const bucket = (value: number) =>
      rewards!.counts[rewards!.limits.findIndex((limit) => value < limit || limit === 4)]
    expect([0, 1, 4].map(bucket)).toEqual([1, 2, 1])
    expect(age).toMatchObject({ num: 8, sum: 6, squares: 12 })
    expect(told[1]!.histograms.same).toMatchObject({ limits: [2], counts: [2] })
    expect(told[1]!.histograms.many).toMatchObject({ min: 0, max: 199_999, num: 200_000, sum: 100_000 * 199_999 })
  })

  test('of a training that goes on says which steps are void, in a file that is read after the others', async () => {
    const folder = await temporaryFolder()
    for (const done of [0, 4, 2]) await (await tensorboard().open(training(folder, done))).write([entry(done + 1, {})])
    const files = eventFiles(join(folder, 'tensorboard')).map(readEvents)
    expect(files.map((events) => events.at(-1)!.step)).toEqual([1, 5, 3])
    const starts = files.map((events) => events.filter(({ isSessionStart }) => isSessionStart).map(({ step }) => step))
    expect(starts).toEqual([[], [5], [3]])
  })

  test('needs a folder', async () => {
    await expect(async () => tensorboard().open(training(null))).rejects.toThrow(
      'logger tensorboard: got no path, and a training without a folder, expected a path, like tensorboard:tensorboard',
    )
  })
})

describe('csv', () => {
  test('has a column a number, in the order in which they appear, and goes on from where the training does', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'metrics.csv')
    const logger = await csv().open(training(folder))
    await logger.write([entry(1, { loss: 0.1, 'a,"b"': 2 }), entry(2, { loss: -1e-9 })])
    await logger.write([entry(3, { late: Number.POSITIVE_INFINITY, loss: 5 })])
    const lines = [
      'step,time,loss,"a,""b""",late',
      '1,1700000000001,0.1,2,',
      '2,1700000000002,-1e-9,,',
      '3,1700000000003,5,,inf',
      '',
    ]
    expect(await readFile(path, 'utf8')).toBe(lines.join('\n'))
    await writeFile(path, '4,1700', { flag: 'a' }) // Cut off by a crash.
    const next = await csv().open(training(folder, 2))
    await next.write([entry(3, { 'a,"b"': 7, loss: 6, later: 8 })])
    const expected = [`${lines[0]},later`, `${lines[1]},`, `${lines[2]},`, '3,1700000000003,6,7,,8', '']
    expect(await readFile(path, 'utf8')).toBe(expected.join('\n'))
  })

  test('has a line a row, whatever stands in a name', async () => {
    const path = join(await temporaryFolder(), 'all.csv')
    const logger = await csv({ path }).open(training(null))
    await logger.write([entry(1, { 'a\nb\rc': 1 })])
    await logger.write([entry(2, { later: 2 })])
    const lines = ['step,time,"a b c",later', '1,1700000000001,1,', '2,1700000000002,,2', '']
    expect(await readFile(path, 'utf8')).toBe(lines.join('\n'))
  })

  test('refuses the file of another training', async () => {
    const path = join(await temporaryFolder(), 'all.csv')
    await writeFile(path, 'mine')
    await expect(csv({ path }).open(training(null))).rejects.toThrow(`logger csv: got ${path}, which exists`)
    expect(await readFile(path, 'utf8')).toBe('mine')
  })
})

describe('jsonl', () => {
  const stepsOf = async (path: string) =>
    (await readFile(path, 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).step)

  test('rotates, keeps so many older files, and drops what a training that goes on does anew', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'log.jsonl')
    const size = Buffer.byteLength(`${JSON.stringify({ step: 1, time: 1_700_000_000_001, loss: 1 })}\n`)
    const options = { maxBytes: 2 * size, kept: 2 }
    const logger = await jsonl(options).open(training(folder))
    for (let step = 1; step <= 9; step++) await logger.write([entry(step, { loss: 1 })])
    expect([await stepsOf(path), await stepsOf(`${path}.1`), await stepsOf(`${path}.2`)]).toEqual([[9], [7, 8], [5, 6]])
    expect(existsSync(`${path}.3`)).toBe(false)
    await writeFile(path, '{"step":10', { flag: 'a' })
    const next = await jsonl(options).open(training(folder, 7))
    await next.write([entry(8, { loss: 2 })])
    expect([await stepsOf(path), await stepsOf(`${path}.1`)]).toEqual([[8], [7]])
    // Another training begins a file of its own.
    await (await jsonl(options).open(training(folder))).write([entry(1, {})])
    expect([await stepsOf(path), await stepsOf(`${path}.1`), await stepsOf(`${path}.2`)]).toEqual([[1], [8], [7]])
  })

  test('has a line that is longer than a file may be in a file of its own, and begins with no empty one', async () => {
    const path = join(await temporaryFolder(), 'log')
    const logger = await jsonl({ path, maxBytes: 10 }).open(training(null))
    await logger.write([entry(1, { loss: 1 })])
    expect(existsSync(`${path}.1`)).toBe(false)
    await logger.write([entry(2, { loss: 1 })])
    expect([await stepsOf(path), await stepsOf(`${path}.1`)]).toEqual([[2], [1]])
    // Nor is one kept from which all lines were dropped.
    const next = await jsonl({ path, maxBytes: 10 }).open({ ...training(null), done: 1 })
    await next.write([entry(2, { loss: 3 })])
    expect([await stepsOf(path), await stepsOf(`${path}.1`), existsSync(`${path}.2`)]).toEqual([[2], [1], false])
  })

  test('has numbers, texts and distributions by their names', async () => {
    const path = join(await temporaryFolder(), 'log')
    const logger = await jsonl({ path }).open(training(null))
    await logger.write([
      { ...entry(1, { 'kl/k1': 0.5 }), texts: { phase: 'rl' }, distributions: { r: { values: [1] } } },
    ])
    const line = { step: 1, time: 1_700_000_000_001, 'kl/k1': 0.5, phase: 'rl', r: { values: [1] } }
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual(line)
  })
})
