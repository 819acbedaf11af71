/**
 * Optional packages, which the user installs: tfjs and its devices, DuckDB-Wasm, AssemblyScript, the SDK for MCP servers. Each is
 * looked for beside Colonnade, then beside the program that runs, and nowhere else: a package that lies in the working directory
 * may have come with somebody's archive. What lies in a run folder is never loaded.
 *
 * Nothing else imports an optional package by its name, so that a bundler does not look for packages that are not installed. Webpack
 * follows `createRequire` where it is imported by its name, and warns: hence the module as a whole.
 */
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import nodeModule from 'node:module'
import { dirname, isAbsolute, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { getEnvironmentData, isMainThread, setEnvironmentData } from 'node:worker_threads'

/** Under this key a thread finds the program of the thread that started it. */
const PROGRAM = 'colonnade.program'
if (isMainThread) setEnvironmentData(PROGRAM, isEvaluated() ? undefined : process.argv[1])

/** Whether the program is a text of the command line: then the words after it are not its file. */
function isEvaluated(): boolean {
  return process.execArgv.some((flag) => /^(-e|-p|-pe|--eval|--print)(=|$)/.test(flag))
}

/** The files and folders (ending in a slash) beside which packages are looked for. A bundle in CommonJS has no address. */
function ownPlaces(): string[] {
  const places = [import.meta.url, getEnvironmentData(PROGRAM)]
  return places.filter((place): place is string => {
    return typeof place === 'string' && (place.startsWith('file:') || isAbsolute(place))
  })
}

/** A package that was found. */
export interface Installed {
  /** Path of its package.json. */
  readonly manifest: string
  readonly version: string
  /** Loads a package as this one would: itself, or one of its dependencies. */
  readonly require: NodeJS.Require
}

/** A package that no place has. */
export class NotInstalled extends Error {
  override readonly name = 'NotInstalled'

  /** `install` names all packages that are needed with it. */
  constructor(name: string, install = name) {
    super(`package ${name} is not installed (npm install ${install})`)
  }
}

/**
 * Finds an optional package, looking from each place in turn.
 * @throws NotInstalled, or an Error where the package lies in a run folder.
 */
export function findPackage(name: string, places: readonly string[] = ownPlaces()): Installed {
  const manifest = resolvePackage(`${name}/package.json`, places)
  if (manifest === undefined) throw new NotInstalled(name)
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }
  return { manifest, version, require: nodeModule.createRequire(manifest) }
}

/**
 * Imports a module of an optional package, like `assemblyscript/dist/asc.js`. `install` is what a user who lacks it is told to
 * install.
 * @throws NotInstalled, or an Error where the package lies in a run folder.
 */
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
      // Some packages have a package.json that they do not export.
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

/** The package.json of a package that does not export it, from the folders in which Node looks; undefined for any other file. */
function hiddenFile(specifier: string, place: string): string | undefined {
  if (!specifier.endsWith('/package.json')) return undefined
  const paths = nodeModule.createRequire(place).resolve.paths(specifier) ?? []
  const found = paths.map((folder) => join(folder, specifier)).find(existsSync)
  return found === undefined ? undefined : realpathSync(found)
}

/** The run folder that holds a path; undefined where there is none. */
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
