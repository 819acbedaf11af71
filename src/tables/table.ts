/**
 * A table is columns with names. A rollout's table is the rollout: its columns lie in the arena, in time-major rows, and
 * `toArrow` and `writeArrow` read them where they are. It is live: write it, or copy it, before the next update.
 */
import type { DefinitionRecord } from '../base/definition.ts'
import { type Space, spaceToJson, spaceWidth } from '../base/space.ts'
import { VERSION } from '../base/version.ts'
import type { Column } from '../components/column.ts'
import type { FinalObservations, RolloutColumns } from '../components/rollout.ts'

/** A column under its name; `width` > 1 makes it a fixed-size list in Arrow. */
export interface Field {
  readonly name: string
  readonly column: Column
  readonly width: number
  /** The rows that have a value, rising, where not all have: the column holds theirs, one after another; null in Arrow elsewhere. */
  readonly rows?: Uint32Array
}

/** Columns with names, of one length. */
export interface Table {
  readonly numRows: number
  readonly fields: readonly Field[]
  /** Arrow's types of the columns that were left out by name, where it was read: those that are no numbers of ours. */
  readonly unread?: ReadonlyMap<string, string>
  /** Schema metadata. */
  readonly metadata: Readonly<Record<string, string>>
}

/** What a rollout's table says of where it came from. */
export interface RolloutOrigin {
  readonly environmentId: string
  readonly observationSpace: Space
  readonly actionSpace: Space
  readonly seed: number
  /** Discount factor of the advantages; null where there are none. */
  readonly gamma: number | null
  readonly numLanes: number
  /** Steps of each lane in a rollout. */
  readonly numSteps: number
  /** The policy that acted. */
  readonly policy: DefinitionRecord
  /** Where its weights were read; null where they never lay in a checkpoint. */
  readonly checkpoint: string | null
}

/**
 * The table of a rollout: every column of it but the policy's memory, in a fixed order; actionMask where there is one, and
 * appliedAction where actions are a box. `finalObservation` is what came after a row that no later row shows: null but at the
 * end of an episode and in the rollout's last rows. `ownFields`, those of systems of one's own, come last.
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

/** The final observations of all threads, as they stand when they are asked for. */
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

/** A copy of all lists as one, in the order of the rows. */
function inOrder(finals: readonly FinalObservations[], width: number) {
  const found = finals.flatMap(({ row, observation, count }) =>
    Array.from(row.subarray(0, count[0]!), (row, i) => ({
      row,
      seen: observation.subarray(i * width, (i + 1) * width),
    })),
  )
  found.sort((a, b) => a.row - b.row)
  const column = new Float32Array(found.length * width)
  for (const [i, { seen }] of found.entries()) column.set(seen, i * width)
  return { rows: Uint32Array.from(found, ({ row }) => row), column }
}

/**
 * Schema metadata: environment, spaces as JSON, policy as JSON, where its weights come from (`update`: after how many updates;
 * `checkpoint`: where they were read), seed, gamma, number of lanes and of steps, version of the code.
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
