/**
 * Rollouts ahead: if some threads collect while others learn, a cohort has columns for n rollouts. Rollout r is collected in buffer r mod
 * n, and weights of version v are published in slot v mod n. With n = maxStaleness + 1, no buffer in use by a learner and no acting
 * weights are overwritten: rollout r begins after version r − n + 1 is published, and version r + 1 is published after rollout r was
 * learned from.
 *
 * The lanes' state at the start of rollout r is saved in place r mod n, since the lanes are further ahead when a checkpoint needs it.
 */
import type { Action, ActionMask } from '../../components/action.ts'
import {
  type Column,
  type Columns,
  column,
  isColumnSpec,
  type Plan,
  type Sliding,
  saved,
} from '../../components/column.ts'
import type { Memory } from '../../components/memory.ts'
import type { Observation } from '../../components/observation.ts'
import type { FinalObservations, RolloutColumns } from '../../components/rollout.ts'
import type { Transition } from '../../components/transition.ts'
import type { Policy } from '../../policies/policy.ts'

/** The columns of one of a cohort's rollouts, and windows on them. */
export interface RolloutBuffer {
  readonly rollout: RolloutColumns
  /** Per collecting thread. */
  readonly finals: readonly FinalObservations[]
  /** This thread's part. */
  final: FinalObservations
  readonly windows: {
    readonly observation: readonly Observation[]
    readonly actionMask: readonly ActionMask[]
    readonly memory: readonly Memory[]
    readonly action: readonly Action[]
    readonly transition: readonly Transition[]
  }
  /** Windows of the sliding components, in the order of `EpisodeCohort.sliders`. */
  readonly sliders: readonly {
    readonly windows: readonly Sliding<Float32Array | Uint8Array>[]
    firstBlock: Float32Array | Uint8Array
  }[]
}

/** A cohort's buffers for rollouts ahead, n of each kind. */
export interface Ahead {
  readonly buffers: readonly RolloutBuffer[]
  /** Weights by version mod n. */
  readonly published: readonly Float32Array[]
  /** Policies over these weights; empty in a thread that learns. */
  readonly policies: readonly Policy[]
  /** The lanes' state at the start of each rollout: columns as in `EpisodeCohort.carried`. */
  readonly beginnings: readonly (readonly Column[])[]
}

/**
 * Plans a cohort's additional columns for `numBuffers` rollouts: the other buffers, published weights, and copies of the columns that
 * lanes carry from one rollout to the next.
 */
export function aheadPlan<B extends Plan>(
  numBuffers: number,
  numParameters: number,
  bufferPlan: () => B,
  carriedPlan: Readonly<Record<string, Plan>>,
) {
  const numbered = <P>(count: number, plan: () => P) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`number${i}`, plan()] as const))
  const published = column('f32', numBuffers, numParameters)
  return {
    /** Weights, by version mod numBuffers. Written by thread 0 before an update. A single one is as the learner's. */
    published: numBuffers > 1 ? saved(published) : published,
    /** Buffers 1 … numBuffers − 1. */
    others: numbered(numBuffers - 1, bufferPlan),
    /** The lanes' state at the start of a rollout, by its number mod numBuffers. Written by the collecting threads. */
    beginnings: numbered(numBuffers, () => unsaved(carriedPlan)),
  }
}

/** The same columns, not saved in checkpoints. */
function unsaved(plan: Plan): Plan {
  return Object.fromEntries(
    Object.entries(plan).map(([name, node]) => [name, isColumnSpec(node) ? { ...node, saved: false } : unsaved(node)]),
  )
}

/** Creates the buffers for rollouts ahead over their columns. `bind` creates the policy over a set of weights. */
export function createAhead(
  columns: Pick<Columns<ReturnType<typeof aheadPlan>>, 'published' | 'beginnings'>,
  buffers: readonly RolloutBuffer[],
  bind: ((weights: Float32Array) => Policy) | null,
): Ahead {
  const size = columns.published.length / buffers.length
  const published = buffers.map((_, slot) => columns.published.subarray(slot * size, (slot + 1) * size))
  return {
    buffers,
    published,
    policies: bind === null ? [] : published.map(bind),
    beginnings: Object.values(columns.beginnings).map((parts) =>
      Object.values(parts as object).flatMap((part: object): Column[] => Object.values(part)),
    ),
  }
}
