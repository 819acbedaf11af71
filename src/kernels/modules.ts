/** The compiled modules of the kernels: after the build, files beside this one. A page has another body (`modules.page.ts`). */
import { InputError } from '../base/errors.ts'
import { ownFile } from '../base/files/own-files.ts'
import type { WebAssemblyBuild } from './kernels.ts'
import { unshared } from './unshared.ts'

/** The modules, whether this file runs from src or from dist. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/src/kernels/' : './', import.meta.url)

/** Whether modules can be read here. */
export const hasModules: boolean = builtin('node:fs') !== undefined

/** Lets modules of a build be read, or takes one's bytes. Returns the bytes where another thread could not load them. */
export async function loadModule(
  _build: WebAssemblyBuild,
  _given?: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  return undefined // A file can be read at any time.
}

/** The bytes of a build's module, for a memory that is shared or not. */
export function readModule(build: WebAssemblyBuild, isShared: boolean): Uint8Array<ArrayBuffer> {
  const bytes = readOwnModule(`${build}.shared.wasm`)
  return isShared ? bytes : unshared(bytes)
}

/** The bytes of a module for shared memory that the build left beside this file. @throws InputError if it is not there. */
export function readOwnModule(file: string): Uint8Array<ArrayBuffer> {
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
