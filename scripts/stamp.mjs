// Remembers the sources of each step of the build. A finished step writes the hashes of its sources to dist/<step>.json. A step
// whose sources did not change is skipped, and tests refuse to run on a dist of other sources (tests/support/built-now.ts).
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
/** The files in a folder, but for packages that were installed there. */
const filesIn = (folder, pattern) =>
  readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesIn(path, pattern)
    return pattern.test(path) ? [path] : []
  })
const scripts = (...names) => names.map((name) => `scripts/${name}.mjs`)

/** The sources of each step, by path from the repository's root. */
export const SOURCES = {
  kernels: () => [
    ...filesIn('src/kernels', /(?<!\/twins)\.ts$|\.native\.c$|\.wasm$/),
    ...scripts('build-kernels', 'kernel-twins'),
  ],
  modules: () => [
    ...['src', 'bench', 'examples'].flatMap((folder) => filesIn(folder, /(?<!\.d)\.ts$/)),
    ...[...scripts('build-modules'), 'tsconfig.json'],
  ],
  native: () => [
    ...filesIn('src/kernels', /\.native\.[ch]$/),
    ...scripts('native-addon', 'native-glue', 'native-platforms', 'kernel-twins'),
  ],
}

/** The sources of a step that were changed, added or removed since the step last finished; all of them if it never did. */
export function changedSources(step) {
  const [now, then] = [hashesOf(step), stampOf(step)]
  return [...new Set([...Object.keys(now), ...Object.keys(then)])].filter((path) => now[path] !== then[path])
}

/** Begins a step: takes the hashes of its sources now, and `done` writes them. Until then the step counts as unfinished. */
export function begin(step) {
  const hashes = hashesOf(step)
  rmSync(pathOf(step), { force: true })
  return {
    done() {
      mkdirSync(join(root, 'dist'), { recursive: true })
      writeFileSync(pathOf(step), JSON.stringify(hashes, null, 1))
    },
  }
}

/** Whether a step ever finished. */
export function wasDone(step) {
  return existsSync(pathOf(step))
}

function hashesOf(step) {
  const hash = (path) =>
    createHash('sha256')
      .update(readFileSync(join(root, path)))
      .digest('base64')
  return Object.fromEntries(SOURCES[step]().map((path) => [path, hash(path)]))
}

function stampOf(step) {
  return wasDone(step) ? JSON.parse(readFileSync(pathOf(step), 'utf8')) : {}
}

function pathOf(step) {
  return join(root, 'dist', `${step}.json`)
}
