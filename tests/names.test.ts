import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { lossSettings } from '../src/algorithms/losses/loss-settings.ts'
import { rlSettings } from '../src/algorithms/tokens/rl.ts'
import { counterparts, documented } from './support/documented.ts'
import { namesOfEntries } from './support/entries.ts'

/** What is no name of ours: files, words of the command line, and the world of the examples. */
const others = ['world', 'colonnade', 'metrics', 'summary', 'numParameters', 'numTrained', 'sampling', 'null']

const text = await readFile(new URL('../docs/names.md', import.meta.url), 'utf8')
const rows = text.split('\n').flatMap((line) => {
  if (!line.startsWith('| ')) return []
  const [, there, here, from] = line.split('|')
  const names = [...here!.matchAll(/`(?:new )?([A-Za-z]+)/g)].map(([, name]) => name!)
  const entries = [...from!.matchAll(/`([^`]+)`/g)].map(([, entry]) => entry!.replace(/^\//, 'colonnade/'))
  return [{ there: there!.trim(), names: names.filter((name) => !others.includes(name)), entries }]
})
const exported = namesOfEntries()
const entriesOf = (name: string) =>
  [...exported.keys()].filter((entry) => exported.get(entry)!.some((e) => e.name === name))

test('every name that the table of names gives is exported, or a setting', () => {
  const names = rows.flatMap((row) => row.names)
  expect(names.length).toBeGreaterThan(60)
  const settings = Object.keys({ ...lossSettings, ...rlSettings })
  expect(names.filter((name) => !settings.includes(name) && entriesOf(name).length === 0)).toEqual([])
})

test('and each comes from the entries that its row gives', () => {
  const wrong = rows.filter(({ names, entries }) => {
    const found = names.map(entriesOf).filter((places) => places.length > 0)
    const isMissing = found.some((places) => !places.some((place) => entries.includes(place)))
    return isMissing || entries.some((entry) => !found.some((places) => places.includes(entry)))
  })
  expect(wrong.filter(({ there }) => there !== 'there')).toEqual([])
})

describe('the names of the documents', () => {
  const calls = Object.values(documented).flatMap((names) => Object.entries(names))
  const camel = (name: string) => name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase())
  /** What the table has beside a name, or beside its class where it is a method. */
  const hereOf = (name: string) => {
    const isNamed = ({ there }: { there: string }, part: string) => new RegExp(`\\b${part}\\b`).test(there)
    const [first, last] = [name.split('.')[0]!, name.split('.').at(-1)!]
    const own = rows.filter((row) => isNamed(row, last))
    return (own.length > 0 ? own : rows.filter((row) => isNamed(row, first))).flatMap(({ names }) => names)
  }

  test.each(calls)('%s has a row, and what stands there works', async (name, call) => {
    const counterpart = counterparts[name] ?? camel(name.split('.')[0]!)
    expect(hereOf(name)).toContain(counterpart)
    expect(entriesOf(counterpart).length).toBeGreaterThan(0)
    expect(await call()).toBe(true)
  })
})
