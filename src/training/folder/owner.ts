/**
 * Who may write in a run folder: one process at a time. Whoever writes puts up a claim, a folder `.owner-<token>` with who it
 * is, and looks for the claims of others. A claim lasts as long as its process, however that ends: in it lies a socket, which
 * the system closes with the process that listens, and which any other process of this machine can try, in whatever container
 * it is. Where a file system has no sockets, the number and start of the process decide; on another machine, a heartbeat.
 * Readers need no claim.
 *
 * Only the owner sweeps away what interrupted writing left.
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
import { TakenError } from './if-exists.ts'

/** What a run writes at the top of its folder, and the folders in which it keeps more. */
export const RUN_FILES = ['config.json', 'metrics.jsonl', 'summary.json', 'learning-curve.svg', 'trace.json', 'run.log']
export const RUN_FOLDERS = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter']

const PREFIX = '.owner-'
const RECORD_FILE = 'owner.json'
const HELD_FOLDER = 'held'
const SOCKET = 'socket'

/** Seconds between two beats of the heart of a claim. */
const BEAT_SECONDS = 5
/** So many beats without one, and the owner on another machine is gone. */
const BEATS_MISSED = 6
/** For so long a claim may lack its record before its process counts as gone: it writes it at once. */
const UNWRITTEN_MS = 1000
/** Between two looks at who else wants the folder. */
const LOOK_MS = 20
/** The longest path that a socket can have everywhere. */
const SOCKET_PATH_BYTES = 100

/** Who put up a claim. */
interface OwnerRecord {
  readonly pid: number
  readonly host: string
  /** Names the machine since its last start; null where the system does not tell. */
  readonly boot: string | null
  /** Names the machine whenever it was started. */
  readonly machine: string | null
  /** The space in which `pid` is a number: containers have their own. */
  readonly pidSpace: string | null
  /** When the process started, in the system's own count: another process of the same number has another. */
  readonly started: string | null
  readonly hasSocket: boolean
  readonly beatSeconds: number
  /** When the claim was put up, for people. */
  readonly since: string
}

/** What is known of a claim that another process put up. */
interface Claim {
  readonly path: string
  /** Null where it is not written yet, or was never finished. */
  readonly record: OwnerRecord | null
  /** The folder is its owner's; else it is still looking for others. */
  readonly isHeld: boolean
}

/** True for what owners put into a folder. */
export function isClaim(name: string): boolean {
  return name.startsWith(PREFIX)
}

/** What this process owns, by real path. It goes with the process where that ends by itself. */
const owned = new Map<string, Ownership>()
let isExitHeard = false

/** The claim of this process on a folder. */
export class Ownership {
  /** Whether somebody in this process works in the folder; else whoever asks next in this process takes it over. */
  isBusy = false
  readonly #folder: string
  readonly #real: string
  readonly #claim: string
  readonly #server: Server | null
  readonly #beat: ReturnType<typeof setInterval>
  #isReleased = false

  private constructor(folder: string, real: string, claim: string, server: Server | null) {
    this.#folder = folder
    this.#real = real
    this.#claim = claim
    this.#server = server
    // Whether the claim is still there is checked before each writing.
    const beat = () => void utimes(claim, new Date(), new Date()).catch(() => undefined)
    this.#beat = setInterval(beat, 1000 * BEAT_SECONDS).unref()
  }

  /**
   * Takes a folder that is there, if nobody has it, and sweeps away what an interrupted writing left. Of several processes that
   * begin at the same moment one gets it.
   * @throws InputError that says who has it, or that it cannot be written.
   */
  static async take(folder: string): Promise<Ownership> {
    const real = await realpath(folder).catch((cause) => {
      throw new InputError('run', (cause as Error).message, 'a run folder', { cause })
    })
    const before = owned.get(real)
    if (before?.isBusy) throw new TakenError('folder', folder, 'is in use by this process', 'one that nobody trains in')
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

  /** Whether this process has the folder. */
  static async isHere(folder: string): Promise<boolean> {
    return owned.has(await realpath(folder))
  }

  get isReleased(): boolean {
    return this.#isReleased
  }

  /**
   * Makes sure that the folder is still this process's.
   * @throws InputError if another machine took it, because this process had shown no life for long.
   */
  async check(): Promise<void> {
    if (await isThere(this.#claim)) return
    const [other] = await claimsIn(this.#folder)
    const got = other === undefined ? 'a claim that somebody removed' : `a folder that was taken by ${describe(other)}`
    const expected = 'the claim of this process, which showed no sign of life for a long time'
    throw new InputError(`run ${this.#folder}`, got, expected)
  }

  /** Somebody else may have the folder from now on. */
  async release(): Promise<void> {
    if (this.#isReleased) return
    this.#isReleased = true
    clearInterval(this.#beat)
    this.#server?.close()
    if (owned.get(this.#real) === this) owned.delete(this.#real)
    // If it stays it is that of a process that does not listen, and the next one removes it.
    await disk.remove(this.#claim).catch(() => undefined)
  }

  /** For the end of the process, which waits for nothing. */
  drop(): void {
    rmSync(this.#claim, { recursive: true, force: true })
  }
}

function removeClaims(): void {
  for (const ownership of owned.values()) ownership.drop()
}

/**
 * Does something in a folder as its owner: as the one that this process is, or as one for so long.
 * @throws InputError that says who else has it, or that it cannot be written.
 */
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

/**
 * Takes away what an interrupted writing left: only the owner may, for another's may still become a file.
 * @throws InputError where a link or a special file stands in the place of something of the run.
 */
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

/** True for what an interrupted writing leaves of a file at the top of a run's folder. */
export function isTemporary(name: string): boolean {
  return RUN_FILES.some((file) => name.startsWith(`${file}.`) && /\.\d+\.tmp$/.test(name))
}

/** Puts up this process's claim. Returns what listens in it, null where the file system or the system has no sockets. */
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
 * Looks at the claims of others until there are none but those of the dead, which go. Each process puts its claim up before
 * it looks, so of two at least one sees the other: it gives way to who holds the folder and to a lower token, and waits for a
 * higher one, which has not seen it or will give way.
 */
async function contend(folder: string, token: string): Promise<void> {
  const unwritten = new Map<string, number>()
  for (;;) {
    let mustWait = false
    const claims = await claimsIn(folder)
    // Together: each may take half a minute, and a folder may have any number of them.
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
        const expected = `a folder that nobody trains in (if that process is gone: remove ${claim.path})`
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

/** Null where there is none, or only a part: its process writes it, or ended while it did. */
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

/** Whether the process that put up a claim has ended. */
async function isGone(path: string, record: OwnerRecord): Promise<boolean> {
  const here = thisProcess()
  if (record.boot !== null && record.boot === here.boot) {
    if (record.hasSocket) {
      const isHeard = await answers(join(path, SOCKET))
      if (isHeard !== null) return !isHeard
    }
    if (record.pidSpace === here.pidSpace) {
      // A process of another user cannot be looked at, but is there.
      return record.started === null ? !isAlive(record.pid) : startOf(record.pid) !== record.started
    }
  } else if (record.machine !== null && record.machine === here.machine && record.host === here.host) {
    return true // The machine was started anew since.
  }
  return !(await beats(path, record.beatSeconds))
}

/** Whether the heart of a claim beats: its file changes while we look. No clock is compared with that of another machine. */
async function beats(path: string, beatSeconds: number): Promise<boolean> {
  const beatMs = 1000 * Math.min(BEAT_SECONDS, Number(beatSeconds) || BEAT_SECONDS) // What a claim says may be anything.
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

/** Listens at a path; null where that cannot be. What listens does not keep the process. */
async function listen(path: string): Promise<Server | null> {
  return throughShortPath(path, (short) => {
    const server = createServer((socket) => socket.destroy())
    return new Promise<Server | null>((resolve) => {
      server.on('error', () => resolve(null)) // Later ones are of others who connect.
      server.listen({ path: short, readableAll: true, writableAll: true }, () => resolve(server.unref()))
    })
  })
}

/** True if a process listens at a path, false if none does or it is a link, null where that cannot be told. */
async function answers(path: string): Promise<boolean | null> {
  if (await isLink(path)) return false
  return throughShortPath(path, (short) => {
    const socket = connect(short)
    return new Promise<boolean | null>((resolve) => {
      socket.once('connect', () => resolve(true))
      socket.once('error', ({ code }: NodeJS.ErrnoException) => {
        if (code === 'EAGAIN')
          resolve(true) // So many have asked that there is no room for one more.
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

/** Does something with a path that is not too long for a socket; null where there is none. */
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

/** What tells this process from all others, as far as the system says. */
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
    return null // Where the system has no such spaces.
  }
}

/** When a process started; null where there is none, or the system does not tell. */
function startOf(pid: number): string | null {
  // The name, in parentheses, may have spaces; what follows has not. The start is field 22 of all.
  return told(`/proc/${pid}/stat`)?.split(') ').at(-1)?.split(' ')[19] ?? null
}

/** What a file of the system says; null where there is none. */
function told(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim() || null
  } catch {
    return null
  }
}
