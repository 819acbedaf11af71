/**
 * The body of `modules.ts` in a page. The module of each build is compressed text in a JavaScript module, so that every bundler includes it
 * and a page loads only the build that it can run.
 */
import { InputError } from '../base/errors.ts'
import type * as node from './modules.ts'
import { unshared } from './unshared.ts'

export const hasModules: typeof node.hasModules = true

// The build writes these two modules.
// @ts-expect-error: they are not among the sources.
const relaxed = (): Promise<{ readonly text: string }> => import('./relaxed-module.js')
// @ts-expect-error: they are not among the sources.
const simd = (): Promise<{ readonly text: string }> => import('./simd-module.js')

const loaded = new Map<string, Uint8Array<ArrayBuffer>>()

export type { Modules } from './modules.ts'

export const loadModule: typeof node.loadModule = async (build, given = {}) => {
  for (const [name, bytes] of Object.entries(given)) loaded.set(name, bytes)
  if (!loaded.has(build)) loaded.set(build, await unpack((await (build === 'relaxed' ? relaxed() : simd())).text))
  return Object.fromEntries(loaded)
}

const bytesOf = (text: string) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))

async function unpack(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

function read(name: string): Uint8Array<ArrayBuffer> {
  const bytes = loaded.get(name)
  if (bytes !== undefined) return bytes
  throw new InputError('kernels', `${name}, which is not loaded`, 'await loadKernels() first')
}

export const readModule: typeof node.readModule = (build, isShared) => (isShared ? read(build) : unshared(read(build)))

/** A thread has no text: it gets the bytes with those of its build. */
export const ownModule: typeof node.ownModule = (name, text = '') => {
  if (text !== '') loaded.set(name, bytesOf(text))
  return () => read(name)
}

export const readBytes: typeof node.readBytes = ({ pathname }) => {
  throw new InputError(`compiled kernels ${pathname}`, 'a page, which cannot read files', 'plain kernels')
}
