/** Rooms and mazes with a partial view. */
import { describe, expect, test } from 'vitest'
import type { EnvironmentDefinition } from '../../src/environments/environment.ts'
import { doorKey } from '../../src/environments/grids/door-key.ts'
import { emptyRoom } from '../../src/environments/grids/empty-room.ts'
import { fourRooms } from '../../src/environments/grids/four-rooms.ts'
import { Field } from '../../src/environments/grids/grid-rooms.ts'
import { maze } from '../../src/environments/grids/maze.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

type State = Record<'fields' | 'x' | 'y' | 'facing' | 'hasKey', Uint8Array>
const [LEFT, RIGHT, FORWARD, PICK_UP, OPEN] = [0, 1, 2, 3, 4]

/** Which fields can be reached from one over those that `isFree` says. */
function reach(fields: Uint8Array, side: number, from: number, isFree: (field: number) => boolean): Set<number> {
  const seen = new Set([from])
  for (const at of seen) {
    for (const next of [at - 1, at + 1, at - side, at + side]) if (isFree(fields[next]!)) seen.add(next)
  }
  return seen
}

describe('every grid', () => {
  test.each([
    [emptyRoom(), 8],
    [fourRooms(), 11],
    [doorKey(), 8],
    [maze(), 9],
    [maze({ side: 15 }), 15],
    [fourRooms({ side: 7 }), 7],
    [doorKey({ side: 5 }), 5],
  ] as const)(
    '$id can be solved in 100 episodes, is enclosed, and differs from one to the next',
    (environment, side) => {
      const lanes = lanesOf<State>(environment, 100)
      resetAll(environment, lanes)
      const kinds = new Set<string>()
      for (let n = 0; n < 100; n++) {
        const fields = lanes.state.fields.subarray(n * side * side, (n + 1) * side * side)
        const start = lanes.state.y[n]! * side + lanes.state.x[n]!
        kinds.add(`${fields} ${start} ${lanes.state.facing[n]}`)
        expect(fields[start]).toBe(Field.empty)
        const goal = fields.indexOf(Field.goal)
        expect(fields.lastIndexOf(Field.goal)).toBe(goal)
        for (let i = 0; i < side; i++) {
          for (const at of [i, (side - 1) * side + i, i * side, i * side + side - 1])
            expect(fields[at]).toBe(Field.wall)
        }
        const key = fields.indexOf(Field.key)
        const before = reach(fields, side, start, (field) => field !== Field.wall && field !== Field.door)
        if (key < 0) expect(before.has(goal)).toBe(true)
        else {
          expect(before.has(key)).toBe(true)
          expect(before.has(goal)).toBe(false)
          expect(reach(fields, side, start, (field) => field !== Field.wall).has(goal)).toBe(true)
        }
        if (environment.id !== 'Maze-v0') continue
        // A tree: one passage fewer than fields, so that there is one way between any two.
        const free = [...fields].filter((field) => field !== Field.wall).length
        expect(free).toBe(2 * ((side - 1) / 2) ** 2 - 1)
        expect(before.size).toBe(free)
      }
      expect(kinds.size).toBeGreaterThan(30)
    },
  )
})

/** One lane on a grid that is drawn by letters: # wall, G goal, K key, D door. */
function laneOn(environment: EnvironmentDefinition, rows: readonly string[], x: number, y: number, facing: number) {
  const lanes = lanesOf<State>(environment, 1)
  lanes.state.fields.set([...rows.join('')].map((letter) => ' #GKD'.indexOf(letter)))
  lanes.state.x[0] = x
  lanes.state.y[0] = y
  lanes.state.facing[0] = facing
  const act = (...actions: number[]) => {
    for (const action of actions) {
      lanes.action[0] = action
      lanes.terminated[0] = 0
      environment.step(lanes, 0, 1)
      lanes.step[0] = lanes.step[0]! + 1
    }
    const { state, reward, terminated } = lanes
    return [state.x[0], state.y[0], state.facing[0], state.hasKey[0], terminated[0], reward[0]]
  }
  return { lanes, act }
}

describe('a lane', () => {
  const rows = ['#####', '# D #', '# # #', '#K#G#', '#####']

  test('turns, walks, picks the key up, opens the door with it and reaches the goal', () => {
    const { act, lanes } = laneOn(doorKey({ side: 5 }), rows, 1, 1, 0)
    expect(act(OPEN, FORWARD)).toEqual([1, 1, 0, 0, 0, 0]) // The door is closed, and there is no key.
    expect(act(RIGHT, FORWARD, FORWARD)).toEqual([1, 2, 1, 0, 0, 0]) // The key is in the way.
    expect(act(PICK_UP)).toEqual([1, 2, 1, 1, 0, 0])
    expect(act(FORWARD, FORWARD)).toEqual([1, 3, 1, 1, 0, 0]) // To the wall.
    expect(act(LEFT, LEFT, FORWARD, FORWARD, RIGHT)).toEqual([1, 1, 0, 1, 0, 0])
    expect(act(OPEN, FORWARD, FORWARD, RIGHT, FORWARD)).toEqual([3, 2, 1, 1, 0, 0])
    expect(act(FORWARD)).toEqual([3, 3, 1, 1, 1, Math.fround(1 - (0.9 * lanes.step[0]!) / 100)])
  })

  test('sees the fields before it as it faces them', () => {
    const { act, lanes } = laneOn(doorKey({ side: 5 }), rows, 1, 2, 3)
    act(RIGHT) // Faces right: the wall before it, the door to its left one further, the key to its right.
    const seen = (depth: number, across: number) => {
      const at = (depth * 5 + across) * 5
      return [...lanes.observation.subarray(at, at + 5)].map((one, k) => (one === 1 ? '#GKDO'[k] : '')).join('')
    }
    expect([0, 1, 2, 3].map((depth) => [0, 1, 2, 3, 4].map((across) => seen(depth, across) || ' ').join(''))).toEqual([
      '#  K#',
      '#D###',
      '#  G#',
      '#####',
    ])
    expect(lanes.observation[125]).toBe(0)
  })
})

test('a maze has an odd side', () => {
  expect(() => maze({ side: 8 })).toThrow('Maze-v0.side: got 8, expected an odd number')
})
