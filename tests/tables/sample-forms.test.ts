import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parquetReadObjects } from 'hyparquet'
import { expect, test } from 'vitest'
import { loadSftDataset, sampleForms, writeDatasetCard, writeSamplesAs } from '../../src/entries/data.ts'
import { temporaryFolder } from '../support/temporary.ts'

const said = (member: number, reward: number | null, given: object = {}) => ({
  ...{ id: `0-0-0-${member}`, source: '', epoch: 0, promptId: 0, groupIndex: 0, prompt: '1+1=', groundTruth: '2' },
  ...{ response: `said ${member}`, reward, turns: 1, ...given },
})
const CHAT = [
  { role: 'system', content: 'Add.' },
  { role: 'user', content: '1+1' },
]
/** A group with four rewards, one of equal rewards, and one of one reward. */
const samples = [
  ...[0, 1, null, 0.5, 1].map((reward, member) => said(member, reward)),
  ...[1, 1].map((reward, member) => said(member, reward, { groupIndex: 1 })),
  said(0, 0.25, { promptId: 3, prompt: '2+2=', groundTruth: null }),
]
const asked = (prompt: unknown) => samples.map((sample) => ({ ...sample, prompt }) as (typeof samples)[number])

async function lines(given: typeof samples, form: (typeof sampleForms)[number]) {
  const path = join(await temporaryFolder(), 'out.jsonl')
  const rows = await writeSamplesAs(path, given, form)
  const read = (await readFile(path, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(read).toHaveLength(rows)
  return { read, path }
}

test('texts in the forms of other trainers', async () => {
  const words = (await lines(samples, 'words')).read
  expect(words[1]).toEqual({ prompt: '1+1=', answer: '2', completion: 'said 1', reward: 1 })
  expect(words[2]).toEqual({ prompt: '1+1=', answer: '2', completion: 'said 2', reward: null })
  expect(words.at(-1)).toEqual({ prompt: '2+2=', answer: null, completion: 'said 0', reward: 0.25 })
  const completions = (await lines(samples, 'prompt-completion')).read
  expect(completions[3]).toEqual({ prompt: '1+1=', completion: 'said 3', reward: 0.5 })
  const { messages } = (await lines(samples, 'messages')).read[0]
  expect(messages).toEqual([
    { role: 'user', content: '1+1=' },
    { role: 'assistant', content: 'said 0' },
  ])
  expect((await lines(samples, 'preference')).read).toEqual([
    { prompt: '1+1=', chosen: 'said 1', rejected: 'said 0', score_chosen: 1, score_rejected: 0 },
  ])
})

test('messages in the forms of other trainers, which are read back', async () => {
  const chats = asked(CHAT)
  const { read, path } = await lines(chats, 'messages')
  expect(read[1].messages).toEqual([...CHAT, { role: 'assistant', content: 'said 1' }])
  expect(await loadSftDataset(path)).toHaveLength(chats.length)
  const completion = [{ role: 'assistant', content: 'said 3' }]
  expect((await lines(chats, 'prompt-completion')).read[3]).toEqual({ prompt: CHAT, completion, reward: 0.5 })
  expect((await lines(chats, 'preference')).read[0]).toMatchObject({
    prompt: CHAT,
    chosen: [{ role: 'assistant', content: 'said 1' }],
    rejected: [{ role: 'assistant', content: 'said 0' }],
  })
})

test('a Parquet file has the rows of the JSON Lines, and a card tells of them', async () => {
  const folder = await temporaryFolder()
  for (const form of sampleForms) {
    const { read } = await lines(asked(CHAT), form)
    await writeSamplesAs(join(folder, `${form}.parquet`), asked(CHAT), form)
    const bytes = await readFile(join(folder, `${form}.parquet`))
    const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
    expect(await parquetReadObjects({ file })).toEqual(read)
    const card = await readFile(join(folder, `${form}.card.md`), 'utf8')
    expect(card).toContain(`data_files: "${form}.parquet"`)
    expect(card).toContain(`| rows | ${read.length} |\n`)
    expect(card.includes('- trl\n')).toBe(form !== 'words')
  }
})

test('a card shows what it is told as text in its table', async () => {
  const folder = await temporaryFolder()
  const facts = { model: '<script>a|b', rows: 3, none: undefined, empty: '', lines: 'a\n\n# b' }
  await writeDatasetCard(join(folder, 'a.b.parquet'), { tags: ['x'], facts })
  expect(await readFile(join(folder, 'a.b.card.md'), 'utf8')).toBe(
    '---\ntags:\n- reinforcement-learning\n- x\nconfigs:\n- config_name: default\n  data_files: "a.b.parquet"\n---\n' +
      '# a.b\n\n| | |\n|---|---|\n| model | &lt;script>a\\|b |\n| rows | 3 |\n| lines | a # b |\n',
  )
})

test('what a form cannot say is refused', async () => {
  const out = join(await temporaryFolder(), 'a.jsonl')
  const turns = asked(CHAT).map((sample) => ({ ...sample, turns: 3 }))
  await expect(writeSamplesAs(out, turns, 'messages')).rejects.toThrow('0-0-0-0: got 3 turns, expected one turn')
  expect(await writeSamplesAs(out, turns, 'words')).toBe(8)
  const mixed = [samples[0]!, asked(CHAT)[1]!]
  await expect(writeSamplesAs(out, mixed, 'words')).rejects.toThrow('0-0-0-1, prompt: got messages, expected a text')
  await expect(writeSamplesAs(out, samples.slice(5), 'preference')).rejects.toThrow(
    'samples: got 3 without such a group, expected a group with different rewards',
  )
  await expect(writeSamplesAs(out, [], 'words')).rejects.toThrow('samples: got none, expected at least one')
  await expect(writeSamplesAs('a.csv', samples, 'words')).rejects.toThrow('out: got a.csv, expected')
  await expect(writeSamplesAs(out, samples, 'chat' as never)).rejects.toThrow('form: got "chat"')
})
