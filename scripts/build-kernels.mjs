// Builds the kernels. Writes src/kernels/twins.ts, which hands the SIMD twins their arguments, and puts the twins into
// dist/src/kernels: the baseline build and the one with relaxed SIMD (fused multiply-add), each for shared and for unshared memory.
// Those in AssemblyScript are compiled here, those in C are kept compiled in src/kernels/wasm (`npm run wasm`). Skips what is made of
// these sources already. Every module imports its memory and holds no data segment, so that it may lie over any columns.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { begin, changedSources } from './stamp.mjs'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
const out = join(scripts, '../dist/src/kernels')
const binding = join(folder, 'twins.ts')
const ENTRY = 'entry.simd.ts'

const changed = changedSources('kernels')
const areTwinsChanged = changed.some((path) => /\.simd\.ts$|plain\.ts$|\.mjs$/.test(path))

const fromC = ({ build, memory }) => join(out, `c.${build}.${memory}.wasm`)
const builds = ['simd', 'relaxed'].flatMap((build) => ['shared', 'unshared'].map((memory) => ({ build, memory })))
const targets = builds.map(({ build, memory }) => ({ build, memory, path: join(out, `${build}.${memory}.wasm`) }))
const old = targets.filter(({ path }) => areTwinsChanged || !existsSync(path))
const isComplete = [binding, ...builds.map(fromC)].every((path) => existsSync(path))
if (old.length > 0 || changed.length > 0 || !isComplete) {
  const stamp = begin('kernels')
  const { bindingOf, readTwins } = await import('./kernel-twins.mjs')
  const twins = readTwins()
  writeFileSync(binding, bindingOf(twins))
  mkdirSync(out, { recursive: true })
  const compiled = twins.filter(({ module }) => !module.endsWith('.c'))
  const entry = compiled.map(({ name, module }) => `export { ${name} } from '${module}'`).join('\n')
  for (const { build, memory, path } of old) {
    await compile(path, entry, build === 'relaxed', memory === 'shared')
    checkModule(path)
  }
  for (const target of builds) {
    const bytes = readFileSync(join(folder, `wasm/${target.build}.wasm`))
    writeFileSync(fromC(target), target.memory === 'shared' ? bytes : unshared(bytes))
    checkModule(fromC(target))
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

/** Compiles what a module exports that would lie in src/kernels. */
async function compile(target, entry, relaxed, shared) {
  const { default: asc } = await import('assemblyscript/asc')
  const readFile = (name) => {
    if (name === ENTRY) return entry
    try {
      return readFileSync(join(folder, name), 'utf8')
    } catch {
      return null
    }
  }
  const { error, stderr } = await asc.main(
    [
      ENTRY,
      ...['--outFile', target, '--runtime', 'stub', '-O3', '--converge', '--noAssert'],
      ...['--importMemory', '--noExportMemory', '--enable', 'simd'],
      ...(relaxed ? ['--enable', 'relaxed-simd'] : []),
      ...(shared ? ['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536'] : []),
    ],
    { readFile },
  )
  if (error) {
    console.error(stderr.toString())
    throw error
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
