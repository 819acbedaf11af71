import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Table } from 'apache-arrow'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { readSafetensors, type TensorType, tensorOf, tensorValues, writeSafetensors } from '../../src/entries/data.ts'
import { loadPolicy, readArrow, recordEpisodes, startRun, VERSION, writeArrow } from '../../src/index.ts'
import { readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { Numbers } from '../kernels/calls.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
import { smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

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

/** What a file that we wrote says of itself. */
const SEAL = /^colonnade-sha256:[0-9a-f]{64} colonnade-sha256:[0-9a-f]{64}$/

let why: string | undefined
let python: string
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
  python = found.python
  const folder = await temporaryFolder()
  run = join(folder, 'run')
  await (await startRun(await smallRun('seed=3', 'environment.maxEpisodeSteps=30'), run)).train()
  const { update: version, ...trained } = await loadPolicy(run)
  const table = await recordEpisodes({ ...trained, version, episodes: 12, seed: 6 })
  const [file, stream] = [join(folder, 'a.arrow'), join(folder, 'a.arrows')]
  const rollout = join(run, 'rollouts/00000008.arrow')
  await writeArrow(file, table)
  await writeArrow(stream, table, { format: 'stream' })
  inJavaScript = await readArrow(file)
  const safetensors = join(run, 'checkpoints/00000008/columns.safetensors')
  reading = await inPython('read_outside.py', file, stream, rollout, safetensors)
}, PYTHON_MS)

/** What a script of tests/support prints as JSON. */
async function inPython<T>(script: string, ...words: string[]): Promise<T> {
  const { code, stdout, stderr } = await attempt(python, [
    fileURLToPath(new URL(`../support/${script}`, import.meta.url)),
    ...words,
  ])
  if (code !== 0) throw new Error(stderr)
  return JSON.parse(stdout)
}

beforeEach((context) => {
  if (why) context.skip(why)
})

/** The columns as plain numbers, as Python prints them. */
function columns(table: Table): Record<string, unknown[]> {
  return Object.fromEntries(
    table.schema.fields.map(({ name }) => [
      name,
      [...table.getChild(name)!].map((value) => (typeof value === 'number' || value === null ? value : [...value])),
    ]),
  )
}

describe('pyarrow', () => {
  test('finds each field of an Arrow file with its type, and that only final observations may be null', () => {
    expect(reading.file.types).toEqual({
      step: 'int32',
      lane: 'uint32',
      episode: 'uint32',
      observation: 'fixed_size_list<item: float not null>[4]',
      finalObservation: 'list<item: float not null>',
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
    expect(reading.file.nullable).toEqual(['finalObservation'])
    expect(reading.file.batches).toBe(1)
  })

  test('finds as many rows as JavaScript, with the same numbers', () => {
    expect(reading.file.rows).toBeGreaterThan(12)
    expect(reading.file.rows).toBe(inJavaScript.numRows)
    expect(reading.file.columns).toEqual(columns(inJavaScript))
  })

  test('finds one observation more than steps in every episode: the last row has the final one', () => {
    const { finalObservation, terminated, truncated } = reading.file.columns
    const isOver = terminated!.map((flag, row) => Number(flag) + Number(truncated![row]) > 0)
    expect(finalObservation!.map((value) => (value as number[] | null)?.length)).toEqual(
      isOver.map((over) => (over ? 4 : undefined)),
    )
  })

  test('finds the metadata of the schema', async () => {
    const { observationSpace, actionSpace, policy, 'colonnade.sha256': seal, ...rest } = reading.file.metadata
    expect(seal).toMatch(SEAL)
    const { weights } = await loadPolicy(run)
    expect(rest).toEqual({
      environment: 'CartPole-v1',
      seed: '6',
      gamma: 'null',
      layout: 'episodes',
      numLanes: '12',
      update: '8',
      checkpoint: join(run, 'checkpoints/00000008'),
      colonnade: VERSION,
      weights: createHash('sha256')
        .update(Buffer.from(Float32Array.from(weights).buffer))
        .digest('hex'),
    })
    expect(JSON.parse(policy!)).toMatchObject({ id: 'mlp', parameters: { activation: 'tanh' } })
    expect(JSON.parse(actionSpace!)).toMatchObject({ kind: 'discrete', n: 2 })
    expect(JSON.parse(observationSpace!)).toMatchObject({ kind: 'box', shape: [4] })
  })

  test('finds in the rollout of a training what the algorithm wrote, and by which discount', async () => {
    const { rows, types, nullable, metadata, columns: found } = reading.rollout
    expect(rows).toBe(256)
    expect(types).toEqual({ ...reading.file.types, advantage: 'float', return: 'float' })
    expect(nullable).toEqual(['finalObservation'])
    expect(metadata).toMatchObject({
      environment: 'CartPole-v1',
      seed: '3',
      gamma: '0.95',
      numLanes: '8',
      update: '7',
      checkpoint: 'null',
    })
    expect(found).toEqual(columns(await readArrow(join(run, 'rollouts/00000008.arrow'))))
  })

  test('reads the stream format as the same table', () => {
    const { batches, ...file } = reading.file
    const metadata = { ...file.metadata, 'colonnade.sha256': expect.stringMatching(SEAL) }
    expect(reading.stream).toEqual({ ...file, metadata })
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
    const names: Partial<Record<TensorType, string>> = {
      F32: 'float32',
      F64: 'float64',
      I32: 'int32',
      U32: 'uint32',
      U8: 'uint8',
    }
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

  test('finds the roundings of numpy and ml_dtypes in our f16 and bf16, and we its numbers in its own', async () => {
    const folder = await temporaryFolder()
    const [ours, theirs] = [join(folder, 'ours.safetensors'), join(folder, 'theirs.safetensors')]
    // Any bits of an f32, but none that f16 and bf16 must round to infinity.
    const random = new Numbers(7)
    const bits = Uint32Array.from(
      { length: 200_000 },
      () => random.whole(0, 2 ** 16 - 1) * 65536 + random.whole(0, 65535),
    )
    const any = new Float32Array(bits.buffer).map((x) => (Math.abs(x) > 3.38e38 ? 0 : x))
    const small = Float32Array.from({ length: 200_000 }, () => random.uniform(-1, 1) * 2 ** random.whole(-26, 15))
    const pairs = { BF16: any, F16: small } as const
    const tensors = Object.entries(pairs).flatMap(([type, x]) => [
      tensorOf(`${type}.exact`, x),
      tensorOf(type, x, [x.length / 2, 2], type as 'F16'),
    ])
    await writeSafetensors(ours, tensors, { made: 'in JavaScript' })
    expect(await inPython('exchange_safetensors.py', ours, theirs)).toEqual({
      metadata: { made: 'in JavaScript', 'colonnade.sha256': expect.stringMatching(SEAL) },
      shapes: { BF16: [100_000, 2], F16: [100_000, 2] },
      differing: { BF16: 0, F16: 0 },
    })

    const { tensors: found, metadata } = await readSafetensors(theirs)
    expect(metadata).toEqual({ made: 'in Python' })
    for (const type of ['F16', 'BF16']) {
      const [narrow, wide] = [type, `${type}.wide`].map((name) => tensorValues(found.get(name)!) as Float32Array)
      expect([found.get(type)!.type, found.get(type)!.shape, narrow!.length]).toEqual([type, [256, 256], 65536])
      expect(narrow).toEqual(wide) // NaN equals NaN, and 0 is not −0.
    }
    const values = (name: string) => [
      found.get(name)!.type,
      found.get(name)!.shape,
      [...tensorValues(found.get(name)!)],
    ]
    expect(values('bool')).toEqual(['BOOL', [3], [1, 0, 1]])
    expect(values('i64')).toEqual(['I64', [2, 1], [-(2n ** 63n), 2n ** 63n - 1n]])
    expect(values('u64')).toEqual(['U64', [1], [2n ** 64n - 1n]])
    expect(values('i16')).toEqual(['I16', [1], [-32768]])
    expect(values('u16')).toEqual(['U16', [1], [65535]])
    expect(values('i8')).toEqual(['I8', [1], [-128]])
    expect(values('scalar')).toEqual(['F64', [], [0.1]])
    expect(values('empty')).toEqual(['F32', [0, 2], []])
  })
})
