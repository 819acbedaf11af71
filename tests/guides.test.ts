/** What the guides show is run as it stands, page by page, each in a folder of its own: by `npm run test:docs` alone. */
import { readFileSync } from 'node:fs'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { start } from './support/command.ts'
import { blocksOf, guides } from './support/guides.ts'
import { temporaryFolder } from './support/temporary.ts'

const root = new URL('..', import.meta.url).pathname

/** A folder of somebody who has installed Colonnade there. */
async function project(): Promise<string> {
  const folder = await temporaryFolder()
  await mkdir(join(folder, 'node_modules', '.bin'), { recursive: true })
  await symlink(root, join(folder, 'node_modules', 'colonnade'))
  await symlink(join(root, 'dist/src/cli/main.js'), join(folder, 'node_modules', '.bin', 'colonnade'))
  // A shell without a terminal ends what it has started itself, and npx would keep its own child.
  await writeFile(join(folder, 'node_modules', '.bin', 'npx'), '#!/bin/sh\nexec "$@"\n', { mode: 0o755 })
  await writeFile(join(folder, 'package.json'), '{"type": "module"}')
  return folder
}

const BLOCK_MS = 300_000

/** What a block began and did not end goes with it, also where it fails. */
const END_SERVERS = `trap 'kill $(jobs -p) 2>/dev/null || true' EXIT`

test('every guide has its place in the site', () => {
  const { projectDocuments } = JSON.parse(readFileSync(join(root, 'docs/typedoc.json'), 'utf8')) as {
    projectDocuments: string[]
  }
  const placed = projectDocuments.flatMap((path) => /^guides\/(.*)\.md$/.exec(path)?.[1] ?? [])
  expect(placed.toSorted()).toEqual(guides.toSorted())
})

if (import.meta.env.MODE !== 'docs') console.warn('SKIPPED: the blocks of the guides (npm run test:docs runs them)')

describe.skipIf(import.meta.env.MODE !== 'docs')('the guides', () => {
  test.each(guides)('every block of %s runs', { timeout: 4 * BLOCK_MS }, async (guide) => {
    const folder = await project()
    const env = { ...process.env, PATH: `${join(folder, 'node_modules', '.bin')}${delimiter}${process.env.PATH}` }
    const blocks = blocksOf(guide)
    expect(blocks.length).toBeGreaterThan(1)
    for (const [i, { language, file, text }] of blocks.entries()) {
      const path = join(folder, file ?? `block-${i}.${language === 'js' ? 'mjs' : 'sh'}`)
      await writeFile(path, text)
      if (file !== null) continue // A command after it takes it.
      const words = language === 'js' ? [path] : ['-euc', `set -o pipefail; ${END_SERVERS}; . "$0"`, path]
      const program = language === 'js' ? process.execPath : 'bash'
      const { code, stdout, stderr } = await start(program, words, { cwd: folder, env, timeout: BLOCK_MS }).ended
      expect(code, `block ${i} of ${guide}:\n${text}\n${stdout}\n${stderr}`).toBe(0)
    }
  })
})
