/** A trajectory: a finished conversation or a segment of one, with its checks. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import {
  type Constraint,
  LOGIT_CHANGES,
  type LogitChanges,
  type StopReason,
  stopReasons,
} from '../../environments/text.ts'

/** A trajectory, as appended and read back. */
export interface Trajectory {
  /**
   * Its source, such as a run. A group is (source, epoch, promptId, group), so that merged tables of two runs share no groups. Default:
   * one common source, ''.
   */
  readonly source?: string
  /** Its example, its group, its member number in the group, and the epoch. */
  readonly promptId: number
  readonly group: number
  readonly member: number
  readonly epoch: number
  /** Its index among the rows of its conversation; default 0. A segment follows the previous one. */
  readonly segment?: number
  /** Number of model turns in this row. */
  readonly turns: number
  /** How many of them were cut off by their budget or the context; default 0. */
  readonly cutTurns?: number
  /** Dropped environment replies at its end, because the turn was cut or the context was full: 0 (default) or 1. */
  readonly droppedReplies?: number
  readonly stopReason: StopReason
  /** Null if unknown, with the reason. */
  readonly reward: number | null
  readonly error: string | null
  /** The reward of each turn, from which the reward is computed; NaN if unknown. Missing: not recorded. */
  readonly turnReward?: ArrayLike<number>
  /** Components of the reward, by name; null if unknown. */
  readonly components: Readonly<Record<string, number | null>>
  /** Token ids as sent and as sampled. The other token columns have the same length. */
  readonly token: ArrayLike<number>
  /** 1 if the model chose the token. */
  readonly lossMask: ArrayLike<number>
  /**
   * Log-probability under the sampled distribution, in nats. NaN if not recorded, which requires version −1: the token was not sampled,
   * or its log-probability is unknown. Never 0 for an unknown one: 0 means a certain token.
   */
  readonly logprob: ArrayLike<number>
  /** Version of the weights that chose the token; −1 if none did, or if it is unknown. */
  readonly version: ArrayLike<number>
  /** The turn of the token, from 0. */
  readonly turn: ArrayLike<number>
  /**
   * Number of candidates of each token if a filter removed tokens; 0 if not, −1 if unknown. `candidateIds` has their ids, ascending per
   * token and concatenated. Both may be missing: then no filter was used.
   */
  readonly candidateCount?: ArrayLike<number>
  readonly candidateIds?: ArrayLike<number>
  /**
   * The turns of this row with a constraint or changed logits. Tokens were drawn from those that the constraint allows; if a filter
   * excluded some of those, `candidateIds` lists the rest. Missing: there is no such turn.
   */
  readonly forms?: readonly TurnForm[]
}

/** A turn with a constraint, changed logits, or both. */
export interface TurnForm {
  readonly turn: number
  readonly constraint?: Constraint
  readonly changes?: LogitChanges
}

/** Per-token columns of a trajectory, and its identity fields. */
export const TOKEN_COLUMNS = ['token', 'lossMask', 'logprob', 'version', 'turn'] as const
export const ROW_COLUMNS = [
  ...(['promptId', 'group', 'member', 'epoch', 'segment'] as const),
  ...(['turns', 'cutTurns', 'droppedReplies'] as const),
] as const
/** The name of such a number. */
export type RowColumn = (typeof ROW_COLUMNS)[number]

/** An object with a value for each of these names. */
export function eachOf<N extends string, T>(names: readonly N[], make: (name: N) => T): Record<N, T> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<N, T>
}

/** Whether the model chose the token, trained or not. */
export function isOfModel(lossMask: ArrayLike<number>, version: ArrayLike<number>, t: number): boolean {
  return lossMask[t] === 1 || version[t] !== -1
}

/** The ids after a trajectory's prompt: from the model's first token on. */
export function completionOf({
  token,
  lossMask,
  version,
}: Pick<Trajectory, 'token' | 'lossMask' | 'version'>): number[] {
  let said = 0
  while (said < token.length && !isOfModel(lossMask, version, said)) said++
  return Array.from(token).slice(said)
}

/** Returns the number of tokens. @throws InputError as `append` does. */
export function checkTrajectory(trajectory: Trajectory): number {
  const { token, reward, turnReward = [], components, stopReason, group, member } = trajectory
  const subject = `trajectory of group ${show(group)}, member ${show(member)}`
  if (token.length === 0) throw new InputError(subject, 'no token', 'at least one')
  checkTokens(subject, trajectory)
  checkCandidates(subject, trajectory)
  checkForms(subject, trajectory.forms ?? [])
  checkIdentity(subject, trajectory)
  checkTurnReward(subject, turnReward)
  if (!stopReasons.includes(stopReason)) throw unknownWord(`${subject}, stopReason`, String(stopReason), stopReasons)
  for (const [name, value] of Object.entries({ reward, ...components })) {
    if (value === null || Number.isFinite(value)) continue
    const expected = 'a finite number, or null if unknown'
    throw new InputError(`${subject}, ${name}`, show(value), expected)
  }
  return token.length
}

/**
 * Checks a trajectory's identity. `subject` and `names` as in `checkTokens`.
 * @throws InputError for a source that is not a string, and a number that is missing or invalid.
 */
export function checkIdentity(
  subject: string,
  row: Pick<Trajectory, 'source' | RowColumn>,
  names: Readonly<Partial<Record<RowColumn, string>>> = {},
): void {
  const { source = '', segment = 0, cutTurns = 0, droppedReplies = 0 } = row
  if (typeof source !== 'string') throw new InputError(`${subject}, source`, show(source), 'a text')
  const numbers = { ...row, segment, cutTurns, droppedReplies }
  for (const name of ROW_COLUMNS) checkElements(`${subject}, ${names[name] ?? name}`, [numbers[name]], isCount, COUNT)
}

/** Checks turn rewards. @throws InputError for one that is neither a finite number nor NaN. */
export function checkTurnReward(subject: string, turnReward: ArrayLike<number>): void {
  const isRight = (value: number) => Number.isFinite(value) || Number.isNaN(value)
  checkElements(`${subject}, turnReward`, turnReward, isRight, 'a finite number, or NaN if unknown')
}

/** Checks candidate counts and ids. @throws InputError if they do not fit the tokens. */
export function checkCandidates(
  subject: string,
  { token, candidateCount, candidateIds }: Pick<Trajectory, 'token' | 'candidateCount' | 'candidateIds'>,
): void {
  if (candidateCount === undefined && candidateIds === undefined) return
  const isLength = (value: number) => value === -1 || isCount(value)
  checkElements(`${subject}, candidateCount`, candidateCount ?? [], isLength, `${COUNT}, or -1 if unknown`)
  checkElements(`${subject}, candidateIds`, candidateIds ?? [], isCount, COUNT)
  const count = candidateCount?.length ?? 0
  let total = 0
  for (let t = 0; t < count; t++) total += Math.max(0, candidateCount![t]!)
  if (count === token.length && total === (candidateIds?.length ?? 0)) return
  const got = `${count} candidate counts, ${total} together, for ${candidateIds?.length ?? 0} ids`
  throw new InputError(subject, got, `${token.length} counts, one per token, whose sum is the number of ids`)
}

/** Checks turns with constraints and changed logits. @throws InputError for an invalid one. */
export function checkForms(subject: string, forms: readonly TurnForm[]): void {
  for (const form of forms) {
    const { turn, constraint, changes } = form
    const isWhole = isCount(turn) && (constraint !== undefined || changes !== undefined)
    if (isWhole && isConstraint(constraint) && areChanges(changes)) continue
    const expected = 'a turn with a constraint (a schema, a grammar or a regex), changes of logits, or both'
    throw new InputError(`${subject}, forms`, show(form), expected)
  }
}

function isConstraint(constraint: Constraint | undefined): boolean {
  if (constraint === undefined) return true
  const [kind, ...others] = Object.entries(constraint ?? {})
  if (kind === undefined || others.length > 0) return false
  const [name, said] = kind as [string, unknown]
  return name === 'schema'
    ? typeof said === 'object' && said !== null
    : FORMS.includes(name) && typeof said === 'string'
}

function areChanges(changes: LogitChanges | undefined): boolean {
  if (changes === undefined) return true
  const { bias = {}, repetition = 1, minTokens = 0, ...others } = changes ?? { minTokens: -1 }
  const isKnown = Object.keys(others).every((name) => (LOGIT_CHANGES as readonly string[]).includes(name))
  const areFinite = Object.values(others).every((value) => Number.isFinite(value))
  const areBiases = Object.entries(bias).every(([id, value]) => isCount(Number(id)) && Number.isFinite(value))
  return isKnown && areFinite && areBiases && repetition > 0 && repetition < Infinity && isCount(minTokens)
}
const FORMS = ['grammar', 'regex']

/** How far above 0 a log-probability may be, in nats, because of rounding. */
export const LOGPROB_MAX = 1e-4

/** The largest number of an Int32Array. */
export const LARGEST = 2 ** 31 - 1
const COUNT = `a whole number from 0 to ${LARGEST}`
const isCount = (value: number) => Number.isInteger(value) && value >= 0 && value <= LARGEST

/**
 * For each token column: a function that finds the first invalid element, or returns −1; and the valid values in words. They are separate
 * loops, because a call per element would box every number.
 */
const ELEMENTS: Record<
  (typeof TOKEN_COLUMNS)[number],
  [find: (values: ArrayLike<number>, version: ArrayLike<number>) => number, expected: string]
> = {
  token: [findNoCount, COUNT],
  lossMask: [
    (values) => {
      for (let t = 0; t < values.length; t++) if (values[t] !== 0 && values[t] !== 1) return t
      return -1
    },
    '0 or 1',
  ],
  logprob: [
    (values, version) => {
      for (let t = 0; t < values.length; t++) {
        const value = values[t]!
        if (!(Number.isFinite(value) && value <= LOGPROB_MAX) && !(Number.isNaN(value) && version[t] === -1)) return t
      }
      return -1
    },
    'a finite number of at most 0, or NaN (not recorded) if the version is -1',
  ],
  version: [
    (values) => {
      for (let t = 0; t < values.length; t++) if (values[t] !== -1 && !isCount(values[t]!)) return t
      return -1
    },
    `${COUNT}, or -1 if no weights chose it`,
  ],
  turn: [findNoCount, COUNT],
}

function findNoCount(values: ArrayLike<number>): number {
  for (let t = 0; t < values.length; t++) if (!isCount(values[t]!)) return t
  return -1
}

/**
 * Checks columns of tokens. `subject` is their owner in errors, and `names` has other names of columns.
 * @throws InputError for different lengths and invalid elements.
 */
export function checkTokens(
  subject: string,
  columns: Pick<Trajectory, (typeof TOKEN_COLUMNS)[number]>,
  names: Readonly<Partial<Record<(typeof TOKEN_COLUMNS)[number], string>>> = {},
): void {
  const { token, version } = columns
  for (const name of TOKEN_COLUMNS) {
    const [values, column] = [columns[name], `${subject}, ${names[name] ?? name}`]
    if (values?.length !== token.length) {
      const got = values?.length === undefined ? show(values) : `${values.length} elements`
      throw new InputError(column, got, `${token.length}, one per token`)
    }
    const [find, expected] = ELEMENTS[name]
    const wrong = find(values, version)
    if (wrong === -1) continue
    throw new InputError(values.length > 1 ? `${column}[${wrong}]` : column, show(values[wrong]), expected)
  }
}

function checkElements(
  subject: string,
  values: ArrayLike<number>,
  isRight: (value: number, i: number) => boolean,
  expected: string,
): void {
  for (let i = 0; i < values.length; i++) {
    if (isRight(values[i]!, i)) continue
    throw new InputError(values.length > 1 ? `${subject}[${i}]` : subject, show(values[i]), expected)
  }
}
