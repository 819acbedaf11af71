// Writes src/kernels/twins.ts, which hands the compiled bodies their arguments, and puts the modules that are kept in src/kernels/wasm
// (`npm run wasm` makes them) into dist/src/kernels: the baseline build and the one with relaxed SIMD (fused multiply-add), each for
// shared and for unshared memory. Skips what is made of these sources already. Every module imports its memory and holds no data
// segment, so that it may lie over any columns.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { begin, changedSources } from './stamp.mjs'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
const out = join(scripts, '../dist/src/kernels')
const binding = join(folder, 'twins.ts')

const targets = ['simd', 'relaxed'].flatMap((build) =>
  ['shared', 'unshared'].map((memory) => ({ build, memory, path: join(out, `${build}.${memory}.wasm`) })),
)
const isComplete = [binding, ...targets.map(({ path }) => path)].every((path) => existsSync(path))
if (changedSources('kernels').length > 0 || !isComplete) {
  const stamp = begin('kernels')
  const { bindingOf, readTwins } = await import('./kernel-twins.mjs')
  writeFileSync(binding, bindingOf(readTwins()))
  mkdirSync(out, { recursive: true })
  for (const { build, memory, path } of targets) {
    const bytes = readFileSync(join(folder, `wasm/${build}.wasm`))
    writeFileSync(path, memory === 'shared' ? bytes : unshared(bytes))
    checkModule(path)
  }
  stamp.done()
}

/** The module for a memory that is not shared, of one for shared memory: the flags of its one import, and no most pages. */
function unshared(bytes) {
  const IMPORT_SECTION = 2
  for (const { id, from, at, end } of sectionsOf(bytes)) {
    if (id !== IMPORT_SECTION) continue
    // One import: the names env and memory, the kind 2, flags, the least and the most pages in one and three bytes.
    const head = bytes.subarray(at, end - 5)
    const body = Buffer.concat([head, Buffer.from([0, bytes[end - 4]])])
    return Buffer.concat([bytes.subarray(0, from), Buffer.from([id, body.length]), body, bytes.subarray(end)])
  }
  throw new Error('no imports in a module of the kernels')
}

/** The sections of a module: where each begins, and its content. */
function* sectionsOf(bytes) {
  for (let at = 8; at < bytes.length; ) {
    const from = at
    const id = bytes[at++]
    let size = 0
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]
      size |= (byte & 127) << shift
      if (byte < 128) break
    }
    yield { id, from, at, end: at + size }
    at += size
  }
}

/** Throws if the module holds a data segment, or imports anything but its memory. */
function checkModule(path) {
  const bytes = readFileSync(path)
  const DATA_SECTION = 11
  for (const { id } of sectionsOf(bytes)) if (id === DATA_SECTION) throw new Error(`${path} holds static data`)
  if (!WebAssembly.validate(bytes)) return // This runtime cannot read it; one that can will say what is wrong.
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(bytes)).map(
    ({ module, name }) => `${module}.${name}`,
  )
  if (imports.join() !== 'env.memory') throw new Error(`${path} imports ${imports.join()}`)
}
