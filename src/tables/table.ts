/**
 * A table is named columns. A rollout's table is a view of the rollout's time-major columns in the arena, which `toArrow` and
 * `writeArrow` read in place. It is live: write or copy it before the next update.
 */
import type { DefinitionRecord } from '../base/definition.ts'
import { type Space, spaceToJson, spaceWidth } from '../base/space.ts'
import { VERSION } from '../base/version.ts'
import type { Column } from '../components/column.ts'
import type { FinalObservations, RolloutColumns } from '../components/rollout.ts'

/** A named column; `width` > 1 makes it a fixed-size list in Arrow. */
export interface Field {
  readonly name: string
  readonly column: Column
  readonly width: number
  /** The rows that have a value, ascending, if not all have one: the column holds only theirs; other rows are null in Arrow. */
  readonly rows?: Uint32Array
}

/** Named columns of one length. */
export interface Table {
  readonly numRows: number
  readonly fields: readonly Field[]
  /** Arrow types of the non-numeric columns that were left out when it was read, by name. */
  readonly unread?: ReadonlyMap<string, string>
  readonly metadata: Readonly<Record<string, string>>
}

export interface RolloutOrigin {
  readonly environmentId: string
  readonly observationSpace: Space
  readonly actionSpace: Space
  readonly seed: number
  /** Discount factor of the advantages; null without advantages. */
  readonly gamma: number | null
  readonly numLanes: number
  /** Steps per lane in a rollout. */
  readonly numSteps: number
  readonly policy: DefinitionRecord
  /** Source of its weights; null if they come from no checkpoint. */
  readonly checkpoint: string | null
}

/**
 * The table of a rollout: its columns except the policy's memory, in a fixed order; actionMask if there are masks, and appliedAction for
 * box actions. `finalObservation` is the observation after a row if no later row contains it: at the end of an episode and in the
 * rollout's last rows, otherwise null. `ownFields` of custom systems come last.
 */
export function tableOfRollout(
  rollout: RolloutColumns,
  finals: readonly FinalObservations[],
  origin: RolloutOrigin,
  ownFields: readonly Field[] = [],
): Table {
  const { observationSpace, actionSpace } = origin
  const field = (name: keyof RolloutColumns & string, width = 1): Field => ({ name, column: rollout[name]!, width })
  const { actionMask, appliedAction, reward, version } = rollout
  const numRows = reward.length
  return {
    numRows,
    fields: [
      field('step'),
      field('lane'),
      field('episode'),
      field('observation', spaceWidth(observationSpace)),
      finalField(finals, spaceWidth(observationSpace)),
      ...(actionMask.length > 0 ? [field('actionMask', actionMask.length / numRows)] : []),
      field('action', spaceWidth(actionSpace)),
      ...(appliedAction.length > 0 ? [field('appliedAction', spaceWidth(actionSpace))] : []),
      field('reward'),
      field('terminated'),
      field('truncated'),
      field('valid'),
      field('logprob'),
      field('value'),
      field('nextValue'),
      field('advantage'),
      field('return'),
      field('episodeReturn'),
      field('version'),
      ...ownFields,
    ],
    get metadata() {
      return originMetadata(origin, version[0]!)
    },
  }
}

function finalField(finals: readonly FinalObservations[], width: number): Field {
  const field = { name: 'finalObservation', width }
  const sole = finals.length === 1 ? finals[0]! : undefined
  const read = () => {
    const count = sole?.count[0] ?? 0
    const rows = sole?.row.subarray(0, count)
    if (sole !== undefined && isRising(rows!))
      return { rows: rows!, column: sole.observation.subarray(0, count * width) }
    return inOrder(finals, width)
  }
  return {
    ...field,
    get column() {
      return read().column
    },
    get rows() {
      return read().rows
    },
  }
}

function isRising(rows: Uint32Array): boolean {
  return rows.every((row, i) => i === 0 || rows[i - 1]! < row)
}

/** Copies all lists into one, in the order of the rows. */
function inOrder(finals: readonly FinalObservations[], width: number) {
  const found = finals.flatMap(({ row, observation, count }) =>
    Array.from(row.subarray(0, count[0]!), (row, i) => ({
      row,
      seen: observation.subarray(i * width, (i + 1) * width),
    })),
  )
  found.sort((a, b) => a.row - b.row)
  const size = found.length * width
  const column = finals[0]?.observation instanceof Uint8Array ? new Uint8Array(size) : new Float32Array(size)
  for (const [i, { seen }] of found.entries()) column.set(seen, i * width)
  return { rows: Uint32Array.from(found, ({ row }) => row), column }
}

/**
 * Schema metadata: environment, spaces as JSON, policy as JSON, the origin of its weights (`update`: number of updates; `checkpoint`:
 * where they were read), seed, gamma, number of lanes and of steps, version of the code.
 */
function originMetadata(origin: RolloutOrigin, update: number): Record<string, string> {
  const { id, parameters } = origin.policy
  return {
    environment: origin.environmentId,
    observationSpace: spaceToJson(origin.observationSpace),
    actionSpace: spaceToJson(origin.actionSpace),
    seed: String(origin.seed),
    gamma: String(origin.gamma),
    numLanes: String(origin.numLanes),
    numSteps: String(origin.numSteps),
    policy: JSON.stringify({ id, parameters }),
    update: String(update),
    checkpoint: String(origin.checkpoint),
    colonnade: VERSION,
  }
}
