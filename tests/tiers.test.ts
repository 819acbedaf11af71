/** The tiers of the tests: what the fast one leaves out, the thorough one has, and each long form of a test is run by a part of it. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import config from '../vitest.config.ts'

const root = new URL('..', import.meta.url).pathname
const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as { scripts: Record<string, string> }
/** The scripts that `npm run test:all` runs. */
const parts = [...readFileSync(`${root}scripts/test-all.mjs`, 'utf8').matchAll(/^ {2}'([\w:-]+)',$/gm)].map(
  ([, part]) => part!,
)
const sources = readdirSync(`${root}tests`, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ path: `tests/${name}`, text: readFileSync(`${root}tests/${name}`, 'utf8') }))
const files = sources.map(({ path }) => path).filter((path) => path.endsWith('.test.ts'))

/** The files that vitest runs in a mode, each as often as it does. */
function filesIn(mode: string): string[] {
  const { projects } = config({ mode, command: 'serve' }).test as unknown as {
    projects: { test: { include: string[]; exclude?: string[] } }[]
  }
  return projects.flatMap(({ test: { include, exclude = [] } }) => include.filter((path) => !exclude.includes(path)))
}

/** Modes in which no test asks anything: they write records and pictures. */
const WRITING = ['record', 'page-figures', 'page-pictures', 'page-speed', 'playground-figures', 'playground-pictures']

test('the thorough tier has every file, once; the fast tier has most of them', () => {
  expect(filesIn('all').toSorted()).toEqual(files.toSorted())
  const fast = filesIn('test')
  expect(fast.filter((path) => !files.includes(path))).toEqual([])
  expect(new Set(fast).size).toBe(fast.length)
  expect(fast.length).toBeGreaterThan(0.8 * files.length)
  expect(fast.length).toBeLessThan(files.length)
  expect(parts).toContain('test:tiers')
  expect(scripts['test:tiers']).toMatch(/vitest run --mode all$/)
})

test('every mode that a test asks for is that of a part of the thorough tier, which runs the file of the test', () => {
  const asked = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/\bMODE [!=]== '([\w-]+)'/g)].map(([, mode]) => ({ path, text, mode: mode! })),
  )
  expect(asked.length).toBeGreaterThan(20)
  const lost = asked.filter(({ path, text, mode }) => {
    if (mode === 'test' || WRITING.includes(mode)) return false
    return !parts.some((part) => {
      const [, own, words] = /vitest run --mode ([\w-]+) (.+)$/.exec(scripts[part]!) ?? []
      if (own !== mode) return false
      const given = /grep -rl (\S+) tests/.exec(words!)?.[1]
      if (given !== undefined) return path === `tests/${given}.ts` || text.includes(given)
      return words!.split(' ').some((word) => path === word || path.startsWith(`${word}/`))
    })
  })
  expect(lost.map(({ path, mode }) => `${path}: ${mode}`)).toEqual([])
})

test('support modules, which files share, have no hooks of their own; temporary folders are made in one place', () => {
  const hooked = sources.filter(
    ({ path, text }) => !path.endsWith('.test.ts') && /^(before|after)(All|Each)\(/m.test(text),
  )
  expect(hooked.map(({ path }) => path)).toEqual(['tests/support/process.ts'])
  const makers = sources.filter(({ text }) => /\btmpdir\(/.test(text)).map(({ path }) => path)
  expect(makers.toSorted()).toEqual(['cache', 'temporary'].map((name) => `tests/support/${name}.ts`))
})

test('columns and lists that differ in one number, or in their type, are told apart', () => {
  const pairs: [unknown, unknown][] = [
    [Float32Array.of(1, 2), Float32Array.of(1, 3)],
    [Float32Array.of(1, 0), Float32Array.of(1, -0)],
    [Float32Array.of(1, 2), Float64Array.of(1, 2)],
    [Float32Array.of(1, 2), Float32Array.of(1, 2, 0)],
    [{ row: [1, 2] }, { row: [1, 2.5] }],
    [
      [1, 2],
      ['1', 2],
    ],
    [Object.assign(new Array(3), { 0: 1, 2: 2 }), [1, 5, 2]],
  ]
  for (const [got, wanted] of pairs) expect(got).not.toEqual(wanted)
  expect([Float32Array.of(1, Number.NaN), [1, Number.NaN]]).toEqual([Float32Array.of(1, Number.NaN), [1, Number.NaN]])
})

test('no test is skipped for good, or alone', () => {
  const marked = sources.filter(({ text }) => /\b(test|it|describe)(\.\w+)*\.(skip|todo|only|fails)\b/.test(text))
  expect(marked.map(({ path }) => path)).toEqual([])
})
