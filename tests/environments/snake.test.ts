import { describe, expect, test } from 'vitest'
import { snake } from '../../src/environments/grids/snake.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

type Columns = Record<'body' | 'tail' | 'facing' | 'food' | 'occupied', Uint8Array> & { length: Int32Array }
type Place = readonly [x: number, y: number]

const AHEAD: Place[] = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
]
/** Of an observation: four numbers for each of 7 × 7 fields, and three more. */
const WIDTH = 4 * 49 + 3
const key = ([x, y]: Place) => `${x},${y}`

/** A game as lists of places, the head first. */
interface Game {
  readonly bodies: Place[][]
  readonly facing: number[]
  readonly food: Place[]
}

function gameOf(state: Columns, game: number, snakes: number, side: number): Game {
  const place = (field: number): Place => [field % side, Math.floor(field / side)]
  const numFields = side * side
  const lanes = Array.from({ length: snakes }, (_, i) => game * snakes + i)
  return {
    bodies: lanes.map((n) =>
      Array.from({ length: state.length[n]! }, (_, k) => {
        const at = (state.tail[n]! + state.length[n]! - 1 - k) % numFields
        return place(state.body[n * numFields + at]!)
      }),
    ),
    facing: lanes.map((n) => state.facing[n]!),
    food: lanes.map((n) => place(state.food[n]!)),
  }
}

/** The rules in places: what each snake comes to, null for one that ends, and who eats what. */
function move({ bodies, facing, food }: Game, actions: readonly number[], side: number) {
  const turned = facing.map((face, i) => (face + (actions[i] === 1 ? 3 : actions[i] === 2 ? 1 : 0)) % 4)
  const heads = bodies.map(([[x, y] = [0, 0]], i): Place => [x + AHEAD[turned[i]!]![0], y + AHEAD[turned[i]!]![1]])
  const eats = heads.map((head) => food.some((each) => key(each) === key(head)))
  const kept = bodies.map((body, i) => (eats[i] ? body : body.slice(0, -1)))
  const taken = new Set(kept.flat().map(key))
  const isOut = ([x, y]: Place) => x < 0 || y < 0 || x >= side || y >= side
  const ends = heads.map(
    (head, i) => isOut(head) || taken.has(key(head)) || heads.some((other, j) => j !== i && key(other) === key(head)),
  )
  return { turned, heads, ends, eats, bodies: kept.map((body, i) => (ends[i] ? null : [heads[i]!, ...body])) }
}

/** What a snake sees, from places. */
function seen({ bodies, facing, food }: Game, i: number, side: number): number[] {
  const [x, y] = bodies[i]![0]!
  const [aheadX, aheadY] = AHEAD[facing[i]!]!
  const [rightX, rightY] = [-aheadY, aheadX]
  const steps = new Map(bodies.flatMap((body) => body.map((place, k) => [key(place), body.length - k])))
  const heads = new Set(bodies.filter((_, j) => j !== i).map(([head]) => key(head!)))
  const eatable = new Set(food.map(key))
  const view: number[] = []
  for (const far of [3, 2, 1, 0, -1, -2, -3]) {
    for (const aside of [-3, -2, -1, 0, 1, 2, 3]) {
      const place: Place = [x + far * aheadX + aside * rightX, y + far * aheadY + aside * rightY]
      const isOut = place.some((value) => value < 0 || value >= side)
      const left = steps.get(key(place))
      view.push(isOut || left !== undefined ? 1 : 0, left === undefined ? 0 : Math.fround(1 / left))
      view.push(heads.has(key(place)) ? 1 : 0, eatable.has(key(place)) ? 1 : 0)
    }
  }
  const offsets = food.map(([foodX, foodY]) => [foodX - x, foodY - y] as const)
  const distance = ([dx, dy]: Place) => Math.abs(dx) + Math.abs(dy)
  const [dx, dy] = offsets.reduce((a, b) => (distance(b) < distance(a) ? b : a))
  const parts = [(dx * aheadX + dy * aheadY) / side, (dx * rightX + dy * rightY) / side, bodies[i]!.length / side ** 2]
  return [...view, ...parts.map((value) => Math.fround(value))]
}

/** Turns towards food as far as nothing is in the way, so that snakes grow; now and then anywhere. */
function greedy(game: Game, i: number, side: number, word: number): number {
  if (word % 23 === 0) return word % 3
  const options = [0, 1, 2].map((action) => {
    const actions = game.bodies.map((_, j) => (j === i ? action : 0))
    const { heads, ends } = move(game, actions, side)
    const distance = Math.min(...game.food.map(([x, y]) => Math.abs(x - heads[i]![0]) + Math.abs(y - heads[i]![1])))
    return ends[i] ? 1000 : distance
  })
  return options.indexOf(Math.min(...options))
}

describe.each([
  [1, 6],
  [3, 8],
])('%d snakes on fields in rows of %d', (snakes, side) => {
  test('every step is that of the rules in places', () => {
    const environment = snake({ snakes, side })
    const numGames = 3
    const lanes = lanesOf<Columns>(environment, numGames * snakes, 9)
    resetAll(environment, lanes)
    let [word, longest, ended] = [1, 0, 0]
    for (let t = 0; t < 240; t++) {
      const games = Array.from({ length: numGames }, (_, g) => gameOf(lanes.state, g, snakes, side))
      for (const [g, game] of games.entries()) {
        for (let i = 0; i < snakes; i++) {
          word = (Math.imul(word, 1664525) + 1013904223) >>> 0
          lanes.action[g * snakes + i] = greedy(game, i, side, word >>> 8)
        }
      }
      lanes.step.fill(t)
      environment.step(lanes, 0, numGames * snakes)
      expect([...lanes.terminated]).not.toContain(1)
      for (const [g, before] of games.entries()) {
        const after = gameOf(lanes.state, g, snakes, side)
        const actions = [...lanes.action.subarray(g * snakes, (g + 1) * snakes)]
        const wanted = move(before, actions, side)
        const eaten = new Set(wanted.heads.filter((_, i) => wanted.eats[i] && !wanted.ends[i]).map(key))
        for (let i = 0; i < snakes; i++) {
          const n = g * snakes + i
          expect(lanes.reward[n]).toBe(wanted.ends[i] ? -1 : wanted.eats[i] ? 1 : 0)
          if (wanted.ends[i]) expect(after.bodies[i]).toHaveLength(1)
          else expect([after.bodies[i], after.facing[i]]).toEqual([wanted.bodies[i], wanted.turned[i]])
          if (!eaten.has(key(before.food[i]!))) expect(after.food[i]).toEqual(before.food[i])
          const row = [...lanes.observation.subarray(n * WIDTH, (n + 1) * WIDTH)]
          expect(row.map((value) => value + 0)).toEqual(seen(after, i, side).map((value) => value + 0))
          longest = Math.max(longest, after.bodies[i]!.length)
          ended += wanted.ends[i] ? 1 : 0
        }
        // Nothing lies on anything else.
        const places = [...after.bodies.flat(), ...after.food].map(key)
        expect(new Set(places).size).toBe(places.length)
      }
    }
    expect(longest).toBeGreaterThan(8)
    expect(ended).toBeGreaterThan(5)
  })
})

test('a game in which no field is free is over', () => {
  const environment = snake({ snakes: 1, side: 6 })
  const lanes = lanesOf<Columns>(environment, 1)
  resetAll(environment, lanes)
  // A snake over all fields but one, row by row in turns, with its head before the food on the last.
  const path = Array.from({ length: 36 }, (_, k) => {
    const row = Math.floor(k / 6)
    return row * 6 + (row % 2 === 0 ? k % 6 : 5 - (k % 6))
  })
  const { state } = lanes
  state.body.set(path.slice(0, 35))
  state.tail[0] = 0
  state.length[0] = 35
  state.occupied.fill(1)
  state.occupied[path[35]!] = 0
  state.food[0] = path[35]!
  state.facing[0] = 2
  lanes.action[0] = 0
  environment.step(lanes, 0, 1)
  expect([state.length[0], lanes.reward[0], lanes.terminated[0]]).toEqual([36, 1, 1])
})

test('an end costs what is told, and nothing else changes', () => {
  const environment = snake({ snakes: 1, side: 6, endPenalty: 2.5 })
  const lanes = lanesOf<Columns>(environment, 1)
  resetAll(environment, lanes)
  const rewards = Array.from({ length: 12 }, (_, t) => {
    lanes.step[0] = t
    lanes.action[0] = 0
    environment.step(lanes, 0, 1)
    return lanes.reward[0]!
  })
  expect(Math.min(...rewards)).toBe(-2.5)
})

test('games of its range move, and no others', () => {
  const environment = snake({ snakes: 2 })
  const lanes = lanesOf<Columns>(environment, 6)
  resetAll(environment, lanes)
  lanes.observation.fill(Number.NaN)
  environment.step(lanes, 2, 4)
  expect([...lanes.reward].map(Number.isNaN)).toEqual([true, true, false, false, true, true])
  expect(lanes.observation.findLastIndex((value) => !Number.isNaN(value))).toBe(4 * WIDTH - 1)
})
