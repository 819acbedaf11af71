/**
 * Locates Colonnade's own files: worker threads, compiled kernels, and modules of definitions. They are around the
 * module that names them. A bundler moves code without these files; then the installed package's are used. The build
 * passes every `import.meta.url` through `ownUrl`.
 */
import { InputError } from '../errors.ts'
import { VERSION } from '../version.ts'

/** A file that identifies Colonnade's folder. */
const MARK = 'kernels/simd.shared.wasm'

/** The folder of Colonnade's modules, ending in a slash, and whether its files are there. */
interface Home {
  readonly url: string
  readonly isThere: boolean
}

const home = findHome()

function findHome(): Home {
  // A CommonJS bundle has no module URL.
  const here = import.meta.url as string | undefined
  const runtime = globalThis.process as NodeJS.Process | undefined
  const fs = runtime?.getBuiltinModule?.('node:fs')
  const beside = here === undefined ? undefined : new URL('./', here)
  if (runtime === undefined || fs === undefined) return { url: String(beside), isThere: true }
  // This module is two folders deep; in a one-file bundle, at the top.
  for (const folder of here === undefined ? [] : ['./', '../../']) {
    const around = new URL(folder, here)
    if (fs.existsSync(new URL(MARK, around))) return { url: around.href, isThere: true }
  }
  const { createRequire } = runtime.getBuiltinModule('node:module')
  const { pathToFileURL } = runtime.getBuiltinModule('node:url')
  // Never the working directory, which may be untrusted.
  for (const place of [here, runtime.argv[1]]) {
    if (place === undefined) continue
    try {
      const require = createRequire(place)
      const manifest = require.resolve('colonnade/package.json')
      const url = new URL('./dist/src/', pathToFileURL(manifest))
      const isSame = (require(manifest) as { readonly version: string }).version === VERSION
      if (isSame && fs.existsSync(new URL(MARK, url))) return { url: url.href, isThere: true }
    } catch {} // It is not installed there.
  }
  return { url: (beside ?? new URL('./', pathToFileURL(runtime.argv[1] ?? './'))).href, isThere: false }
}

/** The URL of a module of Colonnade by its path in `src`. */
export function ownUrl(path: string): string {
  return new URL(path, home.url).href
}

/** The URL of an existing file of Colonnade. @throws InputError in a bundle without the installed package. */
export function ownFile(url: URL): URL {
  if (home.isThere) return url
  const name = url.pathname.split('/').at(-1)!
  throw new InputError(
    `colonnade's ${name}`,
    'a bundle without the files of the package',
    `colonnade ${VERSION} installed where the bundle runs (npm install colonnade@${VERSION}, or copy node_modules/colonnade)`,
  )
}
