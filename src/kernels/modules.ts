/** The compiled modules of the kernels: after the build, files beside this one. A page has another body (`modules.page.ts`). */
import { InputError } from '../base/errors.ts'
import { ownFile } from '../base/files/own-files.ts'
import type { WebAssemblyBuild } from './kernels.ts'
import { unshared } from './unshared.ts'

/** The modules, whether this file runs from src or from dist. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/src/kernels/' : './', import.meta.url)

/** Whether modules can be read here. */
export const hasModules: boolean = builtin('node:fs') !== undefined

/** The bytes of modules, by the name of their build or of what is of its own. */
export type Modules = Readonly<Record<string, Uint8Array<ArrayBuffer>>>

/** Lets modules of a build be read, or takes those that another thread loaded. Returns all where another thread could not load them. */
export async function loadModule(_build: WebAssemblyBuild, _given?: Modules): Promise<Modules | undefined> {
  return undefined // A file can be read at any time.
}

/** The bytes of a build's module, for a memory that is shared or not. */
export function readModule(build: WebAssemblyBuild, isShared: boolean): Uint8Array<ArrayBuffer> {
  const bytes = readShared(build)
  return isShared ? bytes : unshared(bytes)
}

/** Reads a module of kernels that stand beside those of all builds, for shared memory. `_text`: in a page, its bytes as text. */
export function ownModule(name: string, _text = ''): () => Uint8Array<ArrayBuffer> {
  return () => readShared(name)
}

/** The bytes of a module for shared memory that the build left beside this file. @throws InputError if it is not there. */
function readShared(name: string): Uint8Array<ArrayBuffer> {
  const file = `${name}.shared.wasm`
  try {
    return readBytes(ownFile(new URL(file, folder)))
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    throw new InputError('kernels', `no ${file} in ${folder.pathname}`, 'compiled kernels there: run `npm run build`', {
      cause,
    })
  }
}

/** A file's bytes. @throws InputError in a runtime that cannot read files. */
export function readBytes(url: URL): Uint8Array<ArrayBuffer> {
  const fs = builtin('node:fs')
  if (fs === undefined)
    throw new InputError('kernels', 'a runtime that cannot read files', 'Node for compiled kernels, or plain')
  return new Uint8Array(fs.readFileSync(url))
}

/** A module of Node's own; undefined elsewhere. */
function builtin(name: 'node:fs') {
  const runtime = globalThis.process as NodeJS.Process | undefined
  return runtime?.getBuiltinModule?.(name)
}
