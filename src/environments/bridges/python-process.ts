/** Python processes that serve environments: what one says of an environment, and the columns of its games. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readFileSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { InputError } from '../../base/errors.ts'
import {
  ColumnFile,
  columnFolder,
  Doorbell,
  type FileColumn,
  PROTOCOL,
  PROTOCOL_VERSION,
  removeColumnFolder,
} from '../../base/files/column-file.ts'
import { parseObject } from '../../base/files/files.ts'
import { ownFile } from '../../base/files/own-files.ts'
import { type BoxSpace, box, discrete, multiDiscrete, type Space, sideBySide } from '../../base/space.ts'

/** A space in Python's description. */
type ToldSpace =
  | { readonly kind: 'discrete'; readonly n: number }
  | { readonly kind: 'multi-discrete'; readonly sizes: readonly number[] }
  | {
      readonly kind: 'box'
      readonly shape: readonly number[]
      readonly low: readonly string[]
      readonly high: readonly string[]
    }

/** What Python says of an environment. */
export interface Told {
  readonly observationSpace: Extract<ToldSpace, { kind: 'box' }>
  /** What the elements of an observation are, in order, if its space was flattened. */
  readonly parts?: readonly { readonly name: string; readonly space: ToldSpace }[]
  readonly actionSpace: ToldSpace
  readonly maxEpisodeSteps: number | null
  readonly returnThreshold: number | null
  /** Players of a game; one if it says nothing. */
  readonly numPlayers?: number
  /** Whether it writes masks of choices, and who moves next. */
  readonly actionMask?: boolean
  /** How many elements of an observation, the last ones, are for critics alone. */
  readonly criticOnly?: number
  readonly moves?: boolean
}

/** First message of a serving process. */
interface Hello extends Told {
  readonly protocol: string
  readonly version: number
  readonly file: string
  readonly bytes: number
  readonly columns: Readonly<Record<string, FileColumn>>
}

/** Descriptions of environments, by request. */
const told = new Map<string, Told>()

/** What Python runs. */
export interface Script {
  readonly url: URL
  /** The packages that it needs, in words. */
  readonly packages: string
}

/** A script in the folder `python` of the package. */
export function scriptOf(name: string, packages: string): Script {
  const above = import.meta.url.endsWith('.ts') ? '../../../' : '../../../../'
  return { url: new URL(`${above}python/${name}`, import.meta.url), packages }
}

/** @throws InputError if Python is missing or cannot create the environment. */
export function ask(id: string, python: string, { url, packages }: Script, request: object): Told {
  const words = JSON.stringify(request)
  const key = `${python} ${url} ${words}`
  const known = told.get(key)
  if (known !== undefined) return known
  const { error, status, stdout, stderr } = spawnSync(python, [fileURLToPath(ownFile(url)), words], {
    encoding: 'utf8',
  })
  const expected = `a Python with ${packages} that can create it`
  if (error !== undefined) throw new InputError(`environment ${id}, python ${python}`, error.message, expected)
  if (status !== 0) throw new InputError(`environment ${id}, python ${python}`, lastLines(stderr, 1), expected)
  // Other output, also from the environment, is not a JSON object.
  const answer = stdout
    .split('\n')
    .map(parseObject)
    .findLast((object) => object !== null)
  if (answer === undefined) throw new InputError(`environment ${id}, python ${python}`, lastLines(stdout, 1), expected)
  told.set(key, answer as unknown as Told)
  return answer as unknown as Told
}

function lastLines(text: string, count: number): string {
  return text.trimEnd().split('\n').slice(-count).join('\n') || 'nothing said'
}

export function spaceOf(space: ToldSpace): Space {
  if (space.kind === 'discrete') return discrete(space.n)
  if (space.kind === 'multi-discrete') return multiDiscrete(space.sizes)
  return box({ shape: space.shape, low: space.low.map(bound), high: space.high.map(bound) })
}

/** The space of observations: boxes without bounds, which environments do not respect, and one-hot choices. */
export function observationSpaceOf({ observationSpace, parts, criticOnly = 0 }: Told): BoxSpace {
  const unbounded = (shape: readonly number[], last = 0) =>
    box({ shape, low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY, criticOnly: last })
  if (parts === undefined) return unbounded(observationSpace.shape, criticOnly)
  return sideBySide(
    parts.map(({ name, space }) => [name, space.kind === 'box' ? unbounded(space.shape) : spaceOf(space)]),
  )
}

/** Parses a number of Python; `inf` is infinite. */
function bound(text: string): number {
  return Number(text.replace('inf', 'Infinity'))
}

/** An exception of an environment. The rows before it have made their step. */
export class RaisedError extends Error {
  /** Number of rows completed before the exception. */
  readonly done: number

  constructor(done: number, message: string) {
    super(message)
    this.done = done
  }
}

export class GoneError extends Error {}

/** A Python process that serves the games of a thread; each of its columns has a row for each game, with all its players. */
export class Process {
  readonly #id: string
  readonly #doorbell: Doorbell
  readonly #ends: readonly [number, number]
  readonly #errors: number
  readonly file: ColumnFile
  readonly row: Uint32Array
  readonly seed: Uint32Array
  readonly action: Float32Array | Int32Array
  readonly observation: Float32Array
  readonly reward: Float64Array
  readonly terminated: Uint8Array
  readonly truncated: Uint8Array
  /** Masks of choices, and who moves next; empty if the environment has none. */
  readonly actionMask: Uint8Array
  readonly moves: Uint8Array
  readonly #lastAnswer: string
  /** Per game: the first lane, episode and step of its environment, and the course of that episode. */
  readonly at: { lane: number; episode: number; step: number; course: number }[] = []

  constructor(id: string, python: string, script: Script, request: object) {
    this.#id = id
    const folder = columnFolder()
    const [requests, answers] = [join(folder, 'requests'), join(folder, 'answers')]
    execFileSync('mkfifo', ['-m', '600', requests, answers])
    // A named pipe opens at once if its other end is open. A reader sees the end of the pipe when the last writer closes it.
    const [input, write] = openBoth(requests)
    const [read, output] = openBoth(answers)
    const errors = openSync(join(folder, 'errors'), 'w', 0o600)
    this.#errors = openSync(join(folder, 'errors'), 'r')
    const words = [fileURLToPath(ownFile(script.url)), JSON.stringify(request)]
    const child = spawn(python, words, { stdio: [input, output, errors] })
    child.on('error', () => {}) // The pipe's end reports it.
    child.unref()
    for (const end of [input, output, errors]) closeSync(end)
    removeColumnFolder(folder) // Open files remain until the last process closes them.
    this.#ends = [read, write]
    this.#doorbell = new Doorbell(read, write)
    const hello = JSON.parse(this.#answer()) as Hello
    if (hello.protocol !== PROTOCOL || hello.version !== PROTOCOL_VERSION) {
      const got = `${hello.protocol} ${hello.version}`
      throw new InputError(`environment ${id}, protocol of Python`, got, `${PROTOCOL} ${PROTOCOL_VERSION}`)
    }
    const file = new ColumnFile(hello.file, hello.columns, hello.bytes)
    unlinkSync(hello.file)
    this.file = file
    this.row = file.column<'u32'>('row')
    this.seed = file.column<'u32'>('seed')
    this.action = file.column<'f32' | 'i32'>('action')
    this.observation = file.column<'f32'>('observation')
    this.reward = file.column<'f64'>('reward')
    this.terminated = file.column<'u8'>('terminated')
    this.truncated = file.column<'u8'>('truncated')
    this.actionMask = 'actionMask' in hello.columns ? file.column<'u8'>('actionMask') : new Uint8Array()
    this.moves = 'moves' in hello.columns ? file.column<'u8'>('moves') : new Uint8Array()
    this.#lastAnswer = this.moves.length > 0 ? 'moves' : this.actionMask.length > 0 ? 'actionMask' : 'truncated'
  }

  /**
   * Requests the first `count` rows of its columns. `where` describes the position of a row of the cohort.
   * @throws RaisedError if an environment raises; GoneError.
   */
  ask(request: 'reset' | 'step', count: number, where: (game: number) => string): void {
    this.file.write('row', 'action')
    this.#doorbell.write(`${request} ${count}`)
    const answer = this.#answer()
    this.file.read('observation', this.#lastAnswer)
    if (answer === 'ok') return
    const { row, message } = JSON.parse(answer.slice('error '.length)) as { row: number; message: string }
    throw new RaisedError(
      this.row.indexOf(row),
      `environment ${this.#id}, ${request} in ${where(row)} raised in Python: ${message.trimEnd()}`,
    )
  }

  close(): void {
    for (const end of [...this.#ends, this.#errors]) closeSync(end)
    this.file.close()
  }

  #answer(): string {
    const answer = this.#doorbell.read()
    if (answer !== null) return answer
    const said = lastLines(readFileSync(this.#errors, 'utf8'), 20)
    throw new GoneError(`environment ${this.#id}: its Python process ended: ${said}`)
  }
}

function openBoth(path: string): [read: number, write: number] {
  const first = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const write = openSync(path, constants.O_WRONLY)
  const read = openSync(path, constants.O_RDONLY)
  closeSync(first)
  return [read, write]
}
