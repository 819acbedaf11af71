/** One trajectory: a finished conversation, or a segment of one, and what is wrong with what claims to be one. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { type StopReason, stopReasons } from '../../environments/text.ts'

/** One trajectory, as it is appended and read back. */
export interface Trajectory {
  /**
   * What it is from, like a run: a group is (source, epoch, promptId, group), so that tables of two runs put together share none.
   * Trajectories without one are all from one source, which has no name ('').
   */
  readonly source?: string
  /** The example that it began with, its group, its place in the group, and how often the examples had been round. */
  readonly promptId: number
  readonly group: number
  readonly member: number
  readonly epoch: number
  /** Its place among the rows of its conversation; default 0. A row of another segment follows the one before it. */
  readonly segment?: number
  /** Turns of the model in this row. */
  readonly turns: number
  /** How many of them their budget or the context cut off; default 0. */
  readonly cutTurns?: number
  /** Replies of the environment at its end that were dropped, since the turn was cut or the context was full: 0 (default) or 1. */
  readonly droppedReplies?: number
  /** Why the last turn ended. */
  readonly stopReason: StopReason
  /** Null where it could not be told, and why. */
  readonly reward: number | null
  readonly error: string | null
  /** The reward of each turn, from which the reward is made; NaN if unknown. Missing: not recorded. */
  readonly turnReward?: ArrayLike<number>
  /** What the reward is made of, by name; null where that could not be told. */
  readonly components: Readonly<Record<string, number | null>>
  /** Token ids as sent and as sampled. The other token columns are as long. */
  readonly token: ArrayLike<number>
  /** 1 where the model chose the token. */
  readonly lossMask: ArrayLike<number>
  /**
   * Log-probability under the distribution that the token was drawn from, in nats. NaN where none is recorded, which may only
   * be where `version` is −1: nobody drew the token, or nobody kept what it was. Never 0, which says that it was certain.
   */
  readonly logprob: ArrayLike<number>
  /** Version of the weights that chose the token; −1 if none did, or if it is unknown. */
  readonly version: ArrayLike<number>
  /** The turn that it belongs to, from 0. */
  readonly turn: ArrayLike<number>
  /**
   * From how many tokens each was drawn, where a filter had left some out; 0 where it had not, and −1 where nobody knows. Their
   * ids in rising order, those of all tokens one after another, are `candidateIds`. Both may be missing: then nothing was left out.
   */
  readonly candidateCount?: ArrayLike<number>
  readonly candidateIds?: ArrayLike<number>
}

/** The columns of a trajectory with a row a token, and the numbers that say which it is. */
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

/** True for a token that the model said, whether there is something to learn of it or not. */
export function isOfModel(lossMask: ArrayLike<number>, version: ArrayLike<number>, t: number): boolean {
  return lossMask[t] === 1 || version[t] !== -1
}

/** The ids of all that was said after a trajectory's prompt: from the first token of the model on. */
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
  checkIdentity(subject, trajectory)
  checkTurnReward(subject, turnReward)
  if (!stopReasons.includes(stopReason)) throw unknownWord(`${subject}, stopReason`, String(stopReason), stopReasons)
  for (const [name, value] of Object.entries({ reward, ...components })) {
    if (value === null || Number.isFinite(value)) continue
    const expected = 'a finite number, or null where it could not be told'
    throw new InputError(`${subject}, ${name}`, show(value), expected)
  }
  return token.length
}

/**
 * Checks which trajectory it is. `subject` and `names` as in `checkTokens`.
 * @throws InputError for a source that is no text, and a number that is missing or no number: no group is made up for it.
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

/** Checks what turns were worth. @throws InputError for one that is neither a finite number nor NaN. */
export function checkTurnReward(subject: string, turnReward: ArrayLike<number>): void {
  const isRight = (value: number) => Number.isFinite(value) || Number.isNaN(value)
  checkElements(`${subject}, turnReward`, turnReward, isRight, 'a finite number, or NaN where it could not be told')
}

/** Checks from which tokens each was drawn. @throws InputError where that does not fit the tokens. */
export function checkCandidates(
  subject: string,
  { token, candidateCount, candidateIds }: Pick<Trajectory, 'token' | 'candidateCount' | 'candidateIds'>,
): void {
  if (candidateCount === undefined && candidateIds === undefined) return
  const isLength = (value: number) => value === -1 || isCount(value)
  checkElements(`${subject}, candidateCount`, candidateCount ?? [], isLength, `${COUNT}, or -1 where nobody knows`)
  checkElements(`${subject}, candidateIds`, candidateIds ?? [], isCount, COUNT)
  const count = candidateCount?.length ?? 0
  let total = 0
  for (let t = 0; t < count; t++) total += Math.max(0, candidateCount![t]!)
  if (count === token.length && total === (candidateIds?.length ?? 0)) return
  const got = `${count} candidate counts, ${total} together, for ${candidateIds?.length ?? 0} ids`
  throw new InputError(subject, got, `${token.length} lengths, one a token, and as many ids as they come to`)
}

/** How far above 0 a log-probability may be, in nats, because of rounding. */
export const LOGPROB_MAX = 1e-4

/** The largest number of an Int32Array. */
export const LARGEST = 2 ** 31 - 1
const COUNT = `a whole number from 0 to ${LARGEST}`
const isCount = (value: number) => Number.isInteger(value) && value >= 0 && value <= LARGEST

/**
 * Of each token column where the first element is that it cannot hold, −1 where none is; and what it holds, in words. Loops of
 * their own, not calls for each element: those would box every number.
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
    'a finite number of at most 0; NaN, which says that none is recorded, only where the version is -1',
  ],
  version: [
    (values) => {
      for (let t = 0; t < values.length; t++) if (values[t] !== -1 && !isCount(values[t]!)) return t
      return -1
    },
    `${COUNT}, or -1 where no weights chose`,
  ],
  turn: [findNoCount, COUNT],
}

function findNoCount(values: ArrayLike<number>): number {
  for (let t = 0; t < values.length; t++) if (!isCount(values[t]!)) return t
  return -1
}

/**
 * Checks columns of tokens. `subject` names what they are of in errors, and `names` each column, where it is called otherwise.
 * @throws InputError where they differ in length, or an element is not what such a column holds.
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
      throw new InputError(column, got, `${token.length}, as many as tokens`)
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
