/**
 * Ensures that one process at a time writes in a run folder. A writer creates a claim, a folder `.owner-<token>` with
 * its identity, and looks for other claims. A claim lasts as long as its process: it contains a listening socket, which
 * the system closes with the process, and which any process of this machine can try, even from another container.
 * Without socket support, the process's number and start time decide; on another machine, a heartbeat. Readers need no
 * claim.
 *
 * Only the owner removes the remains of interrupted writes.
 */
import { randomBytes } from 'node:crypto'
import { readFileSync, readlinkSync, rmSync } from 'node:fs'
import { lstat, open, realpath, stat, utimes } from 'node:fs/promises'
import { connect, createServer, type Server } from 'node:net'
import { hostname } from 'node:os'
import { basename, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import { cannotWrite, disk, isThere, listFolder, makeFolder, RECORD_BYTES, within } from '../../base/files/files.ts'
import { TakenError } from './free-folder.ts'

/** The files of a run at the top of its folder, and its subfolders. */
export const RUN_FILES = [
  'config.json',
  'metrics.jsonl',
  'metrics.index',
  'notes.json',
  'summary.json',
  'learning-curve.svg',
  'trace.json',
  'run.log',
]
export const RUN_FOLDERS = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter']

const PREFIX = '.owner-'
const RECORD_FILE = 'owner.json'
const HELD_FOLDER = 'held'
const SOCKET = 'socket'

/** Seconds between a claim's heartbeats. */
const BEAT_SECONDS = 5
/** Missed heartbeats after which an owner on another machine counts as gone. */
const BEATS_MISSED = 6
/** Milliseconds that a claim may lack its record before its process counts as gone. The record is written at once. */
const UNWRITTEN_MS = 1000
/** Milliseconds between checks for other claims. */
const LOOK_MS = 20
/** Maximum length of a socket's path on all systems. */
const SOCKET_PATH_BYTES = 100

interface OwnerRecord {
  readonly pid: number
  readonly host: string
  /** Identifies the machine since its last boot; null if unknown. */
  readonly boot: string | null
  /** Identifies the machine across boots. */
  readonly machine: string | null
  /** The namespace of `pid`: containers have their own. */
  readonly pidSpace: string | null
  /** When the process started, in the system's units, which tells apart processes with the same number. */
  readonly started: string | null
  readonly hasSocket: boolean
  readonly beatSeconds: number
  /** When the claim was created, for people. */
  readonly since: string
}

interface Claim {
  readonly path: string
  /** Null if it is not written yet, or never was completely. */
  readonly record: OwnerRecord | null
  /** True: it owns the folder. False: it is still looking for others. */
  readonly isHeld: boolean
}

export function isClaim(name: string): boolean {
  return name.startsWith(PREFIX)
}

/** This process's claims, by real path. They end with the process. */
const owned = new Map<string, Ownership>()
let isExitHeard = false

/** The claim of this process on a folder. */
export class Ownership {
  /** Whether the folder is in use in this process; otherwise the next user in this process takes it over. */
  isBusy = false
  readonly #folder: string
  readonly #real: string
  readonly #claim: string
  readonly #server: Server | null
  readonly #beat: ReturnType<typeof setInterval>
  isReleased = false

  private constructor(folder: string, real: string, claim: string, server: Server | null) {
    this.#folder = folder
    this.#real = real
    this.#claim = claim
    this.#server = server
    // Before each write, the claim's existence is checked.
    const beat = () => void utimes(claim, new Date(), new Date()).catch(() => undefined)
    this.#beat = setInterval(beat, 1000 * BEAT_SECONDS).unref()
  }

  /** Takes a free folder (one of several processes gets it) and cleans it. @throws InputError that names the owner. */
  static async take(folder: string): Promise<Ownership> {
    const real = await realpath(folder).catch((cause) => {
      throw new InputError('run', (cause as Error).message, 'a run folder', { cause })
    })
    const before = owned.get(real)
    if (before?.isBusy)
      throw new TakenError('folder', folder, 'is in use by this process', 'a folder without a running training')
    await before?.release()
    const token = randomBytes(8).toString('hex')
    const claim = join(folder, PREFIX + token)
    const ownership = new Ownership(folder, real, claim, await putUp(claim))
    try {
      await contend(folder, token)
      await disk.makeFolder(join(claim, HELD_FOLDER))
      await sweep(folder)
    } catch (cause) {
      await ownership.release()
      throw cannotWrite(folder, cause)
    }
    owned.set(real, ownership)
    if (!isExitHeard) process.on('exit', removeClaims)
    isExitHeard = true
    return ownership
  }

  static async isHere(folder: string): Promise<boolean> {
    return owned.has(await realpath(folder))
  }

  /** Checks that this process still has the folder. @throws InputError if another machine took it. */
  async check(): Promise<void> {
    if (await isThere(this.#claim)) return
    const [other] = await claimsIn(this.#folder)
    const got = other === undefined ? 'a claim that was removed' : `a folder that was taken by ${describe(other)}`
    const expected = 'the claim of this process, which showed no sign of life for a long time'
    throw new InputError(`run ${this.#folder}`, got, expected)
  }

  /** Lets others take the folder. */
  async release(): Promise<void> {
    if (this.isReleased) return
    this.isReleased = true
    clearInterval(this.#beat)
    this.#server?.close()
    if (owned.get(this.#real) === this) owned.delete(this.#real)
    // A remaining claim has no listening process, and the next owner removes it.
    await disk.remove(this.#claim).catch(() => undefined)
  }

  /** For the end of the process, which cannot wait. */
  drop(): void {
    rmSync(this.#claim, { recursive: true, force: true })
  }
}

function removeClaims(): void {
  for (const ownership of owned.values()) ownership.drop()
}

/** Runs an action with the process's claim, or a temporary one. @throws InputError that names another owner. */
export async function asOwner<T>(folder: string, action: () => Promise<T>): Promise<T> {
  await makeFolder(folder).catch((cause) => {
    throw cannotWrite(folder, cause)
  })
  const present = owned.get(await realpath(folder))
  if (present !== undefined) {
    await present.check()
    return action()
  }
  const ownership = await Ownership.take(folder)
  ownership.isBusy = true
  return action().finally(() => ownership.release())
}

/** Removes the remains of interrupted writes, as the owner. @throws InputError for links and special files. */
async function sweep(folder: string): Promise<void> {
  for (const name of await listFolder(folder)) {
    if (isTemporary(name)) await disk.remove(join(folder, name))
    if (RUN_FILES.includes(name)) await within(folder, name)
    if (!RUN_FOLDERS.includes(name)) continue
    await within(folder, name)
    for (const part of await listFolder(join(folder, name))) {
      if (part.endsWith('.tmp')) await disk.remove(join(folder, name, part))
    }
  }
}

/** Whether it is a temporary file at the top of a run's folder. */
export function isTemporary(name: string): boolean {
  return RUN_FILES.some((file) => name.startsWith(`${file}.`) && /\.\d+\.tmp$/.test(name))
}

/** Creates this process's claim. Returns its listening socket; null if sockets are not supported. */
async function putUp(path: string): Promise<Server | null> {
  let server: Server | null = null
  try {
    await disk.makeFolder(path)
    server = await listen(join(path, SOCKET))
    const record: OwnerRecord = { ...thisProcess(), hasSocket: server !== null, since: new Date().toISOString() }
    const handle = await disk.open(join(path, RECORD_FILE), 'w')
    try {
      await disk.write(handle, Buffer.from(`${JSON.stringify(record)}\n`), 0)
    } finally {
      await disk.close(handle)
    }
    return server
  } catch (cause) {
    server?.close()
    await disk.remove(path).catch(() => undefined) // The first error is the one to report.
    throw cannotWrite(path, cause)
  }
}

/**
 * Checks other claims until only dead ones are left, which it removes. Each process creates its claim before it looks,
 * so of two at least one sees the other. It yields to the folder's holder and to a lower token, and waits for a higher
 * one, which has not seen it or will yield.
 */
async function contend(folder: string, token: string): Promise<void> {
  const unwritten = new Map<string, number>()
  for (;;) {
    let mustWait = false
    const claims = await claimsIn(folder)
    // In parallel: each may take half a minute, and there may be many.
    const gone = await Promise.all(
      claims.map(({ path, record }) => record !== null && !path.endsWith(token) && isGone(path, record)),
    )
    for (const [i, claim] of claims.entries()) {
      const otherToken = basename(claim.path).slice(PREFIX.length)
      if (otherToken === token) continue
      if (claim.record === null) {
        const seen = unwritten.get(otherToken) ?? performance.now()
        unwritten.set(otherToken, seen)
        if (performance.now() - seen < UNWRITTEN_MS) mustWait = true
        else await disk.remove(claim.path)
      } else if (gone[i]) await disk.remove(claim.path)
      else if (claim.isHeld || otherToken < token) {
        const expected = `a folder without a running training (if that process is gone: remove ${claim.path})`
        throw new TakenError('folder', folder, `is in use by ${describe(claim)}`, expected)
      } else mustWait = true
    }
    if (!mustWait) return
    await pause(LOOK_MS)
  }
}

async function claimsIn(folder: string): Promise<Claim[]> {
  const claims: Claim[] = []
  for (const name of (await listFolder(folder)).filter(isClaim)) {
    const path = await within(folder, name)
    const parts = await listFolder(path)
    claims.push({ path, record: await readRecord(path), isHeld: parts.includes(HELD_FOLDER) })
  }
  return claims
}

/** Null if missing or incomplete: its process is writing it, or died while it did. */
async function readRecord(path: string): Promise<OwnerRecord | null> {
  try {
    return JSON.parse(Buffer.from(await disk.read(join(path, RECORD_FILE), RECORD_BYTES)).toString()) as OwnerRecord
  } catch (cause) {
    if (cause instanceof SyntaxError || (cause as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw cause
  }
}

function describe({ record }: Claim): string {
  if (record === null) return 'another process'
  return `process ${record.pid} on ${record.host} since ${record.since}`
}

/** Whether the process of a claim has ended. */
async function isGone(path: string, record: OwnerRecord): Promise<boolean> {
  const here = thisProcess()
  if (record.boot !== null && record.boot === here.boot) {
    if (record.hasSocket) {
      const isHeard = await answers(join(path, SOCKET))
      if (isHeard !== null) return !isHeard
    }
    if (record.pidSpace === here.pidSpace) {
      // Another user's process cannot be inspected, but exists.
      return record.started === null ? !isAlive(record.pid) : startOf(record.pid) !== record.started
    }
  } else if (record.machine !== null && record.machine === here.machine && record.host === here.host) {
    return true // The machine has rebooted.
  }
  return !(await beats(path, record.beatSeconds))
}

/** Whether a claim's heartbeat file changes while we watch. Clocks of different machines are not compared. */
async function beats(path: string, beatSeconds: number): Promise<boolean> {
  const beatMs = 1000 * Math.min(BEAT_SECONDS, Number(beatSeconds) || BEAT_SECONDS) // A claim may contain anything.
  const last = async () => (await stat(path).catch(() => undefined))?.mtimeMs
  const first = await last()
  for (let beat = 0; beat < 4 * BEATS_MISSED; beat++) {
    await pause(beatMs / 4)
    const now = await last()
    if (now === undefined) return false
    if (now !== first) return true
  }
  return false
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Listens at a path; null if that fails. The socket does not keep the process alive. */
async function listen(path: string): Promise<Server | null> {
  return throughShortPath(path, (short) => {
    const server = createServer((socket) => socket.destroy())
    return new Promise<Server | null>((resolve) => {
      server.on('error', () => resolve(null)) // Later errors are of connecting clients.
      server.listen({ path: short, readableAll: true, writableAll: true }, () => resolve(server.unref()))
    })
  })
}

/** True if a process listens at a path, false if none does or it is a link, null if unknown. */
async function answers(path: string): Promise<boolean | null> {
  if (await isLink(path)) return false
  return throughShortPath(path, (short) => {
    const socket = connect(short)
    return new Promise<boolean | null>((resolve) => {
      socket.once('connect', () => resolve(true))
      socket.once('error', ({ code }: NodeJS.ErrnoException) => {
        if (code === 'EAGAIN')
          resolve(true) // The listener's queue is full.
        else resolve(code === 'ECONNREFUSED' || code === 'ENOENT' || code === 'ENOTSOCK' ? false : null)
      })
    }).finally(() => socket.destroy())
  })
}

const isLink = (path: string): Promise<boolean> =>
  lstat(path).then(
    (found) => found.isSymbolicLink(),
    () => false,
  )

/** Runs an action with a path short enough for a socket; null if there is none. */
async function throughShortPath<T>(path: string, action: (path: string) => Promise<T | null>): Promise<T | null> {
  if (process.platform === 'win32') return null
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES) return action(path)
  if (process.platform !== 'linux') return null
  const folder = await open(join(path, '..'), 'r').catch(() => null)
  if (folder === null) return null
  try {
    return await action(`/proc/self/fd/${folder.fd}/${basename(path)}`)
  } finally {
    await folder.close()
  }
}

/** Identifies this process, as far as the system allows. */
function thisProcess() {
  const { pid } = process
  return {
    pid,
    host: hostname(),
    boot: told('/proc/sys/kernel/random/boot_id'),
    machine: told('/etc/machine-id'),
    pidSpace: pidSpace(),
    started: startOf(pid),
    beatSeconds: BEAT_SECONDS,
  }
}

function pidSpace(): string | null {
  try {
    return readlinkSync('/proc/self/ns/pid')
  } catch {
    return null // The system has no such namespaces.
  }
}

/** When a process started; null if it does not exist or the system does not tell. */
function startOf(pid: number): string | null {
  // The name, in parentheses, may contain spaces; the other fields do not. The start is field 22.
  return told(`/proc/${pid}/stat`)?.split(') ').at(-1)?.split(' ')[19] ?? null
}

/** The content of a system file; null if there is none. */
function told(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim() || null
  } catch {
    return null
  }
}
