// npm run wasm [-- --check]
//
// Builds the WebAssembly of the kernels in C (wasm.mjs) into src/kernels/wasm, for whoever changes them. `ZIG` is the compiler's
// command, else `zig`; `pip install ziglang` brings it, and ZIG='python3 -m ziglang' then runs it. With `--check` it builds and
// writes nothing, and fails where what is kept there has other bytes.
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { BUILDS, buildWasm, hashOfSources, KEPT } from './wasm.mjs'

const zig = (process.env.ZIG ?? 'zig').split(' ')
const checks = process.argv.includes('--check')
const modules = await Promise.all(Object.keys(BUILDS).map(async (build) => [build, await buildWasm(zig, build)]))
for (const [build, bytes] of modules) {
  const path = join(KEPT, `${build}.wasm`)
  mkdirSync(KEPT, { recursive: true })
  if (!checks) writeFileSync(path, bytes)
  else if (!bytes.equals(readFileSync(path))) {
    console.error(`${path}: other bytes than its sources give: \`npm run wasm\` builds it`)
    process.exitCode = 1
  }
}
const hashOf = (bytes) => createHash('sha256').update(bytes).digest('hex')
const hashes = Object.fromEntries([
  ['sources', hashOfSources()],
  ...modules.map(([build, bytes]) => [build, hashOf(bytes)]),
])
if (!checks) writeFileSync(join(KEPT, 'hashes.json'), `${JSON.stringify(hashes, null, 2)}\n`)
console.log(modules.map(([build, { length }]) => `${build}: ${length} bytes`).join(', '))
