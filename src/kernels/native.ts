/**
 * Binds the native bodies: an addon of Node-API with C bodies for some kernels, which take the same offsets and numbers
 * as the compiled ones, over the same memory. The addon has these bodies for several levels of the processor, and takes
 * the best level of this machine; all levels give the bits of the relaxed build. Kernels without a native body, and
 * calls with too little work for one, use the relaxed build.
 */
import { assert, InputError } from '../base/errors.ts'
import { isShared } from '../base/shared.ts'
import { VERSION } from '../base/version.ts'
import type { At, ColumnLife, Kernels } from './kernels.ts'
import { type Bodies, bindTwins, type Twins } from './twins.ts'

/** What the addon exports (scripts/native-glue.mjs). */
interface Addon {
  /** Levels that the processor has, the best last. */
  readonly levels: readonly string[]
  bind(bytes: Uint8Array, level: string): Partial<Bodies>
  /** Where a column begins among all bytes of the process. */
  address(column: ArrayBufferView): number
}

/** The available native bodies: the best level and the origin of the addon, or why there are none. */
export interface NativeReport {
  readonly level: string | null
  /** `build`: the repository's own; else the package of this platform, with its version. Null where there are none. */
  readonly from: string | null
  readonly why: string | null
}

interface Loaded {
  readonly addon: Addon
  readonly from: string
}

/** The built addon, whether this file runs from src or from dist. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/native/' : '../../native/', import.meta.url)

let loaded: Loaded | string | undefined

/** The addon of the repository's build, else that of this platform's package, else the reason why there is none. */
function load(): Loaded | string {
  const runtime = globalThis.process as NodeJS.Process | undefined
  const [fs, module] = [runtime?.getBuiltinModule?.('node:fs'), runtime?.getBuiltinModule?.('node:module')]
  if (runtime === undefined || fs === undefined || module === undefined) return 'this runtime cannot load addons'
  const require = module.createRequire(import.meta.url)
  const path = new URL('native.node', folder)
  if (fs.existsSync(path)) {
    const built = open(require, decodeURIComponent(path.pathname), 'build')
    return typeof built === 'string' ? `what was built ${built}` : built
  }
  const why = new URL('why.txt', folder)
  const reason = fs.existsSync(why) ? fs.readFileSync(why, 'utf8').trim() : '`npm run build` makes them'
  const packaged = openPackage(require, `colonnade-native-${runtime.platform}-${runtime.arch}`)
  return typeof packaged === 'string' ? `they are not built (${reason}), and ${packaged}` : packaged
}

/** The addon of the platform's package (scripts/native-platforms.mjs), for either C library; else the reason why there is none. */
function openPackage(require: NodeJS.Require, platform: string): Loaded | string {
  let reason = `the package ${platform} is not installed`
  for (const name of [platform, `${platform}-musl`]) {
    const version = versionOf(require, name)
    if (version === undefined) continue
    const isSame = version === VERSION
    const packaged = isSame ? open(require, name, `${name} ${version}`) : `has version ${version}, expected ${VERSION}`
    if (typeof packaged !== 'string') return packaged
    reason = `the package ${name} ${packaged}`
  }
  return reason
}

/** The version of an installed package; undefined where it is not installed. */
function versionOf(require: NodeJS.Require, name: string): string | undefined {
  try {
    return (require(`${name}/package.json`) as { readonly version: string }).version
  } catch {
    return undefined
  }
}

/** An addon by its path or its package; the reason if this machine cannot run it. */
function open(require: NodeJS.Require, path: string, from: string): Loaded | string {
  try {
    const addon = require(path) as Addon
    return addon.levels.length > 0
      ? { addon, from }
      : 'has no level that this processor has (AVX2 with FMA, or AVX-512)'
  } catch (cause) {
    return `cannot be loaded: ${(cause as Error).message}`
  }
}

/** Levels at which this machine runs the native bodies, the best last; empty without native bodies. */
export function nativeLevels(): readonly string[] {
  loaded ??= load()
  return typeof loaded === 'string' ? [] : loaded.addon.levels
}

/** The available native bodies, for any support of WebAssembly in the runtime. */
export function reportNative(): NativeReport {
  const level = nativeLevels().at(-1) ?? null
  if (typeof loaded === 'object') return { level, from: loaded.from, why: null }
  return { level, from: null, why: loaded ?? null }
}

/**
 * The native bodies over a memory at its current place, at a level or at the best. An unshared memory may move when it
 * grows. @throws InputError if there are none.
 */
export function nativeBodies(buffer: ArrayBufferLike, level = nativeLevels().at(-1)): Partial<Bodies> {
  loaded ??= load()
  if (typeof loaded === 'string' || level === undefined) {
    throw new InputError('kernels', `"native", but ${loaded}`, 'native kernels, or another build')
  }
  return loaded.addon.bind(new Uint8Array(buffer), level)
}

/** Kernels of language models without native bodies; their plain bodies give the same bits and take columns in any memory. */
const SAME_BITS = ['addToSegments', 'clear', 'drawUniform', 'gatherRows', 'placeRows'] as const

/**
 * Binds native bodies in place of the relaxed ones of the same memory; `at` returns the places of columns. Native
 * bodies take calls with enough work; those of a given level, and those of columns that lie apart, take all calls.
 */
export function bindNative(
  memory: { readonly buffer: ArrayBufferLike },
  body: Bodies,
  at: At,
  plain: Kernels,
  columns: ColumnLife,
  level?: string,
): Twins {
  const { buffer } = memory
  const bodies = nativeBodies(buffer, level)
  const native = { ...body, ...bodies }
  if (columns === 'apart') {
    const [near, far] = [bindTwins(body, at, plain), bindTwins(native, placesApart(buffer), plain)]
    const names = Object.keys(bodies) as (keyof Twins)[]
    const anywhere = [...names.map((name) => [name, far[name]]), ...SAME_BITS.map((name) => [name, plain[name]])]
    return { ...near, ...Object.fromEntries(anywhere) }
  }
  return bindTwins(level === undefined ? body : native, placesOfNative(memory, at), plain, native)
}

/** Places of columns for native bodies over a memory, from those for WebAssembly. */
export function placesOfNative(memory: { readonly buffer: ArrayBufferLike }, at: At): At {
  return isShared(memory.buffer) ? at : placesInCurrent(memory, at)
}

/** An unshared memory may move when it grows, and native bodies have its former place: refuses calls after that. */
function placesInCurrent(memory: { readonly buffer: ArrayBufferLike }, at: At): At {
  const { buffer } = memory
  return (column) => {
    assert(memory.buffer === buffer, 'the memory of native kernels has grown: they have to be bound again')
    return at(column)
  }
}

/** Returns where a column of any shared memory begins for the native bodies over `buffer`, in bytes from its first. */
function placesApart(buffer: ArrayBufferLike): At {
  const { address } = (loaded as Loaded).addon
  const first = address(new Uint8Array(buffer))
  const places = new WeakMap<ArrayBufferView, number>()
  return (column) => {
    let place = places.get(column)
    if (place === undefined) {
      // A column of the heap would move.
      assert(isShared(column.buffer), 'a column lies outside of all shared memory')
      place = address(column) - first
      places.set(column, place)
    }
    return place
  }
}
