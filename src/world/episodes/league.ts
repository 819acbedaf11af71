/**
 * Several sets of weights of one policy in a cohort: a league. A column says whose weights act in each lane. The first sets learn,
 * each from the lanes in which it acts, like the roles of a game; the others act as the program has written them, which is how
 * opponents are exchanged.
 */
import { checkCount, InputError, show } from '../../base/errors.ts'
import { type Space, spaceType, spaceWidth } from '../../base/space.ts'
import { type Column, type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { RowWidths } from '../../components/rollout.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { ActingLanes, Policy, PolicyModel } from '../../policies/policy.ts'

/** Most sets of weights: a lane's is a byte. */
const SETS_MAX = 256

/** The sets of weights of a cohort that has several. */
export interface League {
  /** Whose weights act in each lane, from 0: a component of the lanes. Written by the program, between two rollouts. */
  readonly lanes: { readonly policy: Uint8Array }
  /** The sets. The first is the cohort's own; it and the other learning sets learn, the rest are written by the program. */
  readonly weights: readonly Float32Array[]
  /** The policy over each of them. */
  readonly policies: readonly Policy[]
  /** Whose weights acted in each row of the rollout. Written by infer. */
  readonly acted: Uint8Array
  /** Of each learning set, 1 for rows of the rollout in which it acted. Written when the rollout is full. */
  readonly learned: readonly Uint8Array[]
  /** Lanes of one set that do not lie together, gathered for one pass. */
  readonly staging: Staging
}

/** Room for lanes that do not lie together. */
export interface Staging {
  readonly rows: Uint32Array
  readonly acting: ActingLanes
}

/** Plans what a cohort with so many sets of weights needs beside the first; nothing where there is but one. */
export function leaguePlan(
  numSets: number,
  numLearning: number,
  { actionSpace, numAgents = 1 }: EnvironmentDefinition,
  numLanes: number,
  numRows: number,
  model: PolicyModel,
  widths: RowWidths,
  threads: number,
) {
  const stagedRows = Math.ceil(numLanes / threads) + numAgents // The largest share of a thread.
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
    observation: column('f32', numRows, widths.observation),
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

/** A league over its columns, as one thread has it; `bind` makes the policy over a set of weights. */
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

/** @throws InputError where there cannot be so many sets of weights, or as many that learn, or the policy cannot act by turns. */
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
    throw new InputError(
      'weightSets',
      `${numSets} of policy ${id}, which answers later`,
      'a policy that answers at once, or 1',
    )
  }
}

/** Marks the rows of a full rollout that each set learns from: rows of lanes in which it acted. */
export function markLearned({ acted, learned }: League, valid: Uint8Array): void {
  for (const [set, rows] of learned.entries()) {
    for (let row = 0; row < valid.length; row++) rows[row] = acted[row] === set ? valid[row]! : 0
  }
}

/** Copies `count` rows of `width` elements that the list names, to the front of another column. */
export function gatherLanes(into: Column, from: Column, rows: Uint32Array, count: number, width: number): void {
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < width; k++) into[i * width + k] = from[rows[i]! * width + k]!
  }
}

/** Copies the first `count` rows of a column to those that the list names. */
export function scatterLanes(into: Column, from: Column, rows: Uint32Array, count: number, width: number): void {
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < width; k++) into[rows[i]! * width + k] = from[i * width + k]!
  }
}
