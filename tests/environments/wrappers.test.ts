/** Wrappers: against the bare environment, stepped by hand; in runs; and what they refuse. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Phase } from '../../src/components/episode.ts'
import {
  actionRepeat,
  createEnvironment,
  defineWrapper,
  frameStack,
  fromObjects,
  gridPicture,
  mountainCarContinuous,
  predatorPrey,
  rescaleAction,
  timeLimit,
  type WrapperLanes,
  wrap,
} from '../../src/entries/environments.ts'
import {
  type BoxSpace,
  box,
  breakout,
  cartPole,
  collect,
  configureRun,
  createTrainer,
  createWorld,
  discrete,
  type EnvironmentDefinition,
  type EpisodeCohort,
  type Lanes,
  loadPolicy,
  mlp,
  openRun,
  pendulum,
  ppo,
  restart,
  resumeRun,
  startRun,
  tick,
  ticTacToe,
} from '../../src/index.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** What lanes saw, did and got in `numSteps` steps; `weights` are those of a policy of another world, so that both act alike. */
async function played(environment: EnvironmentDefinition, numSteps: number, numLanes = 4) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes, seed: 7 })
  world.reserve(world.draft(), { numSteps, learner: {} })
  collect(world, numSteps)
  const cohort = world.cohort() as EpisodeCohort
  const width = cohort.rollout.observation.length / (numSteps * numLanes)
  return {
    rollout: cohort.rollout,
    /** What lane n saw before step t. */
    seen: (t: number, n: number) => {
      const row = t * numLanes + n
      return Array.from(cohort.rollout.observation.subarray(row * width, (row + 1) * width))
    },
  }
}

/** What stands in each valid row, with what came after an end, by lane, episode and step; lanes that wait for it are told to begin anew. */
async function rowsByStep(environment: EnvironmentDefinition, autoreset: 'same-step' | 'next-step' | 'disabled') {
  const { numPlayers = 1 } = environment
  const [numLanes, numSteps] = [2 * numPlayers, 40]
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes, seed: 7, autoreset })
  world.reserve(world.draft(), { numSteps, learner: {} })
  const cohort = world.cohort() as EpisodeCohort
  const { rollout, final } = cohort
  for (let t = 0; t < numSteps; t++) {
    collect(world, 1)
    if (autoreset !== 'disabled' || t % 3 > 0) continue
    restart(
      cohort,
      Array.from({ length: numLanes }, (_, n) => n).filter((n) => cohort.episode.phase[n] === Phase.ended),
    )
  }
  const numRows = numSteps * numLanes
  const row = (column: ArrayLike<number>, at: number, width = column.length / numRows) =>
    Array.from({ length: width }, (_, k) => column[at * width + k]!)
  const rows = new Map<string, number[]>()
  const seen = ['observation', 'actionMask', 'action', 'reward', 'terminated', 'truncated'] as const
  for (let at = 0; at < numRows; at++) {
    if (rollout.valid[at] === 0) continue
    const isOver = rollout.terminated[at]! + rollout.truncated[at]! > 0
    const place = final.row.subarray(0, final.count[0]).indexOf(at)
    const last = isOver ? row(final.observation, place, rollout.observation.length / numRows) : []
    rows.set(`${rollout.lane[at]}/${rollout.episode[at]}/${rollout.step[at]}`, [
      ...seen.flatMap((name) => row(rollout[name], at)),
      ...last,
    ])
  }
  return rows
}

/** Sees how often it has moved in this episode, as a picture of two rows with two channels; ends after 5 moves, in one way or the other. */
const counting = fromObjects(
  () => {
    let [n, isCut] = [0, false]
    const look = () => [n, n + 20, 10 * n, n / 2]
    return {
      reset: (seed: number) => {
        n = 0
        isCut = seed % 2 === 0
        return { observation: look() }
      },
      step: (action: number) => {
        n++
        const [terminated, truncated] = [n === 5 && !isCut, n === 5 && isCut]
        return { observation: look(), reward: n + action / 10, terminated, truncated, info: {} }
      },
    }
  },
  {
    id: 'Counting-v0',
    observationSpace: box({ low: [-1, -2, -3, -4], high: [100, 200, 300, 400], shape: [2, 1, 2] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 100,
  },
)

/** Never ends by itself. */
const endless = fromObjects(
  () => ({
    reset: () => ({ observation: [0] }),
    step: () => ({ observation: [1], reward: 1, terminated: false, truncated: false }),
  }),
  { id: 'Endless-v0', observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), maxEpisodeSteps: 4 },
)

describe('frameStack', () => {
  test('shows the last observations, the newest last, and the first of an episode as often as there are frames', async () => {
    const frames = 3
    const inside = pendulum({ maxEpisodeSteps: 7 })
    const { rollout, seen } = await played(wrap(inside, frameStack({ frames })), 20)
    for (let n = 0; n < 4; n++) {
      let history: number[][] = []
      for (let t = 0; t < 20; t++) {
        const stacked = seen(t, n)
        const newest = stacked.slice(-3)
        history = rollout.step[t * 4 + n] === 0 ? [newest, newest, newest] : [...history.slice(1), newest]
        expect(stacked).toEqual(history.flat())
        const [cosine, sine] = newest as [number, number]
        expect(Math.hypot(cosine, sine)).toBeCloseTo(1)
      }
    }
    expect(wrap(inside, frameStack({ frames })).observationSpace).toMatchObject({
      shape: [3, 3],
      low: [-1, -1, -8, -1, -1, -8, -1, -1, -8],
    })
  })

  test('lays pictures one behind the other: channels of all frames together', async () => {
    const environment = wrap(counting(), frameStack({ frames: 2 }))
    expect(environment.observationSpace).toMatchObject({
      ...{ shape: [2, 1, 4], low: [-1, -2, -1, -2, -3, -4, -3, -4] },
      high: [100, 200, 100, 200, 300, 400, 300, 400],
    })
    const { rollout, seen } = await played(environment, 6)
    for (let t = 0; t < 5; t++) {
      const [n, before] = [t, Math.max(0, t - 1)]
      expect(rollout.step[t * 4]).toBe(t)
      expect(seen(t, 0)).toEqual([before, before + 20, n, n + 20, 10 * before, before / 2, 10 * n, n / 2])
    }
  })
})

test('a grid inside frameStack is drawn as the newest frame shows it', async () => {
  const inside = breakout()
  const environment = wrap(inside, frameStack({ frames: 4 }), actionRepeat({ times: 2 }))
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 3, seed: 1 })
  const { environmentLanes, observation } = world.cohort() as EpisodeCohort
  const colors = new Set<number>()
  for (let t = 0; t < 5; t++) {
    await tick(world)
    for (let n = 0; n < 3; n++) {
      const seen = observation.next.subarray(1600 * n, 1600 * (n + 1)) // 10 × 10 fields of 4 · 4 channels.
      const newest = Float32Array.from(seen).filter((_, i) => i % 16 >= 12)
      const picture = environment.draw!(environmentLanes.state, n)
      expect(picture).toEqual(gridPicture(inside.observationSpace, newest))
      for (const color of picture.fields) colors.add(color)
    }
  }
  expect([...colors].sort()).toEqual([0, 1, 2, 3, 4])
})

describe('actionRepeat', () => {
  test('does what the bare environment does so many times, adds up rewards and stops at the end', async () => {
    const { rollout } = await played(wrap(counting(), actionRepeat({ times: 3 })), 12)
    for (let row = 0; row < 48; row++) {
      // Five moves: three, and two.
      const isSecond = Math.floor(row / 4) % 2 === 1
      const action = rollout.action[row]! / 10
      expect(rollout.reward[row]).toBeCloseTo(isSecond ? 4 + 5 + 2 * action : 1 + 2 + 3 + 3 * action, 5)
      expect(rollout.terminated[row]! + rollout.truncated[row]!).toBe(isSecond ? 1 : 0)
    }
    expect(new Set(rollout.terminated)).toEqual(new Set(rollout.truncated)) // Both ends have come.
    expect(new Set(rollout.action).size).toBe(2)
  })

  test('is the bare environment with each action so many times, to the bit, and counts the time limit in its steps', async () => {
    const times = 4
    const inside = mountainCarContinuous({ maxEpisodeSteps: 30 })
    const { rollout, seen } = await played(wrap(inside, actionRepeat({ times })), 10, 2)
    for (const n of [0, 1]) {
      let [position, velocity] = seen(0, n) as [number, number]
      for (let t = 0; t < 8; t++) {
        const row = 2 * t + n
        const action = Math.min(Math.max(rollout.action[row]!, -1), 1)
        let reward = 0
        for (let i = 0; i < (t === 7 ? 2 : times); i++) {
          // Gymnasium's dynamics, in its own order.
          velocity += action * 0.0015 - 0.0025 * Math.cos(3 * position)
          velocity = Math.min(Math.max(velocity, -0.07), 0.07)
          position = Math.min(Math.max(position + velocity, -1.2), 0.6)
          if (position === -1.2 && velocity < 0) velocity = 0
          reward -= 0.1 * action ** 2
        }
        expect(rollout.reward[row]).toBeCloseTo(reward, 5)
        expect(rollout.truncated[row]).toBe(t === 7 ? 1 : 0) // 30 steps: seven times four, and two.
        if (t === 7) continue
        expect(seen(t + 1, n)[0]).toBeCloseTo(position, 5)
        expect(seen(t + 1, n)[1]).toBeCloseTo(velocity, 5)
      }
      expect(rollout.step[2 * 8 + n]).toBe(0)
    }
  })

  test('refuses masks, and lanes that come and go', () => {
    expect(() => wrap(ticTacToe(), actionRepeat())).toThrow('which masks actions')
    expect(() => wrap({ ...pendulum(), population: true }, actionRepeat())).toThrow('whose lanes are born and die')
  })
})

test('rescaleAction stretches actions to the bounds inside', async () => {
  const { rollout, seen } = await played(wrap(pendulum(), rescaleAction({ low: -1, high: 1 })), 2)
  for (let n = 0; n < 4; n++) {
    const [cosine, sine, velocity] = seen(0, n) as [number, number, number]
    const torque = 2 * Math.min(Math.max(rollout.action[n]!, -1), 1)
    const angle = Math.atan2(sine, cosine)
    expect(rollout.reward[n]).toBeCloseTo(-(angle ** 2 + 0.1 * velocity ** 2 + 0.001 * torque ** 2), 4)
    expect(seen(1, n)[2]).toBeCloseTo(velocity + (15 * sine + 3 * torque) * 0.05, 4)
  }
  expect(() => wrap(cartPole(), rescaleAction())).toThrow('a box with finite bounds')
  const boundless = { ...pendulum(), actionSpace: box({ low: 0, high: Number.POSITIVE_INFINITY }) }
  expect(() => wrap(boundless, rescaleAction())).toThrow('a box with finite bounds')
  expect(() => rescaleAction({ low: 1, high: 1 }).around(pendulum())).toThrow('low below high')
})

test('rescaleAction stretches each number to its own bounds', async () => {
  const echo = fromObjects(
    () => ({
      reset: () => ({ observation: [0, 10] }),
      step: (action: number[]) => ({ observation: action, reward: 0, terminated: false, truncated: false }),
    }),
    {
      ...{ id: 'Echo-v0', observationSpace: box({ low: -100, high: 100, shape: [2] }), maxEpisodeSteps: 9 },
      actionSpace: box({ low: [-2, 10], high: [2, 50] }),
    },
  )
  const { rollout, seen } = await played(wrap(echo(), rescaleAction({ low: -1, high: 3 })), 6)
  for (let t = 0; t < 5; t++) {
    for (let n = 0; n < 4; n++) {
      const said = Array.from(rollout.action.subarray(2 * (4 * t + n), 2 * (4 * t + n + 1)))
      const [part, other] = said.map((value) => (Math.min(Math.max(value, -1), 3) + 1) / 4) as [number, number]
      expect(seen(t + 1, n)[0]).toBeCloseTo(-2 + 4 * part, 5)
      expect(seen(t + 1, n)[1]).toBeCloseTo(10 + 40 * other, 4)
    }
  }
})

test('timeLimit is another limit, or none', async () => {
  const { rollout } = await played(wrap(pendulum(), timeLimit({ maxEpisodeSteps: 5 })), 11)
  expect(Array.from({ length: 11 }, (_, t) => rollout.truncated[4 * t])).toEqual([0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0])
  expect(wrap(pendulum(), timeLimit({ maxEpisodeSteps: null })).maxEpisodeSteps).toBeNull()
  for (const maxEpisodeSteps of [2.5, 2 ** 31]) {
    expect(() => wrap(pendulum(), timeLimit({ maxEpisodeSteps }))).toThrow('timeLimit.maxEpisodeSteps')
  }
})

test.each([
  ['what actionRepeat repeats', wrap(pendulum({ maxEpisodeSteps: 5 }), actionRepeat({ times: 2 })), 3],
  ['objects, which keep so many actions', counting(), 5],
  ['objects whose episodes take longer', endless(), 4],
])('a limit of its own is kept below a longer one, and without one: %s', async (_, inside, steps) => {
  for (const maxEpisodeSteps of [2 * steps + 1, null]) {
    const { rollout } = await played(wrap(inside, timeLimit({ maxEpisodeSteps })), 3 * steps + 1)
    for (const [row, step] of rollout.step.entries()) {
      expect(step).toBe(Math.floor(row / 4) % steps)
      expect(rollout.terminated[row]! + rollout.truncated[row]!).toBe(step === steps - 1 ? 1 : 0)
    }
  }
})

test('rooms, whose goal pays by their limit, keep it where there is no other', async () => {
  const inside = createEnvironment('DoorKey-v0 side=5')
  expect(inside.maxEpisodeSteps).toBe(100)
  const { rollout } = await played(wrap(inside, timeLimit({ maxEpisodeSteps: null })), 220)
  for (const [row, step] of rollout.step.entries())
    expect([rollout.truncated[row], step < 100]).toEqual([step === 99 ? 1 : 0, true])
  expect(Math.max(...rollout.truncated)).toBe(1)
})

test.each([
  [
    'turned actions, again and again, in frames',
    wrap(pendulum({ maxEpisodeSteps: 11 }), rescaleAction(), actionRepeat({ times: 3 }), frameStack()),
  ],
  ['frames inside', wrap(cartPole(), frameStack(), actionRepeat(), timeLimit({ maxEpisodeSteps: 6 }))],
  ['a game of several', wrap(predatorPrey({ maxEpisodeSteps: 9 }), actionRepeat({ times: 2 }), frameStack())],
  ['masks', wrap(ticTacToe(), frameStack())],
])('episodes are the same in each autoreset mode: %s', async (_, environment) => {
  const sameStep = await rowsByStep(environment, 'same-step')
  for (const autoreset of ['next-step', 'disabled'] as const) {
    const rows = await rowsByStep(environment, autoreset)
    const shared = [...rows.keys()].filter((key) => sameStep.has(key))
    expect(shared.length).toBeGreaterThan(40)
    expect(shared.map((key) => [key, rows.get(key)])).toEqual(shared.map((key) => [key, sameStep.get(key)]))
  }
})

test('an environment that is not done when it returns is found inside a wrapper too', async () => {
  const inside = pendulum()
  let calls = 0
  for (const [promising, wrapper] of [
    [{ step: () => Promise.resolve() }, frameStack()],
    [{ reset: () => Promise.resolve() }, frameStack()],
    [{ step: () => (calls++ === 0 ? Promise.resolve() : undefined) }, actionRepeat({ times: 3 })],
  ] as const) {
    const environment = wrap({ ...inside, ...promising } as never, wrapper)
    await expect(played(environment, 2)).rejects.toThrow('done when it returns')
  }
  expect(calls).toBe(3)
})

/** Breakout with f32 observations of −1 and 1. */
function centered(hasOwnBytes: boolean, hasCalls = true) {
  return defineWrapper({
    id: 'centered',
    settings: {},
    state: () => ({ seen: ['u8', 400] }) as const,
    make: (_, environment) => {
      const center = ({ own, outer }: WrapperLanes<{ seen: Uint8Array }>, n: number) => {
        for (let k = 400 * n; k < 400 * (n + 1); k++) outer.observation[k] = 2 * own.seen[k]! - 1
      }
      return {
        observationSpace: box({ low: -1, high: 1, shape: [10, 10, 4] }),
        ...(hasCalls && {
          reset(lanes, rows, count) {
            if (hasOwnBytes) lanes.inner.observation = lanes.own.seen
            environment.reset(lanes.inner, rows, count)
            for (let i = 0; i < count; i++) center(lanes, rows[i]!)
          },
          step(lanes, from, to) {
            if (hasOwnBytes) lanes.inner.observation = lanes.own.seen
            environment.step(lanes.inner, from, to)
            for (let n = from; n < to; n++) center(lanes, n)
          },
        }),
      }
    },
  })()
}

test('a wrapper with floats around an environment that writes bytes hands it bytes, or is refused', async () => {
  const [bytes, floats] = [await played(breakout(), 20), await played(wrap(breakout(), centered(true)), 20)]
  expect(bytes.seen(0, 1)).toContain(1)
  expect(floats.seen(0, 1)).toEqual(bytes.seen(0, 1).map((x) => 2 * x - 1))
  const expected =
    'wrapper centered: got a Float32Array for observations of Breakout-MinAtar, expected a Uint8Array in inner'
  await expect(played(wrap(breakout(), centered(false)), 20)).rejects.toThrow(expected)
  await expect(played(wrap(breakout(), centered(false, false)), 20)).rejects.toThrow(expected)
})

test('what a wrapper puts in the place of a column stands there for one call', async () => {
  const names = [
    ...['observation', 'actionMask', 'action', 'reward', 'terminated', 'truncated', 'step', 'present'],
  ] as readonly (keyof Lanes)[]
  let calls = 0
  const check = ({ outer, inner }: WrapperLanes) => {
    calls++
    expect(names.filter((name) => inner[name] !== outer[name])).toEqual([])
  }
  const putting = defineWrapper({
    id: 'putting',
    settings: {},
    make: (_, environment) => ({
      reset(lanes, rows, count) {
        check(lanes)
        environment.reset(lanes.inner, rows, count)
      },
      step(lanes, from, to) {
        check(lanes)
        environment.step(lanes.inner, from, to)
        for (const name of names) Object.assign(lanes.inner, { [name]: null })
      },
    }),
  })
  await played(wrap(ticTacToe(), putting()), 9)
  expect(calls).toBeGreaterThan(10)
})

test('an answer that comes later is refused where lanes could not wait', async () => {
  const late = fromObjects(
    () => ({
      reset: () => ({ observation: [0] }),
      step: async () => ({ observation: [0], reward: 0, terminated: false, truncated: false, info: {} }),
    }),
    { id: 'Late-v0', observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), maxEpisodeSteps: 10 },
  )
  await expect(played(wrap(late(), frameStack()), 4)).rejects.toThrow('a promise, inside frameStack')
})

describe('a run', () => {
  const words = ['wrappers=actionRepeat,frameStack', 'actionRepeat.times=2', 'frameStack.frames=3']

  test('has wrappers, keeps them in its folder, and goes on with them to the same bits, on two threads too', async () => {
    const folder = await temporaryFolder()
    const [whole, stopped] = [join(folder, 'whole'), join(folder, 'stopped')]
    await (await startRun(await smallRun(...words), whole)).train()
    const config = JSON.parse(await readFile(join(whole, 'config.json'), 'utf8'))
    expect(config.environment).toMatchObject({
      id: 'CartPole-v1',
      wrappers: [
        { id: 'actionRepeat', parameters: { times: 2 } },
        { id: 'frameStack', parameters: { frames: 3 } },
      ],
    })
    expect(config.environment.wrappers[0]).not.toHaveProperty('module')
    const run = await startRun(await smallRun(...words, 'threads=2'), stopped)
    const stop = new AbortController()
    await run.train({ onUpdate: ({ update }) => update === 3 && stop.abort(), signal: stop.signal })
    await (await resumeRun(stopped)).train()
    expect(await fingerprint(stopped)).toEqual(await fingerprint(whole))
    const { environment } = await loadPolicy(whole)
    expect((environment.observationSpace as BoxSpace).shape).toEqual([3, 4])
    expect(environment.maxEpisodeSteps).toBe(250)
  })

  test('has a wrapper of one’s own by its module’s path, in the order in which they are given', async () => {
    const module = new URL('../support/half-reward.ts', import.meta.url).pathname
    const given = { wrappers: `${module},frameStack`, 'halfReward.factor': '0.25', totalSteps: '64', numLanes: '4' }
    const definition = await configureRun('CartPole-v1', { ...given, 'ppo.numSteps': '8' })
    const folder = join(await temporaryFolder(), 'run')
    await (await startRun(definition, folder)).train()
    const { environment } = (await openRun(folder)) as typeof definition & { environment: EnvironmentDefinition }
    expect(environment.wrappers?.map(({ id }) => id)).toEqual(['halfReward', 'frameStack'])
    const { rollout } = await played(environment, 2)
    expect(rollout.reward[0]).toBe(0.25)
  })

  test('is not gone on with by other settings of its wrappers', async () => {
    const trainerOf = async (...limits: number[]) => {
      const environment = wrap(cartPole(), ...limits.map((maxEpisodeSteps) => timeLimit({ maxEpisodeSteps })))
      const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 2 })
      return createTrainer(world, ppo({ numSteps: 8 }))
    }
    const folder = await temporaryFolder()
    await (await trainerOf(20)).save(folder)
    await (await trainerOf(20)).restore(folder)
    const restored = async (...limits: number[]) => (await trainerOf(...limits)).restore(folder)
    await expect(restored(30)).rejects.toThrow('environment, timeLimit, maxEpisodeSteps: got 20, expected 30')
    await expect(restored()).rejects.toThrow('environment, wrappers: got ["timeLimit"], expected []')
    await expect(restored(20, 20)).rejects.toThrow('environment, wrappers: got ["timeLimit"]')
  })

  test.each([
    [{ wrappers: 'frameStak' }, 'did you mean "frameStack"'],
    [{ wrappers: 'frameStack,frameStack' }, 'expected ids that differ'],
    [{ 'frameStack.frames': '2' }, 'frameStack.frames'],
    [{ wrappers: 'rescaleAction' }, 'a box with finite bounds'],
  ])('refuses %o', async (texts, message) => {
    await expect(configureRun('CartPole-v1', texts)).rejects.toThrow(message)
  })
})

test('a wrapper is laid around at most once, and only a wrapper is', () => {
  expect(() => wrap(cartPole(), frameStack(), frameStack())).toThrow('wrapper frameStack: got around CartPole-v1 twice')
  expect(() => wrap(cartPole(), frameStack as never)).toThrow('made by a factory of defineWrapper')
})
