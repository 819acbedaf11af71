/** The playground, built and served to a browser. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Served, serveIsolated } from './isolated.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const TYPES: Readonly<Record<string, string>> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }

/** Builds it and serves it, isolated; `before` has what comes before a script, by its name. */
export async function servePlayground(before: ReadonlyMap<string, string> = new Map()): Promise<Served> {
  execFileSync(process.execPath, ['scripts/playground.mjs', '--build'], { cwd: root })
  return serveIsolated((path) => {
    const name = basename(path) || 'index.html'
    return [TYPES[extname(name)]!, (before.get(name) ?? '') + readFileSync(join(root, 'dist/playground', name), 'utf8')]
  })
}
