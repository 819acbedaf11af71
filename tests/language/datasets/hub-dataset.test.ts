import { lstatSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { downloadDataset } from '../../../src/language/datasets/hub-dataset.ts'
import { loadDatasetWithAnswers, loadRlPrompts, loadSftDataset } from '../../../src/language/datasets/load.ts'
import { dataset } from '../../../src/training/text/collect/dataset-environment.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { COMMIT, startHub } from '../hub-server.ts'

vi.stubEnv('HF_TOKEN', undefined)
vi.stubEnv('HF_HUB_OFFLINE', undefined)

const golden = (name: string) =>
  Uint8Array.from(readFileSync(new URL(`../../golden/datasets/${name}`, import.meta.url)))
const lines = (...rows: object[]) => new TextEncoder().encode(rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
const sums = (from: number, count: number) =>
  Array.from({ length: count }, (_, i) => ({ prompt: `${from + i}+1=`, answer: String(from + i + 1) }))

async function setUp(files: Record<string, Uint8Array>, cardData: object = {}) {
  const hub = await startHub(files)
  hub.cardData = cardData
  const cache = await temporaryFolder()
  return { hub, options: { endpoint: hub.endpoint, cache }, repository: `${cache}/datasets--org--tiny` }
}

/** Two subsets with two splits each, as push_to_hub writes them. */
const pushed = () =>
  setUp(
    {
      'README.md': lines({}),
      'main/train-00000-of-00002.jsonl': lines(...sums(0, 3)),
      'main/train-00001-of-00002.jsonl': lines(...sums(3, 2)),
      'main/test-00000-of-00001.jsonl': lines(...sums(9, 1)),
      'hard/train-00000-of-00001.parquet': golden('questions-snappy.parquet'),
      'talk/train.arrow': golden('conversations.arrow'),
    },
    {
      configs: [
        {
          config_name: 'main',
          data_files: [
            { split: 'train', path: 'main/train-*' },
            { split: 'test', path: ['main/test-[0-9]*'] },
          ],
        },
        { config_name: 'hard', data_files: [{ split: 'train', path: '**/*.parquet' }] },
        { config_name: 'talk', data_dir: 'talk' },
      ],
    },
  )

describe('a dataset of the hub', () => {
  test('is the files of the split and subset that the README names, in the layout of the Python library', async () => {
    const { hub, options, repository } = await pushed()
    const files = await downloadDataset('org/tiny', { ...options, subset: 'main' })
    const folder = `${repository}/snapshots/${COMMIT}`
    expect(files).toEqual([0, 1].map((i) => `${folder}/main/train-0000${i}-of-00002.jsonl`))
    for (const file of files) {
      expect(lstatSync(file).isSymbolicLink()).toBe(true)
      expect(Uint8Array.from(readFileSync(file))).toEqual(hub.files[file.slice(folder.length + 1)])
    }
    expect(hub.asked.filter((path) => path.includes('/resolve/'))).toHaveLength(2) // Nothing else is downloaded.
  })

  test('gives its rows to those who load prompts, answers and conversations, whatever kind its files are', async () => {
    const { options } = await pushed()
    const main = { ...options, subset: 'main' }
    expect(await loadRlPrompts('org/tiny', main)).toEqual(sums(0, 5))
    expect(await loadDatasetWithAnswers('org/tiny', { ...main, split: 'test' })).toEqual(sums(9, 1))
    const hard = await loadRlPrompts('org/tiny', { ...options, subset: 'hard', columns: { prompt: 'question' } })
    expect(hard).toHaveLength(7)
    expect(hard[0]).toMatchObject({ prompt: 'How many letters has aé?', answer: '2' })
    const talk = await loadSftDataset('org/tiny', { ...options, subset: 'talk' })
    expect(talk[2]).toMatchObject({ messages: [{ content: '2 + 1' }, { content: '3' }] })
  })

  test.each([
    ['@[1:2]', 1, 2],
    ['@[2:4]', 2, 4],
    ['@[4:]', 4, 5],
    ['@[:9]', 0, 5],
    ['@[3:5]', 3, 5],
  ])('is read as the slice %s, over the borders of its files', async (slice, from, to) => {
    const { options } = await pushed()
    const main = { ...options, subset: 'main' }
    expect(await loadRlPrompts(`org/tiny${slice}`, main)).toEqual(sums(0, 5).slice(from, to))
    expect(await loadRlPrompts(`org/tiny${slice}`, { ...main, limit: 1 })).toEqual(sums(from, 1))
  })

  test('that is in the cache is not downloaded again, and offline nobody is asked', async () => {
    const { hub, options } = await pushed()
    const main = { ...options, subset: 'main' }
    const files = await downloadDataset('org/tiny', main)
    hub.asked.length = 0
    await downloadDataset('org/tiny', main)
    expect(hub.asked.every((path) => path.startsWith('/api/'))).toBe(true)
    hub.asked.length = 0
    expect(await downloadDataset('org/tiny', { ...main, offline: true })).toEqual(files)
    expect(await downloadDataset('org/tiny', { ...main, revision: COMMIT })).toEqual(files)
    expect(hub.asked).toEqual([])
    const other = downloadDataset('org/tiny', { ...main, split: 'test', offline: true })
    await expect(other).rejects.toThrow(/dataset org\/tiny, revision main: got no complete copy.*offline is set/)
    rmSync(files[1]!)
    await expect(downloadDataset('org/tiny', { ...main, offline: true })).rejects.toThrow(/no complete copy/)
  })

  test('that is damaged on its way is refused by its checksum', async () => {
    const { hub, options } = await pushed()
    hub.fault = (request, response) => {
      if (!request.url!.endsWith('.parquet')) return false
      response.end(Uint8Array.from(hub.files['hard/train-00000-of-00001.parquet']!).fill(0, 100, 101))
      return true
    }
    await expect(downloadDataset('org/tiny', { ...options, subset: 'hard' })).rejects.toThrow(/the file was deleted/)
  })

  test('without a subset or split of that name is an error that names those that there are', async () => {
    const { options } = await pushed()
    for (const [which, message] of [
      [{}, /subset: got none, expected one of main, hard, talk/],
      [{ subset: 'maine' }, /subset: got "maine" \(did you mean "main"\?\), expected one of main, hard, talk/],
      [{ subset: 'main', split: 'tests' }, /split: got "tests" \(did you mean "test"\?\), expected one of train, test/],
    ] as const) {
      await expect(downloadDataset('org/tiny', { ...options, ...which })).rejects.toThrow(message)
    }
  })

  test('has a default subset where the README says so, or has one alone, or one of that name', async () => {
    const files = { 'a/train.jsonl': lines(...sums(0, 1)), 'b/train.jsonl': lines(...sums(5, 1)) }
    const [a, b] = ['a', 'b'].map((name) => ({ config_name: name, data_files: `${name}/*.jsonl` }))
    for (const configs of [
      [a, { ...b, default: true }],
      [a, { ...b, config_name: 'default' }],
      [b],
      [{ config_name: 'b', data_files: ['./b/train.jsonl'] }],
    ]) {
      const { options } = await setUp(files, { configs })
      expect(await loadRlPrompts('org/tiny', options)).toEqual(sums(5, 1))
    }
  })

  test.each<[string, string[], Record<string, string[]>]>([
    [
      'files',
      ['train.jsonl', 'dev.jsonl', 'my_test.jsonl'],
      { train: ['train.jsonl'], validation: ['dev.jsonl'], test: ['my_test.jsonl'] },
    ],
    [
      'folders',
      ['main/train/0000.jsonl', 'main/train/0001.jsonl'],
      { train: ['main/train/0000.jsonl', 'main/train/0001.jsonl'] },
    ],
    [
      'shards',
      ['data/odd-00000-of-00001.jsonl', 'data/train-00000-of-00001-abc.jsonl'],
      { odd: ['data/odd-00000-of-00001.jsonl'] },
    ],
    [
      'nothing',
      ['b.jsonl', 'a.jsonl', 'dataset_infos.json', '.hidden/x.jsonl', 'notes.txt'],
      { train: ['b.jsonl', 'a.jsonl'] },
    ],
    ['words that only begin so', ['trainer.jsonl', 'contest.jsonl'], { train: ['trainer.jsonl', 'contest.jsonl'] }],
  ])('without a word in its README has the splits that %s are called by', async (_, names, splits) => {
    const { options, repository } = await setUp(Object.fromEntries(names.map((name) => [name, lines(...sums(0, 1))])))
    for (const [split, files] of Object.entries(splits)) {
      const found = await downloadDataset('org/tiny', { ...options, split })
      expect(found).toEqual(files.map((file) => `${repository}/snapshots/${COMMIT}/${file}`))
    }
  })

  test('of other kinds of files, or of several at once, is an error that names them', async () => {
    for (const [files, cardData, message] of [
      [['train.csv'], {}, /the files \["train.csv"\], expected some of \.jsonl, .*refs\/convert\/parquet/],
      [['train.jsonl', 'train.parquet'], {}, /split train: got files that end in \.jsonl, \.parquet/],
      [['x.csv'], { configs: [{ config_name: 'x', data_files: 'x.*' }] }, /got files that end in \.csv/],
      [['x.jsonl'], { configs: [{ config_name: 'x', data_files: 'y.*' }] }, /split train: got no file/],
      [['x.jsonl'], { configs: [{ config_name: 'x', data_files: [{ path: 'x' }] }] }, /data_files with split and path/],
    ] as [string[], object, RegExp][]) {
      const { options } = await setUp(Object.fromEntries(files.map((name) => [name, lines({})])), cardData)
      await expect(downloadDataset('org/tiny', options), String(message)).rejects.toThrow(message)
    }
  })

  test('whose hub tells of a file outside of the repository is refused', async () => {
    const { options } = await setUp({ '../../train.jsonl': lines({}) })
    await expect(downloadDataset('org/tiny', options)).rejects.toThrow(/a file at "..\/..\/train.jsonl"/)
  })
})

describe('a path', () => {
  test('of a file that is there is no id, and takes no split', async () => {
    const { hub, options } = await pushed()
    await expect(loadRlPrompts('rows.jsonl', { ...options, split: 'test' })).rejects.toThrow(
      /split: got "test" of the file rows.jsonl, expected the id of a dataset of the hub/,
    )
    for (const path of ['./rows/none', 'rows', 'a/b/c']) {
      await expect(loadRlPrompts(path, options)).rejects.toThrow(/got no ending, expected .* or the id of a dataset/)
    }
    await expect(loadRlPrompts('src/language/datasets', options)).rejects.toThrow(/no ending/)
    expect(hub.asked).toEqual([])
  })

  test('of text/dataset may be an id too', async () => {
    const { options } = await pushed()
    vi.stubEnv('HF_ENDPOINT', options.endpoint)
    vi.stubEnv('HF_HUB_CACHE', join(options.cache, 'hub'))
    const { open } = dataset({ path: 'org/tiny', subset: 'main', split: 'test' })
    const { numExamples, example } = (await open!())!
    expect([numExamples, example!(0)]).toEqual([1, sums(9, 1)[0]])
  })
})
