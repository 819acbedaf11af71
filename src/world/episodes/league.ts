/**
 * A league: a cohort with several sets of weights of one policy. A column assigns a set to each lane. The first sets learn, each from its
 * lanes, like the roles of a game. The program writes the others, for example to exchange opponents.
 */
import { checkCount, InputError, show } from '../../base/errors.ts'
import { type Space, spaceType, spaceWidth } from '../../base/space.ts'
import { type Column, type Columns, column, type Plan, saved } from '../../components/column.ts'
import { observationColumn, type RowWidths } from '../../components/rollout.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { ActingLanes, Policy, PolicyModel } from '../../policies/policy.ts'

/** Maximum number of sets of weights: a lane stores its set in a byte. */
const SETS_MAX = 256

export interface League {
  /** Index of the set of weights that acts in each lane, a component of the lanes. Written by the program, between two rollouts. */
  readonly lanes: { readonly policy: Uint8Array }
  /** The sets. The first is the cohort's own; it and the other learning sets learn; the program writes the remaining sets. */
  readonly weights: readonly Float32Array[]
  /** The policy over each set. */
  readonly policies: readonly Policy[]
  /** Index of the set that acted in each row of the rollout. Written by infer. */
  readonly acted: Uint8Array
  /** Per learning set: 1 for rows of the rollout in which it acted. Written when the rollout is full. */
  readonly learned: readonly Uint8Array[]
  /** Buffer for lanes of one set that are not contiguous, gathered for one pass. */
  readonly staging: Staging
}

export interface Staging {
  readonly rows: Uint32Array
  readonly acting: ActingLanes
}

/** Plans a cohort's additional columns for several sets of weights; empty for one set. */
export function leaguePlan(
  numSets: number,
  numLearning: number,
  { actionSpace, numPlayers = 1 }: EnvironmentDefinition,
  numLanes: number,
  numRows: number,
  model: PolicyModel,
  widths: RowWidths,
  threads: number,
) {
  const stagedRows = Math.ceil(numLanes / threads) + numPlayers // The largest share of a thread.
  return {
    policy: saved(column('u8', numLanes)),
    others: saved(column('f32', numSets - 1, model.numParameters)),
    acted: column('u8', numRows),
    learned: column('u8', numLearning, numRows),
    staging: Object.fromEntries(
      Array.from({ length: threads }, (_, i) => [`thread${i}`, stagingPlan(stagedRows, widths, actionSpace)]),
    ),
  }
}

function stagingPlan(numRows: number, widths: RowWidths, action: Space) {
  return {
    rows: column('u32', numRows),
    observation: observationColumn(numRows, widths),
    actionMask: column('u8', numRows, widths.actionMask),
    memory: column('f32', numRows, widths.memory),
    nextMemory: column('f32', numRows, widths.memory),
    chosen: column(spaceType(action), numRows, spaceWidth(action)),
    logprob: column('f32', numRows),
    value: column('f32', numRows),
    episode: {
      lane: column('u32', numRows),
      episode: column('u32', numRows),
      step: column('i32', numRows),
      episodeReturn: column('f64', numRows),
      phase: column('u8', numRows),
    },
  } satisfies Plan
}

/** Creates a league over its columns, in one thread. `bind` creates the policy over a set of weights. */
export function createLeague(
  columns: Columns<ReturnType<typeof leaguePlan>>,
  own: { readonly weights: Float32Array; readonly policy: Policy },
  bind: (weights: Float32Array) => Policy,
  thread: number,
): League {
  const { others, policy, acted, learned } = columns
  const size = own.weights.length
  const sets = Array.from({ length: others.length / size }, (_, i) => others.subarray(i * size, (i + 1) * size))
  const { rows, observation, actionMask, memory, nextMemory, chosen, logprob, value, episode } =
    columns.staging[`thread${thread}`]!
  return {
    lanes: { policy },
    weights: [own.weights, ...sets],
    policies: [own.policy, ...sets.map(bind)],
    acted,
    learned: Array.from({ length: learned.length / acted.length }, (_, set) =>
      learned.subarray(set * acted.length, (set + 1) * acted.length),
    ),
    staging: {
      rows,
      acting: {
        observation: { current: observation, next: observation },
        actionMask: { current: actionMask, next: actionMask },
        memory: { current: memory, next: nextMemory },
        action: { chosen: chosen as Float32Array | Int32Array, applied: chosen as Float32Array, logprob, value },
        episode,
      },
    },
  }
}

/** @throws InputError for invalid numbers of sets or learning sets, and for an asynchronous policy. */
export function checkSets(numSets: unknown, numLearning: unknown, id: string, model: PolicyModel): void {
  checkCount('weightSets', numSets, 1, SETS_MAX)
  if (
    !Number.isSafeInteger(numLearning) ||
    (numLearning as number) < 1 ||
    (numLearning as number) > (numSets as number)
  ) {
    throw new InputError('learningSets', show(numLearning), `a whole number from 1 to weightSets, ${numSets}`)
  }
  if (numSets !== 1 && model.answersLater) {
    const expected = 'a policy that answers at once, or 1'
    throw new InputError('weightSets', `${numSets} for policy ${id}, which is asynchronous`, expected)
  }
}

/** Marks the rows of a full rollout that each set learns from: rows of lanes in which it acted. */
export function markLearned({ acted, learned }: League, valid: Uint8Array): void {
  for (const [set, rows] of learned.entries()) {
    for (let row = 0; row < valid.length; row++) rows[row] = acted[row] === set ? valid[row]! : 0
  }
}

/** Copies `count` listed rows of `width` elements to the front of another column. */
export function gatherLanes(into: Column, from: Column, rows: Uint32Array, count: number, width: number): void {
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < width; k++) into[i * width + k] = from[rows[i]! * width + k]!
  }
}

/** Copies the first `count` rows of a column to the listed rows of another. */
export function scatterLanes(into: Column, from: Column, rows: Uint32Array, count: number, width: number): void {
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < width; k++) into[rows[i]! * width + k] = from[i * width + k]!
  }
}
