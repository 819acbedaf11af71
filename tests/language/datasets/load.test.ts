import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import zlib from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  loadDatasetWithAnswers,
  loadExamples,
  loadRlPrompts,
  loadSftDataset,
} from '../../../src/language/datasets/load.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const golden = (name: string) => fileURLToPath(new URL(`../../golden/datasets/${name}`, import.meta.url))
const columns = { prompt: 'question' } as const

async function fileOf(text: string, name = 'rows.jsonl'): Promise<string> {
  const path = join(await temporaryFolder(), name)
  await writeFile(path, text)
  return path
}

/** The rows that tests/golden/record_datasets.py wrote, as examples. */
const questions = Array.from({ length: 7 }, (_, i) => ({
  prompt: `How many letters has ${'a'.repeat(i + 1)}é?`,
  answer: String(i + 2),
  level: i === 1 ? null : i + 1,
}))
const conversations = Array.from({ length: 3 }, (_, i) => ({
  messages: [
    { role: 'user', content: `${i} + 1` },
    { role: 'assistant', content: String(i + 1) },
  ],
}))

describe('Parquet that pyarrow wrote', () => {
  test.each(['none', 'snappy', 'gzip', 'brotli'])('is read when compressed by %s', async (compression) => {
    expect(await loadRlPrompts(golden(`questions-${compression}.parquet`), { columns })).toEqual(questions)
  })

  test('is read when compressed by zstd where Node can, and named where it cannot', async () => {
    const loading = loadRlPrompts(golden('questions-zstd.parquet'), { columns })
    if ('zstdDecompressSync' in zlib) expect(await loading).toEqual(questions)
    else await expect(loading).rejects.toThrow(/questions-zstd\.parquet: got .*ZSTD/)
  })

  test.each([
    ['@[0:3]', 0, 3],
    ['@[2:5]', 2, 5],
    ['@[4:]', 4, 7],
    ['@[:1]', 0, 1],
    ['@[5:100]', 5, 7],
  ])('is read as the slice %s, over the borders of its row groups', async (slice, from, to) => {
    const source = golden(`questions-snappy.parquet${slice}`)
    expect(await loadDatasetWithAnswers(source, { columns })).toEqual(questions.slice(from, to))
    expect(await loadDatasetWithAnswers(source, { columns, limit: 1 })).toEqual(questions.slice(from, from + 1))
  })

  test('with whole numbers past 2^53 is an error, not a number near it', async () => {
    const loading = loadRlPrompts(golden('large.parquet'))
    await expect(loading).rejects.toThrow(
      /large\.parquet, row 0: got 1152921504606846976, expected whole numbers below/,
    )
  })

  test('that is damaged, or not Parquet, is named', async () => {
    const path = await fileOf('not parquet at all, but long enough', 'x.parquet')
    await expect(loadRlPrompts(path)).rejects.toThrow(/x\.parquet: got .*expected a Parquet file that can be read/)
    const missing = loadRlPrompts(join(path, '..', 'missing.parquet'))
    await expect(missing).rejects.toThrow(/missing\.parquet: got ENOENT/)
    await expect(missing).rejects.toThrow(InputError)
  })
})

describe('conversations', () => {
  test.each(['conversations.parquet', 'conversations.arrow'])('are read from %s of datasets', async (name) => {
    expect(await loadSftDataset(golden(name))).toEqual(conversations)
    expect(await loadSftDataset(golden(`${name}@[1:2]`))).toEqual(conversations.slice(1, 2))
  })

  test('in which the assistant says nothing are errors: there is nothing to learn', async () => {
    const path = await fileOf('{"messages": [{"role": "user", "content": "a"}]}')
    await expect(loadSftDataset(path)).rejects.toThrow(/:1, messages: got roles \["user"\]/)
  })
})

describe('datasets for supervised fine-tuning', () => {
  test.each<[string, string, unknown]>([
    ['text', '{"text": "a"}', { text: 'a' }],
    ['messages', JSON.stringify(conversations[0]), conversations[0]],
    ['prompt and completion', '{"prompt": "1+1=", "completion": "2"}', { prompt: '1+1=', answer: '2' }],
    [
      'prompt and completion as messages',
      '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}',
      { prompt: [{ role: 'user', content: 'a' }], answer: 'b' },
    ],
  ])("are of TRL's schema %s", async (_, line, example) => {
    expect(await loadSftDataset(await fileOf(`${line}\n${line}\n`))).toEqual([example, example])
    expect(await loadSftDataset(await fileOf(`[${line}]`, 'rows.json'))).toEqual([example])
  })

  test('have columns by other names, and of several schemas the one that is meant', async () => {
    const path = await fileOf('{"question": "q", "reply": "r", "text": "t"}')
    const renamed = { prompt: 'question', completion: 'reply' }
    expect(await loadSftDataset(path, { columns: renamed })).toEqual([{ prompt: 'q', answer: 'r' }])
    expect(await loadSftDataset(path, { columns: { text: 'reply' } })).toEqual([{ text: 'r' }])
    const both = await fileOf('{"prompt": "p", "completion": "c", "text": "t"}')
    await expect(loadSftDataset(both)).rejects.toThrow(/of several schemas/)
    expect(await loadSftDataset(both, { columns: { text: 'text' } })).toEqual([{ text: 't' }])
  })

  test.each<[string, RegExp]>([
    ['{"question": "a"}', /:1: got the columns question, expected text, messages, or prompt and completion/],
    ['{"prompt": "a"}', /:1: got the columns prompt/],
    ['{"text": "a"}\n{"prompt": "a", "completion": "b"}', /:2, text: got none/],
    ['{"text": ""}', /:1, text: got ""/],
    ['{"prompt": "a", "completion": ""}', /:1, completion: got ""/],
    ['{"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}', /:1, completion: got \[/],
    ['{"prompt": [{"role": "user", "content": "a"}], "completion": "b"}', /:1, completion: got "b"/],
    [
      '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "user", "content": "b"}]}',
      /:1, completion: got roles \["user"\], expected one message, of the assistant/,
    ],
    ['{"messages": [{"role": "assistant"}]}', /:1, messages\[0\]: got/],
  ])('name the line that is of no schema, or of another: %s', async (text, message) => {
    const loading = loadSftDataset(await fileOf(text))
    await expect(loading).rejects.toThrow(message)
    await expect(loading).rejects.toThrow(InputError)
  })
})

describe('prompts for reinforcement learning', () => {
  test('keep their other columns, and have an answer where there is one', async () => {
    const path = await fileOf('{"prompt": "a", "level": 3}\n{"prompt": "b", "answer": 7, "tags": ["x"]}')
    expect(await loadRlPrompts(path)).toEqual([
      { prompt: 'a', level: 3 },
      { prompt: 'b', answer: '7', tags: ['x'] },
    ])
    await expect(loadDatasetWithAnswers(path)).rejects.toThrow(/:1, column: got "answer"/)
  })

  test.each<[string, RegExp]>([
    ['', /rows\.jsonl: got no row, expected at least one/],
    ['\n\n', /rows\.jsonl: got no row/],
    ['{"question": "a"}', /:1, column: got "prompt", expected one of question/],
    ['{"prompt": "a"}\n{"prompt": null}', /:2, prompt: got none/],
    ['{"prompt": "a"}\n{"prompt": "b"', /:2: got .*expected a line of JSON/],
    ['{"prompt": "a"}\n["b"]', /:2: got \["b"\], expected an object/],
    ['{"prompt": "a", "answer": {"text": "b"}}', /:1, answer: got/],
  ])('name the line that is none: %j', async (text, message) => {
    await expect(loadRlPrompts(await fileOf(text))).rejects.toThrow(message)
  })

  test('that are mapped name the column of the file in errors', async () => {
    const path = await fileOf('{"question": ""}')
    await expect(loadRlPrompts(path, { columns })).rejects.toThrow(/:1, question: got ""/)
    await expect(loadRlPrompts(path, { columns: { promt: 'question' } as never })).rejects.toThrow(
      /columns: got "promt".*did you mean "prompt"/,
    )
  })

  test.each<[string, RegExp]>([
    ['rows.csv', /got \.csv, expected a path that ends in \.jsonl/],
    ['rows', /got no ending/],
    ['rows.jsonl@[3:1]', /the slice @\[3:1\]/],
    ['rows.jsonl@[1:1]', /the slice/],
    ['rows.jsonl@[-2:]', /the slice @\[-2:\]/],
    ['rows.jsonl@[a:b]', /the slice/],
    ['rows.jsonl@[1:2', /the slice/],
  ])('of a path that is none are an error: %s', async (path, message) => {
    await expect(loadRlPrompts(path)).rejects.toThrow(message)
  })

  test('of a slice that no row is in are an error, as is a limit of none', async () => {
    const path = await fileOf('{"prompt": "a"}')
    await expect(loadRlPrompts(`${path}@[1:]`)).rejects.toThrow(/got no row/)
    await expect(loadRlPrompts(path, { limit: 0 })).rejects.toThrow('limit: got 0')
    expect(await loadRlPrompts(`${path}@[0:9]`)).toEqual([{ prompt: 'a' }])
    const list = await fileOf('{"prompt": "a"}', 'rows.json')
    await expect(loadRlPrompts(list)).rejects.toThrow(/expected a list of rows/)
  })
})

describe('examples for whatever training', () => {
  const lines = (...rows: object[]) => fileOf(rows.map((row) => JSON.stringify(row)).join('\n'))

  test('are prompts with answers and further columns, by the names of the file', async () => {
    const path = await lines({ question: 'a', answer: 1, level: 3 }, { question: 'b', level: 4 })
    expect(await loadExamples(path, { columns })).toEqual([
      { prompt: 'a', answer: '1', level: 3 },
      { prompt: 'b', level: 4 },
    ])
    expect(await loadExamples(path, { columns, limit: 1 })).toHaveLength(1)
  })

  test('have a completion where there is no answer: a text, or one message of the assistant', async () => {
    const asked = [{ role: 'user', content: 'a' }]
    const said = (...messages: object[]) => lines({ prompt: asked, completion: messages })
    const assistant = { role: 'assistant', content: 'b' }
    expect(await loadExamples(await lines({ prompt: 'a', completion: 'b' }))).toEqual([{ prompt: 'a', answer: 'b' }])
    expect(await loadExamples(await said(assistant))).toMatchObject([{ prompt: asked, answer: 'b' }])
    await expect(loadExamples(await said(assistant, assistant))).rejects.toThrow(/completion.*one message/)
  })

  test('are conversations up to the last thing that the assistant says, or texts as answers to nothing', async () => {
    const [messages, thanks] = [conversations[0]!.messages, { role: 'user', content: 'thanks' }]
    expect(await loadExamples(await lines({ messages: [...messages, thanks] }))).toEqual([{ prompt: messages }])
    expect(await loadExamples(await lines({ text: 'abc' }, { text: 'd' }))).toEqual([
      { prompt: '', answer: 'abc' },
      { prompt: '', answer: 'd' },
    ])
    await expect(loadExamples(await lines({ messages: [thanks] }))).rejects.toThrow(/text by the assistant/)
  })

  test('are all of the kind of the first; a row of another kind, or of none, is an error with its place', async () => {
    await expect(loadExamples(await lines({ text: 'a' }, { prompt: 'b' }))).rejects.toThrow(/:2, column.*"text"/)
    await expect(loadExamples(await lines({ txt: 'a' }))).rejects.toThrow(/:1.*txt/)
  })
})
