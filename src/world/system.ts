/**
 * The contract of custom systems. A system declares columns per lane (a component of the lane's entity), per cohort, and per row of the
 * rollout, which are also in the rollout's table. It runs before or after one of the four systems of a tick, in every thread over that
 * thread's lanes; or once per rollout, in the caller's thread, over all rows. It keeps its state only in columns, so that a checkpoint
 * contains it.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../base/definition.ts'
import { InputError, show, unknownWord } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import { type Column, type Columns, saved } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import {
  declaredPlan,
  type EnvironmentDefinition,
  type Lanes,
  type LEVEL_STATE,
  type State,
  type StateDeclaration,
} from '../environments/environment.ts'
import type { Kernels } from '../kernels/kernels.ts'

export type SystemName = 'reset' | 'infer' | 'step' | 'store'
const NAMES: readonly SystemName[] = ['reset', 'infer', 'step', 'store']

/** A system's inputs in a tick; row n of each column is lane n of its cohort. */
export interface SystemLanes<S = unknown, R = unknown, H = unknown>
  extends Pick<
    Lanes,
    'action' | 'reward' | 'terminated' | 'truncated' | 'lane' | 'episode' | 'step' | 'random' | 'kernels'
  > {
  /** The system's own columns per lane. They are zero in a new lane. */
  readonly own: S
  /** The system's own columns of the whole cohort, which only `afterRollout` writes. */
  readonly shared: H
  /** The environment's state, which only the environment writes. */
  readonly state: unknown
  /** The environment's number of levels; 0 without levels, and then the next two columns are empty. */
  readonly levels: number
  /** The level of the lane's episode. */
  readonly level: Int32Array
  /** Systems may write 1 + the level of the lane's next episode, or 0 to let the environment draw it. */
  readonly nextLevel: Int32Array
  /** The system's columns of the row that this tick fills. */
  recorded: R
  /** Observation before the action: observation width elements per lane. */
  observation: ObservationColumn
  /** The observation after the action, from step on; after the end of an episode, its final observation until reset. */
  nextObservation: ObservationColumn
  /** 1 if the lane acted; from step on. */
  valid: Uint8Array
}

/** A system's inputs for a full rollout; its rows are time-major, `t * numLanes + n`. */
export interface SystemRollout<S = unknown, H = unknown, R = unknown> {
  /** The rollout's columns. `reward` may be changed for learning; `episodeReturn` is already computed. */
  readonly rollout: RolloutColumns
  readonly own: S
  /** The system's own columns of the whole cohort. */
  readonly shared: H
  readonly recorded: R
  readonly numSteps: number
  readonly numLanes: number
  /** Number of present lanes: the first rows of each block. */
  readonly present: number
  readonly random: Random
  readonly kernels: Kernels
}

/** The result of a system's `make`: `run` or `afterRollout`, or both. */
export interface SystemModel<S = unknown, H = unknown, R = unknown> {
  /** The system before which `run` runs; exclusive with `after`. */
  readonly before?: SystemName
  /** The system after which `run` runs. */
  readonly after?: SystemName
  /** Rejects an environment that it does not fit, before a world is made. @throws InputError */
  check?(environment: EnvironmentDefinition): void
  /** Processes lanes `from` to `to`, in every tick and every thread. Writes only these lanes' columns. */
  run?(lanes: SystemLanes<S, R, H>, from: number, to: number): void
  /** Processes a full rollout before learning, in the caller's thread. */
  afterRollout?(rollout: SystemRollout<S, H, R>): void
}

/** A system with its settings, for the option `systems` of a cohort of episodes. */
export interface SystemDefinition
  extends DefinitionRecord,
    // biome-ignore lint/suspicious/noExplicitAny: only the system itself knows the types of its columns.
    SystemModel<any, any, any> {
  readonly columns: SystemColumns
}

/** The columns of a system: per lane, per cohort, and per row of the rollout. */
export interface SystemColumns {
  readonly state: StateDeclaration
  readonly shared: StateDeclaration
  readonly recorded: StateDeclaration
}

/** Creates a system from its settings. `id` and `settings` describe it. */
export type SystemFactory<S extends Settings = Settings> = Factory<S, SystemDefinition>

/**
 * Defines a custom system. With `module: import.meta.url` and an export under any name, other threads can create it; a system with only
 * `afterRollout` does not need this.
 * @throws InputError on creation if it has neither function, no place, or two places.
 * @example
 * export const effort = defineSystem({
 *   id: 'effort',
 *   module: import.meta.url,
 *   settings: { price: number(0.01, 'what an action of size 1 costs') },
 *   recorded: () => ({ cost: 'f32' }),
 *   make: ({ price }) => ({
 *     after: 'store', // The return of the episode is counted without the cost.
 *     run({ recorded, reward, action, valid }, from, to) {
 *       for (let n = from; n < to; n++) {
 *         recorded.cost[n] = valid[n] * price * Math.abs(action[n])
 *         reward[n] -= recorded.cost[n]
 *       }
 *     },
 *   }),
 * })
 */
export function defineSystem<
  S extends Settings,
  // biome-ignore lint/complexity/noBannedTypes: no columns by default.
  const D extends StateDeclaration = {},
  // biome-ignore lint/complexity/noBannedTypes: likewise.
  const H extends StateDeclaration = {},
  // biome-ignore lint/complexity/noBannedTypes: likewise.
  const R extends StateDeclaration = {},
>(options: {
  id: string
  module?: string
  settings: S
  /** Columns per lane. */
  state?(parameters: SettingValues<S>): D
  /** Columns of the whole cohort, with one row. Written by `afterRollout`. */
  shared?(parameters: SettingValues<S>): H
  /** Columns per row of the rollout, named `<id>.<name>` in its table. */
  recorded?(parameters: SettingValues<S>): R
  make(parameters: SettingValues<S>): SystemModel<State<D>, State<H>, State<R>>
}): SystemFactory<S> {
  return defineFactory('system', options, (parameters) => {
    const { before, after, check, run, afterRollout } = options.make(parameters)
    const subject = `system ${options.id}`
    if (run === undefined && afterRollout === undefined) {
      throw new InputError(subject, 'neither run nor afterRollout', 'run, afterRollout or both')
    }
    for (const [key, f] of Object.entries({ check, run, afterRollout })) {
      if (f !== undefined && typeof f !== 'function') throw new InputError(`${subject} ${key}`, show(f), 'a function')
    }
    for (const name of [before, after]) {
      if (name !== undefined && !NAMES.includes(name)) throw unknownWord(`${subject} place`, String(name), NAMES)
    }
    const places = [before, after].filter((name) => name !== undefined).length
    if (places !== (run === undefined ? 0 : 1)) {
      const expected =
        run === undefined ? 'none without run' : 'either before or after, with the name of one of the four systems'
      throw new InputError(`${subject} place`, places === 0 ? 'none' : `before ${before}, after ${after}`, expected)
    }
    const columns: SystemColumns = {
      state: options.state?.(parameters) ?? {},
      shared: options.shared?.(parameters) ?? {},
      recorded: options.recorded?.(parameters) ?? {},
    }
    return { before, after, check, run, afterRollout, columns } as Omit<SystemDefinition, keyof DefinitionRecord>
  })
}

/** Plans the columns of a cohort's systems, by their ids. */
export function systemsPlan(systems: readonly SystemDefinition[], numLanes: number, numRows: number) {
  return Object.fromEntries(
    systems.map(({ id, columns }) => [
      id,
      {
        state: savedPlan(columns.state, numLanes),
        shared: savedPlan(columns.shared, 1),
        recorded: declaredPlan(columns.recorded, numRows),
      },
    ]),
  )
}

function savedPlan(declaration: StateDeclaration, rows: number): ReturnType<typeof declaredPlan> {
  return Object.fromEntries(Object.entries(declaredPlan(declaration, rows)).map(([name, spec]) => [name, saved(spec)]))
}

/** A system bound to a cohort, in one thread. */
export interface BoundSystem {
  readonly definition: SystemDefinition
  readonly lanes: SystemLanes
  readonly rollout: Omit<SystemRollout, 'present'>
  /** Its columns of each row block of the rollout. */
  readonly windows: readonly object[]
}

/** Binds a system to its columns and the cohort's. */
export function bindSystem(
  definition: SystemDefinition,
  columns: Columns<ReturnType<typeof systemsPlan>[string]>,
  lanes: Lanes<unknown, ObservationColumn>,
  rollout: RolloutColumns,
  numSteps: number,
  numLanes: number,
  levels: number,
): BoundSystem {
  const { random, kernels } = lanes
  const recorded = Object.entries(columns.recorded as Record<string, Column>)
  const windows = Array.from({ length: numSteps }, (_, t) =>
    Object.fromEntries(
      recorded.map(([name, column]) => {
        const block = column.length / numSteps
        return [name, column.subarray(t * block, (t + 1) * block)]
      }),
    ),
  )
  const { state: own, shared } = columns
  const { state, action, reward, terminated, truncated, lane, episode, step, observation } = lanes
  return {
    definition,
    lanes: {
      ...{ own, shared, levels, ...levelColumns(levels, state) },
      ...{ state, action, reward, terminated, truncated, lane, episode, step, random, kernels, observation },
      recorded: windows[0]!,
      nextObservation: observation,
      valid: rollout.valid,
    },
    rollout: { rollout, own, shared, recorded: columns.recorded, numSteps, numLanes, random, kernels },
    windows,
  }
}

function levelColumns(levels: number, state: unknown): Pick<SystemLanes, 'level' | 'nextLevel'> {
  return levels > 0 ? (state as State<typeof LEVEL_STATE>) : { level: new Int32Array(), nextLevel: new Int32Array() }
}

/** @throws InputError if the systems are not a list of systems with distinct ids that fit the environment. */
export function checkSystems(systems: unknown, environment: EnvironmentDefinition): readonly SystemDefinition[] {
  if (systems === undefined) return []
  if (!Array.isArray(systems)) throw new InputError('systems', show(systems), 'a list of systems')
  const ids = new Set<string>()
  for (const system of systems as readonly Partial<SystemDefinition>[]) {
    if (typeof system?.columns !== 'object' || typeof system.id !== 'string') {
      throw new InputError('systems', show(system), 'systems made by factories of defineSystem')
    }
    if (ids.has(system.id)) throw new InputError('systems', `${system.id} twice`, 'each once')
    ids.add(system.id)
    system.check?.(environment)
  }
  return systems
}

/** The record from which another thread creates a system, with its columns if it only runs in the caller's thread. */
export type SystemOrder = DefinitionRecord & Pick<SystemDefinition, 'columns'>
