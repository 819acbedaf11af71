/** The playground, built and served as any server of files would, to a browser. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const TYPES: Readonly<Record<string, string>> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }

export interface Served {
  readonly address: string
  close(): void
}

/** Builds it and serves it, isolated; `before` has what comes before a script, by its name. */
export async function servePlayground(before: ReadonlyMap<string, string> = new Map()): Promise<Served> {
  execFileSync(process.execPath, ['scripts/playground.mjs', '--build'], { cwd: root })
  const server = createServer(({ url }, answer) => {
    const name = basename(new URL(url!, 'http://page').pathname) || 'index.html'
    answer.setHeader('content-type', TYPES[extname(name)]!)
    answer.setHeader('cross-origin-opener-policy', 'same-origin')
    answer.setHeader('cross-origin-embedder-policy', 'require-corp')
    answer.end((before.get(name) ?? '') + readFileSync(join(root, 'dist/playground', name), 'utf8'))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close: () => server.close() }
}
