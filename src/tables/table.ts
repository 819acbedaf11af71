/**
 * A table is columns with names. A rollout's table is the rollout: its columns lie in the arena, in time-major rows, and
 * `toArrow` and `writeArrow` read them where they are. It is live: write it, or copy it, before the next update.
 */
import type { Column } from '../components/column.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import { type Space, spaceToJson, spaceWidth } from '../space.ts'
import { VERSION } from '../version.ts'

/** A column under its name; `width` > 1 makes it a fixed-size list in Arrow. */
export interface Field {
  readonly name: string
  readonly column: Column
  readonly width: number
}

/** Columns with names, of one length. */
export interface Table {
  readonly numRows: number
  readonly fields: readonly Field[]
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
}

/** The table of a rollout: every column of it but the policy's memory, in a fixed order; actionMask where there is one. */
export function rolloutTable(rollout: RolloutColumns, origin: RolloutOrigin): Table {
  const { observationSpace, actionSpace } = origin
  const field = (name: keyof RolloutColumns & string, width = 1): Field => ({ name, column: rollout[name]!, width })
  const { actionMask, reward } = rollout
  const numRows = reward.length
  return {
    numRows,
    fields: [
      field('step'),
      field('lane'),
      field('episode'),
      field('observation', spaceWidth(observationSpace)),
      ...(actionMask.length > 0 ? [field('actionMask', actionMask.length / numRows)] : []),
      field('action', spaceWidth(actionSpace)),
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
    ],
    metadata: originMetadata(origin),
  }
}

/** Schema metadata: environment, spaces as JSON, seed, gamma, number of lanes, version of the code. */
export function originMetadata(origin: RolloutOrigin): Record<string, string> {
  return {
    environment: origin.environmentId,
    observationSpace: spaceToJson(origin.observationSpace),
    actionSpace: spaceToJson(origin.actionSpace),
    seed: String(origin.seed),
    gamma: String(origin.gamma),
    numLanes: String(origin.numLanes),
    colonnade: VERSION,
  }
}
