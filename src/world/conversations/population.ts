/** How lanes of conversations join and leave. A row keeps its place, and is absent while it has no entity. */
import { InputError } from '../../base/errors.ts'
import { ConversationPhase } from '../../components/conversation.ts'
import { NOBODY } from '../lanes.ts'
import type { ConversationCohort } from './cohort.ts'

/**
 * Queries the present lanes after a change. A free row without an entity becomes absent; a row in a conversation becomes absent when that
 * ends. An entity without a row takes an absent row, or waits for one.
 * @throws InputError if no lane is present, or if there are more entities than rows.
 */
export function settleSpeakers(cohort: ConversationCohort): void {
  const { name, entities, conversation, numLanes } = cohort
  if (!entities.hasChanged) return
  const { phase } = conversation
  const { rows, newcomers } = entities.find()
  const count = rows.length + newcomers.length
  if (count === 0) throw new InputError(`cohort ${name}`, 'no present lane', 'at least one: call spawn(cohort)')
  if (count > numLanes) {
    throw new InputError(`cohort ${name}`, `${count} present lanes`, `at most its numLanes, ${numLanes}`)
  }
  const lanes = new Uint32Array(numLanes).fill(NOBODY)
  for (const row of rows) lanes[row] = entities.lanes[row]!
  let seated = 0
  let isSpeaking = false
  for (let n = 0; n < numLanes; n++) {
    if (lanes[n] !== NOBODY) continue
    if (phase[n] !== ConversationPhase.free && phase[n] !== ConversationPhase.absent) isSpeaking = true
    else if (seated < newcomers.length) {
      lanes[n] = newcomers[seated]!
      phase[n] = ConversationPhase.free
      seated++
    } else phase[n] = ConversationPhase.absent
  }
  cohort.lanes = entities.seat(lanes)
  if (isSpeaking) entities.askAgain()
}

/** The rows that become absent when their conversations end, except those that waiting entities take. */
export function leavingRows({ entities, conversation }: ConversationCohort): number[] {
  const { rows, newcomers } = entities.find()
  const isThere = new Set(rows)
  const left = [...conversation.phase.keys()].filter(
    (n) => conversation.phase[n] !== ConversationPhase.absent && !isThere.has(n),
  )
  return left.slice(newcomers.length)
}

/** Restores the entities of a cohort whose columns come from a checkpoint: one for each row that is neither absent nor leaving. */
export function restoreSpeakers(cohort: ConversationCohort, leaving: readonly number[]): void {
  const { entities, conversation } = cohort
  for (const entity of entities.find().newcomers) entities.remove(entity)
  const { rows } = entities.find()
  const lanes = new Uint32Array(conversation.phase.length).fill(NOBODY)
  for (const n of rows) lanes[n] = entities.lanes[n]!
  for (const [n, phase] of conversation.phase.entries()) {
    if (phase === ConversationPhase.absent || leaving.includes(n)) {
      entities.removeRow(n)
      lanes[n] = NOBODY
    } else if (lanes[n] === NOBODY) lanes[n] = entities.spawn(1)[0]!
  }
  cohort.lanes = entities.seat(lanes)
  if (leaving.length > 0) entities.askAgain()
}
