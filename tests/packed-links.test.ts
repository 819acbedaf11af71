/** What `npm pack` puts into the tarball leads nowhere but into the tarball. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'

const root = new URL('..', import.meta.url).pathname
const words = ['pack', '--ignore-scripts', '--dry-run', '--json']
const [{ files }] = JSON.parse(execFileSync('npm', words, { cwd: root, encoding: 'utf8' })) as [
  { files: { path: string }[] },
]
const packed = new Set(files.map(({ path }) => path))
const read = (path: string): string => readFileSync(join(root, path), 'utf8')
const ending = (end: string): string[] => [...packed].filter((path) => path.endsWith(end))

/** Whether it is packed: a file, or a folder of packed files. */
function isPacked(path: string): boolean {
  return packed.has(path) || [...packed].some((file) => file.startsWith(`${path}/`))
}

/** The anchors of a document's headings, as GitHub and npm make them. */
function anchors(path: string): string[] {
  const headings = read(path)
    .replaceAll(/^```[\s\S]*?^```/gm, '')
    .matchAll(/^#+ (.+)$/gm)
  return [...headings].map(([, text]) =>
    text!
      .replaceAll(/\]\([^)]*\)/g, '')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-'),
  )
}

test('every link of a packed document leads to a packed file, and to a heading that is there', () => {
  let numLinks = 0
  const dead = ending('.md').flatMap((from) => {
    const links = [...read(from).matchAll(/\]\(([^)\s]+)\)|\b(?:src|href)="([^"]+)"/g)].map(
      (link) => link[1] ?? link[2]!,
    )
    return links
      .filter((link) => {
        if (/^[a-z]+:/.test(link)) return false
        numLinks++
        const [path, anchor] = link.split('#') as [string, string?]
        const to = path === '' ? from : normalize(join(dirname(from), path)).replace(/\/$/, '')
        return !isPacked(to) || (anchor !== undefined && !anchors(to).includes(anchor))
      })
      .map((link) => `${from}: ${link}`)
  })
  expect(numLinks).toBeGreaterThan(80)
  expect(dead).toEqual([])
})

test('every path that a declaration names is packed', () => {
  const declarations = ending('.d.ts')
  expect(declarations.length).toBeGreaterThan(300)
  const dead = declarations.flatMap((from) => {
    const named = read(from).matchAll(/\b(?:docs|examples|src|scripts|tests|bench|python)\/[\w./-]+\.\w+/g)
    return [...named].filter(([path]) => !packed.has(path)).map(([path]) => `${from}: ${path}`)
  })
  expect(dead).toEqual([])
})

test('every source map is of a packed file and has the text of its sources', () => {
  const maps = ending('.map')
  expect(maps.length).toBeGreaterThan(50)
  const wrong = maps.filter((path) => {
    const { sources, sourcesContent = [] } = JSON.parse(read(path)) as { sources: string[]; sourcesContent?: string[] }
    const isWhole = sources.every(
      (source, i) => typeof sourcesContent[i] === 'string' || isPacked(join(dirname(path), source)),
    )
    return !isWhole || !packed.has(path.replace(/\.map$/, ''))
  })
  expect(wrong).toEqual([])
  const named = ending('.js').flatMap((from) => {
    const [, map] = /^\/\/# sourceMappingURL=(\S+)$/m.exec(read(from).slice(-200)) ?? []
    return map === undefined || packed.has(join(dirname(from), map)) ? [] : [`${from}: ${map}`]
  })
  expect(named).toEqual([])
})

test('what only those read who work on Colonnade is not packed', () => {
  expect(
    [...packed].filter((path) => /^(CHANGELOG|docs\/log|docs\/typedoc|tests\/|bench\/|scripts\/)/.test(path)),
  ).toEqual([])
})
