/**
 * Environments that live in the heap of a thread: objects, or worlds of another library. What a lane is stays in columns: its episode is a
 * seed and the actions since. The objects are what these columns come to, kept for speed; where one is not at hand, in another thread or
 * after a resume, a new one is led through the episode again.
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

/** What an action of a space is to an object: a number for one choice, else a number for each choice or element. */
export type ObjectAction<A extends Space> = A extends DiscreteSpace ? number : number[]

/** An observation of an object: as many numbers as its space has elements, or one alone. */
export type ObjectObservation = number | ArrayLike<number>

/**
 * An environment of one agent. What it answers has to follow from the seed and the actions since `reset` alone. `info` is not read.
 * `reset` answers at once. `step` may answer with a promise: until it has settled the lane's rows are nobody's, and other lanes go on.
 */
export interface ObjectEnvironment<A extends Space = Space> {
  /** Begins an episode; `seed` is a whole number from 0 to 2^32 − 1. */
  reset(seed: number): { readonly observation: ObjectObservation; readonly info?: unknown }
  step(action: ObjectAction<A>): ObjectStep | PromiseLike<ObjectStep>
}

/** What an object answers to an action. */
export interface ObjectStep {
  readonly observation: ObjectObservation
  readonly reward: number
  /** The episode ended; it was cut off. A cut is bootstrapped, an end is not. */
  readonly terminated: boolean
  readonly truncated: boolean
  readonly info?: unknown
}

/** What is said of an environment whose lanes are led. */
export interface LedOptions<A extends Space, S extends Settings, I extends string> {
  readonly id: I
  /** `import.meta.url`: lets other threads and resumed runs make the environment too. */
  readonly module?: string
  /** Settings that it is made with. Default none. */
  readonly settings?: S
  readonly observationSpace: BoxSpace
  readonly actionSpace: A
  /** Steps after which an episode is truncated. A lane's columns have room for the actions of so many steps. */
  readonly maxEpisodeSteps: number
  /** Mean return of 100 episodes at which it counts as solved. Default null: there is no such figure. */
  readonly returnThreshold?: number | null
  /** What is known to work for it. Default: nothing is. */
  readonly presets?: readonly EnvironmentPreset[]
  /**
   * What a step comes to that throws or answers wrongly: with a number that is none, one outside the observation space, another shape.
   * `stop` (default): the error goes to the caller, and the training ends. `end-episode`: a warning tells of it, the lane's episode is cut off
   * where it was before that step, with a reward of 0, and its next one begins with a new object; the other lanes go on. A `reset` that
   * fails always stops.
   */
  readonly onFault?: (typeof FAULTS)[number]
  /** Seconds that a promise of a step may take; then the step has failed. Default 60. */
  readonly timeoutSeconds?: number
}

/** What `onFault` may be. */
export const FAULTS = ['stop', 'end-episode'] as const
/** Faults of an environment that a thread tells of each; of more, those whose number is a power of two. */
const FAULTS_TOLD = 10
/** What a promise may take unless told otherwise. */
const TIMEOUT_SECONDS = 60
/** The longest that a timer of Node waits. */
const TIMEOUT_SECONDS_MAX = (2 ** 31 - 1) / 1000

/** Tells of faults after which episodes are cut off, as warnings; and of which one it is where they are too many to tell of all. */
export function faultTeller(): (fault: Error) => void {
  let numFaults = 0
  return (fault) => {
    numFaults++
    if (numFaults > FAULTS_TOLD && !Number.isInteger(Math.log2(numFaults))) return
    process.emitWarning(
      `${fault.message}: its episode is cut off (fault ${numFaults} of this thread)`,
      'EnvironmentFault',
    )
  }
}

/** @throws InputError where `onFault` is none of its words. */
export function checkOnFault(id: string, onFault: string): void {
  if (!(FAULTS as readonly string[]).includes(onFault)) throw unknownWord(`${id} onFault`, String(onFault), FAULTS)
}

/** The names of the options. */
const ledOptions = Object.keys({
  ...{ id: true, module: true, settings: true, observationSpace: true, actionSpace: true, maxEpisodeSteps: true },
  ...{ returnThreshold: true, presets: true, onFault: true, timeoutSeconds: true },
} satisfies Record<keyof LedOptions<Space, Settings, string>, true>)

/** The columns from which an episode can be led through again. */
export function ledColumns(actionSpace: Space, maxEpisodeSteps: number) {
  return {
    /** The actions of the lane's episode, one after another. */
    actions: [spaceType(actionSpace), spaceWidth(actionSpace) * maxEpisodeSteps],
    /** A hash of what the episode came to so far. */
    course: 'u32',
    /** 1 where the episode is over: it is not asked for another step. */
    isOver: 'u8',
  } as const
}

/** How the object of a lane is made, and which columns of its lane it keeps its state in besides. */
export interface LedMaker<A extends Space, S extends Settings> {
  /** Columns of the objects' own, a row a lane. */
  readonly columns: StateDeclaration
  /** Makes the object of row n, whose columns are in `state`. */
  create(parameters: SettingValues<S>, state: Readonly<Record<string, Column>>, n: number): ObjectEnvironment<A>
}

/** What the course of an episode is hashed from: numbers as f64, and their words. */
const hashed = new Float64Array(1)
const hashedWords = new Uint32Array(hashed.buffer)

/** What the course of an episode begins with. */
export const COURSE_START = 0x811c9dc5

/** The course with one number more: FNV-1a of 32 bits, a word at a time. */
export function mix(course: number, value: number): number {
  hashed[0] = value
  return Math.imul(Math.imul(course ^ hashedWords[0]!, 0x01000193) ^ hashedWords[1]!, 0x01000193) >>> 0
}

/** Whether a number is finite and within bounds when it stands in a column of f32. */
function isWithin(value: number, low: number, high: number): boolean {
  const seen = Math.fround(value)
  return Number.isFinite(seen) && seen >= Math.fround(low) && seen <= Math.fround(high)
}

/** One object, and the episode that it was led through. */
class Led<A extends Space> {
  readonly #object: ObjectEnvironment<A>
  readonly #options: LedOptions<A, Settings, string>
  readonly #width: number
  /** Elements of an action. */
  readonly #size: number
  #lane = 0
  #episode = 0
  #step = 0
  /** A hash of all that the object was asked and answered in this episode. */
  course = 0
  readonly observation: Float32Array
  reward = 0
  terminated = false
  truncated = false
  /** The answer to the action at `#asked`, while it has not been taken. */
  #promised: Promised | null = null
  #asked: readonly number[] = []
  /** Where it is being led to, with what that failed with. */
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

  /** Whether this is the object of a lane as its columns have it. */
  is(lane: number, episode: number, step: number, course: number): boolean {
    return this.#lane === lane && this.#episode === episode && this.#step === step && this.course === course
  }

  /** Whether it is being led to where a lane is. */
  isLedTo(lane: number, episode: number, step: number): boolean {
    const goal = this.#goal
    return goal !== null && goal.lane === lane && goal.episode === episode && goal.step === step
  }

  /** Whether it owes an answer to another action than the one at `at`, or that of an episode which is no more. */
  owesOther(actions: Float32Array | Int32Array, at: number): boolean {
    return this.#promised !== null && !this.#asked.every((value, k) => value === actions[at + k])
  }

  /** What has to settle before it can go on; null where nothing has to. @throws what leading it failed with. */
  get awaited(): Promise<void> | null {
    if (this.#goal !== null && 'fault' in this.#goal) throw this.#goal.fault
    if (this.#goal !== null) return this.#goal.arrival
    return this.#promised === null || this.#promised.outcome !== undefined ? null : this.#promised.arrival
  }

  /** Whether it owes no answer: one that does cannot begin another episode. */
  get isIdle(): boolean {
    return this.#promised === null
  }

  /** Nobody waits for its answer any more. */
  abandon(): void {
    this.#promised?.abandon()
  }

  /** Begins an episode of a lane, with the seed that its number gives. */
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
   * Moves on by the action that stands at `at`. Returns false where the object owes its answer (`awaited`); asked again with the same action,
   * it moves on by what has come.
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

  /** Goes through `count` steps whose actions begin at `at`: at once, or as answers come (`awaited`). */
  lead(actions: Float32Array | Int32Array, at: number, count: number): void {
    for (let s = 0; s < count; s++) {
      if (this.act(actions, at + s * this.#size)) continue
      // The column goes on to change: with another episode of the lane nobody asks for this object any more.
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

  /** Leaves the episode where it was before a step that failed. */
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
    nameCaller(wrapped, error instanceof Error ? error.stack : '') // The line that threw is the user's.
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
      // Who stops in any case leaves the bounds to the step system, which looks at all lanes at once.
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

/**
 * Defines an environment whose lanes are led.
 *
 * @throws InputError for options that are wrong.
 */
export function defineLed<const A extends Space, const S extends Settings, const I extends string>(
  options: LedOptions<A, S, I>,
  maker: LedMaker<A, S>,
): EnvironmentFactory<S, I> {
  const { id, module, observationSpace, actionSpace, maxEpisodeSteps, returnThreshold = null, presets = [] } = options
  checkOptions(id, options, ledOptions)
  const settings = options.settings ?? ({} as S)
  if (!Number.isSafeInteger(maxEpisodeSteps) || maxEpisodeSteps < 1) {
    const expected = 'a whole number ≥ 1: a lane keeps the actions of its episode'
    throw new InputError(`${id} maxEpisodeSteps`, show(maxEpisodeSteps), expected)
  }
  const width = spaceWidth(actionSpace)
  const { onFault = 'stop' } = options
  checkOnFault(id, onFault)
  const { timeoutSeconds = TIMEOUT_SECONDS } = options
  if (!(Number.isFinite(timeoutSeconds) && timeoutSeconds > 0 && timeoutSeconds <= TIMEOUT_SECONDS_MAX)) {
    throw new InputError(
      `${id} timeoutSeconds`,
      show(timeoutSeconds),
      `seconds, more than 0 and at most ${TIMEOUT_SECONDS_MAX}`,
    )
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

      /** A new object that is led to where the columns of lane n are. */
      const leadTo = ({ state, lane, episode, step, random }: Lanes<Columns>, n: number): Led<A> => {
        const led = make(state, n)
        led.begin(lane[n]!, episode[n]!, random)
        led.lead(state.actions, n * maxEpisodeSteps * width, step[n]!)
        return led
      }

      /** The object of lane n: the one at hand, if it is where the lane is or on its way there. */
      const objectOf = (lanes: Lanes<Columns>, objects: Led<A>[], n: number): Led<A> => {
        const { state, lane, episode, step } = lanes
        const led = objects[n]
        if (led?.isLedTo(lane[n]!, episode[n]!, step[n]!)) return led
        if (led?.is(lane[n]!, episode[n]!, step[n]!, state.course[n]!)) return led
        led?.abandon()
        objects[n] = leadTo(lanes, n)
        return objects[n]
      }

      /** @throws InputError where an object that was led through an episode again is not where its lane is. */
      const checkCourse = ({ state, lane, episode, step }: Lanes<Columns>, led: Led<A>, n: number): void => {
        if (led.course === state.course[n]) return
        throw new InputError(
          `environment ${id}, lane ${lane[n]} (episode ${episode[n]}, step ${step[n]})`,
          'other answers when the same episode was repeated',
          'the same: answers must depend only on the seed and the actions',
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
            // There is room for no more actions, also where a wrapper has a longer limit.
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
