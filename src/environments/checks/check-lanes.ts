/**
 * Lanes of an environment without a world, for `checkEnvironment`: columns, random legal actions, and the systems' handling of episodes.
 * Before each call, the outputs are filled with values that an environment may not write.
 */
import { InputError } from '../../base/errors.ts'
import { Random, Stream } from '../../base/random.ts'
import { choiceSizes, observationType, spaceType, spaceWidth } from '../../base/space.ts'
import { takeArena } from '../../components/arena.ts'
import { type Column, column } from '../../components/column.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import { createKernels } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { actionMaskWidth, type EnvironmentDefinition, type Lanes, statePlan } from '../environment.ts'
import { type CalledLanes, fillRow, UNWRITTEN_BYTE, UNWRITTEN_NUMBER, unwrittenIn } from './check-written.ts'

/** Steps after which every other game restarts, so that resets happen throughout even if episodes are long. */
const RESTART_STEPS = 13
/** Actions of an unbounded box are sampled from −1 to 1. */
const UNBOUNDED = 1

/** The lanes of a check, and how they are called. */
export interface LaneOptions {
  /** Number of the first lane in the run, the first of a game. */
  readonly firstLane: number
  readonly numLanes: number
  /** Number of lanes in the whole cohort, as reported to the environment. */
  readonly present: number
  readonly seed: number
  /** Whether lanes reset one by one, last to first, and step in three ranges, last to first. */
  readonly isSplit: boolean
  readonly kernels: KernelBuild
}

/** Lanes with random actions. Each action depends only on the seed and the lane's number, episode and step. */
export class CheckedLanes implements CalledLanes {
  readonly environment: EnvironmentDefinition
  readonly numLanes: number
  readonly first = 0
  readonly end: number
  /** The environment's inputs and outputs. */
  readonly lanes: Lanes<Record<string, Column>, ObservationColumn>
  readonly unwritten: number
  /** The observations and masks of the previous step, which the environment does not get again. */
  before: { readonly observation: ObservationColumn; readonly actionMask: Uint8Array }
  /** The lanes rows[0 … count) begin an episode next. */
  readonly rows: Uint32Array
  count: number
  /** Number of steps so far. */
  t = 0
  readonly #isSplit: boolean
  readonly #actions: Random

  constructor(environment: EnvironmentDefinition, options: LaneOptions) {
    const { firstLane, numLanes, present, seed, isSplit, kernels } = options
    const { observationSpace, actionSpace, population } = environment
    this.unwritten = unwrittenIn(environment)
    const seen = column(observationType(observationSpace), numLanes, spaceWidth(observationSpace))
    const mask = column('u8', numLanes, actionMaskWidth(environment))
    const lives = column('u8', population === true ? numLanes : 0)
    const { arena, columns } = takeArena({
      state: statePlan(environment, numLanes),
      observation: seen,
      observationBefore: seen,
      actionMask: mask,
      actionMaskBefore: mask,
      action: column(spaceType(actionSpace), numLanes, spaceWidth(actionSpace)),
      reward: column('f32', numLanes),
      terminated: column('u8', numLanes),
      truncated: column('u8', numLanes),
      died: lives,
      births: lives,
      lane: column('u32', numLanes),
      episode: column('u32', numLanes),
      step: column('i32', numLanes),
      rows: column('u32', numLanes),
    })
    const { observationBefore, actionMaskBefore, rows, state, ...handed } = columns
    this.environment = environment
    this.numLanes = numLanes
    this.end = numLanes
    this.lanes = {
      ...handed,
      state: state as unknown as Record<string, Column>,
      answersLater: () => {
        const expected = 'an immediate answer: this check steps the environment itself'
        throw new InputError(`environment ${environment.id}`, 'a promise', expected)
      },
      present,
      random: new Random(seed),
      kernels: createKernels(arena.memory, kernels),
    }
    this.before = { observation: observationBefore, actionMask: actionMaskBefore }
    this.rows = rows
    for (let n = 0; n < numLanes; n++) {
      rows[n] = n
      this.lanes.lane[n] = firstLane + n
    }
    this.count = numLanes
    this.#isSplit = isSplit
    this.#actions = new Random(seed)
  }

  /** Fills the outputs of the next reset with unwritten values. */
  beforeReset(): void {
    const { lanes, rows, count } = this
    const { observation, actionMask } = lanes
    for (let i = 0; i < count; i++) {
      fillRow(observation, rows[i]!, this.numLanes, this.unwritten)
      fillRow(actionMask, rows[i]!, this.numLanes, UNWRITTEN_BYTE)
    }
  }

  /** Begins an episode in each of the lanes `rows[0 … count)`, after `beforeReset`. @returns the result of `reset`. */
  reset(): unknown {
    const { lanes, rows, count, environment } = this
    if (!this.#isSplit) return environment.reset(lanes, rows, count)
    const { numPlayers = 1 } = environment
    const listed = rows.slice(0, count)
    for (let i = count - numPlayers; i >= 0; i -= numPlayers) {
      rows.set(listed.subarray(i, i + numPlayers))
      environment.reset(lanes, rows, numPlayers)
    }
    rows.set(listed)
    return undefined
  }

  /** Chooses a random legal action in each lane. */
  act(): void {
    const { lanes, numLanes, environment } = this
    const { action, actionMask, lane, episode, step } = lanes
    const { actionSpace } = environment
    const width = spaceWidth(actionSpace)
    const sizes = choiceSizes(actionSpace)
    const maskWidth = actionMask.length / numLanes
    for (let n = 0; n < numLanes; n++) {
      let first = n * maskWidth
      for (let k = 0; k < width; k++) {
        if (k % 4 === 0)
          this.#actions.draw(Stream.action, lane[n]!, episode[n]!, step[n]! * Math.ceil(width / 4) + k / 4)
        const drawn = this.#actions.uniform(k % 4)
        if (actionSpace.kind === 'box') {
          const low = Math.max(actionSpace.low[k]!, -UNBOUNDED - Math.abs(finite(actionSpace.high[k]!)))
          const high = Math.min(actionSpace.high[k]!, UNBOUNDED + Math.abs(finite(low)))
          action[n * width + k] = low + drawn * (high - low)
          continue
        }
        const size = sizes[k]!
        action[n * width + k] = maskWidth === 0 ? Math.floor(drawn * size) : legal(actionMask, first, size, drawn)
        first += size
      }
    }
  }

  /** Gives the next step other columns than the previous one, filled with unwritten values. */
  beforeStep(): void {
    const { before } = this
    const lanes = this.lanes as { -readonly [K in keyof typeof this.lanes]: (typeof this.lanes)[K] }
    const { observation, actionMask, reward, terminated, truncated, died, births } = lanes
    this.before = { observation, actionMask }
    lanes.observation = before.observation
    lanes.observation.fill(this.unwritten)
    lanes.actionMask = before.actionMask.fill(UNWRITTEN_BYTE)
    reward.fill(UNWRITTEN_NUMBER)
    for (const flags of [terminated, truncated, died, births]) flags.fill(0)
  }

  /** Steps every lane, after `beforeStep`. @returns the result of `step`. */
  step(): unknown {
    const { numLanes, environment } = this
    if (!this.#isSplit) return environment.step(this.lanes, 0, numLanes)
    const { numPlayers = 1 } = environment
    const games = numLanes / numPlayers
    const borders = [games, Math.floor(games * 0.7), Math.floor(games * 0.2), 0]
    for (let i = 0; i < 3; i++) environment.step(this.lanes, borders[i + 1]! * numPlayers, borders[i]! * numPlayers)
    return undefined
  }

  /** Whether the episode of lane n is over after its step. */
  isOver(n: number): boolean {
    const { terminated, truncated, step } = this.lanes
    return terminated[n] === 1 || truncated[n] === 1 || step[n]! + 1 === this.environment.maxEpisodeSteps
  }

  /** Counts the step, and lists the lanes to reset: those whose episode is over, and every other game at intervals. */
  endEpisodes(): void {
    const { lanes, numLanes, environment, rows } = this
    const { lane, episode, step } = lanes
    const { numPlayers = 1 } = environment
    this.count = 0
    for (let n = 0; n < numLanes; n++) {
      const isOver = this.isOver(n)
      step[n] = step[n]! + 1
      const game = Math.floor(lane[n]! / numPlayers)
      if (!isOver && !(game % 2 === 1 && (this.t + game) % RESTART_STEPS === 0)) continue
      episode[n] = episode[n]! + 1
      step[n] = 0
      rows[this.count] = n
      this.count++
    }
    this.t++
  }
}

function finite(bound: number): number {
  return Number.isFinite(bound) ? bound : 0
}

/** One of the choices that the mask allows, or the first if it allows none. */
function legal(mask: Uint8Array, first: number, size: number, drawn: number): number {
  let numLegal = 0
  for (let choice = 0; choice < size; choice++) numLegal += mask[first + choice]! === 1 ? 1 : 0
  let skipped = Math.floor(drawn * numLegal)
  for (let choice = 0; choice < size; choice++) {
    if (mask[first + choice]! !== 1) continue
    if (skipped === 0) return choice
    skipped--
  }
  return 0
}
