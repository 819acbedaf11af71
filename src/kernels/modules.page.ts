/**
 * The body of `modules.ts` in a page. The module of each build is compressed text in a JavaScript module, so that every bundler includes it
 * and a page loads only the build that it can run.
 */
import { InputError } from '../base/errors.ts'
import type { WebAssemblyBuild } from './kernels.ts'
import type * as node from './modules.ts'
import { unshared } from './unshared.ts'

export const hasModules: typeof node.hasModules = true

// The build writes these two modules.
// @ts-expect-error: they are not among the sources.
const relaxed = (): Promise<{ readonly text: string }> => import('./relaxed-module.js')
// @ts-expect-error: they are not among the sources.
const simd = (): Promise<{ readonly text: string }> => import('./simd-module.js')

const loaded = new Map<WebAssemblyBuild, Uint8Array<ArrayBuffer>>()

export const loadModule: typeof node.loadModule = async (build, given) => {
  const bytes = given ?? loaded.get(build) ?? (await unpack((await (build === 'relaxed' ? relaxed() : simd())).text))
  loaded.set(build, bytes)
  return bytes
}

async function unpack(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

export const readModule: typeof node.readModule = (build, isShared) => {
  const bytes = loaded.get(build)
  if (bytes === undefined) throw new InputError('kernels', `${build}, which is not loaded`, 'await loadKernels() first')
  return isShared ? bytes : unshared(bytes)
}

export const readBytes: typeof node.readBytes = ({ pathname }) => {
  throw new InputError(`compiled kernels ${pathname}`, 'a page, which cannot read files', 'plain kernels')
}
