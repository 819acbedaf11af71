/**
 * Binds the SIMD bodies: each member has the signature of its plain twin and passes byte offsets to the compiled body
 * (`twins.ts`, which the build writes). There is a module (`modules.ts`) for each of {simd, relaxed} × {shared,
 * unshared memory}. A process compiles it once, and every thread makes its own instance. A call allocates nothing.
 * `relaxed` is available only if a multiply-add rounds once; if it rounds twice, as in Bun, the fastest build is
 * `simd`.
 */
import { assert } from '../base/errors.ts'
import { isShared } from '../base/shared.ts'
import type { At, ColumnLife, CompiledBuild, Kernels, WebAssemblyBuild } from './kernels.ts'
import { hasModules, readModule } from './modules.ts'
import { bindNative } from './native.ts'
import { type Bodies, bindTwins, type Twins } from './twins.ts'

/**
 * Binds a build to `memory`; `plain` has the kernels without compiled bodies. With `level`, native bodies of that level
 * take calls of any size; otherwise those of the best level take calls with enough work. `columns`: as in
 * `createKernels`.
 */
export function bindCompiled(
  memory: { readonly buffer: ArrayBufferLike },
  build: CompiledBuild,
  plain: Kernels,
  columns: ColumnLife,
  level?: string,
): Twins {
  const at = columns === 'passing' ? placesNow(memory.buffer) : placesIn(memory.buffer)
  const body = instantiate(memory, build === 'native' ? 'relaxed' : build)
  if (build !== 'native') return bindTwins(body, at, plain)
  return bindNative(memory, body, at, plain, columns, level)
}

/** The bodies of a WebAssembly build over `memory`. */
function instantiate(memory: { readonly buffer: ArrayBufferLike }, build: WebAssemblyBuild): Bodies {
  const module = compile(build, isShared(memory.buffer))
  const { exports } = new WebAssembly.Instance(module, { env: { memory: memory as WebAssembly.Memory } })
  return exports as unknown as Bodies
}

/** Returns the byte offset of a column in a memory; throws for a column elsewhere. */
export function placesIn(buffer: ArrayBufferLike): At {
  /** Places already looked up: asking a view for its buffer takes longer than a short column's work. */
  const places = new WeakMap<ArrayBufferView, number>()

  function look(column: ArrayBufferView): number {
    assert(column.buffer === buffer, 'a column lies outside the memory of its kernels')
    places.set(column, column.byteOffset)
    return column.byteOffset
  }

  return (column) => places.get(column) ?? look(column)
}

/** The same for views made for one call: remembering their places takes longer than looking them up. */
function placesNow(buffer: ArrayBufferLike): At {
  return (column) => {
    assert(column.buffer === buffer, 'a column lies outside the memory of its kernels')
    return column.byteOffset
  }
}

const modules = new Map<string, WebAssembly.Module>()

function compile(build: WebAssemblyBuild, isShared: boolean): WebAssembly.Module {
  const name = `${build} ${isShared}`
  let module = modules.get(name)
  if (module === undefined) {
    module = new WebAssembly.Module(readModule(build, isShared))
    modules.set(name, module)
  }
  return module
}

let best: WebAssemblyBuild | undefined | null = null

/** The fastest WebAssembly build that this runtime can run; undefined where it can run none. */
export function bestWebAssemblyBuild(): WebAssemblyBuild | undefined {
  if (best === null) best = findBest()
  return best
}

function findBest(): WebAssemblyBuild | undefined {
  if (!hasModules || !WebAssembly.validate(USES_SIMD)) return undefined
  // Node 20 has relaxed SIMD behind a flag, which holds for modules compiled later, in this thread and in those it starts.
  const node = globalThis.process as NodeJS.Process | undefined
  if (!WebAssembly.validate(RELAXED_MADD)) {
    node?.getBuiltinModule?.('node:v8').setFlagsFromString('--experimental-wasm-relaxed-simd')
  }
  return WebAssembly.validate(RELAXED_MADD) && fuses() ? 'relaxed' : 'simd'
}

/**
 * Whether a relaxed multiply-add rounds once. A runtime may round the product too, as Bun does, and as a processor
 * without the instruction requires; then this build would give the bits of the other build.
 */
function fuses(): boolean {
  const instance = new WebAssembly.Instance(new WebAssembly.Module(RELAXED_MADD))
  const madd = instance.exports.f as (a: number, b: number, c: number) => number
  const a = 1 + 2 ** -12
  return madd(a, a, -(1 + 2 ** -11)) === 2 ** -24
}

const HEADER = [0, 97, 115, 109, 1, 0, 0, 0]
/** A module of one function `() => v128`, an i8x16.splat. */
const USES_SIMD = new Uint8Array([
  ...[...HEADER, 1, 5, 1, 96, 0, 1, 123],
  ...[3, 2, 1, 0],
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11],
])
/** A module that exports `f(a, b, c: f32): f32`, a lane of the f32x4.relaxed_madd of their splats. */
const RELAXED_MADD = new Uint8Array([
  ...[...HEADER, 1, 8, 1, 96, 3, 125, 125, 125, 1, 125],
  ...[3, 2, 1, 0],
  ...[7, 5, 1, 1, 102, 0, 0],
  ...[10, 22, 1, 20, 0, 32, 0, 253, 19, 32, 1, 253, 19, 32, 2, 253, 19, 253, 133, 2, 253, 31, 0, 11],
])
