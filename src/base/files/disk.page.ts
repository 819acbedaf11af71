/**
 * The body of `disk.ts` in a page: files in memory, until the page is closed. Paths of folders end in a slash. Errors have Node's codes.
 */
import { InputError } from '../errors.ts'
import type * as node from './disk.ts'
import { dirname, resolve } from './path.ts'

export const APPENDING: typeof node.APPENDING = 0

interface Open {
  readonly place: string
}
export type OpenFile = node.OpenFile

const files = new Map<string, Uint8Array>()
const folders = new Set(['/'])

class DiskError extends Error {
  override readonly name = 'DiskError'
  readonly code: string

  constructor(code: string, path: string) {
    super(`${code}: ${path}`)
    this.code = code
  }
}

function fileAt(path: string): Uint8Array {
  const place = resolve(path)
  const bytes = files.get(place)
  if (bytes === undefined) throw new DiskError(folders.has(place) ? 'EISDIR' : 'ENOENT', path)
  return bytes
}

function put(path: string, bytes: Uint8Array): void {
  const place = resolve(path)
  if (!folders.has(dirname(place))) throw new DiskError('ENOENT', path)
  if (folders.has(place)) throw new DiskError('EISDIR', path)
  files.set(place, bytes)
}

function extend(path: string, bytes: Uint8Array): void {
  const before = files.get(resolve(path)) ?? new Uint8Array()
  const whole = new Uint8Array(before.length + bytes.length)
  whole.set(before)
  whole.set(bytes, before.length)
  put(path, whole)
}

function below(place: string, paths: Iterable<string>): string[] {
  return [...paths].filter((path) => path === place || path.startsWith(`${place}/`))
}

export const disk: typeof node.disk = {
  async open(path, flags) {
    const place = resolve(path)
    if (flags === 'r' && !folders.has(place)) fileAt(path)
    if (flags === 'wx' && files.has(place)) throw new DiskError('EEXIST', path)
    if (flags === 'w' || flags === 'wx' || (flags === 'a' && !files.has(place))) put(path, new Uint8Array())
    return { place } satisfies Open as unknown as OpenFile
  },
  async write(handle, bytes, from) {
    extend((handle as unknown as Open).place, bytes.subarray(from))
    return bytes.byteLength - from
  },
  async sync() {},
  async close() {},
  append(path, data) {
    extend(path, typeof data === 'string' ? new TextEncoder().encode(data) : data)
  },
  async makeFolder(path) {
    const place = resolve(path)
    if (folders.has(place) || files.has(place)) throw new DiskError('EEXIST', path)
    if (!folders.has(dirname(place))) throw new DiskError('ENOENT', path)
    folders.add(place)
  },
  async list(path) {
    const place = resolve(path)
    if (!folders.has(place)) throw new DiskError(files.has(place) ? 'ENOTDIR' : 'ENOENT', path)
    const start = place === '/' ? place : `${place}/`
    const inside = [...folders, ...files.keys()].filter((each) => each !== place && dirname(each) === place)
    return inside.map((each) => each.slice(start.length))
  },
  async read(path, bytesMax = Number.POSITIVE_INFINITY) {
    const bytes = fileAt(path)
    if (bytes.length > bytesMax) throw new Error(`a file of ${bytes.length} bytes, more than the limit of ${bytesMax}`)
    return bytes.slice()
  },
  async kind(path) {
    const place = resolve(path)
    return files.has(place) ? 'file' : folders.has(place) ? 'folder' : null
  },
  async rename(from, to) {
    const [source, target] = [resolve(from), resolve(to)]
    if (files.has(source)) {
      put(to, fileAt(from))
      files.delete(source)
      return
    }
    if (!folders.has(source)) throw new DiskError('ENOENT', from)
    if (below(target, [...folders, ...files.keys()]).length > 0) throw new DiskError('ENOTEMPTY', to)
    for (const folder of below(source, folders)) {
      folders.delete(folder)
      folders.add(target + folder.slice(source.length))
    }
    for (const file of below(source, files.keys())) {
      files.set(target + file.slice(source.length), files.get(file)!)
      files.delete(file)
    }
  },
  async remove(path) {
    const place = resolve(path)
    for (const folder of below(place, folders)) folders.delete(folder)
    for (const file of below(place, files.keys())) files.delete(file)
  },
  async isFolder(path) {
    if (!folders.has(resolve(path))) fileAt(path)
    return folders.has(resolve(path))
  },
}

/** The bytes of all files below a folder, by path from it. They are never changed: a write replaces them. */
export function snapshot(folder: string): Map<string, Uint8Array> {
  const place = resolve(folder)
  if (!folders.has(place)) throw new InputError(folder, 'no such folder', 'a folder that this page has written')
  const start = place === '/' ? place : `${place}/`
  return new Map(
    [...files].flatMap(([path, bytes]) => (path.startsWith(start) ? [[path.slice(start.length), bytes]] : [])),
  )
}

export const openPlain: typeof node.openPlain = async (path) => {
  const { length } = fileAt(path)
  return { handle: await disk.open(path, 'r'), size: length, inode: 0 }
}

export const openPieces: typeof node.openPieces = (path) => {
  const bytes = fileAt(path)
  return {
    size: bytes.length,
    read(into, from) {
      if (from + into.length > bytes.length) throw new Error(`a file that ends at byte ${bytes.length}`)
      into.set(bytes.subarray(from, from + into.length))
    },
    close() {},
  }
}
