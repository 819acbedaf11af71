/**
 * The files that a page has in memory (`disk.page.ts`), for downloads and uploads, and the folders that outlive it, in the site's private
 * file system. Runs, `writeArrow`, `exportPolicy` and `trainer.save` write into memory.
 *
 * A kept folder is a folder there with an index, from each path to the file with its bytes. Files are never changed, and the index is
 * replaced as a whole after they are written, so a page that is closed meanwhile leaves the folder as it was kept before.
 */
import { checkGiven, InputError } from '../errors.ts'
import { processNumber } from '../host.ts'
import type * as page from './disk.page.ts'
import * as ours from './disk.ts'
import { makeFolder, parseJsonObject, readWhole, writeWhole } from './files.ts'
import { dirname, join, resolve } from './path.ts'

const { snapshot } = ours as unknown as typeof page

/** The folder of the site's private file system in which all are kept. */
const HOME = 'colonnade'
const INDEX = 'index.json'

/** A file's bytes. @throws InputError if there is none. */
export function readFile(path: string): Promise<Uint8Array> {
  checkGiven('path of readFile', path, 'a text')
  return readWhole(path, 'a file that this page has written')
}

/** Writes a file and creates the folders above it, such as a file of a checkpoint from another machine. */
export async function writeFile(path: string, bytes: Uint8Array): Promise<void> {
  checkGiven('path of writeFile', path, 'a text')
  await makeFolder(dirname(path))
  await writeWhole(path, [bytes])
}

/** The names of kept files by path, and the bytes that each had when this page wrote or read it. */
type Names = Map<string, { readonly name: string; readonly bytes: Uint8Array }>
const known = new Map<string, Names>()
let lastFile = 0

/**
 * Keeps a folder in its current state, replacing the kept version: for example a run, which `loadFolder` returns when
 * the page is opened again. Only files that changed are written.
 * @throws InputError without the folder, and in a browser that keeps no files or has no room.
 */
export async function keepFolder(folder: string): Promise<void> {
  checkGiven('folder of keepFolder', folder, 'a text')
  const place = resolve(folder)
  const files = snapshot(place)
  await alone(place, async () => {
    const home = await homeOf(place, true)
    const kept = await indexOf(home!)
    const before = known.get(place)
    const names: Names = new Map()
    for (const [path, bytes] of files) {
      const former = before?.get(path)
      const isSame = former !== undefined && former.bytes === bytes && kept?.[path] === former.name
      const name = isSame ? former.name : `${Date.now()}-${processNumber}-${++lastFile}`
      if (!isSame) await write(home!, name, bytes)
      names.set(path, { name, bytes })
    }
    const index = Object.fromEntries([...names].map(([path, { name }]) => [path, name]))
    await write(home!, INDEX, new TextEncoder().encode(JSON.stringify(index)))
    known.set(place, names)
    const used = new Set([INDEX, ...Object.values(index)])
    for await (const name of home!.keys()) if (!used.has(name)) await home!.removeEntry(name)
  })
}

/** Reads a kept folder into the page's memory. Returns whether there was one. @throws InputError where this browser keeps no files. */
export async function loadFolder(folder: string): Promise<boolean> {
  checkGiven('folder of loadFolder', folder, 'a text')
  const place = resolve(folder)
  return alone(place, async () => {
    const home = await homeOf(place, false)
    const index = home && (await indexOf(home))
    if (!home || !index) return false
    for (const [path, name] of Object.entries(index)) {
      const file = await (await home.getFileHandle(name)).getFile()
      await writeFile(join(place, path), new Uint8Array(await file.arrayBuffer()))
    }
    const files = snapshot(place)
    known.set(place, new Map(Object.entries(index).map(([path, name]) => [path, { name, bytes: files.get(path)! }])))
    return true
  })
}

/** The kept folders, by path. @throws InputError where this browser keeps no files. */
export async function keptFolders(): Promise<string[]> {
  const found: string[] = []
  for await (const name of (await root()).keys()) found.push(decodeURIComponent(name))
  return found.sort()
}

/** Forgets a kept folder; in memory it stays. @throws InputError where this browser keeps no files. */
export async function forgetFolder(folder: string): Promise<void> {
  checkGiven('folder of forgetFolder', folder, 'a text')
  const place = resolve(folder)
  await alone(place, async () => {
    known.delete(place)
    if (await homeOf(place, false)) await (await root()).removeEntry(encodeURIComponent(place), { recursive: true })
  })
}

/** Runs an action while no other page or worker of this site has the folder. */
function alone<T>(place: string, action: () => Promise<T>): Promise<T> {
  return navigator.locks.request(`colonnade ${place}`, action) as Promise<T>
}

async function root(): Promise<FileSystemDirectoryHandle> {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(HOME, { create: true })
  } catch (cause) {
    const expected = 'a browser with a private file system, and a page by https or from this machine'
    throw new InputError('kept folders', (cause as Error).message, expected, { cause })
  }
}

/** The place of a kept folder; undefined if it is not kept and should not be created. */
async function homeOf(place: string, create: boolean): Promise<FileSystemDirectoryHandle | undefined> {
  return (await root()).getDirectoryHandle(encodeURIComponent(place), { create }).catch(onlyMissing)
}

/** Which file has the bytes of each path; undefined before a folder was kept as a whole. */
async function indexOf(home: FileSystemDirectoryHandle): Promise<Readonly<Record<string, string>> | undefined> {
  const handle = await home.getFileHandle(INDEX).catch(onlyMissing)
  if (handle === undefined) return undefined
  const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer())
  return parseJsonObject(`index of ${decodeURIComponent(home.name)}`, bytes) as Record<string, string>
}

function onlyMissing(cause: Error): undefined {
  if (cause.name !== 'NotFoundError') throw cause
}

/** A file appears, or is replaced, as a whole when its stream is closed. */
async function write(home: FileSystemDirectoryHandle, name: string, bytes: Uint8Array): Promise<void> {
  try {
    const stream = await (await home.getFileHandle(name, { create: true })).createWritable()
    await stream.write(bytes.slice())
    await stream.close()
  } catch (cause) {
    throw new InputError(
      `kept folder ${decodeURIComponent(home.name)}`,
      (cause as Error).message,
      'room for its files',
      {
        cause,
      },
    )
  }
}
