/** What the guides show is run as it stands, page by page, each in a folder of its own: by `npm run test:docs` alone. */
import { readFileSync } from 'node:fs'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { skipLoudly, start } from './support/command.ts'
import { type Block, blocksOf, guides, pages } from './support/guides.ts'
import { FARAMA, FARAMA_MODULES, findPython } from './support/python.ts'
import { temporaryFolder } from './support/temporary.ts'

const root = new URL('..', import.meta.url).pathname

/** A folder of somebody who has installed Colonnade there. */
async function project(): Promise<string> {
  const folder = await temporaryFolder()
  await mkdir(join(folder, 'node_modules', '.bin'), { recursive: true })
  await symlink(root, join(folder, 'node_modules', 'colonnade'))
  await symlink(join(root, 'node_modules/bitecs'), join(folder, 'node_modules', 'bitecs'))
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

/** Runs blocks one after another; a file of theirs is run by a command after it. */
async function runBlocks(folder: string, page: string, blocks: readonly Block[]): Promise<void> {
  const env = { ...process.env, PATH: `${join(folder, 'node_modules', '.bin')}${delimiter}${process.env.PATH}` }
  for (const [i, { language, file, text }] of blocks.entries()) {
    const path = join(folder, file ?? `block-${i}.${language === 'js' ? 'mjs' : 'sh'}`)
    await writeFile(path, text)
    if (file !== null) continue
    const words = language === 'js' ? [path] : ['-euc', `set -o pipefail; ${END_SERVERS}; . "$0"`, path]
    const program = language === 'js' ? process.execPath : 'bash'
    const { code, stdout, stderr } = await start(program, words, { cwd: folder, env, timeout: BLOCK_MS }).ended
    expect(code, `block ${i} of ${page}:\n${text}\n${stdout}\n${stderr}`).toBe(0)
  }
}

describe.skipIf(import.meta.env.MODE !== 'docs')('the guides', () => {
  test.each(pages)('every block of %s runs', { timeout: 4 * BLOCK_MS }, async (page) => {
    const blocks = blocksOf(page).filter(({ takesPython }) => !takesPython)
    expect(blocks.length).toBeGreaterThan(1)
    await runBlocks(await project(), page, blocks)
  })

  const others = pages.filter((page) => blocksOf(page).some(({ takesPython }) => takesPython))
  test.for(others)('every block of %s that takes Python runs', { timeout: 4 * BLOCK_MS }, async (page, context) => {
    const found = await findPython(FARAMA, FARAMA_MODULES)
    if ('why' in found) skipLoudly(context, found.why)
    const folder = await project()
    await mkdir(join(folder, '.venv', 'bin'), { recursive: true })
    const python = `#!/bin/sh\nexec '${found.python}' "$@"\n`
    await writeFile(join(folder, '.venv', 'bin', 'python'), python, { mode: 0o755 })
    const blocks = blocksOf(page).filter(({ takesPython }) => takesPython)
    await runBlocks(folder, page, blocks)
  })
})
