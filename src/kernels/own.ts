/**
 * Users' own kernels. Each has a plain body, and some have a compiled twin in a WebAssembly module that uses the
 * columns' memory. They are bound once to the memory of a thread's kernels (`createKernels`), so a definition can use
 * them wherever it has those: an environment in `lanes.kernels`, a loss or an algorithm in its context. The module
 * imports only its memory, as `env.memory` (shared, at most 4 GiB), and has no data segments, because its memory is
 * full of columns. It serves memories that are not shared, too. `colonnade compile walk.simd.ts` makes such a module (`compile-own.ts`).
 */
import { checkGiven, InputError, show } from '../base/errors.ts'
import { isShared } from '../base/shared.ts'
import { placesIn } from './compiled.ts'
import type { At, KernelBuild, Kernels } from './kernels.ts'
import { readBytes } from './modules.ts'
import { nativeBodies, placesOfNative } from './native.ts'
import { unshared } from './unshared.ts'

/** Kernels by name: columns first, numbers last. */
export type OwnKernels = Readonly<Record<string, (...values: never[]) => unknown>>

/** The exports of the compiled module, by name. Pass columns as offsets in bytes (`at(column)`). */
export type OwnBodies = Readonly<Record<string, (...numbers: (number | boolean)[]) => number>>

/** Kernels of one's own, with what of them is compiled. */
export interface OwnKernelsOptions<K extends OwnKernels> {
  /** The plain bodies: what every build falls back on. */
  readonly plain: K
  /**
   * URL of the compiled module, a file: `new URL('./walk.wasm', import.meta.url)`. In a page, which reads no files: a function that returns
   * its bytes.
   */
  readonly compiled?: URL | (() => Uint8Array<ArrayBuffer>)
  /**
   * Members with the signatures of the plain ones, which pass the arguments to the compiled bodies. `native`: Colonnade's own native
   * bodies, none where there are none.
   */
  twins?(body: OwnBodies, at: At, native: OwnBodies): Partial<K>
}

interface Binding {
  readonly memory: { readonly buffer: ArrayBufferLike }
  readonly build: KernelBuild
  /** Of native bodies, where it is not the best. */
  readonly level?: string
}

const bindings = new WeakMap<Kernels, Binding>()

/** Keeps what a thread's kernels are bound to. */
export function remember(kernels: Kernels, memory: Binding['memory'], build: KernelBuild, level?: string): Kernels {
  bindings.set(kernels, { memory, build, level })
  return kernels
}

/** The memory and build of a thread's kernels. @throws InputError for another object. */
export function bindingOf(kernels: Kernels): Binding {
  const binding = bindings.get(kernels)
  if (binding !== undefined) return binding
  throw new InputError('kernels', show(kernels), 'those of a thread, as createKernels or a world makes them')
}

/**
 * Defines your own kernels. The result is a function from a thread's kernels to yours, bound to the same memory: plain
 * if the thread's kernels are plain. @throws InputError if a twin has no plain body or is
 * not a function, or if the module cannot be read, imports anything but its memory, or writes to it when it is loaded.
 * @example
 * const own = defineKernels({
 *   plain: { walk(position: Float32Array, from: number, to: number) { for (let n = from; n < to; n++) position[n]! += 1 } },
 *   compiled: new URL('./walk.wasm', import.meta.url),
 *   twins: (body, at) => ({ walk: (position, from, to) => void body.walk!(at(position), from, to) }),
 * })
 * // In the environment: step({ state, kernels }, from, to) { own(kernels).walk(state.position, from, to) }
 */
export function defineKernels<K extends OwnKernels>(options: OwnKernelsOptions<K>): (kernels: Kernels) => K {
  checkGiven('options of defineKernels', options, [])
  const { plain, compiled, twins } = options
  if (typeof plain !== 'object' || plain === null)
    throw new InputError('defineKernels, plain', show(plain), 'an object')
  if ((compiled === undefined) !== (twins === undefined)) {
    throw new InputError(
      'defineKernels',
      compiled === undefined ? 'twins alone' : 'compiled alone',
      'twins and compiled together, or neither of them',
    )
  }
  const bound = new WeakMap<Kernels, K>()
  /** The modules for memories that are shared and for others. */
  const modules = new Map<boolean, WebAssembly.Module>()

  function moduleFor(buffer: ArrayBufferLike): WebAssembly.Module {
    const shared = isShared(buffer)
    let module = modules.get(shared)
    if (module === undefined) {
      module = moduleOf(compiled!, shared)
      modules.set(shared, module)
    }
    return module
  }

  function bind(kernels: Kernels): K {
    const { memory, build, level } = bindingOf(kernels)
    if (compiled === undefined || build === 'plain') return plain
    const { exports } = new WebAssembly.Instance(moduleFor(memory.buffer), {
      env: { memory: memory as WebAssembly.Memory },
    })
    const at = placesIn(memory.buffer)
    const isNative = build === 'native'
    const native: OwnBodies = isNative ? { ...nativeBodies(memory.buffer, level) } : {}
    const members = twins!(exports as OwnBodies, isNative ? placesOfNative(memory, at) : at, native)
    for (const [name, member] of Object.entries(members)) {
      if (!Object.hasOwn(plain, name)) {
        throw new InputError('defineKernels, twins', name, `names of plain: ${Object.keys(plain).join(', ')}`)
      }
      if (typeof member !== 'function') throw new InputError(`defineKernels, twins.${name}`, show(member), 'a function')
    }
    return { ...plain, ...members }
  }

  return (kernels) => {
    let own = bound.get(kernels)
    if (own === undefined) {
      own = bind(kernels)
      bound.set(kernels, own)
    }
    return own
  }
}

/** The module of a file or of bytes, for a memory that is shared or not. It must not change a memory until it is called. */
function moduleOf(compiled: URL | (() => Uint8Array<ArrayBuffer>), shared: boolean): WebAssembly.Module {
  const isFile = compiled instanceof URL
  const subject = isFile ? `compiled kernels ${compiled.pathname}` : 'compiled kernels'
  try {
    const bytes = isFile ? readBytes(compiled) : compiled()
    const module = checkedModule(subject, bytes)
    return shared ? module : new WebAssembly.Module(unshared(bytes))
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    throw new InputError(subject, (cause as Error).message, 'a WebAssembly module in a file', { cause })
  }
}

/**
 * The names of the functions that a module of these bytes exports. @throws InputError if the module would change a
 * memory before it is called.
 */
export function checkKernels(subject: string, bytes: Uint8Array<ArrayBuffer>): readonly string[] {
  const exported = WebAssembly.Module.exports(checkedModule(subject, bytes))
  return exported.flatMap(({ name, kind }) => (kind === 'function' ? [name] : []))
}

/** The module of these bytes. @throws InputError if the module would change a memory before it is called. */
function checkedModule(subject: string, bytes: Uint8Array<ArrayBuffer>): WebAssembly.Module {
  let module: WebAssembly.Module
  try {
    module = new WebAssembly.Module(bytes)
  } catch (cause) {
    throw new InputError(subject, (cause as Error).message, 'a WebAssembly module in a file', { cause })
  }
  const imports = WebAssembly.Module.imports(module).map(({ module, name }) => `${module}.${name}`)
  if (imports.join() !== 'env.memory') {
    throw new InputError(subject, `imports ${imports.join(', ') || 'nothing'}`, 'one import, env.memory')
  }
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536, shared: true })
  try {
    new WebAssembly.Instance(module, { env: { memory } })
  } catch (cause) {
    const expected = 'a module for a shared memory of 1 page and at most 65536, without data'
    throw new InputError(subject, (cause as Error).message, expected, { cause })
  }
  const written = new Uint8Array(memory.buffer).findIndex((byte) => byte !== 0)
  if (written === -1) return module
  throw new InputError(subject, `data at byte ${written}`, 'a module without data: its memory is full of columns')
}
