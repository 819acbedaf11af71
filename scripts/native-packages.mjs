// npm run native:packages [-- PLATFORM …]
//
// Cross-compiles the native kernels for every platform of native-platforms.mjs (or those named) by `zig cc`, and packs them: in
// dist/packages a folder and a tarball for each, and with all of them one of Colonnade itself, whose optional dependencies they are.
// npm installs the one of a user's platform. The repository's own package.json does not name them: they have the same version, so
// a registry knows them only once they are published. `ZIG` is the command, else `zig`; `pip install ziglang` brings it, and
// ZIG='python3 -m ziglang' then runs it. Prints each tarball's size. Each addon has to
// export what Node asks it for, and nothing else.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildAddon } from './native-addon.mjs'
import { readExports } from './native-exports.mjs'
import { PLATFORMS } from './native-platforms.mjs'
import { pack, packNative } from './packed.mjs'

/** Bytes of a platform's package, unpacked. */
const BYTES_MAX = 2e6
/** What Node asks an addon for, and what Zig's linker exports of each library for macOS besides. */
const EXPORTS = ['napi_register_module_v1', 'node_api_module_get_api_version_v1']
const LINKED = { darwin: ['__dso_handle', '_mh_dylib_header'] }

const packages = fileURLToPath(new URL('../dist/packages', import.meta.url))
const zig = (process.env.ZIG ?? 'zig').split(' ')
const named = process.argv.slice(2)
for (const name of named) {
  if (PLATFORMS[name] === undefined)
    fail(`platform: got "${name}", expected one of ${Object.keys(PLATFORMS).join(', ')}`)
}
const { error, status } = spawnSync(zig[0], [...zig.slice(1), 'version'])
if (error !== undefined || status !== 0) {
  fail(
    `zig: "${zig.join(' ')} version" cannot be run; \`pip install ziglang\` brings it, and ZIG='python3 -m ziglang' names it`,
  )
}

mkdirSync(packages, { recursive: true })
for (const platform of named.length > 0 ? named : Object.keys(PLATFORMS)) {
  const { os, cpu, target } = PLATFORMS[platform]
  const out = join(packages, 'build', platform)
  rmSync(out, { recursive: true, force: true })
  mkdirSync(out, { recursive: true })
  await buildAddon({
    ...{ out, os, cpu, compiler: [...zig, 'cc', '-target', target] },
    ...{ flags: ['-g0'], linked: os === 'win32' ? ['-s', importLibrary(out)] : ['-s'] },
  })
  const addon = join(out, 'native.node')
  checkExports(platform, readExports(readFileSync(addon)))
  const { tarball, size, unpackedSize } = packNative(packages, platform, addon)
  if (unpackedSize > BYTES_MAX) fail(`${platform}: got ${unpackedSize} bytes, expected at most ${BYTES_MAX}`)
  console.log(`${tarball}: ${kilobytes(size)} packed, ${kilobytes(unpackedSize)} unpacked`)
}
if (named.length === 0) {
  const { tarball, size, unpackedSize } = pack(packages, Object.keys(PLATFORMS))
  console.log(`${tarball}: ${kilobytes(size)} packed, ${kilobytes(unpackedSize)} unpacked`)
}

/** What an addon on Windows finds Node-API in: the library of node.exe's symbols. */
function importLibrary(out) {
  const definitions = join(dirname(createRequire(import.meta.url).resolve('node-api-headers')), 'def/node_api.def')
  const library = join(out, 'node.lib')
  const words = [...zig.slice(1), 'dlltool', '-m', 'i386:x86-64', '-D', 'node.exe', '-d', definitions, '-l', library]
  const { status, stderr } = spawnSync(zig[0], words, { encoding: 'utf8' })
  if (status !== 0 || !existsSync(library)) fail(`zig dlltool ended with ${status}: ${stderr}`)
  return library
}

/** Ends where an addon is for another machine, or where Node would not find what it registers itself by. */
function checkExports(platform, { os, cpu, names, signed }) {
  const expected = PLATFORMS[platform]
  if (os !== expected.os || cpu !== expected.cpu) fail(`${platform}: got an addon for ${os} ${cpu}`)
  const exported = [...(LINKED[os] ?? []), ...EXPORTS]
  if (`${names.toSorted()}` !== `${exported}`) fail(`${platform}: got the exports ${names}, expected ${exported}`)
  if (platform === 'darwin-arm64' && !signed) fail(`${platform}: got an addon without a signature`)
}

function fail(message) {
  console.error(message)
  process.exit(1)
}

function kilobytes(bytes) {
  return `${(bytes / 1e3).toFixed(0)} kB`
}
