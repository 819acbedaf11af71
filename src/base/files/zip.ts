/** Folders as zip files, by which runs leave a page and enter it. */
import { checkGiven, InputError } from '../errors.ts'
import { disk, isThere, makeFolder, readWhole, within, writeWhole } from './files.ts'
import { basename, dirname, join, resolve } from './path.ts'

/** Largest sum of an archive's files, unpacked. */
const BYTES_MAX = 2 ** 32
/** The entries that a system adds to its archives. */
const SYSTEM = /^__MACOSX\/|(^|\/)\.DS_Store$/

/** The paths of all files below a folder. @throws InputError if there is no such folder. */
export async function listFiles(folder: string): Promise<string[]> {
  checkGiven('folder of listFiles', folder, 'a text')
  const inside = await Promise.all(
    (await disk.list(folder)).map(async (name) => {
      const path = join(folder, name)
      return (await disk.isFolder(path)) ? listFiles(path) : [path]
    }),
  )
  return inside.flat()
}

/** A folder as a zip file, whose entries begin with the folder's name. @throws InputError if there is no such folder. */
export async function zipFolder(folder: string): Promise<Uint8Array<ArrayBuffer>> {
  checkGiven('folder of zipFolder', folder, 'a text')
  const { zipSync } = await import('fflate')
  const [place, top] = [resolve(folder), basename(resolve(folder))]
  const entries: Record<string, Uint8Array> = {}
  for (const path of await listFiles(place)) {
    entries[`${top}${path.slice(place.length)}`] = await readWhole(path, 'a file that can be read')
  }
  return zipSync(entries)
}

/**
 * Writes the files of a zip into a new folder, without the folder that all of its entries begin with.
 * @throws InputError if the folder exists, and for an archive that is damaged, too large or names files elsewhere.
 */
export async function unzipFolder(bytes: Uint8Array, folder: string): Promise<void> {
  checkGiven('bytes of unzipFolder', bytes, ['byteLength'])
  checkGiven('folder of unzipFolder', folder, 'a text')
  if (await isThere(folder)) throw new InputError(folder, 'a path that exists', 'a new folder for the files of the zip')
  const entries = await entriesOf(folder, bytes)
  const [first = ''] = entries.keys()
  const [top = ''] = /^[^/]+\//.exec(first) ?? []
  const shared = [...entries.keys()].every((name) => name.startsWith(top)) ? top.length : 0
  for (const name of entries.keys()) await within(folder, name.slice(shared)) // Before anything is written.
  const temporary = join(dirname(folder), `.${basename(folder)}.unpacked`)
  await disk.remove(temporary)
  await makeFolder(temporary)
  for (const [name, content] of entries) await writeWhole(join(temporary, name.slice(shared)), [content])
  await disk.rename(temporary, folder)
}

async function entriesOf(folder: string, bytes: Uint8Array): Promise<Map<string, Uint8Array>> {
  const { unzipSync } = await import('fflate')
  let sum = 0
  try {
    const filter = ({ name, originalSize }: { name: string; originalSize: number }) => {
      sum += originalSize
      if (sum > BYTES_MAX) throw new Error(`more than ${BYTES_MAX} bytes`)
      return !name.endsWith('/') && !SYSTEM.test(name)
    }
    return new Map(Object.entries(unzipSync(bytes, { filter })))
  } catch (cause) {
    throw new InputError(`zip for ${folder}`, `what cannot be unpacked (${(cause as Error).message})`, 'a zip file', {
      cause,
    })
  }
}
