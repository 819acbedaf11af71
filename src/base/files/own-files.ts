/**
 * Where Colonnade's own files are: the threads that it starts, the compiled kernels, the modules of its definitions. They
 * lie around the module that names them. A bundler moves the code into a program of somebody's and leaves the files behind;
 * they are then those of the installed package. The build puts every `import.meta.url` through `ownUrl`.
 */
import { InputError } from '../errors.ts'
import { VERSION } from '../version.ts'

/** A file that lies in this folder where Colonnade's files do, and in no program of somebody's. */
const MARK = 'kernels/simd.shared.wasm'

/** The folder of Colonnade's modules, ending in a slash, and whether its files are there. */
interface Home {
  readonly url: string
  readonly isThere: boolean
}

const home = findHome()

function findHome(): Home {
  // A bundler that writes CommonJS leaves no address of the module.
  const here = import.meta.url as string | undefined
  const runtime = globalThis.process as NodeJS.Process | undefined
  const fs = runtime?.getBuiltinModule?.('node:fs')
  const beside = here === undefined ? undefined : new URL('./', here)
  if (runtime === undefined || fs === undefined) return { url: String(beside), isThere: true }
  // This module lies two folders deep; linked into one file with others, at the top.
  for (const folder of here === undefined ? [] : ['./', '../../']) {
    const around = new URL(folder, here)
    if (fs.existsSync(new URL(MARK, around))) return { url: around.href, isThere: true }
  }
  const { createRequire } = runtime.getBuiltinModule('node:module')
  const { pathToFileURL } = runtime.getBuiltinModule('node:url')
  // Never the working directory: it may be a folder from somebody else.
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

/** The address of a module of Colonnade's by its path from `src`. */
export function ownUrl(path: string): string {
  return new URL(path, home.url).href
}

/**
 * The address of a file of Colonnade's that is about to be read or run.
 * @throws InputError in a bundle beside which the package is not installed.
 */
export function ownFile(url: URL): URL {
  if (home.isThere) return url
  const name = url.pathname.split('/').at(-1)!
  throw new InputError(
    `colonnade's ${name}`,
    'a bundle without the files of the package',
    `colonnade ${VERSION} installed where the bundle runs (npm install colonnade@${VERSION}, or copy node_modules/colonnade)`,
  )
}
