/**
 * Loads optional packages that the user installs: tfjs and its devices, DuckDB-Wasm, AssemblyScript, MuJoCo, the SDK for
 * MCP servers. They are searched beside Colonnade, then beside the running program, and nowhere else: a package in the
 * working directory may come from an untrusted archive. Run folders are never searched.
 *
 * No other file imports an optional package by name, so bundlers do not look for missing ones. Webpack follows a
 * `createRequire` imported by name and warns; so the whole module is imported.
 */
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import nodeModule from 'node:module'
import { dirname, isAbsolute, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { getEnvironmentData, isMainThread, setEnvironmentData } from 'node:worker_threads'

/** The key under which a thread finds its parent's program. */
const PROGRAM = 'colonnade.program'
if (isMainThread) setEnvironmentData(PROGRAM, isEvaluated() ? undefined : process.argv[1])

/** Whether the program is a text on the command line; the words after it are then not its file. */
function isEvaluated(): boolean {
  return process.execArgv.some((flag) => /^(-e|-p|-pe|--eval|--print)(=|$)/.test(flag))
}

/** The files and folders (ending in a slash) beside which to search. A CommonJS bundle has no URL. */
function ownPlaces(): string[] {
  const places = [import.meta.url, getEnvironmentData(PROGRAM)]
  return places.filter((place): place is string => {
    return typeof place === 'string' && (place.startsWith('file:') || isAbsolute(place))
  })
}

export interface Installed {
  readonly manifest: string
  readonly version: string
  /** Resolves the package or its dependencies. */
  readonly require: NodeJS.Require
}

export class NotInstalled extends Error {
  override readonly name = 'NotInstalled'

  /** `install` names all packages that are needed with it. */
  constructor(name: string, install = name) {
    super(`package ${name} is not installed (npm install ${install})`)
  }
}

/** Finds an optional package. @throws NotInstalled, or an Error if it is in a run folder. */
export function findPackage(name: string, places: readonly string[] = ownPlaces()): Installed {
  const manifest = resolvePackage(`${name}/package.json`, places)
  if (manifest === undefined) throw new NotInstalled(name)
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }
  return { manifest, version, require: nodeModule.createRequire(manifest) }
}

/** Imports an optional package's module; `install` is for the hint. @throws NotInstalled, or Error in a run folder. */
export async function importPackage<T>(
  specifier: string,
  install?: string,
  places: readonly string[] = ownPlaces(),
): Promise<T> {
  const path = resolvePackage(specifier, places)
  if (path === undefined) throw new NotInstalled(/^(@[^/]+\/)?[^/]+/.exec(specifier)![0], install)
  return (await import(pathToFileURL(path).href)) as T
}

function resolvePackage(specifier: string, places: readonly string[]): string | undefined {
  for (const place of places) {
    let path: string
    try {
      path = nodeModule.createRequire(place).resolve(specifier)
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException
      if (code === 'MODULE_NOT_FOUND') continue
      // Some packages do not export their package.json.
      const hidden = code === 'ERR_PACKAGE_PATH_NOT_EXPORTED' ? hiddenFile(specifier, place) : undefined
      if (hidden === undefined) throw cause
      path = hidden
    }
    const run = runAround(path)
    if (run === undefined) return path
    throw new Error(`${path} lies in the run folder ${run}, from which nothing is loaded`)
  }
  return undefined
}

/** The package.json of a package that does not export it, from Node's search folders; undefined for any other file. */
function hiddenFile(specifier: string, place: string): string | undefined {
  if (!specifier.endsWith('/package.json')) return undefined
  const paths = nodeModule.createRequire(place).resolve.paths(specifier) ?? []
  const found = paths.map((folder) => join(folder, specifier)).find(existsSync)
  return found === undefined ? undefined : realpathSync(found)
}

/** The run folder around a path; undefined without one. */
function runAround(path: string): string | undefined {
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    if (isRun(folder)) return folder
    if (dirname(folder) === folder) return undefined
  }
}

function isRun(folder: string): boolean {
  try {
    const config: unknown = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'))
    return typeof config === 'object' && config !== null && 'colonnade' in config && 'environment' in config
  } catch {
    return false // Most folders have no such file.
  }
}
