/** Passes weights through a folder that appears as a whole, with version and checksums in `delivery.json`. */
import { InputError, show } from '../../base/errors.ts'
import {
  disk,
  isThere,
  listFolder,
  readJsonObject,
  readWhole,
  removeWhole,
  syncFolder,
  writeWhole,
} from '../../base/files/files.ts'

const MANIFEST = 'delivery.json'

/** Replaces a folder by a temporary one that `write` has filled. @throws InputError if it cannot be written. */
export async function deliverFolder(
  folder: string,
  version: number,
  write: (folder: string) => Promise<void>,
): Promise<void> {
  const temporary = `${folder}.tmp`
  await removeWhole(temporary)
  await write(temporary)
  const checksums: Record<string, string> = {}
  for (const name of (await listFolder(temporary)).sort()) {
    checksums[name] = await digest(await readWhole(`${temporary}/${name}`, 'a file that was just written'))
  }
  const manifest = `${JSON.stringify({ version, checksums }, null, 2)}\n`
  await writeWhole(`${temporary}/${MANIFEST}`, [new TextEncoder().encode(manifest)])
  await removeWhole(folder)
  await disk.rename(temporary, folder)
  await syncFolder(folder.replace(/\/[^/]*$/, '') || '/')
}

/** Verifies a folder, and returns its version; null without a `delivery.json`. @throws InputError if it differs. */
export async function checkDelivered(folder: string): Promise<number | null> {
  const path = `${folder}/${MANIFEST}`
  if (!(await isThere(path))) return null
  const { version, checksums } = await readJsonObject(path)
  if (!Number.isSafeInteger(version)) throw new InputError(`${path}, version`, show(version), 'a whole number')
  if (typeof checksums !== 'object' || checksums === null) {
    throw new InputError(`${path}, checksums`, show(checksums), 'one for each file')
  }
  for (const [name, expected] of Object.entries(checksums)) {
    const found = await digest(await readWhole(`${folder}/${name}`, `a file, as ${MANIFEST} says`))
    if (found !== expected)
      throw new InputError(`${folder}/${name}`, `SHA-256 ${found}`, `${expected}, as ${MANIFEST} says`)
  }
  return version as number
}

async function digest(bytes: Uint8Array): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
