/** What evaluating says of tokens that a gateway recorded, beside what was recorded. */
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { PackedTransformer, packedPlan } from '../../src/language/transformer/packed.ts'
import { Trajectories } from '../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../src/tables/trajectories/trajectory.ts'
import { tokenForms } from '../../src/training/text/learn/token-forms.ts'
import type { ConversationCohort } from '../../src/world/conversations/cohort.ts'
import type { World } from '../../src/world/world.ts'

/** Each token that was drawn: its recorded log-probability, and the evaluated one. */
export function compared(
  { world, rows }: { world: World<ConversationCohort>; rows: readonly Trajectory[] },
  { temperature }: { readonly temperature: number },
) {
  const { model, weights, adapter, context } = world.cohort()
  const lora = adapter?.lora ?? null
  const { arena, columns } = takeArena({
    weights: column('f32', weights.length),
    adapter: column('f32', lora?.numParameters ?? 0),
    packed: packedPlan(model, context, context, lora),
  })
  columns.weights.set(weights)
  columns.adapter.set(adapter?.weights ?? [])
  const kernels = createKernels(arena.memory, world.kernelBuild)
  const adapted = lora === null ? null : { lora, weights: columns.adapter, random: adapter!.random }
  const packed = new PackedTransformer(model, columns.weights, columns.packed, kernels, adapted)
  const trajectories = new Trajectories()
  for (const row of rows) trajectories.append(row)
  const table = trajectories.rows(rows.map((_, i) => i))
  const forms = tokenForms(table, world.cohort())
  const pairs: [recorded: number, evaluated: number][] = []
  for (const i of rows.keys()) {
    const candidates = { begin: table.candidateBegin, length: table.candidateCount, ids: table.candidateIds, ...forms }
    const count = packed.pack(table.token, table, i, i + 1, candidates)
    const { logprob } = packed.evaluate(count, temperature)
    for (let t = table.begin[i]! + 1; t < table.end[i]!; t++) {
      if (table.lossMask[t] === 1) pairs.push([table.logprob[t]!, logprob[t - table.begin[i]! - 1]!])
    }
  }
  return { pairs, ...forms }
}
