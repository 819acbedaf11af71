/**
 * Environments on a thread's heap: objects, or worlds of another library. A lane's state is in columns: the seed of its episode and the
 * actions so far. The object is a cache of that state. If it is missing, in another thread or after a resume, a new object replays the
 * episode.
 */
import { checkOptions, InputError, nameCaller, show, unknownWord } from '../../base/errors.ts'
import { type Random, Stream } from '../../base/random.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import { type BoxSpace, type DiscreteSpace, type Space, spaceType, spaceWidth } from '../../base/space.ts'
import type { Column } from '../../components/column.ts'
import {
  defineEnvironment,
  type EnvironmentFactory,
  type EnvironmentPreset,
  type Lanes,
  type State,
  type StateDeclaration,
} from '../environment.ts'
import { checkFlags, checkParts, RESET_PARTS, STEP_PARTS } from './answer.ts'
import { isPromise, Promised } from './promised.ts'

/** An action as passed to an object: a number for one choice, otherwise an array with a number per choice or element. */
export type ObjectAction<A extends Space> = A extends DiscreteSpace ? number : number[]

/** An observation of an object: as many numbers as its space has elements, or a single number. */
export type ObjectObservation = number | ArrayLike<number>

/**
 * An environment of one agent. Its answers must depend only on the seed and the actions since `reset`. `info` is ignored. `reset` answers
 * at once. `step` may return a promise: until it settles, the lane's rows are invalid and other lanes continue.
 */
export interface ObjectEnvironment<A extends Space = Space> {
  /** Begins an episode; `seed` is a whole number from 0 to 2^32 − 1. */
  reset(seed: number): { readonly observation: ObjectObservation; readonly info?: unknown }
  step(action: ObjectAction<A>): ObjectStep | PromiseLike<ObjectStep>
}

export interface ObjectStep {
  readonly observation: ObjectObservation
  readonly reward: number
  /** Whether the episode ended, and whether it was truncated. Truncation is bootstrapped, termination is not. */
  readonly terminated: boolean
  readonly truncated: boolean
  readonly info?: unknown
}

export interface LedOptions<A extends Space, S extends Settings, I extends string> {
  readonly id: I
  /** `import.meta.url`: lets other threads and resumed runs create the environment too. */
  readonly module?: string
  /** Its settings. Default: none. */
  readonly settings?: S
  readonly observationSpace: BoxSpace
  readonly actionSpace: A
  /** Steps after which an episode is truncated. A lane's columns store this many actions. */
  readonly maxEpisodeSteps: number
  /** Mean return of 100 episodes at which it counts as solved. Default null: none. */
  readonly returnThreshold?: number | null
  /** Tested presets. Default: none. */
  readonly presets?: readonly EnvironmentPreset[]
  /**
   * What happens if a step throws or returns a wrong observation: not a number, outside the space, or of another shape. `stop` (default):
   * the caller gets the error and the training ends. `end-episode`: the user gets a warning, the lane's episode is truncated at its state
   * before the step, with reward 0, and the next one begins with a new object; other lanes continue. A failed `reset` always stops.
   */
  readonly onFault?: (typeof FAULTS)[number]
  /** Seconds after which a promise of a step has failed. Default 60. */
  readonly timeoutSeconds?: number
}

export const FAULTS = ['stop', 'end-episode'] as const
/** Number of faults after which a thread reports only faults whose number is a power of two. */
const FAULTS_TOLD = 10
const TIMEOUT_SECONDS = 60
/** The longest delay of a Node timer. */
const TIMEOUT_SECONDS_MAX = (2 ** 31 - 1) / 1000

/** Warns about faults that truncate episodes, with their number if not all are reported. */
export function faultTeller(): (fault: Error) => void {
  let numFaults = 0
  return (fault) => {
    numFaults++
    if (numFaults > FAULTS_TOLD && !Number.isInteger(Math.log2(numFaults))) return
    process.emitWarning(
      `${fault.message}: its episode is truncated (fault ${numFaults} of this thread)`,
      'EnvironmentFault',
    )
  }
}

/** @throws InputError for an unknown `onFault`. */
export function checkOnFault(id: string, onFault: string): void {
  if (!(FAULTS as readonly string[]).includes(onFault)) throw unknownWord(`${id} onFault`, String(onFault), FAULTS)
}

const ledOptions = Object.keys({
  ...{ id: true, module: true, settings: true, observationSpace: true, actionSpace: true, maxEpisodeSteps: true },
  ...{ returnThreshold: true, presets: true, onFault: true, timeoutSeconds: true },
} satisfies Record<keyof LedOptions<Space, Settings, string>, true>)

/** The columns from which an episode can be replayed. */
export function ledColumns(actionSpace: Space, maxEpisodeSteps: number) {
  return {
    /** The actions of the lane's episode, one after another. */
    actions: [spaceType(actionSpace), spaceWidth(actionSpace) * maxEpisodeSteps],
    /** A hash of the episode's answers so far. */
    course: 'u32',
    /** 1 if the episode is over, so that it gets no further step. */
    isOver: 'u8',
  } as const
}

/** How a lane's object is created, and the additional columns that hold its state. */
export interface LedMaker<A extends Space, S extends Settings> {
  /** The objects' own columns, one row per lane. */
  readonly columns: StateDeclaration
  /** Creates the object of row n, whose columns are in `state`. */
  create(parameters: SettingValues<S>, state: Readonly<Record<string, Column>>, n: number): ObjectEnvironment<A>
}

/** Buffer for hashing the course of an episode: numbers as f64, and their words. */
const hashed = new Float64Array(1)
const hashedWords = new Uint32Array(hashed.buffer)

export const COURSE_START = 0x811c9dc5

/** Adds a number to a course: 32-bit FNV-1a, one word at a time. */
export function mix(course: number, value: number): number {
  hashed[0] = value
  return Math.imul(Math.imul(course ^ hashedWords[0]!, 0x01000193) ^ hashedWords[1]!, 0x01000193) >>> 0
}

/** Whether a number, rounded to f32, is finite and within bounds. */
function isWithin(value: number, low: number, high: number): boolean {
  const seen = Math.fround(value)
  return Number.isFinite(seen) && seen >= Math.fround(low) && seen <= Math.fround(high)
}

/** An object and the episode that it has played. */
class Led<A extends Space> {
  readonly #object: ObjectEnvironment<A>
  readonly #options: LedOptions<A, Settings, string>
  readonly #width: number
  readonly #size: number
  #lane = 0
  #episode = 0
  #step = 0
  /** A hash of the object's inputs and answers in this episode. */
  course = 0
  readonly observation: Float32Array
  reward = 0
  terminated = false
  truncated = false
  /** The pending answer to the action at `#asked`. */
  #promised: Promised | null = null
  #asked: readonly number[] = []
  /** The step up to which it replays, and the error of a failed replay. */
  #goal: { lane: number; episode: number; step: number; arrival: Promise<void>; fault?: unknown } | null = null

  constructor(object: ObjectEnvironment<A>, options: LedOptions<A, Settings, string>) {
    for (const method of ['reset', 'step'] as const) {
      if (typeof object?.[method] === 'function') continue
      throw new InputError(`${options.id}, ${method} of its object`, show(object?.[method]), 'a function')
    }
    this.#object = object
    this.#options = options
    this.#width = spaceWidth(options.observationSpace)
    this.#size = spaceWidth(options.actionSpace)
    this.observation = new Float32Array(this.#width)
  }

  /** Whether the object matches a lane's columns. */
  is(lane: number, episode: number, step: number, course: number): boolean {
    return this.#lane === lane && this.#episode === episode && this.#step === step && this.course === course
  }

  /** Whether it replays up to this step of a lane. */
  isLedTo(lane: number, episode: number, step: number): boolean {
    const goal = this.#goal
    return goal !== null && goal.lane === lane && goal.episode === episode && goal.step === step
  }

  /** Whether its pending answer belongs to another action than the one at `at`, or to an earlier episode. */
  owesOther(actions: Float32Array | Int32Array, at: number): boolean {
    return this.#promised !== null && !this.#asked.every((value, k) => value === actions[at + k])
  }

  /** The promise to await before it can continue; null if there is none. @throws the error of a failed replay. */
  get awaited(): Promise<void> | null {
    if (this.#goal !== null && 'fault' in this.#goal) throw this.#goal.fault
    if (this.#goal !== null) return this.#goal.arrival
    return this.#promised === null || this.#promised.outcome !== undefined ? null : this.#promised.arrival
  }

  /** Whether no answer is pending; with a pending answer it cannot begin another episode. */
  get isIdle(): boolean {
    return this.#promised === null
  }

  abandon(): void {
    this.#promised?.abandon()
  }

  /** Begins an episode of a lane, with a seed derived from its numbers. */
  begin(lane: number, episode: number, random: Random): void {
    this.#lane = lane
    this.#episode = episode
    this.#step = 0
    this.course = COURSE_START
    this.#goal = null
    random.draw(Stream.reset, lane, episode, 0)
    const answer = this.#ask('reset', () => this.#object.reset(random.words[0]!))
    if (isPromise(answer)) throw new InputError(this.#subject('reset'), 'a promise', 'an answer at once')
    checkParts(this.#subject('reset'), answer, RESET_PARTS)
    this.#see('reset', answer.observation)
  }

  /**
   * Makes a step with the action at `at`. Returns false while the object's answer is pending (`awaited`); a repeated call with the same
   * action applies the answer.
   */
  act(actions: Float32Array | Int32Array, at: number): boolean {
    if (this.#promised === null) {
      const isOne = this.#options.actionSpace.kind === 'discrete'
      this.#asked = Array.from(actions.subarray(at, at + this.#size))
      const action = (isOne ? this.#asked[0]! : this.#asked) as ObjectAction<A>
      const answer = this.#ask('step', () => this.#object.step(action))
      if (!isPromise(answer)) {
        this.#take(answer)
        return true
      }
      this.#promised = new Promised(answer, this.#options.timeoutSeconds ?? TIMEOUT_SECONDS)
    }
    const { outcome } = this.#promised
    if (outcome === undefined) return false
    this.#promised = null
    if ('fault' in outcome) throw this.#threw('step', outcome.fault)
    this.#take(outcome.answer as ObjectStep)
    return true
  }

  /** Replays `count` steps whose actions begin at `at`, at once or as answers arrive (`awaited`). */
  lead(actions: Float32Array | Int32Array, at: number, count: number): void {
    for (let s = 0; s < count; s++) {
      if (this.act(actions, at + s * this.#size)) continue
      // A copy, since the column changes when the lane begins another episode; then this object is not used again.
      const rest = actions.slice(at + s * this.#size, at + count * this.#size)
      const goal = { lane: this.#lane, episode: this.#episode, step: count, arrival: this.#leadOn(rest, count - s) }
      this.#goal = goal
      goal.arrival = goal.arrival.then(
        () => {
          if (this.#goal === goal) this.#goal = null
        },
        (fault: unknown) => void Object.assign(goal, { fault }),
      )
      return
    }
  }

  async #leadOn(actions: Float32Array | Int32Array, count: number): Promise<void> {
    for (let s = 0; s < count; s++) {
      while (!this.act(actions, s * this.#size)) await this.#promised!.arrival
    }
  }

  #take(answer: ObjectStep): void {
    const subject = this.#subject('step')
    checkParts(subject, answer, STEP_PARTS)
    checkFlags(subject, answer)
    if (!Number.isFinite(answer.reward))
      throw new InputError(`${subject}, reward`, show(answer.reward), 'a finite number')
    for (const value of this.#asked) this.course = mix(this.course, value)
    this.#see('step', answer.observation)
    this.reward = answer.reward
    this.terminated = answer.terminated
    this.truncated = answer.truncated
    this.course = mix(mix(this.course, this.reward), (this.terminated ? 1 : 0) + (this.truncated ? 2 : 0))
    this.#step++
  }

  /** Truncates the episode at its state before a failed step. */
  cutOff(): void {
    this.reward = 0
    this.terminated = false
    this.truncated = true
  }

  #subject(method: string): string {
    return `environment ${this.#options.id}, ${method} in lane ${this.#lane} (episode ${this.#episode}, step ${this.#step})`
  }

  #ask<T>(method: string, ask: () => T): T {
    try {
      return ask()
    } catch (error) {
      throw this.#threw(method, error)
    }
  }

  #threw(method: string, error: unknown): Error {
    const said = error instanceof Error ? error.message : show(error)
    const wrapped = new Error(`${this.#subject(method)} threw: ${said}`, { cause: error })
    nameCaller(wrapped, error instanceof Error ? error.stack : '') // The throwing line is the user's.
    return wrapped
  }

  #see(method: string, seen: ObjectObservation): void {
    const { observation } = this
    const numbers = typeof seen === 'number' ? [seen] : seen
    if (numbers?.length !== this.#width) {
      const got = numbers?.length === undefined ? show(seen) : `${numbers.length} numbers`
      throw new InputError(`${this.#subject(method)}, observation`, got, `${this.#width} numbers`)
    }
    const { observationSpace, onFault } = this.#options
    const { low, high } = observationSpace
    for (let k = 0; k < this.#width; k++) {
      const value = numbers[k]!
      // With `stop`, the step system checks the bounds of all lanes together.
      const isSeen = onFault !== 'end-episode' || isWithin(value, low[k]!, high[k]!)
      if (typeof value === 'number' && isSeen) continue
      const expected = typeof value === 'number' ? `a number from ${low[k]} to ${high[k]}` : 'a number'
      throw new InputError(`${this.#subject(method)}, observation[${k}]`, show(value), expected)
    }
    for (let k = 0; k < this.#width; k++) {
      observation[k] = numbers[k]!
      this.course = mix(this.course, numbers[k]!)
    }
  }
}

/** Defines a replayed environment. @throws InputError for wrong options. */
export function defineLed<const A extends Space, const S extends Settings, const I extends string>(
  options: LedOptions<A, S, I>,
  maker: LedMaker<A, S>,
): EnvironmentFactory<S, I> {
  const { id, module, observationSpace, actionSpace, maxEpisodeSteps, returnThreshold = null, presets = [] } = options
  checkOptions(id, options, ledOptions)
  const settings = options.settings ?? ({} as S)
  if (!Number.isSafeInteger(maxEpisodeSteps) || maxEpisodeSteps < 1) {
    const expected = 'a whole number ≥ 1, since a lane stores the actions of its episode'
    throw new InputError(`${id} maxEpisodeSteps`, show(maxEpisodeSteps), expected)
  }
  const width = spaceWidth(actionSpace)
  const { onFault = 'stop' } = options
  checkOnFault(id, onFault)
  const { timeoutSeconds = TIMEOUT_SECONDS } = options
  if (!(Number.isFinite(timeoutSeconds) && timeoutSeconds > 0 && timeoutSeconds <= TIMEOUT_SECONDS_MAX)) {
    const expected = `seconds, more than 0 and at most ${TIMEOUT_SECONDS_MAX}`
    throw new InputError(`${id} timeoutSeconds`, show(timeoutSeconds), expected)
  }
  type Columns = State<ReturnType<typeof ledColumns>>

  return defineEnvironment({
    id,
    ...(module === undefined ? {} : { module }),
    settings,
    presets,
    state: () => ({ ...maker.columns, ...ledColumns(actionSpace, maxEpisodeSteps) }),
    make: (parameters) => {
      const make = (state: Columns, n: number) =>
        new Led(
          maker.create(parameters, state as unknown as Record<string, Column>, n),
          options as unknown as LedOptions<A, Settings, string>,
        )
      /** The objects of each cohort in this thread, by row. */
      const cohorts = new WeakMap<Columns, Led<A>[]>()
      const objectsOf = (state: Columns): Led<A>[] => {
        const found = cohorts.get(state) ?? []
        cohorts.set(state, found)
        return found
      }

      /** A new object that replays the episode of lane n up to its current step. */
      const leadTo = ({ state, lane, episode, step, random }: Lanes<Columns>, n: number): Led<A> => {
        const led = make(state, n)
        led.begin(lane[n]!, episode[n]!, random)
        led.lead(state.actions, n * maxEpisodeSteps * width, step[n]!)
        return led
      }

      /** The object of lane n: the cached one if it matches the lane or is replaying up to its step, otherwise a new one. */
      const objectOf = (lanes: Lanes<Columns>, objects: Led<A>[], n: number): Led<A> => {
        const { state, lane, episode, step } = lanes
        const led = objects[n]
        if (led?.isLedTo(lane[n]!, episode[n]!, step[n]!)) return led
        if (led?.is(lane[n]!, episode[n]!, step[n]!, state.course[n]!)) return led
        led?.abandon()
        objects[n] = leadTo(lanes, n)
        return objects[n]
      }

      /** @throws InputError if a replayed object does not match its lane. */
      const checkCourse = ({ state, lane, episode, step }: Lanes<Columns>, led: Led<A>, n: number): void => {
        if (led.course === state.course[n]) return
        throw new InputError(
          `environment ${id}, lane ${lane[n]} (episode ${episode[n]}, step ${step[n]})`,
          'different answers when the episode was replayed',
          'equal answers: they must depend only on the seed and the actions',
        )
      }

      const warn = faultTeller()

      return {
        ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold },
        allocates: true,
        reset({ state, lane, episode, observation, random }, rows, count) {
          const objects = objectsOf(state)
          for (let i = 0; i < count; i++) {
            const n = rows[i]!
            if (objects[n]?.isIdle !== true) objects[n] = make(state, n)
            const led = objects[n]!
            led.begin(lane[n]!, episode[n]!, random)
            state.actions.fill(0, n * width * maxEpisodeSteps, (n + 1) * width * maxEpisodeSteps)
            observation.set(led.observation, n * led.observation.length)
            state.course[n] = led.course
            state.isOver[n] = 0
          }
        },
        step(lanes, from, to) {
          const { state, step, action, observation, reward, terminated, truncated } = lanes
          const objects = objectsOf(state)
          for (let n = from; n < to; n++) {
            if (state.isOver[n] === 1) continue
            const at = (n * maxEpisodeSteps + step[n]!) * width
            for (let k = 0; k < width; k++) state.actions[at + k] = action[n * width + k]!
            let led = objectOf(lanes, objects, n)
            if (led.awaited === null) {
              checkCourse(lanes, led, n)
              if (led.owesOther(state.actions, at)) {
                led.abandon()
                delete objects[n]
                led = objectOf(lanes, objects, n)
              }
            }
            try {
              if (led.awaited !== null || !led.act(state.actions, at)) {
                lanes.answersLater(n, led.awaited!)
                continue
              }
            } catch (fault) {
              if (onFault === 'stop') throw fault
              warn(fault as Error)
              led.cutOff()
              delete objects[n]
            }
            observation.set(led.observation, n * led.observation.length)
            reward[n] = led.reward
            terminated[n] = led.terminated ? 1 : 0
            // No room for more actions, even if a wrapper has a longer limit.
            truncated[n] = led.truncated || step[n]! + 1 === maxEpisodeSteps ? 1 : 0
            state.course[n] = led.course
            state.isOver[n] = terminated[n]! | truncated[n]!
          }
        },
        close(state) {
          for (const led of cohorts.get(state as unknown as Columns) ?? []) led?.abandon()
        },
      }
    },
  })
}
