/**
 * Environments of Python's Gymnasium. The lanes of a thread are in one Python process, which `python/colonnade.py` serves over columns in a
 * file: all lanes of a step are asked for at once. What a lane is stays in its own columns, as with objects (`led.ts`): a process that has
 * not seen an episode, in another thread or after a resume, is led through it by its seed and its actions.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readFileSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  ColumnFile,
  columnFolder,
  Doorbell,
  type FileColumn,
  PROTOCOL,
  PROTOCOL_VERSION,
  removeColumnFolder,
} from '../column-file.ts'
import { checkOptions, InputError, show } from '../errors.ts'
import { Stream } from '../random.ts'
import { box, discrete, multiDiscrete, type Space, spaceWidth } from '../space.ts'
import {
  defineEnvironment,
  type EnvironmentFactory,
  type EnvironmentPreset,
  type Lanes,
  type State,
} from './environment.ts'
import { COURSE_START, ledColumns, mix } from './led.ts'

/** Which environment of Gymnasium it is, and how Python is called. */
export interface FromGymnasiumOptions<I extends string = string> {
  /** As `gymnasium.make` takes it: `LunarLander-v3`, or `package:Name-v0` for one that a package of Python's registers. */
  readonly id: I
  /** `import.meta.url`: lets other threads and resumed runs make it too. */
  readonly module?: string
  /** The Python to run, which has numpy and gymnasium. Default `python3`. */
  readonly python?: string
  /** Keyword arguments of `gymnasium.make`, as JSON. Default none. */
  readonly kwargs?: Readonly<Record<string, unknown>>
  /** Steps after which an episode is truncated. Default: as Gymnasium registers it. A lane's columns keep the actions of so many steps. */
  readonly maxEpisodeSteps?: number
  /** Seconds that Python may take for one step of all lanes, or to begin their episodes; then its process ends. Default 60. */
  readonly timeoutSeconds?: number
  /** What is known to work for it. Default: nothing is. */
  readonly presets?: readonly EnvironmentPreset[]
}

/** The names of the options. */
const optionNames = Object.keys({
  ...{ id: true, module: true, python: true, kwargs: true, maxEpisodeSteps: true, timeoutSeconds: true, presets: true },
} satisfies Record<keyof FromGymnasiumOptions, true>)

const script = fileURLToPath(
  new URL(`${import.meta.url.endsWith('.ts') ? '../../' : '../../../'}python/colonnade.py`, import.meta.url),
)

/** A space as Python tells it. */
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
interface Told {
  readonly observationSpace: Extract<ToldSpace, { kind: 'box' }>
  readonly actionSpace: ToldSpace
  readonly maxEpisodeSteps: number | null
  readonly returnThreshold: number | null
}

/** What a process says when it serves. */
interface Hello extends Told {
  readonly protocol: string
  readonly version: number
  readonly file: string
  readonly bytes: number
  readonly columns: Readonly<Record<string, FileColumn>>
}

/** What each environment was said to be, by how it was asked for. */
const told = new Map<string, Told>()

/** @throws InputError where there is no such Python, or it cannot make the environment. */
function ask(id: string, python: string, request: object): Told {
  const words = JSON.stringify(request)
  const key = `${python} ${words}`
  const known = told.get(key)
  if (known !== undefined) return known
  const { error, status, stdout, stderr } = spawnSync(python, [script, words], { encoding: 'utf8' })
  const expected = 'a Python with numpy and gymnasium that can make it'
  if (error !== undefined) throw new InputError(`environment ${id}, python ${python}`, error.message, expected)
  if (status !== 0) throw new InputError(`environment ${id}, python ${python}`, lastLines(stderr, 1), expected)
  const answer = JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as Told
  told.set(key, answer)
  return answer
}

/** What Python said last. */
function lastLines(text: string, count: number): string {
  return text.trimEnd().split('\n').slice(-count).join('\n') || 'nothing said'
}

function spaceOf(space: ToldSpace): Space {
  if (space.kind === 'discrete') return discrete(space.n)
  if (space.kind === 'multi-discrete') return multiDiscrete(space.sizes)
  return box({ shape: space.shape, low: space.low.map(bound), high: space.high.map(bound) })
}

/** A number of Python's: `inf` is infinite. */
function bound(text: string): number {
  return Number(text.replace('inf', 'Infinity'))
}

/** A Python process that serves the lanes of a thread. */
class Process {
  readonly #id: string
  readonly #doorbell: Doorbell
  readonly #ends: readonly [number, number]
  /** What it wrote to its standard error. */
  readonly #errors: number
  readonly file: ColumnFile
  readonly row: Uint32Array
  readonly seed: Uint32Array
  readonly action: Float32Array | Int32Array
  readonly observation: Float32Array
  readonly reward: Float64Array
  readonly terminated: Uint8Array
  readonly truncated: Uint8Array
  /** Of each row the lane, episode and step that its environment is at, and the course of that episode. */
  readonly at: { lane: number; episode: number; step: number; course: number }[] = []

  constructor(id: string, python: string, request: object) {
    this.#id = id
    const folder = columnFolder()
    const [requests, answers] = [join(folder, 'requests'), join(folder, 'answers')]
    execFileSync('mkfifo', ['-m', '600', requests, answers])
    // A pipe with a name opens at once for who finds its other end open. The last to hold an end decides whether the other reads its end.
    const [input, write] = openBoth(requests)
    const [read, output] = openBoth(answers)
    const errors = openSync(join(folder, 'errors'), 'w', 0o600)
    this.#errors = openSync(join(folder, 'errors'), 'r')
    const child = spawn(python, [script, JSON.stringify(request)], { stdio: [input, output, errors] })
    child.on('error', () => {}) // Told by the pipe, which ends.
    child.unref()
    for (const end of [input, output, errors]) closeSync(end)
    removeColumnFolder(folder) // What is open stays, until the last who has it is gone.
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
  }

  /** Asks for the first `count` rows of its columns. `where` says in words where a row of the cohort is. */
  ask(request: 'reset' | 'step', count: number, where: (row: number) => string): void {
    this.file.write('row', 'action')
    this.#doorbell.write(`${request} ${count}`)
    const answer = this.#answer()
    if (answer !== 'ok') {
      const { row, message } = JSON.parse(answer.slice('error '.length)) as { row: number; message: string }
      throw new Error(`environment ${this.#id}, ${request} in ${where(row)} raised in Python: ${message.trimEnd()}`)
    }
    this.file.read('observation', 'truncated')
  }

  close(): void {
    for (const end of [...this.#ends, this.#errors]) closeSync(end)
    this.file.close()
  }

  #answer(): string {
    const answer = this.#doorbell.read()
    if (answer !== null) return answer
    const said = lastLines(readFileSync(this.#errors, 'utf8'), 20)
    throw new Error(`environment ${this.#id}: its Python process is gone: ${said}`)
  }
}

/** Both ends of a named pipe. */
function openBoth(path: string): [read: number, write: number] {
  const first = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const write = openSync(path, constants.O_WRONLY)
  const read = openSync(path, constants.O_RDONLY)
  closeSync(first)
  return [read, write]
}

/**
 * An environment of Gymnasium, which Python steps: its spaces, its time limit and its dynamics as `gymnasium.make` has them. Observations
 * that are no box are flattened as Gymnasium flattens them; bounds of observations are not held to, since environments do not.
 *
 * @throws InputError where Python cannot be called, has no Gymnasium or no such environment (when the environment is made), and for
 * options that are wrong. What an environment raises is told with the lane, its episode and its step; so is a process that is gone, or that
 * took longer than `timeoutSeconds`, with what Python said last.
 * @example
 * export const lander = fromGymnasium({ id: 'LunarLander-v3', module: import.meta.url, python: '.venv/bin/python' })
 */
export function fromGymnasium<const I extends string>(
  options: FromGymnasiumOptions<I>,
): EnvironmentFactory<Record<never, never>, I> {
  checkOptions('fromGymnasium', options, optionNames)
  const { id, module, python = 'python3', kwargs = {}, timeoutSeconds = 60, presets = [] } = options
  if (typeof id !== 'string' || id === '')
    throw new InputError('fromGymnasium id', show(id), 'a name, like LunarLander-v3')
  if (!(Number.isFinite(timeoutSeconds) && timeoutSeconds > 0)) {
    throw new InputError(`${id} timeoutSeconds`, show(timeoutSeconds), 'seconds, more than 0')
  }
  const learn = () => {
    const said = ask(id, python, { id, kwargs })
    const { actionSpace, maxEpisodeSteps } = said
    const steps = options.maxEpisodeSteps ?? maxEpisodeSteps
    if (!Number.isSafeInteger(steps) || steps! < 1) {
      const expected = 'a whole number ≥ 1: a lane keeps the actions of its episode'
      throw new InputError(`${id} maxEpisodeSteps`, show(steps), expected)
    }
    return { ...said, actionSpace: spaceOf(actionSpace), maxEpisodeSteps: steps! }
  }
  type Columns = State<ReturnType<typeof ledColumns>>

  return defineEnvironment({
    id,
    ...(module === undefined ? {} : { module }),
    settings: {},
    presets,
    state: () => {
      const { actionSpace, maxEpisodeSteps } = learn()
      return ledColumns(actionSpace, maxEpisodeSteps)
    },
    make: () => {
      const { observationSpace: seen, actionSpace, maxEpisodeSteps, returnThreshold } = learn()
      const { shape } = seen
      const observationSpace = box({ shape, low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY })
      const [width, size] = [spaceWidth(observationSpace), spaceWidth(actionSpace)]
      /** The process of each cohort in this thread. */
      const processes = new WeakMap<Columns, Process>()
      const processOf = ({ state, lane }: Lanes<Columns>): Process => {
        const found =
          processes.get(state) ?? new Process(id, python, { id, kwargs, numLanes: lane.length, timeoutSeconds })
        processes.set(state, found)
        return found
      }
      const where = ({ lane, episode, step }: Lanes<Columns>) => {
        return (n: number) => `lane ${lane[n]} (episode ${episode[n]}, step ${step[n]})`
      }

      /** Begins the episodes of the first `count` rows of a process. */
      const begin = (process: Process, lanes: Lanes<Columns>, count: number): void => {
        const { lane, episode, random } = lanes
        for (let i = 0; i < count; i++) {
          const n = process.row[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          process.seed[i] = random.words[0]!
        }
        process.ask('reset', count, where(lanes))
        for (let i = 0; i < count; i++) {
          const n = process.row[i]!
          const course = courseOf(process, i, COURSE_START)
          process.at[n] = { lane: lane[n]!, episode: episode[n]!, step: 0, course }
        }
      }

      /** Takes a step in the first `count` rows of a process, whose actions are those of `lanes.state` at their step. */
      const move = (process: Process, lanes: Lanes<Columns>, count: number): void => {
        const { actions } = lanes.state
        for (let i = 0; i < count; i++) {
          const n = process.row[i]!
          const first = (n * maxEpisodeSteps + process.at[n]!.step) * size
          for (let k = 0; k < size; k++) process.action[i * size + k] = actions[first + k]!
        }
        process.ask('step', count, where(lanes))
        for (let i = 0; i < count; i++) {
          const at = process.at[process.row[i]!]!
          let { course } = at
          for (let k = 0; k < size; k++) course = mix(course, process.action[i * size + k]!)
          course = courseOf(process, i, course)
          at.course = mix(mix(course, process.reward[i]!), process.terminated[i]! + 2 * process.truncated[i]!)
          at.step++
        }
      }

      /** The course with what row i of a process sees. */
      const courseOf = ({ observation }: Process, i: number, course: number): number => {
        let sum = course
        for (let k = i * width; k < (i + 1) * width; k++) sum = mix(sum, observation[k]!)
        return sum
      }

      /** Leads the environment of lane n to where its columns are. */
      const leadTo = (process: Process, lanes: Lanes<Columns>, n: number): void => {
        const { state, step } = lanes
        process.row[0] = n
        begin(process, lanes, 1)
        for (let s = 0; s < step[n]!; s++) move(process, lanes, 1)
        if (process.at[n]!.course === state.course[n]) return
        throw new InputError(
          `environment ${id}, ${where(lanes)(n)}`,
          'other answers from an environment that was led through the same episode again',
          'the same: they have to follow from the seed and the actions alone',
        )
      }

      return {
        ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold },
        reset(lanes, rows, count) {
          const { state, observation } = lanes
          const process = processOf(lanes)
          for (let i = 0; i < count; i++) process.row[i] = rows[i]!
          begin(process, lanes, count)
          for (let i = 0; i < count; i++) {
            const n = rows[i]!
            observation.set(process.observation.subarray(i * width, (i + 1) * width), n * width)
            state.actions.fill(0, n * size * maxEpisodeSteps, (n + 1) * size * maxEpisodeSteps)
            state.course[n] = process.at[n]!.course
            state.isOver[n] = 0
          }
        },
        step(lanes, from, to) {
          const { state, lane, episode, step, action, observation, reward, terminated, truncated } = lanes
          const process = processOf(lanes)
          for (let n = from; n < to; n++) {
            if (state.isOver[n] === 1) continue
            const at = process.at[n]
            const isThere = at !== undefined && at.lane === lane[n] && at.episode === episode[n] && at.step === step[n]
            if (!isThere || at.course !== state.course[n]) leadTo(process, lanes, n)
          }
          let count = 0
          for (let n = from; n < to; n++) {
            if (state.isOver[n] === 1) continue
            process.row[count++] = n
            const first = (n * maxEpisodeSteps + step[n]!) * size
            for (let k = 0; k < size; k++) state.actions[first + k] = action[n * size + k]!
          }
          if (count === 0) return
          move(process, lanes, count)
          for (let i = 0; i < count; i++) {
            const n = process.row[i]!
            observation.set(process.observation.subarray(i * width, (i + 1) * width), n * width)
            reward[n] = process.reward[i]!
            terminated[n] = process.terminated[i]!
            truncated[n] = process.truncated[i]!
            state.course[n] = process.at[n]!.course
            state.isOver[n] = terminated[n] || truncated[n] || step[n]! + 1 === maxEpisodeSteps ? 1 : 0
          }
        },
        close(state) {
          processes.get(state)?.close()
          processes.delete(state)
        },
      }
    },
  })
}
