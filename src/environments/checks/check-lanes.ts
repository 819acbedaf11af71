/**
 * Lanes of an environment without a world, for `checkEnvironment`: its columns, actions at random within its space, and what the
 * systems do about episodes. What the environment has to write holds, before it is asked, what it may not write.
 */
import { InputError } from '../../base/errors.ts'
import { Random, Stream } from '../../base/random.ts'
import { choiceSizes, spaceType, spaceWidth } from '../../base/space.ts'
import { takeArena } from '../../components/arena.ts'
import { type Column, column } from '../../components/column.ts'
import { createKernels } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { actionMaskWidth, type EnvironmentDefinition, type Lanes, statePlan } from '../environment.ts'
import { type CalledLanes, fillRow, UNWRITTEN_BYTE, UNWRITTEN_NUMBER } from './check-written.ts'

/** Every other game begins anew after so many steps, so that some do in every step, however long episodes are. */
const RESTART_STEPS = 13
/** Actions of a box without bounds are drawn from −1 to 1. */
const UNBOUNDED = 1

/** Which lanes, and how they are asked. */
export interface LaneOptions {
  /** The number in the run of the first lane: the first of a game. */
  readonly firstLane: number
  readonly numLanes: number
  /** How many lanes there are as the environment is told: in the whole cohort. */
  readonly present: number
  readonly seed: number
  /** Whether lanes begin one by one from the last to the first, and step in three ranges from the last to the first. */
  readonly isSplit: boolean
  readonly kernels: KernelBuild
}

/** Lanes that step with actions at random: each is a function of the seed and the lane's number, episode and step alone. */
export class CheckedLanes implements CalledLanes {
  readonly environment: EnvironmentDefinition
  readonly numLanes: number
  readonly first = 0
  readonly end: number
  /** What the environment is handed. */
  readonly lanes: Lanes<Record<string, Column>>
  /** The observations and masks that the environment was handed a step before, and is not handed now. */
  before: { readonly observation: Float32Array; readonly actionMask: Uint8Array }
  /** The lanes rows[0 … count) begin an episode next. */
  readonly rows: Uint32Array
  count: number
  /** Steps taken since the lanes were made. */
  t = 0
  readonly #isSplit: boolean
  readonly #actions: Random

  constructor(environment: EnvironmentDefinition, options: LaneOptions) {
    const { firstLane, numLanes, present, seed, isSplit, kernels } = options
    const { observationSpace, actionSpace, population } = environment
    const seen = column('f32', numLanes, spaceWidth(observationSpace))
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
        throw new InputError(
          `environment ${environment.id}`,
          'an answer that comes later',
          'one at once: this check steps it by hand',
        )
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

  /** Makes what the next reset has to write unwritten. */
  beforeReset(): void {
    const { lanes, rows, count } = this
    const { observation, actionMask } = lanes
    for (let i = 0; i < count; i++) {
      fillRow(observation, rows[i]!, this.numLanes, UNWRITTEN_NUMBER)
      fillRow(actionMask, rows[i]!, this.numLanes, UNWRITTEN_BYTE)
    }
  }

  /** Begins an episode in each of the lanes `rows[0 … count)`, after `beforeReset`. @returns what `reset` returned. */
  reset(): unknown {
    const { lanes, rows, count, environment } = this
    if (!this.#isSplit) return environment.reset(lanes, rows, count)
    const { numAgents = 1 } = environment
    const listed = rows.slice(0, count)
    for (let i = count - numAgents; i >= 0; i -= numAgents) {
      rows.set(listed.subarray(i, i + numAgents))
      environment.reset(lanes, rows, numAgents)
    }
    rows.set(listed)
    return undefined
  }

  /** Chooses what each lane does: at random, of what is legal. */
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

  /** Hands the next step other columns than the step before had, in which nothing is written. */
  beforeStep(): void {
    const { before } = this
    const lanes = this.lanes as { -readonly [K in keyof Lanes]: Lanes[K] }
    const { observation, actionMask, reward, terminated, truncated, died, births } = lanes
    this.before = { observation, actionMask }
    lanes.observation = before.observation.fill(UNWRITTEN_NUMBER)
    lanes.actionMask = before.actionMask.fill(UNWRITTEN_BYTE)
    reward.fill(UNWRITTEN_NUMBER)
    for (const flags of [terminated, truncated, died, births]) flags.fill(0)
  }

  /** Every lane takes a step, after `beforeStep`. @returns what `step` returned. */
  step(): unknown {
    const { numLanes, environment } = this
    if (!this.#isSplit) return environment.step(this.lanes, 0, numLanes)
    const { numAgents = 1 } = environment
    const games = numLanes / numAgents
    const borders = [games, Math.floor(games * 0.7), Math.floor(games * 0.2), 0]
    for (let i = 0; i < 3; i++) environment.step(this.lanes, borders[i + 1]! * numAgents, borders[i]! * numAgents)
    return undefined
  }

  /** Whether the episode of lane n is over after its step. */
  isOver(n: number): boolean {
    const { terminated, truncated, step } = this.lanes
    return terminated[n] === 1 || truncated[n] === 1 || step[n]! + 1 === this.environment.maxEpisodeSteps
  }

  /** Counts the step, and lists the lanes that begin anew: whose episode is over, and every other game now and then. */
  endEpisodes(): void {
    const { lanes, numLanes, environment, rows } = this
    const { lane, episode, step } = lanes
    const { numAgents = 1 } = environment
    this.count = 0
    for (let n = 0; n < numLanes; n++) {
      const isOver = this.isOver(n)
      step[n] = step[n]! + 1
      const game = Math.floor(lane[n]! / numAgents)
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

/** One of the choices that the mask allows, or the first where it allows none. */
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
