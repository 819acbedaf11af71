/**
 * Whose modules are run. A run folder names the modules of its environment and its policy, and such a folder may come from
 * anybody: so a module that a folder names is imported only if it lies where the user works (under the working directory,
 * and not inside the run folder itself), if it is in the user's list of trusted modules as it was when it was put there, or
 * if the caller allows it. `docs/security.md` says what that is worth.
 */
import { createHash } from 'node:crypto'
import { mkdir, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { environmentVariable } from './environment-variables.ts'
import { checkGiven, InputError, show } from './errors.ts'
import { disk, isThere, readJsonObject, writeWhole } from './files/files.ts'

/** A module that a folder asks to run, and that lies nowhere where the user has allowed it. */
export interface ForeignModule {
  /** The folder that names it. */
  readonly folder: string
  /** Where it is, without symbolic links. */
  readonly path: string
  /** SHA-256 of the module and of the files that it names by a relative path, in hexadecimal. */
  readonly checksum: string
}

/** Who decides on modules that lie elsewhere; true runs this one, this time. */
export interface ModuleTrust {
  allowModule?(module: ForeignModule): boolean | Promise<boolean>
}

/** A folder as the one that names a module. */
export interface FolderOrigin extends ModuleTrust {
  readonly folder: string
}

/** @throws InputError for a module that this folder may not have run: it names its place, and how it is allowed. */
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
    `one that you trust, because it is a program: name it (trust=${path}), or keep it as trusted (colonnade trust ${path})`,
  )
}

/**
 * Puts a module into the user's list of trusted modules: from now on folders may name it, as long as it and the files that
 * it names by a relative path stay as they are and where they are. Returns its place and checksum.
 * @throws InputError where there is no such file, or the list cannot be read or written.
 */
export async function trustModule(path: string): Promise<{ path: string; checksum: string }> {
  checkGiven('path of trustModule', path, 'a text')
  const real = await realPathOf('module', resolve(path))
  const checksum = await checksumOfModule(real)
  const modules = await trustedModules()
  modules.set(real, checksum)
  const list = trustList()
  await mkdir(dirname(list), { recursive: true, mode: 0o700 }).catch(() => undefined) // writeWhole says why it cannot.
  await writeWhole(list, [`${JSON.stringify(Object.fromEntries(modules), null, 2)}\n`])
  return { path: real, checksum }
}

/** The user's list: `colonnade/trusted-modules.json` where the system keeps a user's settings. */
export function trustList(): string {
  const place = environmentVariable('XDG_CONFIG_HOME') || environmentVariable('APPDATA')
  return join(place || join(homedir(), '.config'), 'colonnade', 'trusted-modules.json')
}

/** Checksums of trusted modules, by their places. */
async function trustedModules(): Promise<Map<string, string>> {
  const list = trustList()
  if (!(await isThere(list))) return new Map()
  const modules = Object.entries(await readJsonObject(list, 'the list of trusted modules'))
  const wrong = modules.find(([, checksum]) => typeof checksum !== 'string')
  if (wrong) throw new InputError(list, `${wrong[0]}: ${show(wrong[1])}`, 'a SHA-256 for each path')
  return new Map(modules as [string, string][])
}

/** The path of a module. A module without a path (data:, http:, a built-in one) never runs: the user could not have read it. */
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
    throw new InputError(subject, `${path} (${(cause as Error).message})`, 'a module that is there', { cause })
  }
  throw new InputError(subject, `${path}, which is no file`, 'a module that is there')
}

/** Limits of a module and the files that it names: they are read before the user allows them. */
const [MODULE_BYTES, MODULE_NAMES] = [2 ** 28, 10_000]
const MODULE_EXPECTED = `plain files of at most ${MODULE_BYTES} bytes together, with ${MODULE_NAMES} names of files in them`

function lies(path: string, folder: string): boolean {
  const way = relative(folder, path)
  return way !== '..' && !way.startsWith(`..${sep}`) && resolve(folder, way) === path
}

/**
 * SHA-256 of a module and of every file that a text in it names by a relative path, theirs included: what it imports, and
 * what it reads or starts beside itself. A name that is put together only when it runs is not among them.
 */
async function checksumOfModule(path: string): Promise<string> {
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
      if (namesLeft-- === 0) throw new InputError(`module ${path}`, 'more names of files', MODULE_EXPECTED)
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
