/**
 * Decides whose modules run. A run folder names the modules of its environment and policy, and may come from a stranger.
 * So a folder's module is imported only if it is in the user's workplace (under the working directory and outside the
 * run folder), if it is unchanged in the user's list of trusted modules, or if the caller allows it. `docs/security.md`
 * describes the limits of this.
 */
import { createHash } from 'node:crypto'
import { mkdir, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { environmentVariable } from './environment-variables.ts'
import { checkGiven, InputError, show } from './errors.ts'
import { disk, isThere, readJsonObject, writeWhole } from './files/files.ts'

/** A folder's module from a place that the user has not allowed. */
export interface ForeignModule {
  /** The folder that names it. */
  readonly folder: string
  /** Its path, without symbolic links. */
  readonly path: string
  /** SHA-256 of the module and the files that it names by relative paths, in hexadecimal. */
  readonly checksum: string
}

/** Decides on modules from elsewhere; true runs this one, this time. */
export interface ModuleTrust {
  allowModule?(module: ForeignModule): boolean | Promise<boolean>
}

export interface FolderOrigin extends ModuleTrust {
  readonly folder: string
}

/** @throws InputError for an untrusted module: names its path, and how to allow it. */
export async function admitModule(noun: string, module: string, { folder, allowModule }: FolderOrigin): Promise<void> {
  const subject = `${noun} module of ${folder}`
  const path = await placeOf(subject, module)
  const [workplace, run] = await Promise.all([realpath(process.cwd()), realpath(folder)])
  if (lies(path, workplace) && !lies(path, run)) return
  const checksum = await checksumOfModule(path)
  if ((await trustedModules()).get(path) === checksum) return
  if (await allowModule?.({ folder, path, checksum })) return
  const place = lies(path, run) ? 'inside the run folder' : `outside the working directory ${workplace}`
  throw new InputError(
    subject,
    `${path}, which lies ${place}`,
    `a trusted module, since importing it runs its code: pass trust=${path}, or run colonnade trust ${path}`,
  )
}

/**
 * Adds a module to the user's list: folders may then name it, as long as it and the files that it names by relative
 * paths do not change or move. Returns its path and checksum.
 * @throws InputError if there is no such file, or the list cannot be read or written.
 */
export async function trustModule(path: string): Promise<{ path: string; checksum: string }> {
  checkGiven('path of trustModule', path, 'a text')
  const real = await realPathOf('module', resolve(path))
  const checksum = await checksumOfModule(real)
  const modules = await trustedModules()
  modules.set(real, checksum)
  const list = trustList()
  await mkdir(dirname(list), { recursive: true, mode: 0o700 }).catch(() => undefined) // writeWhole reports failures.
  await writeWhole(list, [`${JSON.stringify(Object.fromEntries(modules), null, 2)}\n`])
  return { path: real, checksum }
}

/** The user's list: `colonnade/trusted-modules.json` in the system's folder of user settings. */
export function trustList(): string {
  const place = environmentVariable('XDG_CONFIG_HOME') || environmentVariable('APPDATA')
  return join(place || join(homedir(), '.config'), 'colonnade', 'trusted-modules.json')
}

async function trustedModules(): Promise<Map<string, string>> {
  const list = trustList()
  if (!(await isThere(list))) return new Map()
  const modules = Object.entries(await readJsonObject(list, 'the list of trusted modules'))
  const wrong = modules.find(([, checksum]) => typeof checksum !== 'string')
  if (wrong) throw new InputError(list, `${wrong[0]}: ${show(wrong[1])}`, 'a SHA-256 for each path')
  return new Map(modules as [string, string][])
}

/** The path of a module. Modules without one (data:, http:, built-in) never run, because the user cannot have read them. */
async function placeOf(subject: string, module: string): Promise<string> {
  let path: string
  try {
    path = fileURLToPath(module)
  } catch (cause) {
    throw new InputError(subject, show(module), 'a module in a file', { cause })
  }
  return realPathOf(subject, path)
}

async function realPathOf(subject: string, path: string): Promise<string> {
  try {
    const real = await realpath(path)
    if ((await stat(real)).isFile()) return real
  } catch (cause) {
    throw new InputError(subject, `${path} (${(cause as Error).message})`, 'an existing module', { cause })
  }
  throw new InputError(subject, `${path}, which is not a file`, 'an existing module')
}

/** Limits of a module and the files that it names, which are read before the user allows them. */
const [MODULE_BYTES, MODULE_NAMES] = [2 ** 28, 10_000]
const MODULE_EXPECTED = `plain files of at most ${MODULE_BYTES} bytes together, with ${MODULE_NAMES} names of files in them`

function lies(path: string, folder: string): boolean {
  const way = relative(folder, path)
  return way !== '..' && !way.startsWith(`..${sep}`) && resolve(folder, way) === path
}

/** SHA-256 of a module and, recursively, of files that its texts name by relative paths, not composed names. */
export async function checksumOfModule(path: string): Promise<string> {
  const hash = createHash('sha256')
  const files = [path]
  let [bytesLeft, namesLeft] = [MODULE_BYTES, MODULE_NAMES]
  for (const file of files) {
    const bytes = await disk.read(file, bytesLeft, true).catch((cause: Error) => {
      throw new InputError(`module ${path}`, `${file} (${cause.message})`, MODULE_EXPECTED, { cause })
    })
    bytesLeft -= bytes.byteLength
    hash.update(`${relative(dirname(path), file)}\0${bytes.byteLength}\0`).update(bytes)
    for (const [, name] of Buffer.from(bytes)
      .toString('latin1')
      .matchAll(/['"`](\.{1,2}\/[^'"`\n]+)['"`]/g)) {
      if (namesLeft-- === 0) throw new InputError(`module ${path}`, 'too many imported files', MODULE_EXPECTED)
      for (const ending of ['', '.js', '.cjs', '.json', '.node', '/index.js']) {
        const named = resolve(dirname(file), Buffer.from(`${name}${ending}`, 'latin1').toString())
        if (!files.includes(named) && (await isFile(named))) files.push(named)
      }
    }
  }
  return hash.digest('hex')
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isFile(),
    () => false,
  )
}
