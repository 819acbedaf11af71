/** The public surface: which names a program finds, and where. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { entries, namesOfEntries } from './support/entries.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const names = namesOfEntries()

describe('the public surface', () => {
  test('the core is small', () => {
    const core = names.get('colonnade')!
    expect(core.length).toBeGreaterThan(60)
    expect(core.length).toBeLessThanOrEqual(120)
    expect(core.filter(({ isValue }) => isValue).length).toBeLessThanOrEqual(90)
  })

  test('entries export whole files, so a name that becomes public changes these counts', () => {
    const counts = Object.fromEntries([...names].map(([specifier, exported]) => [specifier, exported.length]))
    expect(counts).toEqual({
      colonnade: 120,
      'colonnade/algorithms': 94,
      'colonnade/compat': 114,
      'colonnade/data': 101,
      'colonnade/devices': 16,
      'colonnade/engines': 57,
      'colonnade/environments': 98,
      'colonnade/kernels': 64,
      'colonnade/loggers': 30,
      'colonnade/orchestration': 43,
      'colonnade/rewards': 101,
      'colonnade/settings': 31,
      'colonnade/text': 111,
    })
  })

  test.each(entries)('every public name of $specifier has a docstring', ({ specifier }) => {
    const bare = names.get(specifier)!.filter(({ isDocumented }) => !isDocumented)
    expect(bare.map(({ name }) => name)).toEqual([])
  })

  test('a name is in one entry, but for Trainer and registerEnvironment: worlds have theirs, and so have other systems', () => {
    const places = new Map<string, string[]>()
    for (const [specifier, exported] of names) {
      for (const { name } of exported) places.set(name, [...(places.get(name) ?? []), specifier])
    }
    const twice = [...places].filter(([, found]) => found.length > 1)
    expect(twice.toSorted()).toEqual([
      ['Trainer', ['colonnade', 'colonnade/compat']],
      ['registerEnvironment', ['colonnade/compat', 'colonnade/environments']],
    ])
  })

  test('every file of src/entries is an entry of the package', () => {
    const files = readdirSync(`${root}src/entries`)
      .filter((name) => !name.endsWith('.page.ts'))
      .map((name) => `src/entries/${name}`)
    const sources = entries.map(({ source }) => source)
    expect(sources.toSorted()).toEqual([...files, 'src/index.ts', 'src/kernels/bind.ts'].toSorted())
  })

  test.each(entries)('$specifier gives at run time the values that its declarations say', async (entry) => {
    const values = names.get(entry.specifier)!.filter(({ isValue }) => isValue)
    expect(values.length).toBeGreaterThan(0)
    const module = await import(/* @vite-ignore */ `${root}${entry.module}`)
    expect(Object.keys(module).toSorted()).toEqual(values.map(({ name }) => name).toSorted())
  })

  test('what the documents import is where they import it from', () => {
    const files = ['README.md', ...readdirSync(`${root}docs`).map((name) => `docs/${name}`)]
    const found = files
      .filter((name) => name.endsWith('.md'))
      .flatMap((file) => {
        const text = readFileSync(root + file, 'utf8')
        return [...text.matchAll(/^import (?:type )?\{([^}]*)\} from '(colonnade[^']*)'/gm)].flatMap(([, list, from]) =>
          list!.split(',').map((name) => ({ file, from: from!, name: name.trim().replace(/^type /, '') })),
        )
      })
    expect(found.length).toBeGreaterThan(12)
    expect(found.filter(({ from, name }) => !names.get(from)?.some((each) => each.name === name))).toEqual([])
  })
})
