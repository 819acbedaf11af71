// Compiles the native bodies, src/kernels/**/*.native.c, and the way to them into an addon of Node-API. Each source is compiled
// once for each level of the processor.
import { execFile, spawn } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { LEVELS } from './native-platforms.mjs'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
/** Nothing is fused or reordered that the source does not ask for, at any level. */
const FLAGS = [
  ...['-std=gnu17', '-O3', '-fvisibility=hidden', '-ffp-contract=off', '-fno-math-errno', '-fno-trapping-math'],
  ...['-Wall', '-Wextra', '-Werror=incompatible-pointer-types', '-Wno-cast-function-type', '-Wno-unused-parameter'],
]

const all = readdirSync(folder, { recursive: true }).map((name) => join(folder, name))
/** Those with bodies for the processor: the others are WebAssembly alone. */
const sources = all.filter(
  (name) => name.endsWith('.native.c') && /^(WORTH|BEYOND)\(/m.test(readFileSync(name, 'utf8')),
)

/** The levels for a processor of which the machine that builds has the best; all where the compiler does not tell what it has. */
export async function bestLevels(compiler, cpu) {
  const levels = LEVELS[cpu]
  if (cpu !== 'x64') return levels
  const { stdout } = await promisify(execFile)(compiler[0], [
    ...compiler.slice(1),
    '-march=native',
    '-dM',
    '-E',
    '-xc',
    '/dev/null',
  ])
  const has = (feature) => stdout.includes(`#define __${feature.toUpperCase()}__ `)
  const best = Object.entries(levels).findLast(([, { features }]) => features.every(has))
  if (best === undefined) return levels
  const [name, { beyond }] = best
  return Object.fromEntries(Object.entries(levels).filter(([each]) => each === name || each === beyond?.level))
}

/** When the newest of what an addon is made of was changed, in ms. */
export function lastChange() {
  const made = ['native-addon.mjs', 'native-glue.mjs', 'native-platforms.mjs', 'kernel-twins.mjs']
  const read = all.filter((name) => /\.native\.[ch]$/.test(name))
  return Math.max(...[...read, ...made.map((name) => join(scripts, name))].map((path) => statSync(path).mtimeMs))
}

/**
 * Builds `native.node` in a folder.
 * @param {{ out: string, compiler: string[], os: string, cpu: string, flags?: string[], linked?: string[], canPrecompile?: boolean,
 *   levels?: Record<string, object> }} options
 *   `compiler`: its command; `os`, `cpu`: by Node's names; `flags` besides the usual ones; `linked`: what is linked besides;
 *   `levels`: some of LEVELS, else all for the processor;
 *   `canPrecompile`: whether the compiler keeps a header that it has read, as gcc and clang do: it takes half of the time
 * @throws {Error} that says why it could not be built
 */
export async function buildAddon({
  out,
  compiler,
  os,
  cpu,
  flags = [],
  linked = [],
  canPrecompile = false,
  levels = LEVELS[cpu],
}) {
  if (levels === undefined) throw new Error(`there are none for ${cpu}`)
  const headers = headersFolder()
  if (headers === undefined)
    throw new Error("no headers of Node-API: neither the package node-api-headers nor Node's own")
  const usual = [...FLAGS, ...(os === 'win32' ? [] : ['-fPIC']), ...flags]
  const compile = (cwd, words) => run(cwd, [...compiler, ...usual, ...words])
  const { readTwins, REGISTRIES, registryAt } = await import('./kernel-twins.mjs')
  const { glueOf, prototypesOf } = await import('./native-glue.mjs')
  const twins = twinsWithBodies(REGISTRIES.flatMap((registry) => readTwins(registryAt(registry))))
  mkdirSync(out, { recursive: true })
  writeFileSync(join(out, 'kernels.native.h'), prototypesOf(twins))
  writeFileSync(join(out, 'glue.c'), glueOf(twins, levels))
  // Zig compiles one source a call.
  const objects = await Promise.all([
    compile(out, [`-I${headers}`, '-c', 'glue.c', '-o', 'glue.o']).then(() => ['glue.o']),
    ...Object.entries(levels).map(async ([level, { flags, beyond }]) => {
      mkdirSync(join(out, level), { recursive: true })
      const made = []
      const words = [...flags, `-DLEVEL=${level}`, '-I.']
      if (canPrecompile) {
        const header = join(level, 'vector.native.h')
        copyFileSync(join(folder, 'vector.native.h'), join(out, header))
        await compile(out, [...words, '-x', 'c-header', header, '-o', `${header}.gch`])
        words.push('-include', header)
      }
      for (const source of sources) {
        if (beyond !== undefined && !beyond.sources.includes(basename(source))) continue
        const object = join(level, basename(source).replace(/c$/, 'o'))
        await compile(out, [...words, '-c', source, '-o', object])
        made.push(object)
      }
      return made
    }),
  ])
  // A process that has the addon open keeps the file that it opened.
  const fresh = `native.node.${process.pid}`
  const undefinedSymbols = os === 'darwin' ? ['-undefined', 'dynamic_lookup'] : []
  await compile(out, ['-shared', ...undefinedSymbols, '-o', fresh, ...objects.flat(), ...linked, '-lm'])
  renameSync(join(out, fresh), join(out, 'native.node'))
}

/** Those of all twins that have native bodies, in the order of these, each with the source of its body. */
function twinsWithBodies(known) {
  return sources.flatMap((path) => {
    const bodies = readFileSync(path, 'utf8').matchAll(/^(?:WORTH|BEYOND)\((\w+).*\)\n\w+ KERNEL\(\1\)/gm)
    return [...bodies].map(([, name]) => {
      const twin = known.find((twin) => twin.name === name)
      if (twin === undefined) throw new Error(`native kernels: got ${name}, expected the name of a kernel`)
      return { ...twin, source: basename(path) }
    })
  })
}

/** Runs the compiler in a folder; what it has to say is the error's message. */
function run(cwd, [command, ...words]) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, words, { cwd, stdio: ['ignore', 'inherit', 'pipe'] })
    let said = ''
    child.stderr.on('data', (text) => {
      said += text
    })
    child.on('error', () => reject(new Error(`no C compiler: ${command} cannot be run`)))
    child.on('close', (code) => {
      if (said !== '') process.stderr.write(said)
      if (code === 0) resolve()
      else reject(new Error(`${command} failed: ${said.split('\n').find((line) => line.includes('error')) ?? code}`))
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
