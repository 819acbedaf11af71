/** What `checkEnvironment` looks at after each call of an environment, and how it says what is wrong there. */
import type { Column } from '../components/column.ts'
import { choiceSizes } from '../space.ts'
import type { EnvironmentCheck } from './check.ts'
import { type CheckedLanes, UNWRITTEN_BYTE, UNWRITTEN_NUMBER } from './check-lanes.ts'
import { REWARD_MAX } from './environment.ts'

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

/** The columns that the environment only reads. */
function inputsOf({ lanes }: CheckedLanes): Record<string, Column> {
  const { action, lane, episode, step } = lanes
  return { action, lane, episode, step }
}

export function copyInputs(lanes: CheckedLanes): Record<string, Column> {
  return Object.fromEntries(Object.entries(inputsOf(lanes)).map(([name, each]) => [name, each.slice()]))
}

export function copyWritten(lanes: CheckedLanes): Record<string, Column> {
  return Object.fromEntries(Object.entries(lanes.written).map(([name, each]) => [name, each.slice()]))
}

export function checkInputs(lanes: CheckedLanes, by: 'reset' | 'step', before: Record<string, Column>): void {
  for (const [name, column] of Object.entries(inputsOf(lanes))) {
    if (isSame(column, before[name]!)) continue
    const at = firstDifference(column, before[name]!)
    const got = `${column[at]} in ${name} of lane ${lanes.lanes.lane[rowOf(column, at, lanes.numLanes)]} after ${by}`
    throw new Fault('inputs', got, `${before[name]![at]}, as it was handed over`)
  }
}

/** Expects rows other than those asked for as they were. */
export function expectUntouched(
  lanes: CheckedLanes,
  before: Record<string, Column>,
  by: 'reset' | 'step',
  isAsked: (n: number) => boolean,
): void {
  for (const [name, column] of Object.entries(lanes.written)) {
    const old = before[name]!
    if (isSame(column, old)) continue
    for (let at = 0; at < column.length; at++) {
      if (Object.is(column[at], old[at])) continue
      const n = rowOf(column, at, lanes.numLanes)
      if (isAsked(n)) continue
      const got = `${column[at]} written to ${name} of ${where(lanes, n)} by ${by}`
      throw new Fault('rows', got, `${old[at]}, as it was: ${by} was not asked for this lane`)
    }
  }
}

/** Looks at what the lanes see and may do: those of a list, or the first `count`. */
export function checkSeen(lanes: CheckedLanes, by: 'reset' | 'step', rows: Uint32Array | null, count: number): void {
  const { environment, numLanes } = lanes
  const { observation, actionMask } = lanes.lanes
  const space = environment.observationSpace
  if (space.kind !== 'box') return
  const { low, high } = space
  const width = observation.length / numLanes
  const sizes = choiceSizes(environment.actionSpace)
  for (let i = 0; i < count; i++) {
    const n = rows === null ? i : rows[i]!
    for (let k = 0; k < width; k++) {
      const value = observation[n * width + k]!
      const isWithin = value >= Math.fround(low[k]!) && value <= Math.fround(high[k]!) && Number.isFinite(value)
      if (isWithin && value !== UNWRITTEN_NUMBER) continue
      const place = `observation[${k}] of ${where(lanes, n)}`
      if (value === UNWRITTEN_NUMBER) throw new Fault('rows', `nothing in ${place} from ${by}`, 'a number')
      const expected = `${low[k]} to ${high[k]}, as its observation space has it, and finite`
      throw new Fault('values', `${value} in ${place} from ${by}`, expected)
    }
    if (actionMask.length === 0) continue
    let first = (n * actionMask.length) / numLanes
    for (const [k, size] of sizes.entries()) {
      const choices = actionMask.subarray(first, first + size)
      const bad = choices.findIndex((byte) => byte > 1)
      const place = `actionMask[${bad}] of ${where(lanes, n)}`
      if (choices[bad] === UNWRITTEN_BYTE) throw new Fault('rows', `nothing in ${place} from ${by}`, '0 or 1')
      if (bad >= 0) throw new Fault('values', `${choices[bad]} in ${place} from ${by}`, '0 or 1')
      if (!choices.includes(1) && !(by === 'step' && lanes.isOver(n))) {
        throw new Fault('values', `no legal choice of action ${k} for ${where(lanes, n)} from ${by}`, 'one at least')
      }
      first += size
    }
  }
}

/** Looks at rewards and flags. */
export function checkStepped(lanes: CheckedLanes): void {
  const { reward, terminated, truncated } = lanes.lanes
  for (let n = 0; n < lanes.numLanes; n++) {
    const value = reward[n]!
    const place = `reward of ${where(lanes, n)}`
    if (value === UNWRITTEN_NUMBER) throw new Fault('rows', `nothing in ${place} from step`, 'a number')
    if (!(Math.abs(value) <= REWARD_MAX)) {
      throw new Fault('values', `${value} in ${place} from step`, `a number of at most ${REWARD_MAX} either way`)
    }
    for (const [name, flags] of Object.entries({ terminated, truncated })) {
      if (flags[n]! > 1) throw new Fault('values', `${flags[n]} in ${name} of ${where(lanes, n)} from step`, '0 or 1')
    }
  }
}

/** Looks at who dies: with the end of an episode alone. */
export function checkLives(lanes: CheckedLanes): void {
  const { died, terminated, truncated } = lanes.lanes
  for (let n = 0; n < lanes.numLanes; n++) {
    if (died[n]! > 1) throw new Fault('values', `${died[n]} in died of ${where(lanes, n)} from step`, '0 or 1')
    if (died[n] === 0 || terminated[n] === 1 || truncated[n] === 1) continue
    throw new Fault('values', `1 in died of ${where(lanes, n)} from step`, '1 in terminated or truncated too')
  }
}

export function checkGames(lanes: CheckedLanes, numAgents: number): void {
  const { terminated, truncated } = lanes.lanes
  for (let n = 0; n < lanes.numLanes; n++) {
    const first = n - (n % numAgents)
    if ((terminated[n]! | truncated[n]!) === (terminated[first]! | truncated[first]!)) continue
    throw new Fault(
      'games',
      `an end for one of ${where(lanes, first)} and ${where(lanes, n)} alone`,
      'one for all of a game',
    )
  }
}

/** Expects of other lanes, from `firstLane` on, what these did. */
export function expectSame(
  check: EnvironmentCheck,
  lanes: CheckedLanes,
  others: CheckedLanes,
  firstLane: number,
  by: 'reset' | 'step',
): void {
  const theirs = others.written
  for (const [name, column] of Object.entries(lanes.written)) {
    const width = column.length / lanes.numLanes
    const ours = column.subarray(firstLane * width, (firstLane + others.numLanes) * width)
    if (isSame(ours, theirs[name]!)) continue
    const at = firstDifference(ours, theirs[name]!)
    const n = firstLane + rowOf(theirs[name]!, at, others.numLanes)
    const beside = {
      determinism: 'when it was run again with the same seed',
      split: 'when lanes were asked for in parts',
      lanes: 'when the lane was alone',
      reset: 'over a state that was used before',
    }[check as 'determinism']
    const got = `${theirs[name]![at]} in ${name}[${at % width}] of ${where(lanes, n)} from ${by} ${beside}`
    throw new Fault(check, got, `${ours[at]}, as it was before`)
  }
}

/** A lane and where it is, in words. */
export function where({ lanes }: CheckedLanes, n: number): string {
  return `lane ${lanes.lane[n]} (episode ${lanes.episode[n]}, step ${lanes.step[n]})`
}

export function rowOf(column: Column, at: number, numLanes: number): number {
  return Math.floor((at * numLanes) / column.length)
}

/** Whether two columns have the same bytes. */
export function isSame(a: Column, b: Column): boolean {
  const [ours, theirs] = [a, b].map((each) => Buffer.from(each.buffer, each.byteOffset, each.byteLength))
  return ours!.equals(theirs!)
}

/** The first element in which two columns of one length differ; 0 if none does but in the bits of a NaN. */
export function firstDifference(a: Column, b: Column): number {
  for (let at = 0; at < a.length; at++) if (!Object.is(a[at], b[at])) return at
  return 0
}
