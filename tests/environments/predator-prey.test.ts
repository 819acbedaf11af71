import { expect, test } from 'vitest'
import { predatorPrey } from '../../src/environments/games/predator-prey.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

interface Places {
  readonly x: Uint8Array
  readonly y: Uint8Array
}

const MOVES = [
  [0, 0],
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const

test('every step is that of the rules, agent by agent', () => {
  const [predators, prey, side, numGames] = [2, 3, 5, 8]
  const numPlayers = predators + prey
  const width = 3 + 2 * numPlayers
  const environment = predatorPrey({ predators, prey, side })
  const lanes = lanesOf<Places>(environment, numGames * numPlayers, 3)
  const { state, action, reward, observation, terminated } = lanes
  resetAll(environment, lanes)
  const placeOf = (n: number) => `${state.x[n]},${state.y[n]}`
  for (let g = 0; g < numGames; g++) {
    const places = Array.from({ length: numPlayers }, (_, i) => placeOf(g * numPlayers + i))
    expect(new Set(places).size).toBe(numPlayers)
  }
  let [word, caughtHere, caughtInPassing] = [1, 0, 0]
  for (let t = 0; t < 150; t++) {
    for (let n = 0; n < action.length; n++) {
      word = (Math.imul(word, 1664525) + 1013904223) >>> 0
      action[n] = Math.floor((word / 2 ** 32) * 5)
    }
    const before = Array.from(action, (_, n) => [state.x[n]!, state.y[n]!] as const)
    const after = before.map(([x, y], n) =>
      [x + MOVES[action[n]!]![0], y + MOVES[action[n]!]![1]].map((at) => (at < 0 ? 0 : at === side ? side - 1 : at)),
    )
    lanes.step.fill(t)
    environment.step(lanes, 0, action.length)
    const wanted = new Array<number>(action.length).fill(0)
    const caught = new Set<number>()
    for (let n = 0; n < action.length; n++) {
      if (n % numPlayers >= predators) continue
      const first = n - (n % numPlayers)
      for (let hunted = first + predators; hunted < first + numPlayers; hunted++) {
        const meets = String(after[n]) === String(after[hunted])
        const passes = String(after[n]) === String(before[hunted]) && String(after[hunted]) === String(before[n])
        if (!meets && !passes) continue
        if (meets) caughtHere++
        else caughtInPassing++
        wanted[n]!++
        wanted[hunted] = -1
        caught.add(hunted)
      }
    }
    expect([...reward]).toEqual(wanted)
    for (let n = 0; n < action.length; n++) {
      const first = n - (n % numPlayers)
      if (!caught.has(n)) expect([state.x[n], state.y[n]]).toEqual(after[n])
      else for (let i = 0; i < predators; i++) expect(placeOf(n)).not.toBe(placeOf(first + i))
      const seen = [n - first < predators ? 1 : 0, state.x[n]! / side, state.y[n]! / side]
      for (let other = first; other < first + numPlayers; other++) {
        seen.push((state.x[other]! - state.x[n]!) / side, (state.y[other]! - state.y[n]!) / side)
      }
      expect([...observation.subarray(n * width, (n + 1) * width)]).toEqual(seen.map(Math.fround))
    }
    expect([...terminated]).not.toContain(1)
  }
  expect(caughtHere).toBeGreaterThan(50)
  expect(caughtInPassing).toBeGreaterThan(5)
})

test('games of its range move, and no others', () => {
  const environment = predatorPrey()
  const lanes = lanesOf<Places>(environment, 12)
  resetAll(environment, lanes)
  lanes.observation.fill(Number.NaN)
  environment.step(lanes, 4, 8)
  expect([...lanes.reward].map(Number.isNaN)).toEqual(Array.from({ length: 12 }, (_, n) => n < 4 || n >= 8))
  expect(lanes.observation.findLastIndex((value) => !Number.isNaN(value))).toBe(8 * 11 - 1)
})
