/**
 * The common part of rooms on a grid, in which a lane sees the cells ahead: empty room, four rooms, door and key, and maze. Each
 * room draws its own walls; turning, walking, picking up and opening are the same, as in MiniGrid (Chevalier-Boisvert and others, "Minigrid & Miniworld:
 * Modular & Customizable Reinforcement Learning Environments for Goal-Oriented Tasks", 2023). The code is new.
 */
import { type Random, Stream } from '../../base/random.ts'
import { integer } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import {
  type EnvironmentModel,
  type EnvironmentPreset,
  LEVEL_STATE,
  type State,
  type StateDeclaration,
  type TunedPart,
} from '../environment.ts'
import { beginLevel, levelRandom } from '../levels.ts'
import type { Picture } from '../picture.ts'

export const Field = { empty: 0, wall: 1, goal: 2, key: 3, door: 4, open: 5 } as const
/** One-hot channels of a field, none for an empty one. */
const CHANNELS = 5
/** Side of the view in fields; the lane is in the middle of the nearest row. */
const VIEW = 5
const WIDTH = VIEW * VIEW * CHANNELS + 1
const Act = { left: 0, right: 1, forward: 2, pickUp: 3, open: 4 } as const
/** Change of column and row: right, down, left, up. */
const COLUMN = [1, 0, -1, 0] as const
const ROW = [0, 1, 0, -1] as const

/** The usual PPO preset with this number of steps. */
export function gridPreset(totalSteps: number, policy: TunedPart = { id: 'mlp', parameters: {} }): EnvironmentPreset {
  const parameters = { numSteps: 64, numMinibatches: 8, updateEpochs: 4, learningRate: 1e-3, entropyCoef: 0.01 }
  return { run: { numLanes: 64, totalSteps }, algorithm: { id: 'ppo', parameters }, policy }
}

/** Settings of rooms with levels. */
export const levelSettings = {
  levels: integer(0, 'number of different starts, of which each episode has one; 0: a new one in each episode', {
    min: 0,
  }),
  firstLevel: integer(0, 'the start that is level 0: others have other starts from those of levels before it', {
    min: 0,
    max: 2 ** 31,
  }),
}

/** The state columns of a lane on a grid of `side` × `side` fields. */
export function gridState(side: number, levels = 0) {
  return {
    fields: ['u8', side * side],
    x: 'u8',
    y: 'u8',
    facing: 'u8',
    hasKey: 'u8',
    ...(levels > 0 && LEVEL_STATE),
  } as const satisfies StateDeclaration
}

type GridState = State<ReturnType<typeof gridState>>
type LevelLanes = Parameters<typeof beginLevel>[0]

/** The start of a lane. */
export interface Begin {
  x: number
  y: number
  facing: number
}

/**
 * The environment of a grid. `draw` lays out an episode's fields, including the walls around them, and writes the lane's start to
 * `begin`. Randomness comes from `random.draw` with the counter that it increments.
 */
export function gridModel(
  side: number,
  maxEpisodeSteps: number,
  draw: (fields: Uint8Array, begin: Begin, dice: Dice) => void,
  { levels, firstLevel } = { levels: 0, firstLevel: 0 },
): EnvironmentModel<GridState> {
  const fields = new Uint8Array(side * side)
  const begin: Begin = { x: 1, y: 1, facing: 0 }
  const dice = new Dice()
  const random = levelRandom()
  return {
    ...(levels > 0 && { levels }),
    observationSpace: box({ low: 0, high: 1, shape: [WIDTH] }),
    actionSpace: discrete(5),
    maxEpisodeSteps,
    returnThreshold: null,
    draw: (state, n) => drawRooms(state, n, side),
    reset(lanes, rows, count) {
      const { state, observation, lane, episode } = lanes
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        if (levels === 0) dice.begin(lanes.random, lane[n]!, episode[n]!)
        else dice.begin(random, firstLevel + beginLevel(lanes as LevelLanes, n, levels), 0)
        draw(fields, begin, dice)
        state.fields.set(fields, n * side * side)
        state.x[n] = begin.x
        state.y[n] = begin.y
        state.facing[n] = begin.facing
        state.hasKey[n] = 0
        show(observation, state, n, side)
      }
    },
    step({ state, observation, reward, terminated, truncated, action, step }, from, to) {
      for (let n = from; n < to; n++) {
        const ahead = n * side * side + fieldAhead(state, n, side)
        const there = state.fields[ahead]!
        const act = action[n]!
        if (act === Act.left) state.facing[n] = (state.facing[n]! + 3) % 4
        else if (act === Act.right) state.facing[n] = (state.facing[n]! + 1) % 4
        else if (act === Act.pickUp && there === Field.key) {
          state.fields[ahead] = Field.empty
          state.hasKey[n] = 1
        } else if (act === Act.open && there === Field.door && state.hasKey[n] === 1) state.fields[ahead] = Field.open
        else if (act === Act.forward && (there === Field.empty || there === Field.open || there === Field.goal)) {
          state.x[n] = state.x[n]! + COLUMN[state.facing[n]!]!
          state.y[n] = state.y[n]! + ROW[state.facing[n]!]!
        }
        const isThere = state.fields[n * side * side + state.y[n]! * side + state.x[n]!] === Field.goal
        reward[n] = isThere ? 1 - (0.9 * (step[n]! + 1)) / maxEpisodeSteps : 0
        terminated[n] = isThere ? 1 : 0
        truncated[n] = step[n]! + 1 >= maxEpisodeSteps ? 1 : 0 // Later, the goal's reward would be negative: no wrapper's limit is longer.
        show(observation, state, n, side)
      }
    },
  }
}

/** Colors of field contents, by number. */
const COLORS = [0, 3, 5, 6, 10, 11] as const

/** Draws the whole grid, 3 × 3 parts per field; the lane points in its direction, and is yellow with the key. */
function drawRooms({ fields, x, y, facing, hasKey }: GridState, n: number, side: number): Picture {
  const columns = 3 * side
  const drawn = new Uint8Array(columns * columns)
  const paint = (column: number, row: number, color: number) => {
    drawn[row * columns + column] = color
  }
  for (let row = 0; row < columns; row++) {
    for (let column = 0; column < columns; column++) {
      const field = Math.floor(row / 3) * side + Math.floor(column / 3)
      paint(column, row, COLORS[fields[n * side * side + field]!]!)
    }
  }
  const [column, row] = [3 * x[n]! + 1, 3 * y[n]! + 1]
  const color = hasKey[n] === 1 ? 6 : 4
  paint(column, row, color)
  paint(column + COLUMN[facing[n]!]!, row + ROW[facing[n]!]!, color)
  return { rows: columns, columns, fields: drawn }
}

/** Index, within a lane's fields, of the field ahead. The walls around the grid keep it in range. */
function fieldAhead({ x, y, facing }: GridState, n: number, side: number): number {
  return (y[n]! + ROW[facing[n]!]!) * side + x[n]! + COLUMN[facing[n]!]!
}

/** Writes row n of the observation: the fields ahead, and whether the lane has the key. */
function show(observation: Float32Array, { fields, x, y, facing, hasKey }: GridState, n: number, side: number): void {
  const row = n * WIDTH
  observation.fill(0, row, row + WIDTH)
  const ahead = facing[n]!
  const right = (ahead + 1) % 4
  for (let depth = 0; depth < VIEW; depth++) {
    for (let across = 0; across < VIEW; across++) {
      const aside = across - (VIEW - 1) / 2
      const column = x[n]! + depth * COLUMN[ahead]! + aside * COLUMN[right]!
      const line = y[n]! + depth * ROW[ahead]! + aside * ROW[right]!
      const isWithin = column >= 0 && column < side && line >= 0 && line < side
      const field = isWithin ? fields[n * side * side + line * side + column]! : Field.wall
      if (field !== Field.empty) observation[row + (depth * VIEW + across) * CHANNELS + field - 1] = 1
    }
  }
  observation[row + WIDTH - 1] = hasKey[n]!
}

/** Draws consecutive random whole numbers for the start of an episode or for one of its steps. */
export class Dice {
  #random: Random | null = null
  #lane = 0
  #episode = 0
  #stream: number = Stream.reset
  #firstDraw = 0
  #drawn = 0

  /** Starts with the first number of a lane's episode; for a step, with that of draw `firstDraw` of its stream. */
  begin(random: Random, lane: number, episode: number, stream: number = Stream.reset, firstDraw = 0): void {
    this.#random = random
    this.#lane = lane
    this.#episode = episode
    this.#stream = stream
    this.#firstDraw = firstDraw
    this.#drawn = 0
  }

  /** A uniform whole number from 0 to `count` − 1. */
  below(count: number): number {
    const random = this.#random!
    if (this.#drawn % 4 === 0) random.draw(this.#stream, this.#lane, this.#episode, this.#firstDraw + this.#drawn / 4)
    return Math.floor(random.uniform(this.#drawn++ % 4) * count)
  }
}

/** Clears the grid and puts walls around it. */
export function enclose(fields: Uint8Array, side: number): void {
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const isBorder = x === 0 || y === 0 || x === side - 1 || y === side - 1
      fields[y * side + x] = isBorder ? Field.wall : Field.empty
    }
  }
}

/** A uniform random empty field. */
export function emptyField(fields: Uint8Array, dice: Dice, isAllowed: (at: number) => boolean = () => true): number {
  let count = 0
  for (let at = 0; at < fields.length; at++) if (fields[at] === Field.empty && isAllowed(at)) count++
  let skipped = dice.below(count)
  for (let at = 0; at < fields.length; at++) {
    if (fields[at] !== Field.empty || !isAllowed(at)) continue
    if (skipped === 0) return at
    skipped--
  }
  return -1
}

/** Puts the lane on a random empty field in a random direction. */
export function beginAnywhere(
  fields: Uint8Array,
  side: number,
  begin: Begin,
  dice: Dice,
  isAllowed?: (at: number) => boolean,
): void {
  const at = emptyField(fields, dice, isAllowed)
  begin.x = at % side
  begin.y = Math.floor(at / side)
  begin.facing = dice.below(4)
}
