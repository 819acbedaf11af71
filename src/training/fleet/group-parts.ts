/**
 * The messages between a learner and the actors of a fleet for groups of conversations: the rows as an Arrow IPC stream, and the messages
 * that name them.
 *
 * A conversation depends only on its number, the weights, and the code. So any actor can collect a group again, with the same bits.
 */
import { createHash } from 'node:crypto'
import { fingerprint } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { arrowStreams } from '../../tables/read-arrow.ts'
import type { Trajectories } from '../../tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../tables/trajectories/trajectory.ts'
import { type TextOrigin, trajectoriesIn, trajectoryTable } from '../../tables/trajectories/trajectory-table.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'

/** Groups `from` ≤ g < `until` that an actor has to collect. */
export interface GroupTask {
  readonly id: string
  readonly from: number
  readonly until: number
  /** The weights' version and hash. */
  readonly version: number
  readonly weights: string
}

/** Collected groups. */
export interface GroupResult extends GroupTask {
  readonly actor: string
  /** The hash of their rows. */
  readonly rows: string
  /** Seconds of collecting, and of waiting for the task. */
  readonly seconds: number
  readonly waited: number
  /** The error, if collecting failed several times; otherwise null. */
  readonly error: string | null
}

/** Examples that a fingerprint has, evenly spread over all. */
const EXAMPLES_MAX = 1024

/** A fingerprint of the model, its frozen weights and the examples, which must be equal for a learner and its actors. */
export function schemaOfConversations(cohort: ConversationCohort): string {
  const { environment, model, tokenizer, context, maxTokens, groupSize, adapter, quantized, weights } = cohort
  const { numExamples } = environment
  const count = Math.min(numExamples, EXAMPLES_MAX)
  const examples = createHash('sha256')
  for (let i = 0; i < count; i++) {
    examples.update(JSON.stringify(environment.example(Math.floor((i * numExamples) / count))))
  }
  const frozen = createHash('sha256')
  if (adapter !== null) {
    const columns = quantized === null ? [weights] : Object.values(quantized).flatMap((each) => columnsIn(each))
    for (const { buffer, byteOffset, byteLength } of columns)
      frozen.update(new Uint8Array(buffer, byteOffset, byteLength))
  }
  return fingerprint(
    ...[model.numParameters, adapter?.lora.numParameters ?? 0, tokenizer.id, model.shape.vocabularySize],
    ...[context, maxTokens, groupSize, numExamples, examples.digest('hex'), frozen.digest('hex')],
  )
}

function columnsIn(value: unknown): ArrayBufferView[] {
  if (ArrayBuffer.isView(value)) return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(columnsIn) : []
}

/** Rows travel without texts and origin, which the learner knows. */
const ORIGIN: TextOrigin = {
  ...{ environment: '', model: '', tokenizer: '', algorithm: '', seed: 0 },
  promptOf: () => '',
}

export async function groupsToBytes(trajectories: Trajectories): Promise<Uint8Array> {
  const { toStream } = await arrowStreams()
  return toStream(await trajectoryTable(trajectories, ORIGIN))
}

/** The rows of each member of a result's groups. @throws InputError if they are not those of its groups. */
export async function groupsFromBytes(
  cohort: ConversationCohort,
  { from, until, version }: GroupTask,
  bytes: Uint8Array,
): Promise<ReadonlyMap<number, readonly (readonly Trajectory[])[]>> {
  const { fromStream } = await arrowStreams()
  const what = `groups ${from} to ${until - 1}`
  const { source, groupSize, context, model } = cohort
  const { vocabularySize } = model.shape
  const groups = new Map<number, Trajectory[][]>()
  for (let group = from; group < until; group++)
    groups.set(
      group,
      Array.from({ length: groupSize }, () => []),
    )
  for (const row of trajectoriesIn(what, fromStream(bytes))) {
    const rows = groups.get(row.group)?.[row.member]
    const wrong =
      rows === undefined
        ? `member ${row.member} of group ${row.group}`
        : row.source !== source
          ? `source ${show(row.source)}`
          : row.token.length > context
            ? `${row.token.length} tokens`
            : Array.from(row.token).some((id) => id >= vocabularySize)
              ? 'a token beyond the vocabulary'
              : Array.from(row.version).some((each) => each !== -1 && each !== version)
                ? 'tokens of other weights'
                : null
    if (wrong !== null) throw new InputError(what, wrong, `rows of ${groupSize} members each, by weights ${version}`)
    rows!.push(row)
  }
  for (const [group, members] of groups) {
    const missing = members.findIndex((rows) => rows.length === 0)
    if (missing >= 0) throw new InputError(what, `no row of member ${missing} of group ${group}`, 'whole groups')
  }
  return groups
}
