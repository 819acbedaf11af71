import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { lossSettings } from '../src/algorithms/losses.ts'
import { rlSettings } from '../src/algorithms/rl.ts'

/** What is no name of ours: files, words of the command line, and the world of the examples. */
const others = ['world', 'colonnade', 'metrics', 'summary', 'numParameters', 'numTrained', 'sampling', 'null']

test('every name that the table of names gives is exported, or a setting', async () => {
  const text = await readFile(new URL('../docs/names.md', import.meta.url), 'utf8')
  const rows = text.split('\n').filter((line) => line.startsWith('| `') || line.startsWith('| '))
  const cells = rows.map((row) => row.split('|')[2]!)
  const index = await readFile(new URL('../src/index.ts', import.meta.url), 'utf8')
  const names = cells.flatMap((cell) => [...cell.matchAll(/`(?:new )?([A-Za-z]+)/g)].map(([, name]) => name!))
  expect(names.length).toBeGreaterThan(60)
  const known = new Set([...Object.keys({ ...lossSettings, ...rlSettings }), ...others])
  const unknown = names.filter((name) => !known.has(name) && !new RegExp(`\\b${name}\\b`).test(index))
  expect(unknown).toEqual([])
})
