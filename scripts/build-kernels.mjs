// Compiles the SIMD kernels (src/kernels/entry.simd.ts, AssemblyScript) into dist/src/kernels: the baseline build and the
// one with relaxed SIMD (fused multiply-add), each for shared and for unshared memory. Skips what is newer than its
// sources. Every module imports its memory and holds no data segment, so that it may lie over any columns.
import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = join(root, 'src/kernels')
const out = join(root, 'dist/src/kernels')

const sources = readdirSync(folder, { recursive: true })
  .filter((name) => name.endsWith('.simd.ts'))
  .map((name) => join(folder, name))
const newest = Math.max(...[...sources, fileURLToPath(import.meta.url)].map((path) => statSync(path).mtimeMs))

mkdirSync(out, { recursive: true })
for (const build of ['simd', 'relaxed']) {
  for (const memory of ['shared', 'unshared']) {
    const target = join(out, `${build}.${memory}.wasm`)
    if (modifiedMs(target) > newest) continue
    await compile(target, build === 'relaxed', memory === 'shared')
    checkModule(target)
  }
}

async function compile(target, relaxed, shared) {
  const { default: asc } = await import('assemblyscript/asc')
  const { error, stderr } = await asc.main([
    join(folder, 'entry.simd.ts'),
    ...['--outFile', target, '--runtime', 'stub', '-O3', '--converge', '--noAssert'],
    ...['--importMemory', '--noExportMemory', '--enable', 'simd'],
    ...(relaxed ? ['--enable', 'relaxed-simd'] : []),
    ...(shared ? ['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536'] : []),
  ])
  if (error) {
    console.error(stderr.toString())
    throw error
  }
}

/** Throws if the module holds a data segment, or imports anything but its memory. */
function checkModule(path) {
  const bytes = readFileSync(path)
  const DATA_SECTION = 11
  for (let at = 8; at < bytes.length; ) {
    const id = bytes[at++]
    let size = 0
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]
      size |= (byte & 127) << shift
      if (byte < 128) break
    }
    if (id === DATA_SECTION) throw new Error(`${path} holds static data`)
    at += size
  }
  const section = WebAssembly.Module.imports
  if (!WebAssembly.validate(bytes)) return // This runtime cannot read it; one that can will say what is wrong.
  const imports = section(new WebAssembly.Module(bytes)).map(({ module, name }) => `${module}.${name}`)
  if (imports.join() !== 'env.memory') throw new Error(`${path} imports ${imports.join()}`)
}

function modifiedMs(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
