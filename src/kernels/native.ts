/**
 * The native bodies: an addon of Node-API with C bodies for some kernels, which take the same offsets and numbers as the
 * compiled ones, over the same memory. It has them at several levels of the processor, all of which leave the bits of the relaxed
 * build; the best that the machine has is taken. What has no native body, or too little work for one, is the relaxed build's.
 */
import { InputError } from '../errors.ts'
import type { Bodies } from './compiled.ts'

/** What the addon exports (scripts/native-glue.mjs). */
interface Addon {
  /** Levels that the processor has, the best last. */
  readonly levels: readonly string[]
  bind(bytes: Uint8Array, level: string): Partial<Bodies>
}

/** Which native bodies there are: the best level, or why there are none. */
export interface NativeReport {
  readonly level: string | null
  readonly why: string | null
}

/** The built addon, whether this file runs from src or from dist. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/native/' : '../../native/', import.meta.url)

let loaded: Addon | string | undefined

/** The addon, or why there is none. */
function load(): Addon | string {
  const runtime = globalThis.process as NodeJS.Process | undefined
  const [fs, module] = [runtime?.getBuiltinModule?.('node:fs'), runtime?.getBuiltinModule?.('node:module')]
  if (fs === undefined || module === undefined) return 'this runtime cannot load addons'
  const path = new URL('native.node', folder)
  if (!fs.existsSync(path)) {
    const why = new URL('why.txt', folder)
    const reason = fs.existsSync(why) ? fs.readFileSync(why, 'utf8').trim() : '`npm run build` makes them'
    return `they are not built: ${reason}`
  }
  try {
    const addon = module.createRequire(import.meta.url)(decodeURIComponent(path.pathname)) as Addon
    return addon.levels.length > 0 ? addon : 'this processor has neither AVX2 with FMA nor AVX-512'
  } catch (cause) {
    return `the addon cannot be loaded: ${(cause as Error).message}`
  }
}

/** Levels at which this machine runs the native bodies, the best last; none where there are no such bodies. */
export function nativeLevels(): readonly string[] {
  loaded ??= load()
  return typeof loaded === 'string' ? [] : loaded.levels
}

/** Which native bodies there are, whatever WebAssembly the runtime has. */
export function reportNative(): NativeReport {
  const level = nativeLevels().at(-1) ?? null
  return { level, why: typeof loaded === 'string' ? loaded : null }
}

/**
 * The native bodies over a memory, at a level or at the best.
 * @throws InputError where there are none, or the memory is not shared: another may move when it grows.
 */
export function nativeBodies(buffer: ArrayBufferLike, level = nativeLevels().at(-1)): Partial<Bodies> {
  loaded ??= load()
  if (typeof loaded === 'string' || level === undefined) {
    throw new InputError('kernels', `"native", but ${loaded}`, 'native kernels, or another build')
  }
  if (!(buffer instanceof SharedArrayBuffer)) {
    throw new InputError('kernels', '"native" over a memory that is not shared', 'a shared memory, or another build')
  }
  return loaded.bind(new Uint8Array(buffer), level)
}
