/** The compiled bodies of grid games beside their plain ones, lane by lane and byte by byte; `minatar-games.test.ts` holds the plain ones to MinAtar. */
import { describe, expect, test } from 'vitest'
import type { EnvironmentDefinition, Lanes } from '../../src/environments/environment.ts'
import { asterix } from '../../src/environments/minatar/asterix.ts'
import { breakout } from '../../src/environments/minatar/breakout.ts'
import { freeway } from '../../src/environments/minatar/freeway.ts'
import { seaquest } from '../../src/environments/minatar/seaquest.ts'
import { spaceInvaders } from '../../src/environments/minatar/space-invaders.ts'
import { kernelBuilds } from '../../src/kernels/bind.ts'
import { gridKernels } from '../../src/kernels/grids/bind.ts'
import * as plain from '../../src/kernels/grids/plain.ts'
import { type Bodies, bindTwins } from '../../src/kernels/grids/twins.ts'
import { nativeBodies } from '../../src/kernels/native.ts'
import { type BenchBuild, levels } from '../support/builds.ts'
import { lanesOf } from '../support/lanes.ts'
import { isThorough, seeded } from '../support/tiers.ts'

type Columns = Record<string, Uint8Array | Int32Array | Uint32Array>
interface Listed {
  readonly laneList: Uint32Array
}
/** Draws a whole number below `n`. */
type Draw = (n: number) => number

/** A game, and how a lane is put where play seldom gets; the same draws put it there for both bodies. */
interface Game {
  readonly make: (settings: { stickyActionProbability: number; maxEpisodeSteps?: number }) => EnvironmentDefinition
  readonly numActions: number
  disturb(state: Columns, n: number, draw: Draw): void
  /** What has to be seen in some lane at some time, by its columns. */
  readonly reached: (state: Columns) => readonly boolean[]
}

const games: Record<string, Game> = {
  asterix: {
    make: asterix,
    numActions: 5,
    disturb(state, n, draw) {
      // The ramp is due, from any number of ramps and at any speed.
      state.rampTimer![n] = draw(3) - 1
      state.ramps![n] = draw(30)
      state.spawnSteps![n] = 1 + draw(10)
      state.moveSteps![n] = 1 + draw(5)
      for (let i = 8 * n; i < 8 * n + 8; i++) state.kind![i] = draw(3) // All rows may be full.
      state.x![n] = [0, 1, 8, 9][draw(4)]!
      state.y![n] = [1, 2, 7, 8][draw(4)]!
    },
    reached: ({ spawnSteps, moveSteps }) => [spawnSteps!.includes(1), moveSteps!.includes(1)],
  },
  breakout: {
    make: breakout,
    numActions: 3,
    disturb(state, n, draw) {
      state.ballX![n] = draw(10)
      state.ballY![n] = [0, 1, 2, 3, 4, 8][draw(6)]!
      state.direction![n] = draw(4)
      state.strike![n] = draw(2)
      state.paddle![n] = Math.max(0, Math.min(9, state.ballX![n]! + draw(3) - 1))
      state.bricks![n] = draw(4) === 0 ? 0 : draw(2 ** 30)
    },
    reached: ({ bricks, strike }) => [bricks!.includes(0), strike!.includes(1)],
  },
  freeway: {
    make: freeway,
    numActions: 3,
    disturb(state, n, draw) {
      state.chicken![n] = 1 + draw(9)
      state.moveTimer![n] = draw(2)
    },
    reached: ({ chicken }) => [chicken!.includes(1)],
  },
  seaquest: {
    make: seaquest,
    numActions: 6,
    disturb(state, n, draw) {
      // About to come up, with any number of divers and almost any oxygen; the ramp may be at its end.
      state.y![n] = draw(9)
      state.isSurfaced![n] = 0
      state.oxygen![n] = draw(3) === 0 ? draw(3) : draw(201)
      state.aboard![n] = draw(8) - 1
      state.ramps![n] = draw(256)
      state.spawnSteps![n] = 1 + draw(3)
      state.moveSteps![n] = 2 + (state.spawnSteps![n] === 1 ? 0 : draw(2)) // Else there would be more enemies than the list has room for.
      if (state.numDivers![n] === 0) state.diverTimer![n] = 0
      state.spawnTimer![n] = draw(2)
    },
    reached: ({ aboard, numEnemies, numTorpedoes, numDivers, moveSteps }) => [
      aboard!.includes(-1),
      numEnemies!.includes(4),
      numTorpedoes!.includes(2),
      numDivers!.includes(1),
      moveSteps!.includes(2),
    ],
  },
  spaceInvaders: {
    make: spaceInvaders,
    numActions: 4,
    disturb(state, n, draw) {
      const last = 10 * n + 9
      // Few aliens, anywhere: at an edge, in the last row, all of them above one column.
      for (let row = 10 * n; row <= last; row++) state.aliens![row] = draw(4) === 0 ? draw(1024) : 0
      if (draw(3) === 0) state.aliens!.fill(0, 10 * n, last)
      state.aliens![10 * n + draw(10)]! |= 1 << draw(10)
      for (let row = 10 * n; row <= last; row++) state.shots![row] = draw(4) === 0 ? draw(1024) : 0
      state.isRightward![n] = draw(2)
      state.moveSteps![n] = 6 + draw(7)
      state.moveTimer![n] = draw(3)
      state.bombTimer![n] = draw(3)
    },
    reached: ({ moveSteps, bombs }) => [moveSteps!.includes(6), bombs!.some((row) => row !== 0)],
  },
}

/** Steps of a game in two sets of lanes that are to have the same bytes; returns what happened. */
function play(game: Game, builds: readonly [BenchBuild, BenchBuild], numLanes: number, steps: number, sticky: number) {
  const maxEpisodeSteps = 60
  const environment = game.make({ stickyActionProbability: sticky, maxEpisodeSteps })
  const [theirs, ours] = builds.map((build) =>
    lanesOf<Columns>(environment, numLanes, 2 ** 40 + 7, build),
  ) as unknown as [Lanes<Columns> & Listed, Lanes<Columns> & Listed]
  const both = [theirs, ours]
  const uniform = seeded(numLanes + steps)
  const draw: Draw = (n) => Math.floor(uniform() * n)
  const copies = (name: 'action' | 'lane' | 'episode' | 'step') => ours[name].set(theirs[name] as never)
  const happened = { rewards: 0, ends: 0, reached: new Set<number>() }
  const expectSame = (when: string) => {
    for (const name of ['observation', 'reward', 'terminated'] as const)
      same(`${name} ${when}`, theirs[name], ours[name])
    for (const [name, column] of Object.entries(theirs.state)) same(`${name} ${when}`, column, ours.state[name]!)
  }
  for (let n = 0; n < numLanes; n++) theirs.lane[n] = n % 3 === 0 ? n : 2 ** 32 - n
  theirs.step.fill(maxEpisodeSteps - 1)
  for (let t = 0; t < steps; t++) {
    // Some episodes that are over are held, not begun anew.
    const isDue = (n: number) => theirs.terminated[n] === 1 && draw(8) !== 0
    const over = [...theirs.step.keys()].filter((n) => isDue(n) || theirs.step[n]! >= maxEpisodeSteps - 1)
    for (const n of over) {
      theirs.episode[n]!++
      theirs.step[n] = 0
    }
    copies('lane')
    copies('episode')
    // In an order of their own, as a list of lanes may have it.
    over.reverse()
    for (const lanes of both) {
      lanes.laneList.set(over)
      environment.reset(lanes, lanes.laneList, over.length)
    }
    expectSame(`after resets at ${t}`)
    for (let n = 0; n < numLanes; n++) {
      theirs.action[n] = draw(game.numActions)
      if (draw(40) !== 0 || theirs.state.isOver?.[n] === 1) continue
      const drawn = Array.from({ length: 64 }, () => uniform())
      for (const { state } of both) {
        let next = 0
        game.disturb(state, n, (below) => Math.floor(drawn[next++ % 64]! * below))
      }
    }
    copies('action')
    copies('step')
    for (const lanes of both) lanes.terminated.fill(0)
    const from = Math.min(t % 3, numLanes - 1)
    for (const lanes of both) {
      environment.step(lanes, 0, from)
      environment.step(lanes, from, numLanes)
    }
    expectSame(`after step ${t}`)
    happened.rewards += theirs.reward.reduce((sum, reward) => sum + reward, 0)
    happened.ends += theirs.terminated.reduce((sum, end) => sum + end, 0)
    game.reached(theirs.state).forEach((isReached, i) => {
      if (isReached) happened.reached.add(i)
    })
    for (let n = 0; n < numLanes; n++) if (theirs.terminated[n] === 0) theirs.step[n]!++
  }
  return happened
}

function bytesOf(column: ArrayBufferView): Buffer {
  return Buffer.from(column.buffer, column.byteOffset, column.byteLength)
}

function same(
  what: string,
  theirs: ArrayBufferView & { length: number },
  ours: ArrayBufferView & { length: number },
): void {
  if (bytesOf(theirs).equals(bytesOf(ours))) return
  const [a, b] = [theirs, ours].map((column) => [...(column as unknown as Iterable<number>)])
  const at = a!.findIndex((element, i) => !Object.is(element, b![i]))
  throw new Error(`${what}: element ${at} is ${b![at]}, that of the plain body ${a![at]}`)
}

/** `native` has the bodies of the best level, the last. */
const builds: readonly BenchBuild[] = [...kernelBuilds().filter((build) => build !== 'plain'), ...levels.slice(0, -1)]

describe.each(Object.entries(games))('%s', (name, game) => {
  test.each(builds)('plays the plain body’s episodes, to the byte (%s)', (build) => {
    const seen = new Set<number>()
    let [rewards, ends] = [0, 0]
    for (const [numLanes, steps, sticky] of [
      [1, 300, 0.1],
      [7, 600, 0.5],
      [130, isThorough ? 1500 : 300, 0.1],
      [33, 100, 0],
      [16, 60, 1],
    ] as const) {
      const happened = play(game, ['plain', build], numLanes, steps, sticky)
      rewards += happened.rewards
      ends += happened.ends
      for (const i of happened.reached) seen.add(i)
    }
    expect(rewards).toBeGreaterThan(20)
    expect(ends > 20).toBe(name !== 'freeway')
    expect(seen.size).toBe(game.reached(lanesOf<Columns>(game.make({ stickyActionProbability: 0 }), 1).state).length)
  })

  // A stranger's checkpoint may hold any numbers, and native code has no bounds of its own.
  test.each(builds)('writes only the rows of its lanes, whatever their state is (%s)', (build) => {
    const [numLanes, from, to] = [160, 64, 96] // A place of (255, 255) is 28 rows on.
    const environment = game.make({ stickyActionProbability: 0.1 })
    const lanes = lanesOf<Columns>(environment, numLanes, 1, build)
    const uniform = seeded(7)
    const some = [0, 1, 5, 9, 10, 16, 31, 32, 127, 200, 254, 255]
    const columns = () =>
      [
        lanes.observation,
        lanes.reward,
        lanes.terminated,
        lanes.action,
        lanes.lane,
        ...Object.values(lanes.state),
      ] as Uint8Array[]
    const others = () =>
      columns().flatMap((column) => {
        const width = column.length / numLanes
        return [column.slice(0, from * width), column.slice(to * width)]
      })
    for (let n = 0; n < numLanes; n++) lanes.laneList[n] = n
    environment.reset(lanes, lanes.laneList, numLanes)
    for (let t = 0; t < 200; t++) {
      for (const [name, column] of Object.entries(lanes.state)) {
        const width = column.length / numLanes
        const isWord = column.BYTES_PER_ELEMENT > 1
        for (let i = from * width; i < to * width; i++) {
          if (uniform() < 0.5) continue
          // Of a word few bits, far from its row's, or any.
          const word = [0, 0, 0, 2 ** Math.floor(uniform() * 32), uniform() * 2 ** 32][Math.floor(uniform() * 5)]!
          column[i] = isWord ? word : some[Math.floor(uniform() * some.length)]!
        }
        if (name === 'isOver') column.fill(t % 4 === 0 ? 1 : 0, from, to)
      }
      for (let n = from; n < to; n++) lanes.action[n] = uniform() * game.numActions
      const before = others()
      environment.step(lanes, from, to)
      expect(
        others().every((column, i) => Buffer.compare(bytesOf(column), bytesOf(before[i]!)) === 0),
        `step ${t}`,
      ).toBe(true)
    }
  })
})

test('each kernel of the games is compiled', () => {
  const lanes = lanesOf(asterix(), 1, 1, 'simd')
  const compiled = new Map(Object.entries(gridKernels(lanes.kernels)))
  for (const [name, kernel] of Object.entries(plain)) expect(compiled.get(name), name).not.toBe(kernel)
  expect([...compiled.keys()].sort()).toEqual(Object.keys(plain).sort())
})

test('a step of 16 lanes or more is native, one of fewer and a reset are not', () => {
  const bodiesOf = (called: string[]) =>
    Object.fromEntries(Object.keys(plain).map((name) => [name, () => called.push(name)])) as unknown as Bodies
  const [wasm, native]: [string[], string[]] = [[], []]
  const twins = bindTwins(bodiesOf(wasm), () => 0, plain, bodiesOf(native)) as unknown as Record<
    string,
    (...given: unknown[]) => void
  >
  const anything = {}
  for (const name of Object.keys(twins)) {
    if (name.endsWith('Reset')) twins[name]!(anything, anything, anything, anything, 100)
    else for (const to of [18, 19]) twins[name]!(anything, anything, anything, 0, 3, to)
  }
  const steps = Object.keys(plain).filter((name) => name.endsWith('Step'))
  expect(steps.length).toBe(5)
  expect(native).toEqual(steps)
  expect(wasm.toSorted()).toEqual(Object.keys(plain).toSorted())
  if (levels.length > 0)
    expect(Object.keys(nativeBodies(new SharedArrayBuffer(8)))).toEqual(expect.arrayContaining(steps))
})
