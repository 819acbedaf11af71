// Builds the native bodies: an addon of Node-API, dist/native/native.node, from src/kernels/**/*.native.c, where there are a C
// compiler (CC, else cc; with the flags CFLAGS besides) and Node's headers. Says what it did. Where it cannot, nothing fails:
// dist/native/why.txt says why, and the runtime (src/kernels/native.ts) tells it. Each source is compiled once for each level of
// the processor.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
const out = join(scripts, '../dist/native')
const addon = join(out, 'native.node')
const why = join(out, 'why.txt')
const compiler = process.env.CC ?? 'cc'

/** What the processor must have, by level, and the compiler's flags for it. */
const LEVELS = {
  avx2: { features: ['avx2', 'fma'], flags: ['-mavx2', '-mfma'] },
  avx512: {
    features: ['avx512f', 'avx512bw', 'avx512dq', 'avx512vl'],
    flags: ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mfma', '-mprefer-vector-width=512'],
  },
}
/** Nothing is fused or reordered that the source does not ask for, at any level. */
const FLAGS = [
  ...[
    '-std=gnu17',
    '-O3',
    '-fPIC',
    '-fvisibility=hidden',
    '-ffp-contract=off',
    '-fno-math-errno',
    '-fno-trapping-math',
  ],
  ...(process.env.CFLAGS ?? '').split(' ').filter((flag) => flag !== ''),
  ...['-Wall', '-Wextra', '-Werror=incompatible-pointer-types', '-Wno-cast-function-type', '-Wno-unused-parameter'],
]

const all = readdirSync(folder, { recursive: true }).map((name) => join(folder, name))
const sources = all.filter((name) => name.endsWith('.native.c'))
const made = ['build-native.mjs', 'native-glue.mjs', 'kernel-twins.mjs'].map((name) => join(scripts, name))
const read = all.filter((name) => /\.native\.[ch]$/.test(name) || name.endsWith('.simd.ts'))
const newest = Math.max(...[...read, ...made].map((path) => statSync(path).mtimeMs))

if (!(existsSync(addon) && statSync(addon).mtimeMs > newest)) {
  mkdirSync(out, { recursive: true })
  const start = performance.now()
  const reason = await build().catch((error) => error.message)
  if (reason === undefined) {
    rmSync(why, { force: true })
    console.log(`native kernels: built with ${compiler} in ${((performance.now() - start) / 1000).toFixed(1)} s`)
  } else {
    rmSync(addon, { force: true })
    writeFileSync(why, `${reason}\n`)
    console.log(`native kernels: not built (${reason}); the others are there`)
  }
}

/** Builds the addon. What it returns says why it did not; undefined where it did. */
async function build() {
  if (process.arch !== 'x64') return `there are none for ${process.arch} yet`
  if (process.platform === 'win32') return 'there are none for Windows yet'
  const headers = headersFolder()
  if (headers === undefined) return "no headers of Node-API: neither the package node-api-headers nor Node's own"
  const { readTwins } = await import('./kernel-twins.mjs')
  const { glueOf, prototypesOf } = await import('./native-glue.mjs')
  const names = sources.flatMap((path) =>
    [...readFileSync(path, 'utf8').matchAll(/^WORTH\((\w+), .+\)\n\w+ KERNEL\(\1\)/gm)].map(([, name]) => name),
  )
  const known = readTwins()
  const twins = names.map((name) => {
    const twin = known.find((twin) => twin.name === name)
    if (twin === undefined) throw new Error(`native kernels: got ${name}, expected the name of a SIMD twin`)
    return twin
  })
  const features = Object.fromEntries(Object.entries(LEVELS).map(([level, { features }]) => [level, features]))
  writeFileSync(join(out, 'kernels.native.h'), prototypesOf(twins))
  writeFileSync(join(out, 'glue.c'), glueOf(twins, features))
  await Promise.all([
    compile(out, [`-I${headers}`, '-c', 'glue.c']),
    ...Object.entries(LEVELS).map(([level, { flags }]) => {
      const into = join(out, level)
      mkdirSync(into, { recursive: true })
      return compile(into, [...flags, `-DLEVEL=${level}`, `-I${out}`, '-c', ...sources])
    }),
  ])
  const objects = Object.keys(LEVELS).flatMap((level) =>
    sources.map((path) => join(out, level, basename(path).replace(/c$/, 'o'))),
  )
  // A process that has the addon open keeps the file that it opened.
  const fresh = `${addon}.${process.pid}`
  const linked = process.platform === 'darwin' ? ['-undefined', 'dynamic_lookup'] : []
  await compile(out, ['-shared', ...linked, '-o', fresh, 'glue.o', ...objects, '-lm'])
  renameSync(fresh, addon)
}

/** Runs the compiler in a folder; what it has to say is the error's message. */
function compile(cwd, given) {
  return new Promise((resolve, reject) => {
    const child = spawn(compiler, [...FLAGS, ...given], { cwd, stdio: ['ignore', 'inherit', 'pipe'] })
    let said = ''
    child.stderr.on('data', (text) => {
      said += text
    })
    child.on('error', () => reject(new Error(`no C compiler: ${compiler} cannot be run`)))
    child.on('close', (code) => {
      if (said !== '') process.stderr.write(said)
      if (code === 0) resolve()
      else reject(new Error(`${compiler} failed: ${said.split('\n').find((line) => line.includes('error')) ?? code}`))
    })
  })
}

/** Where node_api.h lies; undefined where it is not. */
function headersFolder() {
  const candidates = [join(dirname(process.execPath), '../include/node')]
  try {
    candidates.unshift(createRequire(import.meta.url)('node-api-headers').include_dir)
  } catch {
    // The package is for development; Node brings its own headers in most places.
  }
  return candidates.find((path) => existsSync(join(path, 'node_api.h')))
}
