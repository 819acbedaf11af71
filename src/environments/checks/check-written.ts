/**
 * The checks after each call of an environment, for `checkEnvironment` and the first rollouts of a training (`systems/episodes/watch.ts`).
 */
import { haveSameBytes } from '../../base/host.ts'
import { type BoxSpace, choiceSizes, observationType } from '../../base/space.ts'
import type { Column } from '../../components/column.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import { refusedReward } from '../../kernels/bind.ts'
import { type EnvironmentDefinition, type Lanes, REWARD_MAX } from '../environment.ts'
import type { EnvironmentCheck } from './checks.ts'

/** Markers of unwritten bytes and numbers: not a flag, and not a plausible result of an environment. */
export const UNWRITTEN_BYTE = 0x5a
export const UNWRITTEN_NUMBER = Math.fround(-1.2345678e37)

/**
 * What fills observations before they are written. For bytes it is one above all bounds; if a bound is 255, it is NaN, which no byte equals, so
 * that unwritten bytes are not found.
 */
export function unwrittenIn({ observationSpace }: EnvironmentDefinition): number {
  if (observationType(observationSpace) === 'f32') return UNWRITTEN_NUMBER
  const most = (observationSpace as BoxSpace).high.reduce((a, b) => Math.max(a, b))
  return most < 255 ? most + 1 : Number.NaN
}

export interface CalledLanes {
  readonly environment: EnvironmentDefinition
  readonly numLanes: number
  readonly lanes: Lanes<unknown, ObservationColumn>
  /** What fills observations before a call: `unwrittenIn` of the environment. */
  readonly unwritten: number
  /** No other thread writes rows `first` ≤ n < `end` during a call, so the environment made any change in them. */
  readonly first: number
  readonly end: number
  /** Whether the episode of lane n is over after its step. */
  isOver(n: number): boolean
}

/** A fault: what was found and where, and what was expected. */
export class Fault extends Error {
  readonly check: EnvironmentCheck
  readonly got: string
  readonly expected: string

  constructor(check: EnvironmentCheck, got: string, expected: string) {
    super(`${check}: ${got}`)
    this.check = check
    this.got = got
    this.expected = expected
  }
}

function inputsOf({ lanes }: CalledLanes): Record<string, Column> {
  const { action, lane, episode, step } = lanes
  return { action, lane, episode, step }
}

/** The environment's outputs by name: its state, observations and the results of a step. */
export function writtenOf({ lanes }: CalledLanes): Record<string, Column> {
  const { state, observation, actionMask, reward, terminated, truncated, died, births } = lanes
  const own = Object.entries(state as Record<string, Column>).map(([name, each]) => [`state.${name}`, each])
  return { ...Object.fromEntries(own), observation, actionMask, reward, terminated, truncated, died, births }
}

/** The rows of each column that no other thread writes. */
function ownRows({ first, end, numLanes }: CalledLanes, columns: Record<string, Column>): Record<string, Column> {
  const part = (column: Column): Column => {
    const width = column.length / numLanes
    return column.subarray(first * width, end * width)
  }
  return Object.fromEntries(Object.entries(columns).map(([name, each]) => [name, part(each)]))
}

export function copyRows(lanes: CalledLanes, columns: Record<string, Column>): Record<string, Column> {
  return Object.fromEntries(Object.entries(ownRows(lanes, columns)).map(([name, each]) => [name, each.slice()]))
}

export interface Call {
  readonly by: 'reset' | 'step'
  /** Whether the call may write row n; null if it may write all rows of this thread. */
  readonly isAsked: ((n: number) => boolean) | null
  /** Columns of the previous step, which this call does not get. */
  readonly aside: Record<string, Column>
}

/**
 * Calls an environment and checks that its inputs, the columns of the previous step, and the rows outside the call did not change.
 * @returns the result of `run`.
 * @throws Fault with the lane and the column.
 */
export function watchCall(lanes: CalledLanes, { by, isAsked, aside }: Call, run: () => unknown): unknown {
  const inputs = copyRows(lanes, inputsOf(lanes))
  const before = isAsked === null ? null : copyRows(lanes, writtenOf(lanes))
  const kept = copyRows(lanes, aside)
  const returned = run()
  expectInputs(lanes, by, inputs)
  expectAside(lanes, by, aside, kept)
  if (isAsked !== null) expectUntouched(lanes, by, before!, isAsked)
  return returned
}

function expectInputs(lanes: CalledLanes, by: 'reset' | 'step', before: Record<string, Column>): void {
  for (const [name, column] of Object.entries(ownRows(lanes, inputsOf(lanes)))) {
    if (isSame(column, before[name]!)) continue
    const at = firstDifference(column, before[name]!)
    const row = rowOf(column, at, lanes.end - lanes.first)
    const got = `${column[at]} in ${name} of lane ${before.lane![row]} after ${by}`
    throw new Fault('inputs', got, `${before[name]![at]}, its value before the call`)
  }
}

/** Checks that columns of an earlier call did not change. */
export function expectAside(
  lanes: CalledLanes,
  by: 'reset' | 'step',
  columns: Record<string, Column>,
  before: Record<string, Column>,
): void {
  for (const [name, column] of Object.entries(ownRows(lanes, columns))) {
    if (isSame(column, before[name]!)) continue
    const n = lanes.first + rowOf(column, firstDifference(column, before[name]!), lanes.end - lanes.first)
    const got = `another ${name} of ${where(lanes, n)} from the step before, after ${by}`
    throw new Fault('aliasing', got, 'writes only to the columns of the current call')
  }
}

function expectUntouched(
  lanes: CalledLanes,
  by: 'reset' | 'step',
  before: Record<string, Column>,
  isAsked: (n: number) => boolean,
): void {
  for (const [name, column] of Object.entries(ownRows(lanes, writtenOf(lanes)))) {
    const old = before[name]!
    if (isSame(column, old)) continue
    for (let at = 0; at < column.length; at++) {
      if (Object.is(column[at], old[at])) continue
      const n = lanes.first + rowOf(column, at, lanes.end - lanes.first)
      if (isAsked(n)) continue
      const got = `${column[at]} written to ${name} of ${where(lanes, n)} by ${by}`
      throw new Fault('rows', got, `${old[at]}, unchanged: ${by} was not called for this lane`)
    }
  }
}

/** Fills the row of a column with the unwritten marker. */
export function fillRow(column: Column, n: number, numLanes: number, value: number): void {
  const width = column.length / numLanes
  column.fill(value, n * width, (n + 1) * width)
}

/** Whether rows `from` ≤ n < `to` are completely written: observation, mask, and after a step the reward. */
export function isWritten(
  { lanes, numLanes, unwritten }: CalledLanes,
  by: 'reset' | 'step',
  [from, to]: readonly [number, number],
): boolean {
  const has = (column: Column, value: number) => {
    const width = column.length / numLanes
    return column.subarray(from * width, to * width).includes(value)
  }
  const { observation, actionMask, reward } = lanes
  if (has(observation, unwritten) || has(actionMask, UNWRITTEN_BYTE)) return false
  return by === 'reset' || !has(reward, UNWRITTEN_NUMBER)
}

/** Checks that row n is completely written. */
export function expectWritten(called: CalledLanes, by: 'reset' | 'step', n: number): void {
  if (isWritten(called, by, [n, n + 1])) return
  const { lanes, numLanes, unwritten } = called
  const missing = (name: 'observation' | 'actionMask' | 'reward', value: number, expected: string) => {
    const width = lanes[name].length / numLanes
    const k = lanes[name].subarray(n * width, (n + 1) * width).indexOf(value)
    if (k < 0) return
    const place = name === 'reward' ? name : `${name}[${k}]`
    throw new Fault('rows', `nothing in ${place} of ${where(called, n)} from ${by}`, expected)
  }
  const width = lanes.observation.length / numLanes
  missing(
    'observation',
    unwritten,
    `${width === 1 ? 'one number' : `${width} numbers`} a lane, written anew by each ${by}, since the column holds others before`,
  )
  missing('actionMask', UNWRITTEN_BYTE, '0 or 1')
  missing('reward', UNWRITTEN_NUMBER, 'a number')
}

/** Checks observations and masks of the listed lanes, or of the first `count`. */
export function checkSeen(lanes: CalledLanes, by: 'reset' | 'step', rows: Uint32Array | null, count: number): void {
  const { environment, numLanes } = lanes
  const { observation, actionMask } = lanes.lanes
  const space = environment.observationSpace
  if (space.kind !== 'box') return
  const { low, high } = space
  const width = observation.length / numLanes
  const sizes = choiceSizes(environment.actionSpace)
  for (let i = 0; i < count; i++) {
    const n = rows === null ? i : rows[i]!
    expectWritten(lanes, by, n)
    for (let k = 0; k < width; k++) {
      const value = observation[n * width + k]!
      if (value >= Math.fround(low[k]!) && value <= Math.fround(high[k]!) && Number.isFinite(value)) continue
      const place = `observation[${k}] of ${where(lanes, n)}`
      const expected = `${low[k]} to ${high[k]}, the bounds of its observation space, and finite`
      throw new Fault('values', `${value} in ${place} from ${by}`, expected)
    }
    if (actionMask.length === 0) continue
    let first = (n * actionMask.length) / numLanes
    for (const [k, size] of sizes.entries()) {
      const choices = actionMask.subarray(first, first + size)
      const bad = choices.findIndex((byte) => byte > 1)
      const place = `actionMask[${bad}] of ${where(lanes, n)}`
      if (bad >= 0) throw new Fault('values', `${choices[bad]} in ${place} from ${by}`, '0 or 1')
      if (!choices.includes(1) && !(by === 'step' && lanes.isOver(n))) {
        throw new Fault('values', `no legal choice of action ${k} for ${where(lanes, n)} from ${by}`, 'at least one')
      }
      first += size
    }
  }
}

/** Checks rewards and flags. */
export function checkStepped(lanes: CalledLanes): void {
  const { observation, reward, terminated, truncated } = lanes.lanes
  const { goal } = lanes.environment
  const width = observation.length / lanes.numLanes
  for (let n = 0; n < lanes.numLanes; n++) {
    const value = reward[n]!
    const place = `reward of ${where(lanes, n)}`
    if (!(Math.abs(value) <= REWARD_MAX)) {
      throw new Fault('values', `${value} in ${place} from step`, `a number from −${REWARD_MAX} to ${REWARD_MAX}`)
    }
    for (const [name, flags] of Object.entries({ terminated, truncated })) {
      if (flags[n]! > 1) throw new Fault('values', `${flags[n]} in ${name} of ${where(lanes, n)} from step`, '0 or 1')
    }
    const refused = goal && refusedReward(observation, n * width, goal, value, terminated[n] === 1)
    if (refused) throw new Fault('values', `${refused.got} in ${place} from step`, refused.expected)
  }
}

/** Checks that lanes die only at the end of an episode. */
export function checkLives(lanes: CalledLanes): void {
  const { died, terminated, truncated } = lanes.lanes
  for (let n = 0; n < lanes.numLanes; n++) {
    if (died[n]! > 1) throw new Fault('values', `${died[n]} in died of ${where(lanes, n)} from step`, '0 or 1')
    if (died[n] === 0 || terminated[n] === 1 || truncated[n] === 1) continue
    throw new Fault('values', `1 in died of ${where(lanes, n)} from step`, '1 in terminated or truncated too')
  }
}

export function checkGames(lanes: CalledLanes, numPlayers: number): void {
  const { terminated, truncated } = lanes.lanes
  for (let n = 0; n < lanes.numLanes; n++) {
    const first = n - (n % numPlayers)
    if ((terminated[n]! | truncated[n]!) === (terminated[first]! | truncated[first]!)) continue
    const expected = 'an end for the whole game'
    throw new Fault('games', `an end for one of ${where(lanes, first)} and ${where(lanes, n)} alone`, expected)
  }
}

/** Checks that other lanes, from `firstLane` on, have the same results as these. */
export function expectSame(
  check: EnvironmentCheck,
  lanes: CalledLanes,
  others: CalledLanes,
  firstLane: number,
  by: 'reset' | 'step',
): void {
  const theirs = writtenOf(others)
  for (const [name, column] of Object.entries(writtenOf(lanes))) {
    const width = column.length / lanes.numLanes
    const ours = column.subarray(firstLane * width, (firstLane + others.numLanes) * width)
    if (isSame(ours, theirs[name]!)) continue
    const at = firstDifference(ours, theirs[name]!)
    const n = firstLane + rowOf(theirs[name]!, at, others.numLanes)
    const beside = {
      determinism: 'in a second run with the same seed',
      split: 'when lanes were called in parts',
      lanes: 'when the lane ran alone',
      reset: 'over a used state',
    }[check as 'determinism']
    const got = `${theirs[name]![at]} in ${name}[${at % width}] of ${where(lanes, n)} from ${by} ${beside}`
    throw new Fault(check, got, `${ours[at]}, as in the first run`)
  }
}

/** Describes a lane's position in words. */
export function where({ lanes }: Pick<CalledLanes, 'lanes'>, n: number): string {
  if (lanes.episode[n] === 0xffffffff) return `lane ${lanes.lane[n]} (before its first episode)`
  return `lane ${lanes.lane[n]} (episode ${lanes.episode[n]}, step ${lanes.step[n]})`
}

export function rowOf(column: Column, at: number, numLanes: number): number {
  return Math.floor((at * numLanes) / column.length)
}

/** Number of elements from which comparing bytes is faster than comparing elements. */
const LONG = 128

/** Whether two columns of the same length have the same numbers. */
export function isSame(a: Column, b: Column): boolean {
  if (a.length < LONG) {
    for (let at = 0; at < a.length; at++) if (!Object.is(a[at], b[at])) return false
    return true
  }
  return haveSameBytes(a, b)
}

/** The first element in which two columns of the same length differ; 0 if only bits of NaNs differ. */
export function firstDifference(a: Column, b: Column): number {
  for (let at = 0; at < a.length; at++) if (!Object.is(a[at], b[at])) return at
  return 0
}
