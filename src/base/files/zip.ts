/** Folders as zip files, by which runs leave a page and enter it. */
import { checkGiven, InputError } from '../errors.ts'
import { crc32, crcTable } from './crc32.ts'
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

const isFile = (name: string) => !name.endsWith('/') && !SYSTEM.test(name)

async function entriesOf(folder: string, bytes: Uint8Array): Promise<Map<string, Uint8Array>> {
  const { unzipSync } = await import('fflate')
  let sum = 0
  const names: string[] = []
  try {
    const filter = ({ name, originalSize }: { name: string; originalSize: number }) => {
      sum += originalSize
      if (sum > BYTES_MAX) throw new Error(`more than ${BYTES_MAX} bytes`)
      names.push(name)
      return isFile(name)
    }
    const files = unzipSync(bytes, { filter })
    const checksums = checksumsIn(bytes, names.length)
    const table = crcTable(0xedb88320)
    for (const [i, name] of names.entries()) {
      if (isFile(name) && crc32(files[name]!, table) !== checksums[i]) throw new Error(`${name} is damaged`)
    }
    return new Map(names.filter(isFile).map((name) => [name, files[name]!]))
  } catch (cause) {
    throw new InputError(
      `zip for ${folder}`,
      `a file that cannot be unpacked (${(cause as Error).message})`,
      'a zip file',
      {
        cause,
      },
    )
  }
}

/** The CRC-32 of each entry, from the archive's directory, which fflate reads without it. */
function checksumsIn(bytes: Uint8Array, count: number): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const [two, four] = [(at: number) => view.getUint16(at, true), (at: number) => view.getUint32(at, true)]
  let end = bytes.length - 22
  while (four(end) !== 0x06054b50) end--
  // With 65,536 entries and more, a locator before the end leads to the record that has the directory's place.
  const isLarge = end >= 20 && four(end - 20) === 0x07064b50
  const after = isLarge ? four(end - 12) : end
  let at = isLarge ? four(after + 48) : four(end + 16)
  const checksums = Array.from({ length: count }, () => {
    const [checksum, length, own] = [four(at + 16), two(at + 28), four(at + 42)]
    // Names have no checksum, but are there twice.
    const [name, again] = [at + 46, own + 30].map((place) => bytes.subarray(place, place + length))
    if (two(own + 26) !== length || name!.some((byte, i) => byte !== again![i])) throw new Error('names are damaged')
    at += 46 + length + two(at + 30) + two(at + 32)
    return checksum
  })
  if (at !== after) throw new Error('its directory is damaged')
  return checksums
}
