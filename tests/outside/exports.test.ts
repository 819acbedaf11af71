/**
 * pyarrow, DuckDB, polars, Hugging Face's datasets and TRL read what we export. Asked by `npm run test:exports` alone; TRL where
 * COLONNADE_PYTHON names a Python that has it.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { sampleForms, writeParquet, writeSamplesAs } from '../../src/entries/data.ts'
import { cartPole, mlp, recordEpisodes, toArrow } from '../../src/index.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

type Row = Record<string, unknown>
interface Reading {
  readonly datasets: Row[]
  readonly trl: boolean | null
  readonly types: Record<string, string>
  readonly metadata: Record<string, string>
  readonly pyarrow: Row[]
  readonly duckdb: Row[]
  readonly polars: Row[]
}

let why: string | undefined
let reading: Record<string, Reading>
let episodes: Row[]

const messages = [
  { role: 'system', content: 'Add "é".' },
  { role: 'user', content: '1+1' },
]
const samples = [1, 0, null].map((reward, member) => ({
  ...{ id: `${member}`, epoch: 0, promptId: 0, groupIndex: 0, groundTruth: '2', response: `${2 - member}` },
  ...{ reward, turns: 1 },
}))

beforeAll(async () => {
  if (import.meta.env.MODE !== 'exports') {
    why = 'what reads our exports (npm run test:exports asks it)'
    return
  }
  const packages = ['pyarrow==26.0.1', 'duckdb==2.0.0', 'polars==2.1.0', 'datasets==5.2.0']
  const found = await findPython(packages, 'pyarrow, duckdb, polars, datasets')
  if ('why' in found) throw new Error(found.why)
  const folder = await temporaryFolder()
  const environment = cartPole({ maxEpisodeSteps: 9 })
  const policy = mlp({ hidden: [4] })
  const weights = new Float32Array(policy.build(environment.observationSpace, environment.actionSpace).numParameters)
  const table = await recordEpisodes({ environment, policy, weights, episodes: 3, seed: 5 })
  await writeParquet(join(folder, 'episodes.parquet'), table)
  episodes = JSON.parse(JSON.stringify([...(await toArrow(table))]))
  for (const form of sampleForms) {
    for (const [name, prompt] of [
      ['text', '1+1='],
      ['chat', messages],
    ] as const) {
      const asked = samples.map((sample) => ({ ...sample, prompt }))
      for (const ending of ['jsonl', 'parquet'])
        await writeSamplesAs(join(folder, `${form}-${name}.${ending}`), asked, form)
    }
  }
  const script = fileURLToPath(new URL('../support/read_exports.py', import.meta.url))
  const { code, stdout, stderr } = await attempt(found.python, [script, folder])
  if (code !== 0) throw new Error(stderr)
  reading = JSON.parse(stdout)
}, PYTHON_MS)

beforeEach((context) => {
  if (why) context.skip(why)
})

test('episodes have the same rows for each of them, with their types', () => {
  const { types, metadata, pyarrow, duckdb, polars, datasets } = reading['episodes.parquet']!
  expect(pyarrow).toEqual(episodes)
  for (const others of [duckdb, polars, datasets]) expect(others).toEqual(pyarrow)
  expect(types).toMatchObject({
    ...{ observation: 'list<element: float not null>', action: 'int32', reward: 'float', step: 'int32' },
    ...{ terminated: 'uint8', finalObservation: 'list<element: float not null>', value: 'float' },
  })
  expect(metadata).toMatchObject({ environment: 'CartPole-v1', layout: 'episodes' })
})

describe.each(['jsonl', 'parquet'])('samples as %s', (ending) => {
  test.each(['text', 'chat'] as const)('in each form, of %s', (name) => {
    const rowsOf = (form: string) => reading[`${form}-${name}.${ending}`]!.datasets
    const prompt = name === 'text' ? '1+1=' : messages
    const said = (content: string) => (name === 'text' ? content : [{ role: 'assistant', content }])
    expect(rowsOf('words')[2]).toEqual({ prompt, answer: '2', completion: '0', reward: null })
    expect(rowsOf('prompt-completion')[1]).toEqual({ prompt, completion: said('1'), reward: 0 })
    expect(rowsOf('preference')).toEqual([
      { prompt, chosen: said('2'), rejected: said('1'), score_chosen: 1, score_rejected: 0 },
    ])
    const asked = name === 'text' ? [{ role: 'user', content: '1+1=' }] : messages
    expect(rowsOf('messages')[0]).toEqual({ messages: [...asked, { role: 'assistant', content: '2' }], reward: 1 })
  })

  test('TRL knows which of them are conversations', (context) => {
    const trl = (name: string) => reading[`${name}.${ending}`]!.trl
    if (trl('messages-chat') === null) context.skip('TRL is not installed')
    for (const form of ['prompt-completion', 'preference']) {
      expect([trl(`${form}-text`), trl(`${form}-chat`)]).toEqual([false, true])
    }
    expect(trl('messages-text')).toBe(true)
  })
})
