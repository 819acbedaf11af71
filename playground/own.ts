/** Makes environments in a worker: built-in ones, and one's own from their text, which may be hostile: the page kills the worker. */
import {
  box,
  defineEnvironment,
  discrete,
  type EnvironmentDefinition,
  type EnvironmentFactory,
  environmentFactory,
  InputError,
  Stream,
} from 'colonnade'
import type { Source } from './messages.ts'

/** What the text of an environment can import. */
const colonnade = { box, defineEnvironment, discrete, Stream }

export function environmentOf({ environment, code }: Source): EnvironmentDefinition {
  if (code === null) return environmentFactory(environment)()
  limitMemory()
  const made = new Function('colonnade', bodyOf(code))(colonnade) as EnvironmentFactory | EnvironmentDefinition
  const definition = typeof made === 'function' ? made() : made
  if (definition?.observationSpace === undefined)
    throw new InputError('your environment', String(made), '`export default defineEnvironment({ … })`')
  return definition
}

/** The text of a module as the body of a function that returns its default export. */
function bodyOf(code: string): string {
  const imports = /^\s*import\s*\{([^}]*)\}\s*from\s*['"]colonnade['"];?/gm
  const body = code
    .replace(imports, (_, names: string) => `const {${names.replaceAll(/\bas\b/g, ':')}} = colonnade;`)
    .replace(/^export default /m, 'return ')
  const other = /^\s*import\b.*/m.exec(body)?.[0]
  if (other !== undefined)
    throw new InputError(
      'your environment',
      other.trim(),
      `imports of ${Object.keys(colonnade).join(', ')} from 'colonnade'`,
    )
  if (body === code)
    throw new InputError('your environment', 'no default export', '`export default defineEnvironment({ … })`')
  return `'use strict'\n${body}`
}

/** Bytes that an environment may hold in arrays of a mebibyte and more. */
const ROOM = 2 ** 30
const LARGE = 2 ** 20
const held = { bytes: 0 }
let isLimited = false
const dropped = new FinalizationRegistry<number>((bytes) => {
  held.bytes -= bytes
})

const COUNTED = [
  'ArrayBuffer',
  'SharedArrayBuffer',
  ...[
    'Int8',
    'Uint8',
    'Uint8Clamped',
    'Int16',
    'Uint16',
    'Int32',
    'Uint32',
    'Float32',
    'Float64',
    'BigInt64',
    'BigUint64',
  ].map((each) => `${each}Array`),
]

/** From now on this worker refuses arrays beyond the room, in place of taking the machine's memory. */
function limitMemory(): void {
  if (isLimited) return // Each array counts once.
  isLimited = true
  const all = globalThis as unknown as Record<
    string,
    (new (...given: unknown[]) => object) & { BYTES_PER_ELEMENT?: number }
  >
  for (const name of COUNTED) {
    const made = all[name]
    if (made === undefined) continue
    all[name] = new Proxy(made, {
      construct(target, given, caller) {
        const [size] = given
        const bytes = typeof size === 'number' ? size * (made.BYTES_PER_ELEMENT ?? 1) : 0
        if (bytes < LARGE) return Reflect.construct(target, given, caller)
        if (held.bytes + bytes > ROOM) {
          const got = `${((held.bytes + bytes) / 2 ** 30).toFixed(1)} GiB of arrays`
          throw new InputError('your environment', got, `at most the ${ROOM / 2 ** 30} GiB that this page gives it`)
        }
        const array = Reflect.construct(target, given, caller) as object
        held.bytes += bytes
        dropped.register(array, bytes)
        return array
      },
    })
  }
}
