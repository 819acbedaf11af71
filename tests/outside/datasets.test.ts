import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { exportSamplesToHuggingfaceFormat, samplesOf } from '../../src/entries/compat.ts'
import { Trajectories, writeTrajectories } from '../../src/entries/data.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { trajectory } from '../support/trajectories.ts'

type Row = Record<string, unknown>
interface Reading {
  pyarrow: {
    types: Record<string, string>
    nullable: string[]
    metadata: Record<string, string>
    rows: Row[]
  }
  datasets: { columns: string[]; rows: Row[] }
  samples: Row[]
}

let why: string | undefined
let reading: Reading

beforeAll(async () => {
  const found = await findPython(['pyarrow==26.0.1', 'datasets==5.2.0'], 'pyarrow, datasets')
  if ('why' in found) {
    why = `reading our trajectories with datasets (${found.why})`
    console.warn(`SKIPPED: ${why}`)
    return
  }
  const folder = await temporaryFolder()
  const path = join(folder, 'trajectories.arrow')
  await writeTrajectories(path, trajectories(), {
    ...{ environment: 'text/reverse', model: 'languageModel', tokenizer: 'bytes', algorithm: 'grpo', seed: 3 },
    promptOf: (promptId) => JSON.stringify([{ role: 'user', content: `${promptId} é` }]),
    answerOf: (promptId) => (promptId === 0 ? 'ä' : null),
    decode: (ids) => ids.join(' '),
  })
  const samples = join(folder, 'samples.jsonl')
  const examples = { example: () => ({ prompt: [{ role: 'user', content: 'é' }] }) }
  const tokenizer = { decode: (ids: ArrayLike<number>) => Array.from(ids).join(' ') }
  await exportSamplesToHuggingfaceFormat(samplesOf(trajectories(), examples, tokenizer), samples)
  const script = fileURLToPath(new URL('../support/read_trajectories.py', import.meta.url))
  const { code, stdout, stderr } = await attempt(found.python, [script, path, samples, join(folder, 'cache')])
  if (code !== 0) throw new Error(stderr)
  reading = JSON.parse(stdout)
}, PYTHON_MS)

beforeEach((context) => {
  if (why) context.skip(why)
})

function trajectories(): Trajectories {
  const all = new Trajectories()
  const shorter = { token: [9], lossMask: [1], logprob: [-0.25], version: [5], turn: [0] }
  all.append(trajectory({ group: 1, promptId: 4, ...shorter, reward: null, error: 'no judge', stopReason: 'length' }))
  all.append(trajectory({ components: { right: 0.5 } }))
  all.setAdvantages([Number.NaN, 2])
  return all
}

/** What the two trajectories are in the table, by group. */
const ROWS: Row[] = [
  {
    ...{
      source: '',
      epoch: 0,
      group: 0,
      member: 0,
      segment: 0,
      promptId: 0,
      prompt: '[{"role":"user","content":"0 é"}]',
      answer: 'ä',
      completion: '7 8',
      turns: 1,
      cutTurns: 0,
      droppedReplies: 0,
    },
    ...{ tokens: [5, 6, 7, 8], lossMask: [0, 0, 1, 1], logprobs: [null, null, -0.5, -1], versions: [-1, -1, 0, 0] },
    ...{
      turn: [0, 0, 0, 0],
      turnRewards: [],
      reward: 1,
      advantage: 2,
      stopReason: 'stop',
      error: null,
      'reward/right': 0.5,
    },
  },
  {
    ...{
      source: '',
      epoch: 0,
      group: 1,
      member: 0,
      segment: 0,
      promptId: 4,
      prompt: '[{"role":"user","content":"4 é"}]',
      answer: null,
      completion: '9',
      turns: 1,
      cutTurns: 0,
      droppedReplies: 0,
    },
    ...{ tokens: [9], lossMask: [1], logprobs: [-0.25], versions: [5] },
    ...{
      turn: [0],
      turnRewards: [],
      reward: null,
      advantage: null,
      stopReason: 'length',
      error: 'no judge',
      'reward/right': null,
    },
  },
]

describe('pyarrow', () => {
  test('finds lists of tokens with their types, and null only where something may be unknown', () => {
    const { types, nullable, metadata, rows } = reading.pyarrow
    expect(types).toEqual({
      ...{
        source: 'string',
        epoch: 'int32',
        group: 'int32',
        member: 'int32',
        segment: 'int32',
        promptId: 'int32',
        prompt: 'string',
        answer: 'string',
        completion: 'string',
        turns: 'int32',
        cutTurns: 'int32',
        droppedReplies: 'int32',
      },
      tokens: 'list<item: int32 not null>',
      lossMask: 'list<item: uint8 not null>',
      logprobs: 'list<item: float>',
      versions: 'list<item: int32 not null>',
      turn: 'list<item: int32 not null>',
      turnRewards: 'list<item: double>',
      ...{ reward: 'double', advantage: 'double', stopReason: 'string', error: 'string', 'reward/right': 'double' },
    })
    expect(nullable).toEqual(['answer', 'completion', 'reward', 'advantage', 'error', 'reward/right'])
    expect(metadata).toMatchObject({ algorithm: 'grpo', tokenizer: 'bytes', versionMin: '0', versionMax: '5' })
    expect(rows).toEqual(ROWS)
  })
})

describe('datasets', () => {
  test('loads the same rows as anybody would, by load_dataset', () => {
    expect(reading.datasets.columns).toEqual(Object.keys(ROWS[0]!))
    expect(reading.datasets.rows).toEqual(ROWS)
  })

  test('loads samples that were exported for it, as the prompts and completions that TRL takes', () => {
    const prompt = [{ role: 'user', content: 'é' }]
    expect(reading.samples).toEqual([
      { prompt, completion: [{ role: 'assistant', content: '7 8' }], reward: 1 },
      { prompt, completion: [{ role: 'assistant', content: '9' }], reward: null },
    ])
  })
})
