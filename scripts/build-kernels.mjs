// Writes src/kernels/twins.ts and src/kernels/grids/twins.ts, which hand the compiled bodies their arguments, and puts the modules that are kept in src/kernels/wasm
// (`npm run wasm` makes them) into dist/src/kernels: the baseline build, the one with relaxed SIMD (fused multiply-add), and that of grid games. Skips what is made of these sources already. Every module imports its memory and holds no data
// segment, so that it may lie over any columns.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { begin, changedSources } from './stamp.mjs'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
const out = join(scripts, '../dist/src/kernels')
const page = join(scripts, '../dist/page/kernels')

const targets = ['simd', 'relaxed', 'grids'].map((build) => ({ build, path: join(out, `${build}.shared.wasm`) }))
const bindings = ['twins.ts', 'grids/twins.ts'].map((name) => join(folder, name))
const isComplete = [...bindings, ...targets.map(({ path }) => path)].every((path) => existsSync(path))
if (changedSources('kernels').length > 0 || !isComplete) {
  const stamp = begin('kernels')
  const { bindingOf, readTwins, REGISTRIES, registryAt } = await import('./kernel-twins.mjs')
  REGISTRIES.forEach((registry, i) => {
    writeFileSync(bindings[i], bindingOf(readTwins(registryAt(registry)), registry))
  })
  for (const each of [out, page]) mkdirSync(each, { recursive: true })
  for (const { build, path } of targets) {
    copyFileSync(join(folder, `wasm/${build}.wasm`), path)
    checkModule(path)
    // For `src/kernels/modules.page.ts`, which unpacks it; and as it is for `src/kernels/grids/module.page.ts`, which cannot wait for that.
    const bytes = readFileSync(path)
    const text = (build === 'grids' ? bytes : gzipSync(bytes, { level: 9 })).toString('base64')
    writeFileSync(join(page, `${build}-module.js`), `export const text = '${text}'\n`)
  }
  stamp.done()
}

/** The sections of a module: their numbers. */
function* sectionsOf(bytes) {
  for (let at = 8; at < bytes.length; ) {
    const id = bytes[at++]
    let size = 0
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]
      size |= (byte & 127) << shift
      if (byte < 128) break
    }
    yield id
    at += size
  }
}

/** Throws if the module holds a data segment, or imports anything but its memory. */
function checkModule(path) {
  const bytes = readFileSync(path)
  const DATA_SECTION = 11
  for (const id of sectionsOf(bytes)) if (id === DATA_SECTION) throw new Error(`${path} holds static data`)
  if (!WebAssembly.validate(bytes)) return // This runtime cannot read it; one that can will say what is wrong.
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(bytes)).map(
    ({ module, name }) => `${module}.${name}`,
  )
  if (imports.join() !== 'env.memory') throw new Error(`${path} imports ${imports.join()}`)
}
