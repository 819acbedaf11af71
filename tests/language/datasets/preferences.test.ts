import { mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { loadExamples, loadSftDataset } from '../../../src/language/datasets/load.ts'
import { temporaryFolder } from '../../support/temporary.ts'

async function examplesOf(...rows: readonly object[]) {
  const path = join(await mkdtemp(join(await temporaryFolder(), 'rows-')), 'rows.jsonl')
  await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'))
  return loadExamples(path)
}

const user = (content: string) => ({ role: 'user', content })
const assistant = (content: string) => ({ role: 'assistant', content })

describe('pairs of answers', () => {
  test('plain, with a prompt and other columns', async () => {
    const row = { prompt: '2+2=', chosen: '4', rejected: '5', margin: 0.5, level: 3 }
    expect(await examplesOf(row)).toEqual([{ prompt: '2+2=', answer: '4', rejected: '5', margin: 0.5, level: 3 }])
  })

  test('plain, with the prompt in both answers, as TRL takes it out', async () => {
    // >>> extract_prompt({"chosen": "The sky is blue.", "rejected": "The sky is green."})
    expect(await examplesOf({ chosen: 'The sky is blue.', rejected: 'The sky is green.' })).toEqual([
      { prompt: 'The sky is', answer: ' blue.', rejected: ' green.' },
    ])
  })

  test('of messages after a prompt of messages, or of text', async () => {
    const answers = { chosen: [assistant('4')], rejected: [assistant('5')] }
    const expected = { prompt: [user('2+2')], demonstration: [assistant('4')], rejected: [assistant('5')] }
    expect(await examplesOf({ prompt: [user('2+2')], ...answers }, { prompt: '2+2', ...answers })).toEqual([
      expected,
      expected,
    ])
  })

  test('of whole conversations, with or without the prompt beside them', async () => {
    const before = [user('Hi'), assistant('Hello'), user('2+2')]
    const row = {
      chosen: [...before, assistant('4')],
      rejected: [...before, assistant('5'), user('?'), assistant('6')],
    }
    const expected = {
      prompt: before,
      demonstration: [assistant('4')],
      rejected: [assistant('5'), user('?'), assistant('6')],
    }
    expect(await examplesOf(row, { ...row, prompt: 'Hi', messages: row.chosen })).toEqual([
      expected,
      { ...expected, messages: row.chosen },
    ])
  })

  test("of ShareGPT's turns after a conversation", async () => {
    const row = {
      conversations: [{ from: 'human', value: '2+2' }],
      chosen: { from: 'gpt', value: '4' },
      rejected: { from: 'gpt', value: '5' },
    }
    const expected = { prompt: [user('2+2')], demonstration: [assistant('4')], rejected: [assistant('5')] }
    expect(await examplesOf(row)).toEqual([expected])
  })

  test('from Parquet that Hugging Face datasets wrote', async () => {
    const path = fileURLToPath(new URL('../../golden/datasets/preferences.parquet', import.meta.url))
    const scores = { score_chosen: 8.5, score_rejected: 2 }
    const expected = [0, 1, 2].map((i) => {
      return {
        prompt: [user(`${i} + 1`)],
        demonstration: [assistant(`${i + 1}`)],
        rejected: [assistant(`${i}`)],
        ...scores,
      }
    })
    expect(await loadExamples(path)).toEqual(expected)
  })

  test('names the row and column of what does not fit', async () => {
    const good = { prompt: 'a', chosen: 'b', rejected: 'c' }
    const failing = async (row: object) => examplesOf(good, row).then(String, (error: Error) => error.message)
    expect(await failing({ ...good, rejected: '' })).toMatch('rows.jsonl:2, rejected: got "", expected a text')
    expect(await failing({ prompt: 'a', chosen: 'b' })).toMatch('rows.jsonl:2, column: got "rejected", expected')
    expect(await failing({ ...good, rejected: [assistant('c')] })).toMatch('rejected: got another form than chosen')
    expect(await failing({ ...good, margin: 'much' })).toMatch(
      'rows.jsonl:2, margin: got "much", expected a finite number',
    )
    expect(await failing({ chosen: 'ab', rejected: 'cd' })).toMatch('rows.jsonl:2, prompt: got none, expected a prompt')
    expect(await failing({ chosen: [user('a'), assistant('b')], rejected: [user('c'), assistant('b')] })).toMatch(
      'got another first message than chosen, expected conversations that begin alike',
    )
    expect(await failing({ chosen: [assistant('b')], rejected: [assistant('c')] })).toMatch(
      'prompt: got none, expected a prompt, or answers',
    )
  })
})

describe('answers with a label', () => {
  test('are good or bad answers', async () => {
    const rows = [
      { prompt: '2+2=', completion: '4', label: true },
      { prompt: '2+2=', completion: '5', label: false },
      { prompt: '2+2', completion: [assistant('4')], label: 1 },
    ]
    expect(await examplesOf(...rows)).toEqual([
      { prompt: '2+2=', answer: '4' },
      { prompt: '2+2=', rejected: '5' },
      { prompt: [user('2+2')], demonstration: [assistant('4')] },
    ])
    await expect(examplesOf(...rows, { ...rows[0], label: 2 })).rejects.toThrow(
      'rows.jsonl:4, label: got 2, expected true',
    )
  })

  test('but other labels are data, and so are answers beside a pair', async () => {
    const row = { prompt: 'a', completion: 'b', label: 'positive' }
    expect(await examplesOf(row)).toEqual([{ prompt: 'a', answer: 'b', label: 'positive' }])
    const pair = { prompt: 'a', answer: 'b', chosen: 'c', rejected: 'd' }
    expect(await examplesOf(pair)).toEqual([pair])
  })
})

describe('columns of other formats', () => {
  const shareGpt = {
    system: 'Be brief.',
    conversations: [
      { from: 'human', value: '2+2' },
      { from: 'gpt', value: '4' },
    ],
    tools: '[{"type": "function"}]',
  }
  const said = [{ role: 'system', content: 'Be brief.' }, user('2+2'), assistant('4')]

  test("ShareGPT's are conversations, with their tools", async () => {
    expect(await examplesOf(shareGpt)).toEqual([{ prompt: said, tools: [{ type: 'function' }] }])
    await expect(examplesOf({ conversations: [{ from: 'alien', value: 'x' }] })).rejects.toThrow(
      'rows.jsonl:1, conversations[0], from: got "alien", expected one of human, user, gpt',
    )
  })

  test("Alpaca's are prompts and answers", async () => {
    const rows = [
      { instruction: 'Add.', input: '2 and 2', output: '4' },
      { instruction: 'Add 3.', input: '', output: '7', system: 'Be brief.', history: [['2+2', '4']] },
    ]
    expect(await examplesOf(...rows)).toEqual([
      { prompt: [user('Add.\n\n2 and 2')], answer: '4' },
      { prompt: [{ role: 'system', content: 'Be brief.' }, user('2+2'), assistant('4'), user('Add 3.')], answer: '7' },
    ])
  })

  test('are recognized for programs, too', async () => {
    const path = join(await temporaryFolder(), 'chat.jsonl')
    await writeFile(path, JSON.stringify(shareGpt))
    expect(await loadSftDataset(path)).toEqual([{ messages: said }])
    await writeFile(path, JSON.stringify({ instruction: 'Add.', output: '4' }))
    expect(await loadSftDataset(path)).toEqual([{ prompt: [user('Add.')], answer: '4' }])
  })
})
