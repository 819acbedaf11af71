import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

const folders: string[] = []

/** A new empty folder, which goes when the test file has ended. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'colonnade-'))
  folders.push(folder)
  return folder
}

afterAll(async () => {
  for (const folder of folders) await rm(folder, { recursive: true, force: true })
})

/** Every file below a folder with its bytes, by path: to show that nothing was changed, added or lost. */
export async function contents(folder: string): Promise<Record<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  return Object.fromEntries(
    await Promise.all(
      files.sort().map(async (file) => [file.slice(folder.length + 1), (await readFile(file)).toString('base64')]),
    ),
  )
}
