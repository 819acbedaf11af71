/** Compares a requested run with the one in a folder, to decide whether it can continue there. */
import { InputError, show } from '../../base/errors.ts'

type Config = Readonly<Record<string, unknown>>

/**
 * Compares the `config.json` of a run with that of a new run. Returns the changed settings that resuming may change, as
 * texts of a command line; `anew` lists their keys: `totalSteps`, `rl.updates`. Keys that the new run leaves open
 * (null) do not count.
 * @throws InputError that names the first other difference.
 */
export function settingsAnew(
  folder: string,
  former: Config,
  asked: Config,
  anew: readonly string[],
): Record<string, string> {
  const [then, now] = [former, asked].map((config) => flat(config))
  const settings: Record<string, string> = {}
  for (const key of new Set([...then!.keys(), ...now!.keys()])) {
    if (key === 'colonnade') continue // The version; resuming warns about it.
    const [before, after] = [then!.get(key), now!.get(key)]
    const isOpen = after === null || JSON.stringify(before) === JSON.stringify(after)
    if (isOpen) continue
    const name = key.replace(/^settings\./, '').replace('.parameters.', '.')
    if (anew.includes(name) && after !== undefined) settings[name] = String(after)
    else throw new InputError(`${name} of ${folder}`, show(after), `${show(before)}, as when that run started`)
  }
  return settings
}

/** The leaves of an object by path; a list is a leaf. */
function flat(value: unknown, path = '', leaves = new Map<string, unknown>()): Map<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return leaves.set(path, value)
  for (const [key, inner] of Object.entries(value)) flat(inner, path === '' ? key : `${path}.${key}`, leaves)
  return leaves
}
