/** Plays episodes with fixed weights, to evaluate a policy or to record episodes. */
import { checkCount, checkGiven, InputError, unknownWord } from '../../base/errors.ts'
import { sha256 } from '../../base/files/digest.ts'
import type { Column } from '../../components/column.ts'
import { Phase } from '../../components/episode.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import { bootstrap, reset, tick } from '../../systems/tick.ts'
import { LAYOUT_OF_EPISODES } from '../../tables/episodes/episode-rows.ts'
import type { Field, Table } from '../../tables/table.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { rolloutTable } from '../../world/episodes/rollout-table.ts'
import type { SystemDefinition } from '../../world/system.ts'
import { createWorld, type World } from '../../world/world.ts'
import { meanAndStd } from '../loop/metrics.ts'

/** The environment and policy to play, the weights, and the number of episodes. */
export interface EvaluateOptions {
  environment: EnvironmentDefinition
  policy: PolicyDefinition
  /** The policy's weights, numParameters long. */
  weights: Float32Array
  /** Number of episodes, each from its own starting state; default 100. */
  episodes?: number
  /** Keys starting states and sampled actions; default 0. */
  seed?: number
  /** Sample actions; default false: take the most probable. */
  explore?: boolean
  kernels?: KernelBuild | 'best'
  /** Systems besides the four, as in training; default none. Their work after rollouts is not done. */
  systems?: readonly SystemDefinition[]
  /** Their columns of the whole cohort, which are not changed; default zeros. */
  shared?: SharedColumns
  /** Called before the first and after each step. Lanes whose first episode has ended still show its end. */
  watch?: (cohort: EpisodeCohort) => void
  /** Version of the weights, for the table's version column; default 0. */
  version?: number
  /** Where the weights were read, for the table's metadata; default null. */
  checkpoint?: string | null
}

/** Columns of the whole cohort, by system and name. */
export type SharedColumns = Readonly<Record<string, Readonly<Record<string, Column>>>>

/** Statistics of the returns, and lengths in steps. */
export interface Evaluation {
  readonly environment: string
  readonly episodes: number
  readonly seed: number
  readonly explore: boolean
  readonly episodeReturn: { readonly mean: number; readonly std: number; readonly min: number; readonly max: number }
  readonly episodeLength: { readonly mean: number; readonly std: number; readonly min: number; readonly max: number }
}

/**
 * Plays `episodes` whole episodes, one per lane so that short ones are not favored, and returns statistics of their
 * returns.
 * @throws InputError if the environment has no time limit, an option is wrong, or the weights do not fit the policy.
 */
export async function evaluate(options: EvaluateOptions): Promise<Evaluation> {
  checkGiven('options of evaluate', options, ['environment', 'policy', 'weights'])
  const { cohort, world } = await play(options)
  const { rollout } = cohort
  const returns: number[] = []
  const lengths: number[] = []
  for (const row of firstEpisodes(cohort)) {
    if (rollout.terminated[row] === 0 && rollout.truncated[row] === 0) continue
    returns.push(rollout.episodeReturn[row]!)
    lengths.push(rollout.step[row]! + 1)
  }
  return {
    environment: options.environment.id,
    episodes: returns.length,
    seed: world.seed,
    explore: cohort.explore,
    episodeReturn: summarize(returns),
    episodeLength: summarize(lengths),
  }
}

/** Plays episodes like `evaluate`, by default sampling, and returns rows by lane and step, without advantages. */
export async function recordEpisodes(options: EvaluateOptions): Promise<Table> {
  checkGiven('options of recordEpisodes', options, ['environment', 'policy', 'weights'])
  const { cohort, world } = await play({ ...options, explore: options.explore ?? true })
  const { checkpoint = null, weights } = options
  const table = rolloutTable(cohort, { seed: world.seed, checkpoint })
  const { lane } = cohort.rollout
  const rows = firstEpisodes(cohort).sort((a, b) => lane[a]! - lane[b]!) // A lane's rows stay in order.
  const fields = table.fields
    .filter(({ name }) => name !== 'advantage' && name !== 'return')
    .map((field) => pickRows(field, rows))
  const { numSteps, ...metadata } = table.metadata // Episodes differ in length.
  return { numRows: rows.length, fields, metadata: { ...metadata, ...LAYOUT_OF_EPISODES, weights: digestOf(weights) } }
}

/** SHA-256 of weights, in hexadecimal. In a table it identifies the policy. */
export function digestOf({ buffer, byteOffset, byteLength }: Float32Array): string {
  return sha256()
    .update(new Uint8Array(buffer, byteOffset, byteLength))
    .hex()
}

/** Steps after which every episode has ended. @throws InputError without a time limit. */
export function requireTimeLimit({ id, maxEpisodeSteps }: EnvironmentDefinition): number {
  if (maxEpisodeSteps !== null) return maxEpisodeSteps
  throw new InputError(`environment ${id}`, 'no time limit', 'a time limit, so that every episode ends')
}

async function play(options: EvaluateOptions): Promise<{ world: World; cohort: EpisodeCohort }> {
  const { environment, policy, weights, episodes = 100, seed = 0, explore = false, version = 0, kernels } = options
  const { systems = [], shared = {}, watch } = options
  checkCount('episodes', episodes)
  const numSteps = requireTimeLimit(environment)
  const world = await createWorld({
    environment,
    policy,
    systems,
    numLanes: episodes,
    seed,
    explore,
    ...(kernels && { kernels }),
  })
  try {
    const draft = world.draft()
    const { numParameters } = draft.model
    if (weights.length !== numParameters) {
      throw new InputError('weights', `${weights.length} numbers`, `${numParameters}, the parameters of ${policy.id}`)
    }
    world.reserve(draft, { numSteps, learner: {} })
    const cohort = world.cohort()
    cohort.weights.set(weights)
    cohort.policy.refresh?.()
    cohort.version = version
    fillShared(cohort, shared)
    if (watch !== undefined) {
      reset(world)
      watch(cohort)
    }
    do {
      await tick(world)
      watch?.(cohort)
    } while (cohort.t < cohort.numSteps && cohort.episode.phase.some((phase, n) => plays(cohort, phase, n)))
    await bootstrap(world)
    return { world, cohort }
  } finally {
    world.close()
  }
}

/** The systems' own columns of a whole cohort, not copies. */
export function sharedColumns({ systems }: EpisodeCohort): SharedColumns {
  return Object.fromEntries(
    systems.map(({ definition, rollout }) => [definition.id, rollout.shared as Readonly<Record<string, Column>>]),
  )
}

/** @throws InputError for columns that no system of the cohort has, or of another length. */
function fillShared(cohort: EpisodeCohort, given: SharedColumns): void {
  const own = sharedColumns(cohort)
  for (const [id, columns] of Object.entries(given)) {
    if (!Object.hasOwn(own, id)) throw unknownWord('shared columns of system', id, Object.keys(own))
    for (const [name, column] of Object.entries(columns)) {
      const target = own[id]![name]
      if (target === undefined) throw unknownWord(`shared column of ${id}`, name, Object.keys(own[id]!))
      if (column.length !== target.length) {
        throw new InputError(`shared column ${name} of ${id}`, `${column.length} elements`, `${target.length}`)
      }
      target.set(column)
    }
  }
}

/** True while a lane is in its first episode. */
function plays({ episode }: EpisodeCohort, phase: number, n: number): boolean {
  return episode.episode[n] === 0 && phase === Phase.ready
}

/** The rows of each lane's first episode, in the order of the rollout. */
function firstEpisodes({ rollout, t, numLanes }: EpisodeCohort): number[] {
  const rows: number[] = []
  for (let row = 0; row < t * numLanes; row++) {
    if (rollout.valid[row] !== 0 && rollout.episode[row] === 0) rows.push(row)
  }
  return rows
}

function pickRows({ name, column, width, rows: held }: Field, rows: readonly number[]): Field {
  if (held !== undefined) {
    const places = new Map(Array.from(held, (row, place) => [row, place]))
    const kept = [...rows.keys()].filter((i) => places.has(rows[i]!))
    const values = pickRows(
      { name, column, width },
      kept.map((i) => places.get(rows[i]!)!),
    )
    return { ...values, rows: Uint32Array.from(kept) }
  }
  const picked = column.slice(0, 0).constructor as new (length: number) => typeof column
  const target = new picked(rows.length * width)
  for (const [i, row] of rows.entries()) target.set(column.subarray(row * width, (row + 1) * width), i * width)
  return { name, column: target, width }
}

function summarize(values: readonly number[]) {
  const { mean, std } = meanAndStd(Float64Array.from(values), values.length)
  const least = (a: number, b: number) => Math.min(a, b)
  const most = (a: number, b: number) => Math.max(a, b)
  return { mean, std, min: values.reduce(least), max: values.reduce(most) } // A spread fails above 100,000 arguments.
}
