import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atEnd } from './end.ts'

/** A new empty folder, removed at the end of the test file. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'colonnade-'))
  // A program that is being ended may still write there.
  atEnd(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }))
  return folder
}

/** Everything in a folder, files with their bytes, by path: to show that nothing was changed, added or lost. */
export async function contents(folder: string): Promise<Record<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = entries.map((entry) => join(entry.parentPath, entry.name) + (entry.isDirectory() ? '/' : ''))
  return Object.fromEntries(
    await Promise.all(
      paths
        .sort()
        .map(async (path) => [
          path.slice(folder.length + 1),
          path.endsWith('/') ? '' : (await readFile(path)).toString('base64'),
        ]),
    ),
  )
}
