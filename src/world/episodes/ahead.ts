/**
 * Rollouts ahead: where some threads collect while others learn, a cohort has the columns of several rollouts. Rollout r is
 * collected in buffer r mod n, under weights of version v that are published in slot v mod n. With n = maxStaleness + 1 no
 * buffer is written that is learned from, and no weights that act: rollout r begins when version r − n + 1 is published, and
 * version r + 1 is not before rollout r was learned from.
 *
 * Where lanes stand when rollout r begins is kept in place r mod n, since lanes are further when the update before it is over.
 */
import type { Action, ActionMask } from '../../components/action.ts'
import { type Column, type Columns, column, isColumnSpec, type Plan, saved } from '../../components/column.ts'
import type { Memory } from '../../components/memory.ts'
import type { Observation } from '../../components/observation.ts'
import type { FinalObservations, RolloutColumns } from '../../components/rollout.ts'
import type { Sliding } from '../../components/sliding.ts'
import type { Transition } from '../../components/transition.ts'
import type { Policy } from '../../policies/policy.ts'

/** The columns of one of a cohort's rollouts, and the windows on them. */
export interface RolloutBuffer {
  readonly rollout: RolloutColumns
  /** Of the threads that collect. */
  readonly finals: readonly FinalObservations[]
  /** This thread's part of them. */
  readonly final: FinalObservations
  readonly windows: {
    readonly observation: readonly Observation[]
    readonly actionMask: readonly ActionMask[]
    readonly memory: readonly Memory[]
    readonly action: readonly Action[]
    readonly transition: readonly Transition[]
  }
  /** What the components that slide have of it, in the order of `EpisodeCohort.sliders`. */
  readonly sliders: readonly {
    readonly windows: readonly Sliding<Float32Array | Uint8Array>[]
    readonly firstBlock: Float32Array | Uint8Array
  }[]
}

/** What a cohort has for rollouts ahead: n of each. */
export interface Ahead {
  readonly buffers: readonly RolloutBuffer[]
  /** Weights by version mod n. */
  readonly published: readonly Float32Array[]
  /** Policies over these; none in a thread that learns. */
  readonly policies: readonly Policy[]
  /** Where lanes stand when a rollout begins: columns as `EpisodeCohort.carried` has them. */
  readonly beginnings: readonly (readonly Column[])[]
}

/**
 * Plans what a cohort has besides for `numBuffers` rollouts: the columns of the others, published weights, and copies of the
 * columns that lanes carry from one rollout to the next.
 */
export function aheadPlan<B extends Plan>(
  numBuffers: number,
  numParameters: number,
  bufferPlan: () => B,
  carriedPlan: Readonly<Record<string, Plan>>,
) {
  const numbered = <P>(count: number, plan: () => P) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`number${i}`, plan()] as const))
  return {
    /** Weights, by version mod numBuffers. Written by thread 0 before an update. */
    published: saved(column('f32', numBuffers, numParameters)),
    /** Buffers 1 … numBuffers − 1. */
    others: numbered(numBuffers - 1, bufferPlan),
    /** Where lanes stand when a rollout begins, by its number mod numBuffers. Written by the threads that collect. */
    beginnings: numbered(numBuffers, () => unsaved(carriedPlan)),
  }
}

/** The same columns, which checkpoints do not keep. */
function unsaved(plan: Plan): Plan {
  return Object.fromEntries(
    Object.entries(plan).map(([name, node]) => [name, isColumnSpec(node) ? { ...node, saved: false } : unsaved(node)]),
  )
}

/** What a cohort has for rollouts ahead, over its columns; `bind` makes the policy over a set of weights. */
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
