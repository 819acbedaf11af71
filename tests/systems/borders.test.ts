/** First and last lanes and elements, values at a bound, what lies beside it: where the systems of environments begin and end. */
import { describe, expect, test, vi } from 'vitest'
import {
  bootstrap,
  box,
  createTrainer,
  createWorld,
  defineEnvironment,
  InputError,
  mlp,
  ppo,
  recurrent,
  restart,
  tick,
} from '../../src/index.ts'
import type { EpisodeCohort } from '../../src/world/episodes/cohort.ts'
import type { EpisodeCohortOptions } from '../../src/world/episodes/options.ts'
import { counter } from '../support/counter.ts'
import { doors } from '../support/doors.ts'
import { later } from '../support/later.ts'

const policy = mlp({ hidden: [4] })

/** What the work throws: `toThrow` would take `throw undefined` for any error. */
function thrownBy(work: () => unknown): InputError {
  try {
    work()
  } catch (error) {
    expect(error).toBeInstanceOf(InputError)
    return error as InputError
  }
  throw new Error('nothing was thrown')
}

interface Written {
  readonly reward: Float32Array
  readonly truncated: Uint8Array
}

/** An environment without a time limit, whose lanes see what they are given, and whose functions return what they are given. */
function edges({
  seen = [0, 0],
  stepped = [0, 0],
  returned = undefined as unknown,
  lane = 0,
  wrong = (_: Written) => {},
} = {}) {
  return defineEnvironment({
    id: 'Edges-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      observationSpace: box({ low: [-1, -2], high: [1, 3] }),
      actionSpace: box({ low: [-0.25, -0.5], high: [0.125, 0.375] }),
      maxEpisodeSteps: null,
      returnThreshold: null,
      reset({ observation }, rows, count) {
        for (let i = 0; i < count; i++) observation.set(rows[i] === lane ? seen : [0, 0], 2 * rows[i]!)
        return returned as undefined
      },
      step(lanes, from, to) {
        const { observation, reward } = lanes
        for (let n = from; n < to; n++) observation.set(n === lane ? stepped : [0, 0], 2 * n)
        reward.fill(1, from, to)
        wrong(lanes)
        return returned as undefined
      },
    }),
  })()
}

/** A world whose policy chooses as ever, but for one element. */
async function choosing(options: EpisodeCohortOptions, at: number, choice: number) {
  const world = await createWorld(options)
  const cohort = world.cohorts[0]!
  const { infer } = cohort.policy
  cohort.policy.infer = (lanes, ...rest) => {
    infer.call(cohort.policy, lanes, ...rest)
    lanes.action.chosen[at] = choice
  }
  return { world, cohort }
}

describe('an observation', () => {
  test.each([[[-1, -2]], [[1, 3]]])(
    'of exactly its bounds, %j, is let pass, from reset and from step',
    async (seen) => {
      const world = await createWorld({ environment: edges({ seen, stepped: seen, lane: 2 }), policy, numLanes: 3 })
      tick(world)
      expect([...world.cohorts[0]!.observation.next]).toEqual([0, 0, 0, 0, ...seen])
    },
  )

  test.each([
    [[-1.5, 0], '-1.5 in observation[0]', '-1 to 1'],
    [[0, -2.5], '-2.5 in observation[1]', '-2 to 3'],
    [[1.5, 0], '1.5 in observation[0]', '-1 to 1'],
    [[0, 3.5], '3.5 in observation[1]', '-2 to 3'],
  ])('of %j is refused, in the first lane and in the last, from reset and from step', async (wrong, got, bounds) => {
    for (const lane of [0, 2]) {
      for (const [name, given] of [
        ['reset', { seen: wrong }],
        ['step', { stepped: wrong }],
      ] as const) {
        const world = await createWorld({ environment: edges({ ...given, lane }), policy, numLanes: 3 })
        expect(thrownBy(() => tick(world)).message).toBe(
          `environment Edges-v0: got ${got} of lane ${lane} (episode 0, step 0) from ${name}, expected ${bounds}, the bounds of its observation space`,
        )
      }
    }
  })

  test('of a lane that is over stays what it was, beside lanes that go on', async () => {
    const environment = counter({ maxEpisodeSteps: 9 })
    const world = await createWorld({ environment, policy, numLanes: 4, autoreset: 'disabled' })
    for (let t = 0; t < 5; t++) tick(world)
    // Lanes 1 and 3 are over after three steps.
    expect([...world.cohorts[0]!.observation.next]).toEqual([6, 1, 4, 2, 6, 3, 4, 4])
  })
})

describe('an environment', () => {
  test('without a time limit cuts no episode', async () => {
    const world = await createWorld({ environment: edges(), policy, numLanes: 2 })
    const { transition, episode } = world.cohorts[0]!
    for (let t = 0; t < 5; t++) {
      tick(world)
      expect([...transition.truncated, ...transition.terminated]).toEqual([0, 0, 0, 0])
    }
    expect([...episode.step, ...episode.episode]).toEqual([5, 5, 0, 0])
  })

  test('is not asked to begin an episode in no lane', async () => {
    const inner = counter()
    const counts: number[] = []
    const environment: typeof inner = {
      ...inner,
      reset(lanes, rows, count) {
        counts.push(count)
        inner.reset(lanes, rows, count)
      },
    }
    const world = await createWorld({ environment, policy, numLanes: 4 })
    for (let t = 0; t < 7; t++) tick(world)
    // Odd lanes are over after three steps, the others after five.
    expect(counts).toEqual([4, 2, 2, 2])
  })

  test.each([null, 7, 'done', {}])('may return %j, which is no promise', async (returned) => {
    const world = await createWorld({ environment: edges({ returned }), policy, numLanes: 1 })
    tick(world)
    expect([...world.cohorts[0]!.episode.step]).toEqual([1])
  })

  test('that returns a promise, writes no reward or a flag that is none is refused with an InputError', async () => {
    const promising = await createWorld({ environment: edges({ returned: Promise.resolve() }), policy, numLanes: 1 })
    expect(thrownBy(() => tick(promising)).message).toContain('a promise from reset')
    const wrongs: [(written: Written) => void, string][] = [
      [({ reward }) => reward.fill(Number.NaN, 0, 1), 'NaN in reward[0] of lane 0 (episode 0, step 0) from step'],
      [({ reward }) => reward.fill(-(2 ** 51), 1, 2), '-2251799813685248 in reward[0] of lane 1 (episode 0, step 0)'],
      [({ truncated }) => truncated.fill(3, 0, 1), '0 in terminated and 3 in truncated of lane 0 (episode 0, step 0)'],
    ]
    for (const [wrong, message] of wrongs) {
      const world = await createWorld({ environment: edges({ wrong }), policy, numLanes: 2 })
      expect(thrownBy(() => tick(world)).message).toContain(message)
    }
  })
})

describe('an action', () => {
  test.each([0, 1, 4, 5])('that is no number, the element %d, is named by its lane and its place', async (at) => {
    const { world } = await choosing({ environment: edges(), policy, numLanes: 3 }, at, Number.NaN)
    expect(thrownBy(() => tick(world)).message).toBe(
      `policy mlp: got NaN in action[${at % 2}] of lane ${Math.floor(at / 2)} (episode 0, step 0), expected a finite number`,
    )
  })

  test('in a box is applied within its bounds, and recorded as it was chosen', async () => {
    const { world, cohort } = await choosing({ environment: edges(), policy, numLanes: 3 }, 4, -9)
    tick(world)
    expect([cohort.action.chosen[4], cohort.action.applied[4]]).toEqual([-9, -0.25])
    for (let i = 0; i < 6; i++) {
      const [low, high] = [[-0.25, 0.125] as const, [-0.5, 0.375] as const][i % 2]!
      expect(cohort.action.applied[i]).toBe(Math.min(Math.max(cohort.action.chosen[i]!, low), high))
    }
  })

  test.each([
    [0, 2],
    [0, -1],
    [2, 2],
  ])('that is no choice, element %d, is refused: %d', async (at, choice) => {
    const { world } = await choosing({ environment: counter(), policy, numLanes: 3 }, at, choice)
    expect(thrownBy(() => tick(world)).message).toBe(
      `policy mlp: got ${choice} in action[0] of lane ${at} (episode 0, step 0), expected a whole number from 0 to 1`,
    )
  })

  test.each([
    [0, 0], // In the first step the door with the lane's number is locked.
    [1, 0],
    [4, 2],
    [5, 2],
  ])('that the mask forbids, element %d, is refused: %d', async (at, choice) => {
    const { world } = await choosing({ environment: doors(), policy, numLanes: 3 }, at, choice)
    expect(thrownBy(() => tick(world)).message).toBe(
      `policy mlp: got ${choice} in action[${at % 2}] of lane ${Math.floor(at / 2)} (episode 0, step 0), expected a choice allowed by the action mask`,
    )
  })

  test('is looked up in a mask only where there is one: nothing is read beyond columns', async () => {
    const world = await createWorld({ environment: counter(), policy, numLanes: 3 })
    const looks = [vi.spyOn(world.kernels, 'findIllegal'), vi.spyOn(world.kernels, 'findStuck')]
    tick(world)
    for (const look of looks) expect(look).not.toHaveBeenCalled()
  })

  test('of a lane without a legal choice is not asked for, be it the first or the last', async () => {
    for (const n of [0, 2]) {
      const world = await createWorld({ environment: doors(), policy, numLanes: 3 })
      tick(world)
      const { actionMask } = world.cohorts[0]!
      actionMask.current.fill(0, 6 * n + 3, 6 * n + 6)
      expect(thrownBy(() => tick(world)).message).toBe(
        `environment Doors-v0: got an action mask without a legal choice in lane ${n} (episode 0, step 1), expected at least one`,
      )
    }
  })
})

test('what a policy that answers later failed with is thrown as it is', async () => {
  const world = await createWorld({ environment: counter(), policy: later(), numLanes: 2 })
  const failure = new Error('gone')
  world.cohorts[0]!.policy.infer = () => Promise.reject(failure)
  const caught = await (async () => {
    for (let t = 0; t < 9; t++) await tick(world)
  })().catch((error) => [error])
  expect(caught).toEqual([failure])
  expect((caught as unknown[])[0]).toBe(failure)
})

/** A world with a recorder for 8 steps. */
async function recording(options: Partial<EpisodeCohortOptions> = {}) {
  const world = await createWorld({ environment: counter(), policy, numLanes: 4, seed: 3, ...options })
  createTrainer(world, ppo({ numSteps: 8, numMinibatches: 1 }))
  return { world, cohort: world.cohorts[0]! }
}

describe('a restart', () => {
  test.each([-1, 0.5, 4, Number.NaN, Number.POSITIVE_INFINITY])(
    'of lane %d, which there is not, is refused',
    async (n) => {
      const { world, cohort } = await recording()
      tick(world)
      const before = [...cohort.episode.phase]
      expect(thrownBy(() => restart(cohort, [0, n])).message).toBe(
        `lane of cohort mlp: got ${n}, expected a whole number from 0 to 3`,
      )
      expect([...cohort.episode.phase]).toEqual(before)
      restart(cohort, [0, 3])
      tick(world)
      expect([...cohort.episode.episode]).toEqual([1, 0, 0, 1])
    },
  )

  test('in a thread that has a share of the lanes is refused in the middle of a rollout, and there alone', async () => {
    const { world, cohort } = await recording()
    const share: EpisodeCohort = Object.create(cohort, { threads: { value: { ...cohort.threads, count: 2 } } })
    restart(share, [1])
    tick(world)
    const before = [...cohort.episode.phase]
    expect(thrownBy(() => restart(share, [1])).message).toBe(
      'restart of cohort mlp: got a call during an update of several threads, expected a call between two updates',
    )
    expect([...cohort.episode.phase]).toEqual(before)
    while (cohort.t < 8) tick(world)
    restart(share, [0])
    tick(world)
    expect(cohort.episode.step[0]).toBe(1)
  })

  test('cuts no row in which nobody acted', async () => {
    const { world, cohort } = await recording({ autoreset: 'next-step' })
    for (let t = 0; t < 4; t++) tick(world) // Lane 1 is over after three steps; in the fourth row it begins anew.
    restart(cohort, [1, 2])
    expect([...cohort.windows.transition[3]!.valid]).toEqual([1, 0, 1, 0])
    expect([...cohort.windows.transition[3]!.truncated]).toEqual([0, 0, 1, 0])
    expect([...cohort.bootstrap.row.subarray(0, cohort.bootstrap.length)]).toEqual([14])
  })
})

describe('what a policy remembers', () => {
  test('is forgotten where an episode begins, and listed where one was cut', async () => {
    const { world, cohort } = await recording({
      policy: recurrent({ units: 5, hidden: [4], sequenceLength: 8 }),
      numLanes: 3,
    })
    const width = cohort.memory.next.length / 3
    const of = (memory: Float32Array, n: number) => [...memory.subarray(n * width, (n + 1) * width)]
    const isForgotten = (n: number) => of(cohort.memory.current, n).every((value) => value === 0)
    tick(world)
    expect([0, 1, 2].map(isForgotten)).toEqual([true, true, true])
    for (let t = 1; t < 3; t++) tick(world)
    expect([0, 1, 2].map(isForgotten)).toEqual([false, false, false])
    tick(world) // Lane 1 was over.
    expect([0, 1, 2].map(isForgotten)).toEqual([false, true, false])
    tick(world) // Lanes 0 and 2 are cut.
    const { bootstrap: list } = cohort
    expect([...list.row.subarray(0, list.length)]).toEqual([12, 14])
    expect([of(list.memory, 0), of(list.memory, 1)]).toEqual([of(cohort.memory.next, 0), of(cohort.memory.next, 2)])
    expect(of(list.memory, 0)).not.toEqual(of(list.memory, 1))
    expect(new Set(of(list.memory, 1)).size).toBeGreaterThan(1)
    tick(world)
    expect([0, 1, 2].map(isForgotten)).toEqual([true, false, true])
  })
})

describe('the values of a rollout’s ends', () => {
  /** Two cohorts whose critics answer when they are let: 7 the first, 9 the second. */
  async function waiting() {
    const environment = counter({ maxEpisodeSteps: 100 })
    const cohorts = ['left', 'right'].map((name) => ({ name, environment, policy: later(), numLanes: 1 }))
    const world = await createWorld({ cohorts, seed: 1 })
    createTrainer(world, Object.fromEntries(cohorts.map(({ name }) => [name, ppo({ numSteps: 2, numMinibatches: 1 })])))
    for (const cohort of world.cohorts) cohort.ticksLeft = 2
    while (world.cohorts.some(({ ticksLeft }) => ticksLeft > 0)) await tick(world)
    const answers = world.cohorts.map(({ policy: critic }, i) => {
      let answer = () => {}
      critic.values = (value) =>
        new Promise((resolve) => {
          answer = () => {
            value.fill(7 + 2 * i, 0, 1)
            resolve()
          }
        })
      return () => answer()
    })
    return { world, answers }
  }

  test.each([
    [0, 1],
    [1, 0],
  ])('are waited for in every cohort: first that of %d, then that of %d', async (first, second) => {
    const { world, answers } = await waiting()
    let isDone = false
    const valued = (bootstrap(world) as Promise<void>).then(() => {
      isDone = true
    })
    answers[first]!()
    for (let i = 0; i < 20; i++) await Promise.resolve()
    expect(isDone).toBe(false)
    answers[second]!()
    await valued
    expect(world.cohorts.map(({ rollout }) => rollout.nextValue[1])).toEqual([7, 9])
  })
})
