/**
 * Checks that an environment satisfies its contract (`environment.ts`): which columns it writes and leaves alone, and that an episode
 * depends only on the seed, the lane, the episode's number and the actions. A failed check says what is wrong and where.
 */
import { checkCount, checkGiven, checkOptions, InputError, show, thrownText } from '../../base/errors.ts'
import { kernelBuildOf } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { type EnvironmentDefinition, refusedReturn } from '../environment.ts'
import { CheckedLanes, type LaneOptions } from './check-lanes.ts'
import {
  type Call,
  checkGames,
  checkLives,
  checkSeen,
  checkStepped,
  copyRows,
  expectSame,
  Fault,
  firstDifference,
  isSame,
  rowOf,
  watchCall,
  where,
  writtenOf,
} from './check-written.ts'
import { type EnvironmentCheck, environmentChecks } from './checks.ts'

/** The result of one check. */
export interface CheckResult {
  readonly name: EnvironmentCheck
  /** `unasked` if an earlier fault would mislead it, or it does not apply. */
  readonly status: 'held' | 'failed' | 'unasked'
  /** What was found, and where; null unless it failed. */
  readonly got: string | null
  /** What was expected; null unless it failed. */
  readonly expected: string | null
}

/** The results of all checks of an environment. */
export interface EnvironmentReport {
  readonly environment: string
  readonly numLanes: number
  readonly steps: number
  readonly seed: number
  /** Number of episodes that ended by themselves, in all lanes. */
  readonly episodes: number
  readonly checks: readonly CheckResult[]
  readonly holds: boolean
}

/** Lanes, steps and kernels of `checkEnvironment`. */
export interface CheckOptions {
  /** Number of lanes, a multiple of the players of a game. Default 1,024, or as many games. */
  readonly numLanes?: number
  /** Steps per lane. Default 64. */
  readonly steps?: number
  readonly seed?: number
  /** The environment's kernels. Default `best`: the fastest that run here. */
  readonly kernels?: KernelBuild | 'best'
}

/** Allowed bytes per lane and step. The compiler may box a number (16 bytes) after other environments ran; the smallest object has 24. */
const LANE_BYTES_MAX = 20
/** Number of measurements of a step's allocation; the first ones include the compiler's own work. */
const MEASUREMENTS = 100
/** Sleep after each measurement, so that the compiler's thread can work on a busy machine. */
const COMPILER_MS = 3
const MEASURED = { numLanes: 64, steps: 200 }

/**
 * Steps an environment with random actions and checks its whole contract. Faults are reported, not thrown. Await the environment's
 * `prepare` first, if it has one.
 * @throws InputError for invalid options.
 * @example
 * const { holds, checks } = checkEnvironment(cartPole())
 */
export function checkEnvironment(environment: EnvironmentDefinition, options: CheckOptions = {}): EnvironmentReport {
  checkGiven('environment of checkEnvironment', environment, ['state'])
  const { numPlayers = 1, id } = environment
  const { numLanes = 1024 * numPlayers, steps = 64, seed = 0 } = options
  const kernels = kernelBuildOf(options.kernels)
  checkOptions('checkEnvironment', options, ['numLanes', 'steps', 'seed', 'kernels'])
  if (!Number.isSafeInteger(numLanes) || numLanes < 1 || numLanes % numPlayers !== 0) {
    const expected = `a whole number ≥ 1, a multiple of the ${numPlayers} players of a game`
    throw new InputError('numLanes', show(numLanes), expected)
  }
  checkCount('steps', steps)
  const asked = new Inquiry(
    environment,
    { firstLane: 0, numLanes, present: numLanes, seed, isSplit: false, kernels },
    steps,
  )
  const checks = asked.results()
  const holds = checks.every(({ status }) => status !== 'failed')
  return { environment: id, numLanes, steps, seed, episodes: asked.episodes, checks, holds }
}

class Inquiry {
  readonly environment: EnvironmentDefinition
  readonly options: LaneOptions
  readonly steps: number
  episodes = 0

  constructor(environment: EnvironmentDefinition, options: LaneOptions, steps: number) {
    this.environment = environment
    this.options = options
    this.steps = steps
  }

  results(): CheckResult[] {
    const faults = new Map<EnvironmentCheck, Fault>()
    const unasked = new Set<EnvironmentCheck>()
    const ask = (checks: readonly EnvironmentCheck[], work: () => void) => {
      // An environment that throws or writes wrongly cannot be compared with itself.
      if (faults.size > 0 && !(faults.size === 1 && faults.has('reset'))) {
        for (const check of checks) unasked.add(check)
        return
      }
      try {
        work()
      } catch (error) {
        if (!(error instanceof Fault)) throw error
        faults.set(error.check, error)
      }
    }
    ask(['runs', 'values', 'rows', 'inputs', 'aliasing', 'games'], () => this.#askAlone())
    ask(['determinism', 'split', 'lanes'], () => this.#askAgain())
    ask(['state'], () => this.#askState())
    // A child in a population begins with its parent's state.
    if (this.environment.population === true) unasked.add('reset')
    else ask(['reset'], () => this.#askReset())
    if (this.environment.allocates === true) unasked.add('allocation')
    else ask(['allocation'], () => this.#askAllocation())
    return (Object.keys(environmentChecks) as EnvironmentCheck[]).map((name) => {
      const { got = null, expected = null } = faults.get(name) ?? {}
      return { name, status: got !== null ? 'failed' : unasked.has(name) ? 'unasked' : 'held', got, expected }
    })
  }

  /** Steps the lanes and checks what they write. */
  #askAlone(): void {
    const lanes = new CheckedLanes(this.environment, this.options)
    const { numPlayers = 1, population } = this.environment
    runsReset(lanes)
    checkSeen(lanes, 'reset', lanes.rows, lanes.count)
    for (let t = 0; t < this.steps; t++) {
      lanes.act()
      lanes.beforeStep()
      runs(lanes, { by: 'step', isAsked: null, aside: lanes.before }, () => lanes.step())
      checkSeen(lanes, 'step', null, lanes.numLanes)
      checkStepped(lanes)
      if (population === true) checkLives(lanes)
      if (numPlayers > 1) checkGames(lanes, numPlayers)
      const { terminated, truncated } = lanes.lanes
      for (let n = 0; n < lanes.numLanes; n++) this.episodes += terminated[n]! | truncated[n]!
      lanes.endEpisodes()
      if (lanes.count === 0) continue
      runsReset(lanes)
      checkSeen(lanes, 'reset', lanes.rows, lanes.count)
    }
    this.#askRange(lanes)
  }

  /** Steps a few lanes in the middle and checks that the others do not change. */
  #askRange(lanes: CheckedLanes): void {
    const { numPlayers = 1 } = this.environment
    const games = lanes.numLanes / numPlayers
    if (games < 3) return
    const [from, to] = [Math.floor(games / 3) * numPlayers, Math.floor((2 * games) / 3) * numPlayers]
    lanes.act()
    lanes.beforeStep()
    const isAsked = (n: number) => n >= from && n < to
    runs(lanes, { by: 'step', isAsked, aside: lanes.before }, () => this.environment.step(lanes.lanes, from, to))
  }

  /** Steps the lanes again, in parts and alone. Checks determinism first, since it could explain other differences. */
  #askAgain(): void {
    const again = { check: 'determinism', options: this.options } as const
    const split = { check: 'split', options: { ...this.options, isSplit: true } } as const
    try {
      this.#compare([again, split, ...this.#lanesAlone()])
    } catch (fault) {
      this.#compare([again])
      throw fault
    }
  }

  /** Steps the lanes alongside others and compares the results. */
  #compare(others: readonly { check: EnvironmentCheck; options: LaneOptions }[]): void {
    const lanes = new CheckedLanes(this.environment, this.options)
    const beside = others.map((each) => ({ ...each, lanes: new CheckedLanes(this.environment, each.options) }))
    const all = [lanes, ...beside.map((each) => each.lanes)]
    const expectAll = (by: 'reset' | 'step') => {
      for (const each of beside) expectSame(each.check, lanes, each.lanes, each.options.firstLane, by)
    }
    for (const each of all) begin(each)
    expectAll('reset')
    for (let t = 0; t < this.steps; t++) {
      for (const each of all) move(each)
      expectAll('step')
      for (const each of all) goOn(each)
      expectAll('reset')
    }
  }

  /** The first, a middle and the last game, each without the others. */
  #lanesAlone(): { check: 'lanes'; options: LaneOptions }[] {
    const { numPlayers = 1 } = this.environment
    const games = this.options.numLanes / numPlayers
    const chosen = new Set([0, Math.floor(games / 2), games - 1])
    return [...chosen].map((game) => {
      return { check: 'lanes', options: { ...this.options, firstLane: game * numPlayers, numLanes: numPlayers } }
    })
  }

  /** Steps, restores the columns and steps again. */
  #askState(): void {
    const lanes = new CheckedLanes(this.environment, this.options)
    begin(lanes)
    for (let t = 0; t < Math.min(this.steps, 8); t++) {
      move(lanes)
      goOn(lanes)
    }
    const columns = [...Object.values(lanes.lanes.state), lanes.lanes.observation, lanes.lanes.actionMask]
    const kept = columns.map((each) => each.slice())
    move(lanes)
    const first = copyRows(lanes, writtenOf(lanes))
    for (const [i, each] of columns.entries()) each.set(kept[i]!)
    lanes.beforeStep()
    caught(lanes, 'step', () => lanes.step())
    const then = writtenOf(lanes)
    for (const [name, column] of Object.entries(first)) {
      if (isSame(then[name]!, column)) continue
      const n = rowOf(then[name]!, firstDifference(then[name]!, column), lanes.numLanes)
      const got = `another ${name} of ${where(lanes, n)} from the same state and actions`
      const expected = 'a step that depends only on the columns: keep everything in state'
      throw new Fault('state', got, expected)
    }
  }

  /** Begins episodes over meaningless states. */
  #askReset(): void {
    const [clean, used] = [0, 1].map(() => new CheckedLanes(this.environment, this.options)) as [
      CheckedLanes,
      CheckedLanes,
    ]
    for (const each of Object.values(used.lanes.state))
      new Uint8Array(each.buffer, each.byteOffset, each.byteLength).fill(0xa5)
    begin(clean)
    begin(used)
    expectSame('reset', clean, used, 0, 'reset')
  }

  #askAllocation(): void {
    const { numPlayers = 1 } = this.environment
    const numLanes = MEASURED.numLanes * numPlayers
    const lanes = new CheckedLanes(this.environment, { ...this.options, numLanes })
    begin(lanes)
    lanes.act()
    const { step } = lanes.lanes
    const stepAll = () => this.environment.step(lanes.lanes, 0, numLanes)
    const nobody = new Int32Array(new SharedArrayBuffer(4))
    let least = Number.POSITIVE_INFINITY
    for (let i = 0; i < MEASUREMENTS && least > LANE_BYTES_MAX; i++) {
      const before = process.memoryUsage().heapUsed
      for (let t = 0; t < MEASURED.steps; t++) {
        caught(lanes, 'step', stepAll)
        for (let n = 0; n < numLanes; n++) step[n]!++
      }
      const bytes = (process.memoryUsage().heapUsed - before) / (numLanes * MEASURED.steps)
      if (bytes >= 0) least = Math.min(least, bytes) // Negative after a garbage collection.
      lanes.endEpisodes()
      begin(lanes)
      Atomics.wait(nobody, 0, 0, COMPILER_MS) // Sleeps: nothing wakes it.
    }
    if (least <= LANE_BYTES_MAX) return
    const got = `${least.toFixed(1)} bytes that a step allocates for each lane`
    const expected = `at most ${LANE_BYTES_MAX}: use numbers in columns, and no objects or views per lane`
    throw new Fault('allocation', got, expected)
  }
}

function begin(lanes: CheckedLanes): void {
  lanes.beforeReset()
  caught(lanes, 'reset', () => lanes.reset())
}

function move(lanes: CheckedLanes): void {
  lanes.act()
  lanes.beforeStep()
  caught(lanes, 'step', () => lanes.step())
}

function goOn(lanes: CheckedLanes): void {
  lanes.endEpisodes()
  if (lanes.count > 0) begin(lanes)
}

/** Calls a function of the environment. @throws Fault for an exception. */
function caught(lanes: CheckedLanes, by: 'reset' | 'step', work: () => unknown): unknown {
  try {
    return work()
  } catch (cause) {
    throw new Fault('runs', `${show(thrownText(cause))} thrown by ${by} in step ${lanes.t} of the check`, 'no error')
  }
}

/** Calls a function of the environment, and checks for exceptions, forbidden results and forbidden writes. */
function runs(lanes: CheckedLanes, call: Call, work: () => unknown): void {
  const { by } = call
  const refused = refusedReturn(
    by,
    watchCall(lanes, call, () => caught(lanes, by, work)),
  )
  if (refused !== null) throw new Fault('runs', refused.got, refused.expected)
}

/** Begins episodes and checks that reset changes nothing else. */
function runsReset(lanes: CheckedLanes): void {
  const isListed = new Uint8Array(lanes.numLanes)
  for (let i = 0; i < lanes.count; i++) isListed[lanes.rows[i]!] = 1
  lanes.beforeReset()
  runs(lanes, { by: 'reset', isAsked: (n) => isListed[n] === 1, aside: {} }, () => lanes.reset())
}
