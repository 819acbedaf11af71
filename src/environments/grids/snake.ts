import { Stream } from '../../base/random.ts'
import { integer, number } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import { defineEnvironment, STEPS_MAX, type State, withSettings } from '../environment.ts'
import { Dice } from './grid-rooms.ts'

/** Colors of the bodies; heads are white, food is red. */
const SNAKE_COLORS = [1, 2, 5, 7, 8, 6, 10, 11] as const

/** Radius of a snake's view in fields. */
const REACH = 3
const VIEW = 2 * REACH + 1
const CHANNELS = 4
const WIDTH = VIEW * VIEW * CHANNELS + 3
/** Change of column and row: right, down, left, up. */
const COLUMN = [1, 0, -1, 0] as const
const ROW = [0, 1, 0, -1] as const
/** Quarter turns to the right for each action. */
const TURN = [0, 3, 1] as const
/** The field of missing food, beyond those of the largest arena. */
const NOWHERE = 255
/** Maximum random numbers per snake and step: for its food, field and direction. */
const NUMBERS = 3

const state = (fields: number) =>
  ({
    /** Fields of the body, a ring buffer: `length` fields from `tail`. */
    body: ['u8', fields],
    tail: 'u8',
    length: 'i32',
    facing: 'u8',
    /** Field of this lane's food; any snake may eat it. */
    food: 'u8',
    /** In the row of the game's first lane: whether a snake is on each field. Other rows are not used. */
    occupied: ['u8', fields],
  }) as const

type SnakeState = State<ReturnType<typeof state>>

/**
 * Snakes in a shared walled arena: each of the `snakes` neighboring lanes of a game is one. A snake moves one field per step and grows by
 * one when it eats. A snake that hits a wall or a snake starts over as a head alone.
 *
 * - **Action space**: Discrete(3): 0 goes straight on, 1 turns left, 2 turns right.
 * - **Observation space**: Box of 199: for each of 7 × 7 fields around the head, as the snake faces them (row from the farthest ahead,
 *   column from the left): whether it has a wall or a snake, 1 / steps until a snake that does not eat leaves it (0 for a wall), whether
 *   another snake's head is there, and whether food is; then the offset ahead and to the right of the nearest food as fractions of the
 *   side, and the length as a fraction of all fields.
 * - **Rewards**: 1 for food, −`endPenalty` (1) for an end at a wall or a snake.
 * - **Starting state**: Each snake is a head on a different random field, in a random direction. There are as many pieces of food as
 *   snakes, on free fields.
 * - **Episode end**: Terminated for all snakes of a game when no field is free for a snake or for food. Truncated after `maxEpisodeSteps`
 *   (500) steps.
 */
export const snake = defineEnvironment({
  id: 'Snake-v0',
  module: import.meta.url,
  settings: {
    snakes: integer(4, 'snakes in one field; each is a lane, and these lanes are neighbors', { min: 1, max: 16 }),
    side: integer(12, 'side of the square field, in cells', { min: 6, max: 15 }),
    endPenalty: number(1, 'penalty for dying at a wall or a snake', { min: 0 }),
    maxEpisodeSteps: integer(500, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
  },
  presets: [
    {
      environment: { endPenalty: 10 }, // With 1, snakes eat more but live a third as long.
      run: { numLanes: 128, totalSteps: 20_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 1e-3,
        gamma: 0.98,
        entropyCoef: 0.003,
      }),
      policy: withSettings('mlp', { hidden: [128, 64], activation: 'relu' }),
    },
  ],
  state: ({ side }) => state(side * side),
  make: ({ snakes, side, endPenalty, maxEpisodeSteps }) => {
    const numFields = side * side
    const dice = new Dice()
    /** Per snake of a game in a step: the field that it enters, −1 for a wall; and whether it dies there. */
    const entered = new Int16Array(snakes)
    const ends = new Uint8Array(snakes)

    function isFood(lanes: SnakeState, first: number, field: number): boolean {
      for (let n = first; n < first + snakes; n++) if (lanes.food[n] === field) return true
      return false
    }

    function isFree(lanes: SnakeState, first: number, field: number): boolean {
      return lanes.occupied[first * numFields + field] === 0 && !isFood(lanes, first, field)
    }

    /** A uniform random field without snake and food; −1 if there is none. */
    function freeField(lanes: SnakeState, first: number): number {
      let numFree = 0
      for (let field = 0; field < numFields; field++) if (isFree(lanes, first, field)) numFree++
      if (numFree === 0) return -1
      let field = 0
      for (let skipped = dice.below(numFree); skipped > 0 || !isFree(lanes, first, field); field++) {
        if (isFree(lanes, first, field)) skipped--
      }
      return field
    }

    /** Begins lane n as a head on a free field; false if there is none, so that the game is over. */
    function begin(lanes: SnakeState, first: number, n: number): boolean {
      const field = freeField(lanes, first)
      lanes.body[n * numFields] = Math.max(field, 0)
      lanes.tail[n] = 0
      lanes.length[n] = 1
      lanes.facing[n] = dice.below(4)
      if (field >= 0) lanes.occupied[first * numFields + field] = 1
      return field >= 0
    }

    /** Puts food of lane n on a free field; false if there is none. */
    function putFood(lanes: SnakeState, first: number, n: number): boolean {
      const field = freeField(lanes, first)
      if (field >= 0) lanes.food[n] = field
      return field >= 0
    }

    /** Per cell of the current game: the steps until its snake leaves it, if no snake eats; 0 without a snake. */
    const leftIn = new Uint8Array(numFields)
    const isHead = new Uint8Array(numFields)
    /** Whether food is on the field; the last element is for missing food. */
    const hasFood = new Uint8Array(NOWHERE + 1)

    /** Computes the snakes' view of a game's fields. */
    function lookAt(lanes: SnakeState, first: number): void {
      leftIn.fill(0)
      isHead.fill(0)
      hasFood.fill(0)
      for (let n = first; n < first + snakes; n++) {
        hasFood[lanes.food[n]!] = 1
        for (let k = 0; k < lanes.length[n]!; k++) leftIn[part(lanes, n, k)] = k + 1
        isHead[part(lanes, n, lanes.length[n]! - 1)] = 1
      }
    }

    /** The field of the k-th part of a body, from the tail. */
    function part({ body, tail }: SnakeState, n: number, k: number): number {
      return body[n * numFields + ((tail[n]! + k) % numFields)]!
    }

    function vacateTail(lanes: SnakeState, first: number, n: number): void {
      lanes.occupied[first * numFields + part(lanes, n, 0)] = 0
      lanes.tail[n] = (lanes.tail[n]! + 1) % numFields
      lanes.length[n] = lanes.length[n]! - 1
    }

    function show(observation: Float32Array, lanes: SnakeState, first: number, n: number): void {
      const head = part(lanes, n, lanes.length[n]! - 1)
      const ahead = lanes.facing[n]!
      const right = (ahead + 1) % 4
      const [x, y] = [head % side, Math.floor(head / side)]
      let at = n * WIDTH
      for (let far = REACH; far >= -REACH; far--) {
        for (let aside = -REACH; aside <= REACH; aside++) {
          const column = x + far * COLUMN[ahead]! + aside * COLUMN[right]!
          const row = y + far * ROW[ahead]! + aside * ROW[right]!
          const isWithin = column >= 0 && column < side && row >= 0 && row < side
          const field = row * side + column
          const steps = isWithin ? leftIn[field]! : 0
          observation[at++] = !isWithin || steps > 0 ? 1 : 0
          observation[at++] = steps > 0 ? 1 / steps : 0
          observation[at++] = isWithin && field !== head ? isHead[field]! : 0
          observation[at++] = isWithin ? hasFood[field]! : 0
        }
      }
      let nearest = 0
      let least = 2 * side
      for (let each = first; each < first + snakes; each++) {
        const food = lanes.food[each]!
        const distance = Math.abs((food % side) - x) + Math.abs(Math.floor(food / side) - y)
        if (distance >= least) continue
        least = distance
        nearest = food
      }
      const columns = (nearest % side) - x
      const rows = Math.floor(nearest / side) - y
      observation[at++] = (columns * COLUMN[ahead]! + rows * ROW[ahead]!) / side
      observation[at++] = (columns * COLUMN[right]! + rows * ROW[right]!) / side
      observation[at] = lanes.length[n]! / numFields
    }

    return {
      observationSpace: box({ low: -1, high: 1, shape: [WIDTH] }),
      actionSpace: discrete(3),
      numPlayers: snakes,
      draw(lanes, n) {
        const first = n - (n % snakes)
        const fields = new Uint8Array(numFields)
        for (let m = first; m < first + snakes; m++) {
          if (lanes.food[m]! < numFields) fields[lanes.food[m]!] = 4
        }
        for (let m = first; m < first + snakes; m++) {
          const color = SNAKE_COLORS[(m - first) % SNAKE_COLORS.length]!
          for (let k = 0; k < lanes.length[m]!; k++) {
            fields[part(lanes, m, k)] = k === lanes.length[m]! - 1 ? 9 : color
          }
        }
        return { rows: side, columns: side, fields }
      },
      maxEpisodeSteps,
      returnThreshold: null,
      reset({ state, observation, lane, episode, random }, rows, count) {
        for (let i = 0; i < count; i += snakes) {
          const first = rows[i]!
          dice.begin(random, lane[first]!, episode[first]!)
          state.occupied.fill(0, first * numFields, (first + snakes) * numFields)
          state.food.fill(NOWHERE, first, first + snakes)
          for (let n = first; n < first + snakes; n++) {
            state.body.fill(0, n * numFields, (n + 1) * numFields)
            begin(state, first, n)
          }
          for (let n = first; n < first + snakes; n++) putFood(state, first, n)
          lookAt(state, first)
          for (let n = first; n < first + snakes; n++) show(observation, state, first, n)
        }
      },
      step({ state, observation, reward, terminated, action, lane, episode, step, random }, from, to) {
        for (let first = from; first < to; first += snakes) {
          const grid = first * numFields
          const blocks = Math.ceil((NUMBERS * snakes) / 4)
          dice.begin(random, lane[first]!, episode[first]!, Stream.step, blocks * step[first]!)
          for (let i = 0; i < snakes; i++) {
            const n = first + i
            const facing = (state.facing[n]! + TURN[action[n]!]!) % 4
            const head = part(state, n, state.length[n]! - 1)
            const column = (head % side) + COLUMN[facing]!
            const row = Math.floor(head / side) + ROW[facing]!
            state.facing[n] = facing
            entered[i] = column < 0 || column >= side || row < 0 || row >= side ? -1 : row * side + column
          }
          // Tails move before heads, so a snake may follow a tail.
          for (let i = 0; i < snakes; i++) if (!isFood(state, first, entered[i]!)) vacateTail(state, first, first + i)
          for (let i = 0; i < snakes; i++) {
            const field = entered[i]!
            ends[i] = field < 0 || state.occupied[grid + field] === 1 ? 1 : 0
            for (let other = 0; other < snakes; other++) if (other !== i && entered[other] === field) ends[i] = 1
          }
          let hasRoom = true
          for (let i = 0; i < snakes; i++) {
            const n = first + i
            reward[n] = ends[i] === 1 ? -endPenalty : 0
            if (ends[i] === 1) while (state.length[n]! > 0) vacateTail(state, first, n)
            else {
              state.body[n * numFields + ((state.tail[n]! + state.length[n]!) % numFields)] = entered[i]!
              state.length[n] = state.length[n]! + 1
              state.occupied[grid + entered[i]!] = 1
            }
          }
          for (let i = 0; i < snakes; i++) {
            if (ends[i] === 1) continue
            for (let n = first; n < first + snakes; n++) {
              if (state.food[n] !== entered[i]) continue
              reward[first + i] = 1
              if (!putFood(state, first, n)) hasRoom = false
            }
          }
          for (let i = 0; i < snakes; i++) if (ends[i] === 1 && !begin(state, first, first + i)) hasRoom = false
          lookAt(state, first)
          for (let n = first; n < first + snakes; n++) {
            terminated[n] = hasRoom ? 0 : 1
            show(observation, state, first, n)
          }
        }
      },
    }
  },
})
