/**
 * Environments from existing bitecs games: components of columns, a world of entities, and systems. Each lane has its own world. While a
 * lane's game runs, its columns in the training's shared memory replace the arrays of the game's components (`Position.x = …`), so that
 * the game's systems read and write them without a copy. Between calls the components have their original arrays, so the game also runs
 * alone.
 */
import { checkCount, checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import { box, type Space, spaceType, spaceWidth } from '../../base/space.ts'
import { type Column, type ColumnType, elementBytes } from '../../components/column.ts'
import type { EnvironmentFactory, StateDeclaration } from '../environment.ts'
import { defineLed, type LedOptions, type ObjectAction, type ObjectEnvironment } from './led.ts'

/** A column of a game: an array with a value per entity. */
export type ComponentColumn = { [entity: number]: number; readonly length: number }

/** The components of a game by name, each an object of columns. */
export type GameComponents = Readonly<Record<string, object>>

/** The name of a column: `Position.x`. */
export type ColumnName<C extends GameComponents> = {
  [K in keyof C & string]: {
    [P in keyof C[K] & string]: C[K][P] extends ComponentColumn ? `${K}.${P}` : never
  }[keyof C[K] & string]
}[keyof C & string]

/** Columns of some entities as a part of the observation, entity by entity. */
export interface ObservedColumns<C extends GameComponents, W> {
  /** One entity, or a list such as a bitecs query returns. */
  readonly entities: (world: W) => number | ArrayLike<number>
  /** Maximum number of entities; the values of missing ones are 0. Default 1. */
  readonly numEntities?: number
  readonly columns: readonly ColumnName<C>[]
  /** Bounds, one for all columns or one per column. */
  readonly low: number | readonly number[]
  readonly high: number | readonly number[]
}

/** Options of `fromBitecs`. */
export interface FromBitecsOptions<
  C extends GameComponents,
  W extends object,
  A extends Space,
  S extends Settings,
  I extends string,
> extends Omit<LedOptions<A, S, I>, 'observationSpace' | 'actionSpace'> {
  /** All components with columns. Tags and data in the world itself are not listed. */
  readonly components: C
  /** Creates a game: a new bitecs world with entities. All randomness must derive from `seed`, a whole number from 0 to 2^32 − 1. */
  readonly createGame: (seed: number, parameters: SettingValues<S>) => W
  /** The game's systems in order; a step runs each once. */
  readonly systems: readonly ((world: W) => unknown)[]
  readonly observation: readonly ObservedColumns<C, W>[]
  readonly action: {
    readonly entity: (world: W) => number
    /** The columns that receive the action before the systems run: one per element of the space. */
    readonly columns: readonly ColumnName<C>[]
    readonly space: A
  }
  /** The reward of a step, after the systems have run. */
  readonly reward: (world: W) => number
  /** Whether the game is over. Default: it continues until `maxEpisodeSteps`. */
  readonly terminated?: (world: W) => boolean
}

/** Where a game's columns are stored, and how much is copied. */
export interface GameMemory {
  /** Columns in the training's shared memory. */
  readonly adopted: readonly string[]
  /** Bytes of these per lane. */
  readonly adoptedBytes: number
  /** Columns that stay on the thread's heap, one set per lane, because shared memory has no arrays of their type. */
  readonly kept: readonly string[]
  /** Bytes copied per lane and step: the action in, the observation out. */
  readonly copiedBytes: number
}

/** Creates the environment of a game, and evaluates a policy in a game that runs alone. */
export interface GameFactory<W extends object, A extends Space, S extends Settings, I extends string>
  extends EnvironmentFactory<S, I> {
  readonly memory: GameMemory
  /** The observation of a game, from the current columns of its components. */
  observe(world: W): Float32Array
  /** Writes an action into the current columns of the game's components. */
  act(world: W, action: ObjectAction<A>): void
}

type Component = Record<string, ComponentColumn>

interface GameColumn {
  readonly name: string
  readonly component: Component
  readonly key: string
  /** Its values at the start of a game: those at the definition of the environment. */
  readonly initial: ComponentColumn
  /** Its type in shared memory; null if it has none. */
  readonly type: ColumnType | null
}

const columnTypes = new Map<unknown, ColumnType>([
  [Float32Array, 'f32'],
  [Float64Array, 'f64'],
  [Int32Array, 'i32'],
  [Uint32Array, 'u32'],
  [Uint8Array, 'u8'],
])

/**
 * Creates an environment from a bitecs game. The columns of its components are the state, columns of its entities are the observation and
 * the action, and its systems are the step.
 *
 * A component is an object of typed arrays or arrays with one value per entity. Systems must read `Position.x` in each run and not keep
 * the array, because each lane has another one. Data in the world object belongs to its lane. Data elsewhere in the game's modules is
 * shared by all lanes and must not change.
 * @throws InputError for wrong options and for components whose columns cannot be replaced. An error of the game is reported with the
 * lane, episode and step.
 * @example
 * export const orchard = fromBitecs({
 *   id: 'Orchard-v0',
 *   module: import.meta.url,
 *   components: { Position, Steering, Basket },
 *   createGame: (seed) => createOrchard(seed),
 *   systems: [steer, move, pick],
 *   observation: [{ entities: ({ player }) => player, columns: ['Position.x', 'Position.y'], low: 0, high: 1 }],
 *   action: { entity: ({ player }) => player, columns: ['Steering.choice'], space: discrete(5) },
 *   reward: ({ player }) => Basket.picked[player]!,
 *   maxEpisodeSteps: 300,
 * })
 */
export function fromBitecs<
  const C extends GameComponents,
  W extends object,
  const A extends Space,
  const S extends Settings = Record<never, never>,
  const I extends string = string,
>(options: FromBitecsOptions<C, W, A, S, I>): GameFactory<W, A, S, I> {
  checkGiven('options of fromBitecs', options, ['components', 'createGame', 'systems', 'observation'])
  const { components, createGame, systems, observation, action, reward, terminated, ...led } = options
  const { id } = options
  for (const [name, given] of Object.entries({ createGame, reward, 'action entity': action?.entity })) {
    if (typeof given !== 'function') throw new InputError(`${id} ${name}`, show(given), 'a function of the game')
  }
  if (terminated !== undefined && typeof terminated !== 'function') {
    throw new InputError(`${id} terminated`, show(terminated), 'a function of the game')
  }
  if (!Array.isArray(systems) || systems.length === 0 || !systems.every((system) => typeof system === 'function')) {
    throw new InputError(`${id} systems`, show(systems), 'one or more functions of the game')
  }
  const columns = listGameColumns(id, components)
  const pick = (subject: string, names: readonly string[]): GameColumn[] => {
    if (!Array.isArray(names) || names.length === 0) throw new InputError(subject, show(names), 'one or more columns')
    return names.map((name) => {
      const found = columns.find((column) => column.name === name)
      if (found !== undefined) return found
      const all = columns.map((column) => column.name)
      throw unknownWord(`${subject}, column`, String(name), all)
    })
  }
  const parts = bindObservation<W>(id, observation as readonly ObservedNames<W>[], pick)
  const observationSpace = box({
    low: parts.flatMap(({ low }) => low),
    high: parts.flatMap(({ high }) => high),
  })
  const actionColumns = pick(`${id} action`, action.columns)
  const actionSize = spaceWidth(action.space)
  if (actionColumns.length !== actionSize) {
    const expected = `${actionSize}, the elements of its space`
    throw new InputError(`${id} action columns`, `${actionColumns.length} of them`, expected)
  }

  const write = (world: W, chosen: ObjectAction<A>): void => {
    const entity = action.entity(world)
    for (let k = 0; k < actionSize; k++) {
      const { component, key, name } = actionColumns[k]!
      checkEntity(`${id} action, ${name}`, entity, component[key]!)
      component[key]![entity] = typeof chosen === 'number' ? chosen : chosen[k]!
    }
  }
  const read = (world: W, seen: Float32Array): void => {
    let at = 0
    for (const { entities, numEntities, columns, subject } of parts) {
      const found = entities(world)
      const numFound = typeof found === 'number' ? 1 : found.length
      if (!(numFound <= numEntities)) throw new InputError(subject, `${numFound} entities`, `at most ${numEntities}`)
      for (let e = 0; e < numEntities; e++) {
        for (const { component, key } of columns) {
          if (e >= numFound) seen[at++] = 0
          else {
            const entity = typeof found === 'number' ? found : found[e]!
            checkEntity(subject, entity, component[key]!)
            seen[at++] = component[key]![entity]!
          }
        }
      }
    }
  }

  const adopted = columns.filter(({ type }) => type !== null)
  const declared: StateDeclaration = Object.fromEntries(
    adopted.map(({ name, type, initial }) => [name, [type!, initial.length]]),
  )
  /** Methods that this thread has not yet seen leave the components' original arrays unchanged. */
  const unproven = new Set(['reset', 'step'])

  class Game implements ObjectEnvironment<A> {
    readonly #parameters: SettingValues<S>
    readonly #own: ComponentColumn[]
    /** The components' original arrays, while the lane's are in place. */
    readonly #others: ComponentColumn[]
    #world: W | null = null
    /** The answer, reused for each call. */
    readonly #answer = {
      observation: new Float32Array(spaceWidth(observationSpace)),
      reward: 0,
      terminated: false,
      truncated: false,
    }
    readonly #begun = { observation: this.#answer.observation }

    constructor(parameters: SettingValues<S>, state: Readonly<Record<string, Column>>, n: number) {
      this.#parameters = parameters
      this.#own = columns.map(({ name, initial, type }) => {
        if (type === null) return copied(initial)
        const column = state[name]!
        return column.subarray(n * initial.length, (n + 1) * initial.length)
      })
      this.#others = columns.map(({ component, key }) => component[key]!)
    }

    reset(seed: number) {
      for (let k = 0; k < columns.length; k++) fill(this.#own[k]!, columns[k]!.initial)
      this.#inPlace('reset', () => {
        const world = createGame(seed, this.#parameters)
        if (typeof world !== 'object' || world === null) {
          throw new InputError(`${id} createGame`, show(world), 'a world of bitecs')
        }
        this.#world = world
        read(world, this.#answer.observation)
      })
      return this.#begun
    }

    step(chosen: ObjectAction<A>) {
      this.#inPlace('step', () => {
        const world = this.#world!
        const answer = this.#answer
        write(world, chosen)
        for (let s = 0; s < systems.length; s++) systems[s]!(world)
        read(world, answer.observation)
        answer.reward = reward(world)
        answer.terminated = terminated === undefined ? false : terminated(world)
      })
      return this.#answer
    }

    /** Runs the game while the lane's columns are those of its components. */
    #inPlace(method: string, run: () => void): void {
      const own = this.#own
      const others = this.#others
      for (let k = 0; k < columns.length; k++) {
        const { component, key } = columns[k]!
        others[k] = component[key]!
        component[key] = own[k]!
      }
      const before = unproven.delete(method) ? others.map((column) => Array.from(column)) : null
      try {
        run()
      } finally {
        for (let k = 0; k < columns.length; k++) columns[k]!.component[columns[k]!.key] = others[k]!
      }
      if (before !== null) checkUntouched(id, columns, before)
    }
  }

  const factory = defineLed<A, S, I>(
    {
      ...(led as Omit<LedOptions<A, S, I>, 'observationSpace' | 'actionSpace'>),
      observationSpace,
      actionSpace: action.space,
    },
    { columns: declared, create: (parameters, state, n) => new Game(parameters, state, n) },
  )
  const memory: GameMemory = {
    adopted: adopted.map(({ name }) => name),
    adoptedBytes: adopted.reduce((sum, { type, initial }) => sum + elementBytes[type!] * initial.length, 0),
    kept: columns.filter(({ type }) => type === null).map(({ name }) => name),
    copiedBytes: 4 * spaceWidth(observationSpace) + elementBytes[spaceType(action.space)] * actionSize,
  }
  return Object.assign(factory, {
    memory,
    observe: (world: W): Float32Array => {
      const seen = new Float32Array(spaceWidth(observationSpace))
      read(world, seen)
      return seen
    },
    act: write,
  })
}

/** @throws InputError if the game wrote to an original array of its components while a lane's was in place. */
function checkUntouched(id: string, columns: readonly GameColumn[], before: readonly number[][]): void {
  for (const [k, { name, component, key }] of columns.entries()) {
    const now = component[key]!
    if (now.length === before[k]!.length && before[k]!.every((value, e) => Object.is(value, now[e]))) continue
    const got = 'a game that wrote to a stored array'
    throw new InputError(`${id} ${name}`, got, `systems that read ${name} each time: each lane has another array`)
  }
}

/** @throws InputError for a component without replaceable columns. */
function listGameColumns(id: string, components: GameComponents): GameColumn[] {
  if (typeof components !== 'object' || components === null) {
    throw new InputError(`${id} components`, show(components), 'an object of components')
  }
  const columns = Object.entries(components).flatMap(([name, component]) => {
    if (typeof component !== 'object' || component === null || isArray(component)) {
      const got = isArray(component) ? 'an array' : show(component)
      throw new InputError(`${id} component ${name}`, got, 'an object of columns, like { x: new Float32Array(64) }')
    }
    return Object.entries(Object.getOwnPropertyDescriptors(component)).map(([key, { value, writable }]): GameColumn => {
      const subject = `${id} column ${name}.${key}`
      if (!isArray(value))
        throw new InputError(subject, show(value), 'a typed array or an array with a value per entity')
      if (writable !== true) throw new InputError(subject, 'a read-only column', 'a component that is not frozen')
      const type = columnTypes.get(value.constructor) ?? null
      return { name: `${name}.${key}`, component: component as Component, key, initial: copied(value), type }
    })
  })
  if (columns.length === 0) throw new InputError(`${id} components`, 'none with columns', 'one or more')
  return columns
}

interface ObservedPart<W> {
  readonly subject: string
  readonly entities: (world: W) => number | ArrayLike<number>
  readonly numEntities: number
  readonly columns: readonly GameColumn[]
  readonly low: readonly number[]
  readonly high: readonly number[]
}

/** A part of the observation with arbitrary names. */
type ObservedNames<W> = Omit<ObservedColumns<GameComponents, W>, 'columns'> & { readonly columns: readonly string[] }

function bindObservation<W>(
  id: string,
  observation: readonly ObservedNames<W>[],
  pick: (subject: string, names: readonly string[]) => GameColumn[],
): ObservedPart<W>[] {
  if (!Array.isArray(observation) || observation.length === 0) {
    throw new InputError(`${id} observation`, show(observation), 'one or more parts')
  }
  return observation.map((part: ObservedNames<W>, p) => {
    const subject = `environment ${id}, observation[${p}]`
    const { entities, numEntities = 1, columns: names, low, high, ...unknown } = part
    for (const key of Object.keys(unknown)) {
      throw unknownWord(subject, key, ['entities', 'numEntities', 'columns', 'low', 'high'])
    }
    if (typeof entities !== 'function')
      throw new InputError(`${subject} entities`, show(entities), 'a function of the game')
    checkCount(`${subject} numEntities`, numEntities)
    const columns = pick(subject, names)
    const spread = (name: string, bound: number | readonly number[]): number[] => {
      const bounds = typeof bound === 'number' ? columns.map(() => bound) : bound
      if (bounds?.length !== columns.length) {
        throw new InputError(
          `${subject} ${name}`,
          show(bound),
          `a number, or ${columns.length} numbers, one per column`,
        )
      }
      return Array.from({ length: numEntities }, () => bounds).flat()
    }
    return { subject, entities, numEntities, columns, low: spread('low', low), high: spread('high', high) }
  })
}

function checkEntity(subject: string, entity: number, column: ComponentColumn): void {
  const length = Array.isArray(column) ? 2 ** 32 - 1 : column.length // Arrays grow.
  if (Number.isInteger(entity) && entity >= 0 && entity < length) return
  throw new InputError(subject, `entity ${show(entity)}`, `an entity from 0 to ${length - 1}, within its column`)
}

function isArray(value: unknown): value is ComponentColumn {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))
}

function copied(column: ComponentColumn): ComponentColumn {
  return (column as unknown as Float32Array).slice()
}

function fill(column: ComponentColumn, values: ComponentColumn): void {
  if (Array.isArray(column)) column.splice(0, column.length, ...(values as unknown as number[]))
  else (column as unknown as Float32Array).set(values as unknown as Float32Array)
}
