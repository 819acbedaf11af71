/**
 * Environments of Python's Gymnasium. One Python process per thread serves its lanes (`python/colonnade.py`) over columns in a file, and
 * all lanes step in one request. As with objects (`led.ts`), a lane's state is its own columns: a process that has not seen an episode,
 * in another thread or after a resume, replays it from its seed and actions.
 */

import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readFileSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkOptions, InputError, show } from '../../base/errors.ts'
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
import { Stream } from '../../base/random.ts'
import type { Settings } from '../../base/settings.ts'
import { box, discrete, multiDiscrete, type Space, spaceWidth } from '../../base/space.ts'
import { defineEnvironment, type EnvironmentFactory, type Lanes, type State } from '../environment.ts'
import { COURSE_START, checkOnFault, type FAULTS, faultTeller, type LedOptions, ledColumns, mix } from './led.ts'

/** Options of `fromGymnasium`: the environment, and how to run Python. */
export interface FromGymnasiumOptions<I extends string = string>
  extends Pick<LedOptions<Space, Settings, I>, 'module' | 'presets'> {
  /** Id for `gymnasium.make`: `LunarLander-v3`, or `package:Name-v0` for an environment that a Python package registers. */
  readonly id: I
  /** The Python to run, with numpy and gymnasium. Default `python3`. */
  readonly python?: string
  /** Keyword arguments of `gymnasium.make`, as JSON. Default: none. */
  readonly kwargs?: Readonly<Record<string, unknown>>
  /** Steps after which an episode is truncated. Default: Gymnasium's registered limit. A lane's columns store this many actions. */
  readonly maxEpisodeSteps?: number
  /** Seconds that Python may take for a step or reset of all lanes; after that its process is ended. Default 60. */
  readonly timeoutSeconds?: number
  /**
   * What happens if a step raises or returns a value that is not a number, and if the process dies or exceeds `timeoutSeconds`. `stop`
   * (default): the caller gets the error and the training ends. `end-episode`: the user gets a warning, and the lane's episode is
   * truncated at its state before the step, with reward 0; the failed environment is not used again. If the process died, this applies to
   * all lanes of the request, and new episodes begin in a new process. Other lanes continue. A failed reset always stops.
   */
  readonly onFault?: (typeof FAULTS)[number]
}

const optionNames = Object.keys({
  ...{ id: true, module: true, python: true, kwargs: true, maxEpisodeSteps: true, timeoutSeconds: true, presets: true },
  onFault: true,
} satisfies Record<keyof FromGymnasiumOptions, true>)

const scriptUrl = new URL(
  `${import.meta.url.endsWith('.ts') ? '../../../' : '../../../../'}python/colonnade.py`,
  import.meta.url,
)

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

interface Told {
  readonly observationSpace: Extract<ToldSpace, { kind: 'box' }>
  readonly actionSpace: ToldSpace
  readonly maxEpisodeSteps: number | null
  readonly returnThreshold: number | null
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

/** @throws InputError if Python is missing or cannot create the environment. */
function ask(id: string, python: string, request: object): Told {
  const words = JSON.stringify(request)
  const key = `${python} ${words}`
  const known = told.get(key)
  if (known !== undefined) return known
  const { error, status, stdout, stderr } = spawnSync(python, [fileURLToPath(ownFile(scriptUrl)), words], {
    encoding: 'utf8',
  })
  const expected = 'a Python with numpy and gymnasium that can create it'
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

function spaceOf(space: ToldSpace): Space {
  if (space.kind === 'discrete') return discrete(space.n)
  if (space.kind === 'multi-discrete') return multiDiscrete(space.sizes)
  return box({ shape: space.shape, low: space.low.map(bound), high: space.high.map(bound) })
}

/** Parses a number of Python; `inf` is infinite. */
function bound(text: string): number {
  return Number(text.replace('inf', 'Infinity'))
}

/** An exception of an environment. The rows before it have made their step. */
class RaisedError extends Error {
  /** Number of rows completed before the exception. */
  readonly done: number

  constructor(done: number, message: string) {
    super(message)
    this.done = done
  }
}

class GoneError extends Error {}

/** A Python process that serves the lanes of a thread. */
class Process {
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
  /** Per row: the lane, episode and step of its environment, and the course of that episode. */
  readonly at: { lane: number; episode: number; step: number; course: number }[] = []

  constructor(id: string, python: string, request: object) {
    this.#id = id
    const folder = columnFolder()
    const [requests, answers] = [join(folder, 'requests'), join(folder, 'answers')]
    execFileSync('mkfifo', ['-m', '600', requests, answers])
    // A named pipe opens at once if its other end is open. A reader sees the end of the pipe when the last writer closes it.
    const [input, write] = openBoth(requests)
    const [read, output] = openBoth(answers)
    const errors = openSync(join(folder, 'errors'), 'w', 0o600)
    this.#errors = openSync(join(folder, 'errors'), 'r')
    const words = [fileURLToPath(ownFile(scriptUrl)), JSON.stringify(request)]
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
  }

  /**
   * Requests the first `count` rows of its columns. `where` describes the position of a row of the cohort.
   * @throws RaisedError if an environment raises; GoneError.
   */
  ask(request: 'reset' | 'step', count: number, where: (row: number) => string): void {
    this.file.write('row', 'action')
    this.#doorbell.write(`${request} ${count}`)
    const answer = this.#answer()
    this.file.read('observation', 'truncated')
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

/**
 * An environment of Gymnasium, stepped by Python, with the spaces, time limit and dynamics of `gymnasium.make`. Observations that are not
 * a box are flattened as in Gymnasium. Observation bounds are not enforced, because environments do not respect them.
 * @throws InputError if Python cannot run or lacks Gymnasium or the environment (on creation), and for wrong options. An exception of an
 * environment is reported with the lane, episode and step; a process that died or exceeded `timeoutSeconds`, with Python's last output.
 * @example
 * export const lander = fromGymnasium({ id: 'LunarLander-v3', module: import.meta.url, python: '.venv/bin/python' })
 */
export function fromGymnasium<const I extends string>(
  options: FromGymnasiumOptions<I>,
): EnvironmentFactory<Record<never, never>, I> {
  checkOptions('fromGymnasium', options, optionNames)
  const { id, module, python = 'python3', kwargs = {}, timeoutSeconds = 60, presets = [], onFault = 'stop' } = options
  if (typeof id !== 'string' || id === '')
    throw new InputError('fromGymnasium id', show(id), 'a name, like LunarLander-v3')
  if (!(Number.isFinite(timeoutSeconds) && timeoutSeconds > 0)) {
    throw new InputError(`${id} timeoutSeconds`, show(timeoutSeconds), 'seconds, more than 0')
  }
  checkOnFault(id, onFault)
  const learn = () => {
    const said = ask(id, python, { id, kwargs })
    const { actionSpace, maxEpisodeSteps } = said
    const steps = options.maxEpisodeSteps ?? maxEpisodeSteps
    if (!Number.isSafeInteger(steps) || steps! < 1) {
      const expected = 'a whole number ≥ 1, since a lane stores the actions of its episode'
      throw new InputError(`${id} maxEpisodeSteps`, show(steps), expected)
    }
    return { ...said, actionSpace: spaceOf(actionSpace), maxEpisodeSteps: steps! }
  }
  type Declared = ReturnType<typeof ledColumns> & { readonly seen: readonly ['f32', number] }
  type Columns = State<Declared>

  return defineEnvironment({
    id,
    ...(module === undefined ? {} : { module }),
    settings: {},
    presets,
    state: () => {
      const { observationSpace, actionSpace, maxEpisodeSteps } = learn()
      const elements = observationSpace.shape.reduce((product, side) => product * side, 1)
      // The last observation of each lane, where a fault truncates the episode; not needed otherwise.
      const seen = onFault === 'stop' ? {} : { seen: ['f32', elements] as const }
      return { ...ledColumns(actionSpace, maxEpisodeSteps), ...seen } as Declared
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
      const end = (state: Columns): void => {
        processes.get(state)?.close()
        processes.delete(state)
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

      /**
       * Makes a step in the first `count` rows of a process, with the actions in `lanes.state` at their step. Returns the exception of
       * the environment after the last completed row, if there is one.
       */
      const move = (process: Process, lanes: Lanes<Columns>, count: number): RaisedError | null => {
        const { actions } = lanes.state
        for (let i = 0; i < count; i++) {
          const n = process.row[i]!
          const first = (n * maxEpisodeSteps + process.at[n]!.step) * size
          for (let k = 0; k < size; k++) process.action[i * size + k] = actions[first + k]!
        }
        let raised: RaisedError | null = null
        try {
          process.ask('step', count, where(lanes))
        } catch (error) {
          if (!(error instanceof RaisedError)) throw error
          raised = error
        }
        for (let i = 0; i < (raised?.done ?? count); i++) {
          const at = process.at[process.row[i]!]!
          let { course } = at
          for (let k = 0; k < size; k++) course = mix(course, process.action[i * size + k]!)
          course = courseOf(process, i, course)
          at.course = mix(mix(course, process.reward[i]!), process.terminated[i]! + 2 * process.truncated[i]!)
          at.step++
        }
        return raised
      }

      /** The course extended by the observation of row i of a process. */
      const courseOf = ({ observation }: Process, i: number, course: number): number => {
        let sum = course
        for (let k = i * width; k < (i + 1) * width; k++) sum = mix(sum, observation[k]!)
        return sum
      }

      /** Replays the episode of lane n up to its current step. */
      const leadTo = (process: Process, lanes: Lanes<Columns>, n: number): void => {
        const { state, step } = lanes
        process.row[0] = n
        begin(process, lanes, 1)
        for (let s = 0; s < step[n]!; s++) {
          const raised = move(process, lanes, 1)
          if (raised !== null) throw raised
        }
        if (process.at[n]!.course === state.course[n]) return
        const got = 'different answers when the episode was replayed'
        const expected = 'equal answers: they must depend only on the seed and the actions'
        throw new InputError(`environment ${id}, ${where(lanes)(n)}`, got, expected)
      }

      /** Writes the result of row i of a process into its lane. */
      const put = (process: Process, { state, observation }: Lanes<Columns>, i: number): void => {
        const n = process.row[i]!
        const seen = process.observation.subarray(i * width, (i + 1) * width)
        observation.set(seen, n * width)
        if (onFault !== 'stop') state.seen.set(seen, n * width)
        state.course[n] = process.at[n]!.course
      }

      /**
       * Returns the error of a result in row i that is not a number; undefined if all are numbers. The step system checks those of `stop`.
       */
      const unnumbered = (
        { row, reward, observation }: Process,
        lanes: Lanes<Columns>,
        i: number,
      ): Error | undefined => {
        if (onFault === 'stop') return undefined
        const subject = `environment ${id}, step in ${where(lanes)(row[i]!)}`
        if (!Number.isFinite(reward[i]!))
          return new InputError(`${subject}, reward`, show(reward[i]), 'a finite number')
        for (let k = 0; k < width; k++) {
          const value = observation[i * width + k]!
          if (!Number.isFinite(value))
            return new InputError(`${subject}, observation[${k}]`, show(value), 'a finite number')
        }
        return undefined
      }

      const warn = faultTeller()

      /** Truncates the episode of lane n at its state before this step. */
      const cutOff = ({ state, observation, reward, terminated, truncated }: Lanes<Columns>, n: number): void => {
        observation.set(state.seen.subarray(n * width, (n + 1) * width), n * width)
        reward[n] = 0
        terminated[n] = 0
        truncated[n] = 1
        state.isOver[n] = 1
      }

      /** Makes the step of the first `count` rows of a process whose environments match their lanes. */
      const moveAll = (process: Process, lanes: Lanes<Columns>, count: number): void => {
        const { state, step, reward, terminated, truncated } = lanes
        let left = count
        while (left > 0) {
          const raised = move(process, lanes, left)
          if (raised !== null && onFault === 'stop') throw raised
          const done = raised?.done ?? left
          for (let i = 0; i < done; i++) {
            const n = process.row[i]!
            const fault = unnumbered(process, lanes, i)
            if (fault !== undefined) {
              warn(fault)
              cutOff(lanes, n)
              continue
            }
            put(process, lanes, i)
            reward[n] = process.reward[i]!
            terminated[n] = process.terminated[i]!
            // No room for more actions, even if a wrapper has a longer limit.
            truncated[n] = process.truncated[i]! || step[n]! + 1 === maxEpisodeSteps ? 1 : 0
            state.isOver[n] = terminated[n]! | truncated[n]!
          }
          if (raised === null) return
          warn(raised)
          cutOff(lanes, process.row[done]!)
          process.row.copyWithin(0, done + 1, left) // The rows after it have not been requested.
          left -= done + 1
        }
      }

      return {
        ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold },
        allocates: true,
        reset(lanes, rows, count) {
          const { state } = lanes
          const process = processOf(lanes)
          for (let i = 0; i < count; i++) process.row[i] = rows[i]!
          begin(process, lanes, count)
          for (let i = 0; i < count; i++) {
            const n = rows[i]!
            put(process, lanes, i)
            state.actions.fill(0, n * size * maxEpisodeSteps, (n + 1) * size * maxEpisodeSteps)
            state.isOver[n] = 0
          }
        },
        step(lanes, from, to) {
          const { state, lane, episode, step, action } = lanes
          try {
            const process = processOf(lanes)
            for (let n = from; n < to; n++) {
              if (state.isOver[n] === 1) continue
              const at = process.at[n]
              const isThere =
                at !== undefined && at.lane === lane[n] && at.episode === episode[n] && at.step === step[n]
              if (!isThere || at.course !== state.course[n]) leadTo(process, lanes, n)
            }
            let count = 0
            for (let n = from; n < to; n++) {
              if (state.isOver[n] === 1) continue
              process.row[count++] = n
              const first = (n * maxEpisodeSteps + step[n]!) * size
              for (let k = 0; k < size; k++) state.actions[first + k] = action[n * size + k]!
            }
            moveAll(process, lanes, count)
          } catch (error) {
            if (onFault === 'stop' || !(error instanceof GoneError)) throw error
            warn(error)
            end(state)
            for (let n = from; n < to; n++) if (state.isOver[n] === 0) cutOff(lanes, n)
          }
        },
        close: end,
      }
    },
  })
}
