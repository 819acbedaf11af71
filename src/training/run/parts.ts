/** Parts that a run's keys name by module path, like `environment.reward=./my-reward.mjs`. */
import { findPart, isModulePath, type Part, type Parts } from '../../base/definition.ts'
import { pathToFileURL } from '../../base/files/path.ts'
import type { Settings } from '../../base/settings.ts'

/** Imports parts named by module path; keys have `prefix`. @throws InputError unless a module exports exactly one. */
export async function partsGiven(
  prefix: string,
  settings: Settings,
  given: Readonly<Record<string, string>>,
): Promise<Parts> {
  const parts: Record<string, Part> = {}
  for (const [key, { noun }] of Object.entries(settings)) {
    const path = given[prefix + key]
    if (noun === undefined || path === undefined || !isModulePath(path)) continue
    parts[key] = await findPart(noun, pathToFileURL(path).href, 'caller')
  }
  return parts
}
