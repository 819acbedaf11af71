// Builds the WebAssembly of the C kernels: its sources, the compiler's commands, and a hash of both. `npm run wasm`
// (build-wasm.mjs) writes it to src/kernels/wasm, which is in the repository, so only those who change the C sources need the
// compiler: clang, as `zig cc` of `pip install ziglang` has it.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { REGISTRIES, readTwins, registryAt } from './kernel-twins.mjs'
import { prototypesOf } from './native-glue.mjs'

const scripts = fileURLToPath(new URL('.', import.meta.url))
const folder = join(scripts, '../src/kernels')
/** Where the modules are kept: for shared memory. */
export const KEPT = join(folder, 'wasm')
/** The version of `ziglang` with which they are built: another may leave other instructions. */
export const COMPILER = '0.17.1'
const [KERNELS, GRIDS] = REGISTRIES
/** The modules, each with what the processor has to offer besides and with the registry of its kernels. Those of grids are all of integers: one build serves. */
export const BUILDS = {
  simd: { features: '', registry: KERNELS },
  relaxed: { features: '+relaxed_simd', registry: KERNELS },
  grids: { features: '', registry: GRIDS },
}

const FLAGS = [
  ...['--target=wasm32-freestanding', '-std=gnu17', '-O3', '-g0', '-fno-sanitize=all', '-Wall', '-Wextra'],
  ...['-Wno-unused-parameter', '-ffp-contract=off', '-fno-math-errno', '-fno-trapping-math'],
  // Four lanes at a time, and addresses as they are written: V8 has the registers for no more.
  ...['-mllvm', '-force-vector-interleave=1', '-mllvm', '-disable-lsr'],
]
const FEATURES = 'generic+simd128+bulk_memory+atomics+nontrapping_fptoint+sign_ext'
const LINK = [
  ...['--no-entry', '--import-memory', '--shared-memory', '--initial-memory=65536', '--max-memory=4294967296'],
  ...['-z', 'stack-size=0', '--global-base=0', '--strip-all'],
]

/**
 * A multiply-add of one or two numbers. WebAssembly fuses four: where a loop ends in fewer, LLVM would round the product and the sum
 * apart. They go through four, too.
 */
const maddOf = (count, type, widen, narrow) => `
define internal ${type} @madd_of_${count}(${type} %a, ${type} %b, ${type} %c) alwaysinline {
  %a4 = ${widen('%a')}
  %b4 = ${widen('%b')}
  %c4 = ${widen('%c')}
  %sums = call <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float> %a4, <4 x float> %b4, <4 x float> %c4)
  %some = ${narrow('%sums')}
  ret ${type} %some
}
`
const BOTH = '<i32 0, i32 1, i32 poison, i32 poison>'
const MADDS = {
  f32: maddOf(
    'f32',
    'float',
    (x) => `insertelement <4 x float> poison, float ${x}, i32 0`,
    (x) => `extractelement <4 x float> ${x}, i32 0`,
  ),
  v2f32: maddOf(
    'v2f32',
    '<2 x float>',
    (x) => `shufflevector <2 x float> ${x}, <2 x float> poison, <4 x i32> ${BOTH}`,
    (x) => `shufflevector <4 x float> ${x}, <4 x float> poison, <2 x i32> <i32 0, i32 1>`,
  ),
}
const RELAXED_MADD = 'declare <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float>, <4 x float>, <4 x float>)\n'

/** Fuses the multiply-adds of one and two numbers in the text of LLVM. */
function fuseAll(source, text) {
  const types = new Set([...text.matchAll(/@llvm\.fmuladd\.(\w+)/g)].map(([, type]) => type))
  types.delete('v4f32')
  let fused = text
  for (const type of types) {
    if (!(type in MADDS)) throw new Error(`${source}: got a multiply-add of ${type}, expected f32, v2f32 or v4f32`)
    const declared = new RegExp(`^declare .*@llvm\\.fmuladd\\.${type}\\(.*$`, 'm')
    fused = fused.replace(declared, '').replaceAll(`@llvm.fmuladd.${type}(`, `@madd_of_${type}(`) + MADDS[type]
  }
  const hasMadd = types.size === 0 || text.includes(RELAXED_MADD.slice(0, RELAXED_MADD.indexOf('(')))
  return fused + (hasMadd ? '' : RELAXED_MADD)
}

/** Relaxed instructions leave it to the processor what comes of NaN or of 0 and −0: no others are taken than multiply-adds. */
function withoutChoice(source, text) {
  const settled = text.replaceAll('.relaxed_min', '.pmin').replaceAll('.relaxed_max', '.pmax')
  const others = settled.match(/\.relaxed_(?!madd|nmadd)\w+/g)
  if (others !== null)
    throw new Error(`${source}: got ${[...new Set(others)].join(', ')}, expected no such instruction`)
  return settled
}

/** Sources by their path below src/kernels, in one order everywhere. */
export function wasmSources() {
  const all = readdirSync(folder, { recursive: true }).map((name) => name.replaceAll('\\', '/'))
  return all.filter((name) => /\.native\.[ch]$/.test(name)).sort()
}

/** The hash of what the modules are made of: sources, commands, and the compiler's version. */
export function hashOfSources() {
  const hash = createHash('sha256').update(JSON.stringify([COMPILER, BUILDS, FLAGS, FEATURES, LINK, MADDS]))
  for (const name of wasmSources()) hash.update(`${name}\n`).update(readFileSync(join(folder, name)))
  return hash.digest('hex')
}

/**
 * Builds a module.
 * @param {string[]} zig the compiler's command
 * @param {keyof typeof BUILDS} build
 * @returns {Promise<Buffer>} for shared memory
 * @throws {Error} with what the compiler says
 */
export async function buildWasm(zig, build) {
  const { features, registry } = BUILDS[build]
  const twins = readTwins(registryAt(registry))
  const isIts = (name) => name.startsWith('grids/') === (registry === GRIDS)
  const at = mkdtempSync(join(tmpdir(), 'kernels-'))
  const compile = (words) => run(at, [...zig, 'cc', ...FLAGS, `-mcpu=${FEATURES}${features}`, '-I.', ...words])
  try {
    writeFileSync(join(at, 'kernels.native.h'), prototypesOf(twins))
    const objects = []
    for (const source of wasmSources().filter((name) => name.endsWith('.c') && isIts(name))) {
      const name = basename(source, '.native.c')
      const middle = join(at, `${name}.ll`)
      await compile(['-DLEVEL=wasm', '-S', '-emit-llvm', join(folder, source), '-o', middle])
      if (build === 'relaxed') writeFileSync(middle, fuseAll(source, readFileSync(middle, 'utf8')))
      const assembly = join(at, `${name}.s`)
      await compile(['-Wno-override-module', '-S', middle, '-o', assembly])
      writeFileSync(assembly, withoutChoice(source, readFileSync(assembly, 'utf8')))
      await compile(['-c', assembly, '-o', `${name}.o`])
      if (readFileSync(join(at, `${name}.o`)).includes('__stack_pointer')) {
        throw new Error(`${source}: got arrays on the stack, expected none: all of the memory is columns`)
      }
      objects.push(`${name}.o`)
    }
    const exported = twins.map(({ name }) => `--export=${name}`)
    await run(at, [...zig, 'wasm-ld', ...objects, ...LINK, ...exported, '-o', 'out.wasm'])
    return readFileSync(join(at, 'out.wasm'))
  } finally {
    rmSync(at, { recursive: true })
  }
}

/** Runs a command in a folder; what it has to say is the error's message. */
function run(cwd, [command, ...words]) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, words, { cwd, stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    child.stderr.on('data', (text) => {
      said += text
    })
    child.on('error', () =>
      reject(new Error(`compiler: ${command} cannot be run; \`pip install ziglang==${COMPILER}\``)),
    )
    child.on('close', (code) => {
      if (code !== 0) return reject(new Error(said))
      const warnings = said.split('\n').filter((line) => line !== '' && !line.includes('argument unused'))
      if (warnings.length > 0) process.stderr.write(`${warnings.join('\n')}\n`)
      resolve()
    })
  })
}
