import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Table } from 'apache-arrow'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { loadPolicy, readArrow, recordEpisodes, startRun, VERSION, writeArrow } from '../../src/index.ts'
import { readCheckpoint } from '../../src/training/checkpoint.ts'
import { start } from '../support/command.ts'
import { smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Formats promise that others can read them: so others do, here, with these versions. */
const PACKAGES = ['pyarrow==26.0.1', 'duckdb==2.0.0', 'polars==2.1.0', 'safetensors==0.8.0', 'numpy==2.4.6']
const IMPORTS = ['-c', 'import pyarrow, duckdb, polars, safetensors.numpy']
const INSTALL_MS = 240_000

/** A Python that has the packages, made here if there is none yet; or why there is none. */
async function findPython(): Promise<{ python: string } | { why: string }> {
  const named = process.env.COLONNADE_PYTHON
  if (named) {
    const { code, stderr } = await attempt(named, IMPORTS)
    return code === 0 ? { python: named } : { why: `COLONNADE_PYTHON=${named} has not what it takes: ${stderr.trim()}` }
  }
  const cache = fileURLToPath(new URL('../../node_modules/.cache/colonnade-python', import.meta.url))
  const python = join(cache, 'bin/python')
  if (existsSync(python) && (await attempt(python, IMPORTS)).code === 0) return { python }
  console.warn(`making a Python with ${PACKAGES.join(' ')} in ${cache}: once, some minutes at most`)
  await rm(cache, { recursive: true, force: true })
  const deadline = AbortSignal.timeout(INSTALL_MS)
  for (const [program, words] of [
    ['python3', ['-m', 'venv', cache]],
    [python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--only-binary=:all:', ...PACKAGES]],
    [python, IMPORTS],
  ] as const) {
    const { code, stderr } = await attempt(program, words, deadline)
    if (code === 0) continue
    await rm(cache, { recursive: true, force: true })
    const reason = deadline.aborted ? `took more than ${INSTALL_MS / 1000} s` : stderr.trim().split('\n').at(-1)
    return { why: `${program} ${words.slice(0, 3).join(' ')}: ${reason}` }
  }
  return { python }
}

async function attempt(program: string, words: readonly string[], signal?: AbortSignal) {
  return start(program, words, { timeout: INSTALL_MS, ...(signal && { signal }) }).ended.catch((cause: Error) => ({
    code: null,
    stdout: '',
    stderr: cause.message,
  }))
}

interface ArrowReading {
  rows: number
  types: Record<string, string>
  columns: Record<string, unknown[]>
}

interface Reading {
  file: ArrowReading & { nullable: string[]; metadata: Record<string, string>; batches: number }
  stream: Omit<Reading['file'], 'batches'>
  rollout: Reading['stream']
  polars: ArrowReading
  duckdb: { types: Record<string, string>; rows: number; sums: (number | string)[] }
  tensors: Record<string, { type: string; shape: number[]; sha256: string; first: number[] }>
}

let why: string | undefined
let run: string
let inJavaScript: Table
let reading: Reading

beforeAll(async () => {
  const found = await findPython()
  if ('why' in found) {
    why = `reading our files from Python (${found.why})`
    console.warn(`SKIPPED: ${why}`)
    return
  }
  const folder = await temporaryFolder()
  run = join(folder, 'run')
  await (await startRun(await smallRun('seed=3', 'environment.maxEpisodeSteps=30'), run)).train()
  const { environment, policy, weights, update } = await loadPolicy(run)
  const table = await recordEpisodes({ environment, policy, weights, version: update, episodes: 12, seed: 6 })
  const [file, stream] = [join(folder, 'a.arrow'), join(folder, 'a.arrows')]
  const rollout = join(run, 'rollouts/00000008.arrow')
  await writeArrow(file, table)
  await writeArrow(stream, table, { format: 'stream' })
  inJavaScript = await readArrow(file)
  const script = fileURLToPath(new URL('../support/read_outside.py', import.meta.url))
  const safetensors = join(run, 'checkpoints/00000008/columns.safetensors')
  const { code, stdout, stderr } = await attempt(found.python, [script, file, stream, rollout, safetensors])
  if (code !== 0) throw new Error(stderr)
  reading = JSON.parse(stdout)
}, INSTALL_MS + 60_000)

beforeEach((context) => {
  if (why) context.skip(why)
})

/** The columns as plain numbers, as Python prints them. */
function columns(table: Table): Record<string, unknown[]> {
  return Object.fromEntries(
    table.schema.fields.map(({ name }) => [
      name,
      [...table.getChild(name)!].map((value) => (typeof value === 'number' ? value : [...value])),
    ]),
  )
}

describe('pyarrow', () => {
  test('finds each field of an Arrow file with its type, and none that may be null', () => {
    expect(reading.file.types).toEqual({
      step: 'int32',
      lane: 'uint32',
      episode: 'uint32',
      observation: 'fixed_size_list<item: float not null>[4]',
      action: 'int32',
      reward: 'float',
      terminated: 'uint8',
      truncated: 'uint8',
      valid: 'uint8',
      logprob: 'float',
      value: 'float',
      nextValue: 'float',
      episodeReturn: 'float',
      version: 'uint32',
    })
    expect(reading.file.nullable).toEqual([])
    expect(reading.file.batches).toBe(1)
  })

  test('finds as many rows as JavaScript, with the same numbers', () => {
    expect(reading.file.rows).toBeGreaterThan(12)
    expect(reading.file.rows).toBe(inJavaScript.numRows)
    expect(reading.file.columns).toEqual(columns(inJavaScript))
  })

  test('finds the metadata of the schema', () => {
    const { observationSpace, actionSpace, ...rest } = reading.file.metadata
    expect(rest).toEqual({
      environment: 'CartPole-v1',
      seed: '6',
      gamma: 'null',
      numLanes: '12',
      colonnade: VERSION,
    })
    expect(JSON.parse(actionSpace!)).toMatchObject({ kind: 'discrete', n: 2 })
    expect(JSON.parse(observationSpace!)).toMatchObject({ kind: 'box', shape: [4] })
  })

  test('finds in the rollout of a training what the algorithm wrote, and by which discount', async () => {
    const { rows, types, nullable, metadata, columns: found } = reading.rollout
    expect(rows).toBe(256)
    expect(types).toEqual({ ...reading.file.types, advantage: 'float', return: 'float' })
    expect(nullable).toEqual([])
    expect(metadata).toMatchObject({ environment: 'CartPole-v1', seed: '3', gamma: '0.95', numLanes: '8' })
    expect(found).toEqual(columns(await readArrow(join(run, 'rollouts/00000008.arrow'))))
  })

  test('reads the stream format as the same table', () => {
    const { batches, ...file } = reading.file
    expect(reading.stream).toEqual(file)
  })
})

describe('polars', () => {
  test('finds the same rows in an Arrow file, with its own types for them', () => {
    expect(reading.polars.rows).toBe(inJavaScript.numRows)
    expect(reading.polars.types).toMatchObject({
      step: 'Int32',
      lane: 'UInt32',
      observation: expect.stringMatching(/^Array\(Float32, .*4/),
      action: 'Int32',
      reward: 'Float32',
      terminated: 'UInt8',
    })
    expect(reading.polars.columns).toEqual(columns(inJavaScript))
  })
})

describe('duckdb', () => {
  test('counts and sums an Arrow file as JavaScript does, with its own types', () => {
    const { types, rows, sums } = reading.duckdb
    expect(types).toMatchObject({
      step: 'INTEGER',
      lane: 'UINTEGER',
      observation: 'FLOAT[4]',
      reward: 'FLOAT',
      terminated: 'UTINYINT',
    })
    expect(rows).toBe(inJavaScript.numRows)
    const column = columns(inJavaScript) as Record<string, number[]>
    const sum = (values: number[]) => values.reduce((total, value) => total + value, 0)
    expect(sums.map(Number)).toEqual([
      sum(column.reward!),
      sum(column.terminated!),
      sum(column.truncated!),
      sum(column.valid!),
      Math.max(...column.step!),
      11,
      sum(column.action!),
      expect.closeTo(sum(column.observation!.map((row) => (row as unknown as number[])[0]!)), 6),
    ])
    expect(Number(sums[1]) + Number(sums[2])).toBe(12)
  })
})

describe('safetensors', () => {
  test('reads every tensor of a checkpoint with the type, shape and bytes that it has in JavaScript', async () => {
    const { tensors } = await readCheckpoint(run)
    const names = { f32: 'float32', f64: 'float64', i32: 'int32', u32: 'uint32', u8: 'uint8' }
    expect(tensors.size).toBeGreaterThan(10)
    expect(reading.tensors).toEqual(
      Object.fromEntries(
        [...tensors.values()].map(({ name, type, shape, bytes }) => [
          name,
          {
            type: names[type],
            shape,
            sha256: createHash('sha256').update(bytes).digest('hex'),
            first: expect.any(Array),
          },
        ]),
      ),
    )
  })

  test('gives the weights by the names of their parameters', async () => {
    const { weights, policy, environment } = await loadPolicy(run)
    for (const { name, offset, shape } of policy.build(environment.observationSpace, environment.actionSpace)
      .parameters) {
      const tensor = reading.tensors[`mlp.weights.${name}`]!
      expect(tensor.shape).toEqual(shape)
      expect(tensor.first).toEqual([...weights.subarray(offset, offset + tensor.first.length)])
    }
  })
})
