/** Whether a run that is asked for is the one that a folder holds, so that it can go on there. */
import { InputError, show } from '../../base/errors.ts'

type Config = Readonly<Record<string, unknown>>

/**
 * Compares the `config.json` of a run with what a new run would write. Returns what may be given anew and differs, as texts of a
 * command line. `anew` are the keys of that: `totalSteps`, `rl.updates`. What the new run leaves open (null) does not count.
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
    if (key === 'colonnade') continue // Its version, which resuming warns of.
    const [before, after] = [then!.get(key), now!.get(key)]
    const isOpen = after === null || JSON.stringify(before) === JSON.stringify(after)
    if (isOpen) continue
    const name = key.replace(/^settings\./, '').replace('.parameters.', '.')
    if (anew.includes(name) && after !== undefined) settings[name] = String(after)
    else throw new InputError(`${name} of ${folder}`, show(after), `${show(before)}, with which that run began`)
  }
  return settings
}

/** The leaves of an object by their paths; a list is a leaf. */
function flat(value: unknown, path = '', leaves = new Map<string, unknown>()): Map<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return leaves.set(path, value)
  for (const [key, inner] of Object.entries(value)) flat(inner, path === '' ? key : `${path}.${key}`, leaves)
  return leaves
}
