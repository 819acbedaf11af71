import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import type { EnvironmentDefinition, Lanes } from '../../src/environments/environment.ts'
import { asterix } from '../../src/environments/minatar/asterix.ts'
import { freeway } from '../../src/environments/minatar/freeway.ts'
import { seaquest } from '../../src/environments/minatar/seaquest.ts'
import { spaceInvaders } from '../../src/environments/minatar/space-invaders.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

interface Episode {
  readonly seed: number
  readonly policy: string
  readonly actions: string
  readonly rewards: readonly (readonly [step: number, reward: number])[]
  readonly draws: readonly (readonly number[])[]
  readonly over: number
  readonly seen: readonly number[]
}

// Recorded by tests/golden/record_minatar_games.py, which says how.
const recorded = JSON.parse(readFileSync(new URL('../golden/minatar-games.json', import.meta.url), 'utf8'))

/** Gives the numbers that lead to the recorded chance. */
class RecordedChance extends Random {
  readonly numbers: (stream: number, draw: number) => readonly number[]
  #last: readonly number[] = []

  constructor(numbers: (stream: number, draw: number) => readonly number[]) {
    super(0)
    this.numbers = numbers
  }

  override draw(stream: number, _lane: number, _episode: number, draw: number): void {
    this.#last = this.numbers(stream, draw)
  }

  override uniform(index: number): number {
    return this.#last[index]!
  }
}

/** Asterix asks in every step: for what sticks, from which side, whether gold, and for the row. It is used when something comes. */
function chanceOfAsterix(draws: Episode['draws'], lanes: Lanes<{ spawnTimer: Uint8Array }>): RecordedChance {
  let next = 0
  return new RecordedChance(() => {
    if (lanes.state.spawnTimer[0] !== 0) return [0.5, 0.5, 0.5, 0.5]
    const [fromLeft, isGold, row, numFree] = draws[next++] ?? [0, 0, 0, 1]
    return [0.5, fromLeft ? 0.2 : 0.7, isGold ? 0.1 : 0.6, (row! + 0.5) / numFree!]
  })
}

/** Freeway asks for four cars at a time, at the start and when the chicken is across. */
function chanceOfFreeway(draws: Episode['draws']): RecordedChance {
  let asked = 0
  return new RecordedChance((stream, draw) => {
    expect(draw % (stream === Stream.reset ? 2 : 3)).toBe((asked % 2) + (stream === Stream.reset ? 0 : 1))
    const four = draws[Math.floor(asked / 2)]!.slice(4 * (asked % 2), 4 * (asked % 2) + 4)
    asked++
    return four.map((speed) => (Math.abs(speed) - 1 + (speed > 0 ? 5 : 0) + 0.5) / 10)
  })
}

/** Seaquest asks in every step for what sticks, from which side, whether a submarine, and for the row; where a diver comes, for it. */
function chanceOfSeaquest(draws: Episode['draws'], lanes: Lanes<{ spawnTimer: Uint8Array }>): RecordedChance {
  let next = 0
  return new RecordedChance((_, draw) => {
    const isDiver = draw % 2 === 1
    if (!isDiver && lanes.state.spawnTimer[0] !== 0) return [0.5, 0.5, 0.5, 0.5]
    const drawn = draws[next++]!
    expect(drawn).toHaveLength(isDiver ? 2 : 3)
    const [side, row] = [drawn[0] === 1 ? 0.2 : 0.7, (drawn.at(-1)! + 0.5) / 8]
    return isDiver ? [side, row] : [0.5, side, drawn[1] === 1 ? 0.1 : 0.6, row]
  })
}

const plain = { stickyActionProbability: 0 }
const games: [string, EnvironmentDefinition, (draws: Episode['draws'], lanes: Lanes<never>) => Random][] = [
  ['asterix', asterix(plain), chanceOfAsterix as never],
  ['freeway', freeway(plain), chanceOfFreeway],
  ['seaquest', seaquest(plain), chanceOfSeaquest as never],
  ['space_invaders', spaceInvaders(plain), () => new Random(0)],
]

describe.each(games)('%s against MinAtar', (name, environment, chanceOf) => {
  const episodes = recorded[name] as Episode[]

  test.each(episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'the whole episode of seed %d (%s) is the recorded one in every observation, reward and end',
    (_, _policy, { actions, rewards, draws, over, seen }) => {
      const made = lanesOf<never>(environment, 1)
      const lanes = { ...made, random: chanceOf(draws, made) }
      resetAll(environment, lanes)
      const ours = [crc32(Uint8Array.from(lanes.observation))]
      const paid: [number, number][] = []
      const ends: number[] = []
      for (let t = 0; t < actions.length; t++) {
        lanes.action[0] = Number(actions[t])
        lanes.step[0] = t
        lanes.terminated[0] = 0
        environment.step(lanes, 0, 1)
        ours.push(crc32(Uint8Array.from(lanes.observation)))
        if (lanes.reward[0] !== 0) paid.push([t, lanes.reward[0]!])
        if (lanes.terminated[0] !== 0) ends.push(t)
      }
      expect(ours.findIndex((sum, t) => sum !== seen[t])).toBe(-1)
      expect(paid).toEqual(rewards)
      expect(ends).toEqual(over === 1 ? [actions.length - 1] : [])
    },
  )

  test('the recording has rewards, and ends where there are any', () => {
    expect(episodes.flatMap(({ rewards }) => rewards).length).toBeGreaterThan(20)
    expect(episodes.some(({ over }) => over === 1)).toBe(name !== 'freeway')
  })

  test('an action sticks as often as it is told', () => {
    const numLanes = 4000
    const sticky = { asterix, freeway, seaquest, space_invaders: spaceInvaders }[name]!({
      stickyActionProbability: 0.25,
    })
    const lanes = lanesOf<{ lastAction: Uint8Array }>(sticky, numLanes)
    resetAll(sticky, lanes)
    lanes.action.fill(1)
    sticky.step(lanes, 0, numLanes)
    expect(new Set(lanes.state.lastAction)).toEqual(new Set([0, 1]))
    const stuck = lanes.state.lastAction.filter((action) => action === 0).length
    expect(Math.abs(stuck - numLanes / 4)).toBeLessThan(5 * Math.sqrt((numLanes * 3) / 16))
  })
})

test('what comes in Asterix comes from either side, in any row, one in three of gold', () => {
  const numLanes = 6000
  const environment = asterix(plain)
  const lanes = lanesOf<Record<'spawnTimer' | 'kind' | 'isRightward', Uint8Array>>(environment, numLanes)
  resetAll(environment, lanes)
  lanes.state.spawnTimer.fill(0)
  environment.step(lanes, 0, numLanes)
  const rows = new Array<number>(8).fill(0)
  let [gold, rightward] = [0, 0]
  for (let n = 0; n < numLanes; n++) {
    const kinds = [...lanes.state.kind.subarray(8 * n, 8 * n + 8)]
    const row = kinds.findIndex((kind) => kind !== 0)
    rows[row]!++
    if (kinds[row] === 2) gold++
    rightward += lanes.state.isRightward[8 * n + row]!
  }
  for (const count of rows) expect(Math.abs(count - numLanes / 8)).toBeLessThan(5 * Math.sqrt((numLanes * 7) / 64))
  expect(Math.abs(gold - numLanes / 3)).toBeLessThan(5 * Math.sqrt((numLanes * 2) / 9))
  expect(Math.abs(rightward - numLanes / 2)).toBeLessThan(5 * Math.sqrt(numLanes / 4))
})

test('what comes in Seaquest comes from either side, in any of eight rows, one enemy in three a submarine', () => {
  const numLanes = 6000
  const environment = seaquest(plain)
  const lanes = lanesOf<Record<'spawnTimer' | 'diverTimer' | 'enemy' | 'diver', Uint8Array>>(environment, numLanes)
  resetAll(environment, lanes)
  lanes.state.spawnTimer.fill(0)
  lanes.state.diverTimer.fill(0)
  environment.step(lanes, 0, numLanes)
  const { observation, state } = lanes
  let submarines = 0
  for (const list of [state.enemy, state.diver]) {
    const rows = new Array<number>(8).fill(0)
    let rightward = 0
    const width = list.length / numLanes
    for (let n = 0; n < numLanes; n++) {
      const [x, y, isRightward] = list.subarray(n * width) as unknown as [number, number, number]
      rows[y - 1]!++
      rightward += isRightward
      expect(x).toBe(isRightward === 1 ? 0 : 9)
      if (list === state.enemy) submarines += observation[1000 * n + 100 * y + 10 * x + 6]!
    }
    for (const count of rows) expect(Math.abs(count - numLanes / 8)).toBeLessThan(5 * Math.sqrt((numLanes * 7) / 64))
    expect(Math.abs(rightward - numLanes / 2)).toBeLessThan(5 * Math.sqrt(numLanes / 4))
  }
  expect(Math.abs(submarines - numLanes / 3)).toBeLessThan(5 * Math.sqrt((numLanes * 2) / 9))
})

test('cars in Freeway take each speed and direction as often', () => {
  const numLanes = 2000
  const lanes = lanesOf<Record<'wait' | 'isRightward', Uint8Array>>(freeway(), numLanes)
  resetAll(freeway(), lanes)
  const counts = new Array<number>(10).fill(0)
  for (const [car, wait] of lanes.state.wait.entries()) counts[wait - 1 + 5 * lanes.state.isRightward[car]!]!++
  const each = (8 * numLanes) / 10
  for (const count of counts) expect(Math.abs(count - each)).toBeLessThan(5 * Math.sqrt(each))
})
