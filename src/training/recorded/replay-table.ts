/** A replay as a table. */
import { type ReplayColumns, ReplayCount } from '../../algorithms/off-policy/replay.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Table } from '../../tables/table.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'

/**
 * The replay of a cohort as a table, without copies except `finalObservation`: the next observation of rows whose
 * episode was truncated there, null elsewhere. `actionMask` and `finalActionMask` are the legal actions, if there are
 * masks. Rows are in the ring's order, so the oldest follow the newest; `oldestRow` in the metadata is the first, and a
 * lane's next row is `numLanes` further. The table is live: write or copy it before the next update.
 *
 * @throws InputError if the cohort has no replay.
 * @example
 * const world = await createWorld({ environment: cartPole(), policy: qNetwork(), numLanes: 8 })
 * const trainer = createTrainer(world, dqn())
 * for await (const _ of trainer.updates({ totalSteps: 10_000 }));
 * await writeArrow('replay.arrow', replayTable(world.cohort()))
 */
export function replayTable(cohort: EpisodeCohort): Table {
  const columns = cohort?.learner as { readonly algorithm?: { readonly replay?: ReplayColumns } } | undefined
  const replay = columns?.algorithm?.replay
  if (replay === undefined) {
    throw new InputError('replayTable(cohort)', show(cohort?.name), 'a cohort that learns from a replay, as by dqn')
  }
  const { rows, finalObservation, finalActionMask, counts } = replay
  const { numLanes } = cohort
  const numSlots = rows.reward.length
  const steps = counts[ReplayCount.steps]!
  const numRows = Math.min(steps * numLanes, numSlots)
  const truncated = Uint32Array.from(
    (function* () {
      for (let row = 0; row < numRows; row++) if (rows.truncated[row] !== 0 && rows.terminated[row] === 0) yield row
    })(),
  )
  const finalField = (name: string, kept: Float32Array | Uint8Array) => {
    const width = kept.length / numSlots
    const column =
      kept instanceof Uint8Array ? new Uint8Array(truncated.length * width) : new Float32Array(truncated.length * width)
    for (const [i, row] of truncated.entries()) column.set(kept.subarray(row * width, (row + 1) * width), i * width)
    return { name, column, width, rows: truncated }
  }
  return {
    numRows,
    fields: [
      ...Object.entries(rows).flatMap(([name, column]) => {
        const width = column.length / numSlots
        return width === 0 ? [] : [{ name, column: column.subarray(0, numRows * width), width }]
      }),
      finalField('finalObservation', finalObservation),
      ...(finalActionMask.length > 0 ? [finalField('finalActionMask', finalActionMask)] : []),
    ],
    metadata: {
      environment: cohort.environment.id,
      numLanes: String(numLanes),
      oldestRow: String(numRows < numSlots ? 0 : (steps * numLanes) % numSlots),
    },
  }
}
