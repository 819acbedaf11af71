import { describe, expect, test, vi } from 'vitest'
import { checkEnvironment, fromObjects, type ObjectEnvironment } from '../../dist/src/entries/environments.js'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  box,
  collect,
  createTrainer,
  createWorld,
  discrete,
  mlp,
  multiDiscrete,
  ppo,
  Random,
  Stream,
} from '../../dist/src/index.js'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { temporaryFolder } from '../support/temporary.ts'

const { forgetful, Wanderer, wanderer } = await import(new URL('../support/wanderer.mjs', import.meta.url).href)
const policy = mlp({ hidden: [8] })
const worldOf = (environment = wanderer(), numLanes = 6) => createWorld({ environment, policy, numLanes, seed: 3 })
const algorithm = ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 1e-3 })

/** The weights after so many updates in all. */
async function trained(updates: number, threads: number, folder?: string): Promise<Float32Array> {
  const world = await worldOf()
  const trainer = createTrainer(world, algorithm, { threads, ...(folder === undefined ? {} : { folder }) })
  try {
    if (folder !== undefined && (await listCheckpoints(folder)).length > 0) await trainer.restore()
    for await (const { update } of trainer.updates({ totalSteps: 20 * 96 })) if (update === updates) break
    if (folder !== undefined) await trainer.save()
    return world.cohorts[0]!.weights.slice()
  } finally {
    trainer.close()
  }
}

describe.each(['same-step', 'next-step'] as const)('fromObjects with resets in the %s', (autoreset) => {
  test('has of each step what an object says that is led by hand, and asks none whose episode is over', async () => {
    const world = await createWorld({ environment: wanderer(), policy, numLanes: 5, seed: 3, autoreset })
    world.reserve(world.draft(), { numSteps: 64, learner: {} })
    const cohort = world.cohorts[0]!
    if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
    await collect(world, 64)
    const { observation, action, reward, terminated, truncated, valid } = cohort.rollout
    const random = new Random(3)
    let ends = 0
    for (let n = 0; n < 5; n++) {
      const object = new Wanderer()
      let episode = 0
      let isOver = false
      const begin = () => {
        random.draw(Stream.reset, n, episode++, 0)
        return object.reset(random.words[0]!).observation
      }
      let seen = begin()
      for (let t = 0; t < 64; t++) {
        const row = t * 5 + n
        expect([...observation.subarray(2 * row, 2 * row + 2)]).toEqual([...Float32Array.from(seen)])
        if (isOver) {
          expect(valid[row]).toBe(0)
          seen = begin()
          isOver = false
          continue
        }
        const answer = object.step(action[row]!)
        expect([reward[row], terminated[row], truncated[row]]).toEqual([
          ...[Math.fround(answer.reward), Number(answer.terminated), Number(answer.truncated)],
        ])
        seen = answer.observation
        if (!answer.terminated && !answer.truncated) continue
        ends++
        if (autoreset === 'same-step') seen = begin()
        else isOver = true
      }
    }
    expect(ends).toBeGreaterThan(10)
    world.close()
  })
})

test('objects that are made anew in threads and after a resume come to the same bits', async () => {
  const whole = await trained(6, 1)
  expect(await trained(6, 3)).toEqual(whole)
  const folder = await temporaryFolder()
  const half = await trained(3, 2, folder)
  expect(half).not.toEqual(whole)
  expect(await trained(6, 1, folder)).toEqual(whole)
})

test('columns that are put back are what counts, whatever the objects have come to since', async () => {
  const world = await worldOf()
  await collect(world, 5)
  const columns = [...world.columns()].map(({ column }) => column)
  const kept = () => columns.map((column) => column.slice())
  const putBack = (before: readonly unknown[]) => {
    for (const [i, column] of columns.entries()) column.set(before[i] as never)
  }
  const cohort = world.cohorts[0]!
  if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
  const seen = async (ticks: number) => {
    const all: number[] = []
    for (let t = 0; t < ticks; t++) {
      await collect(world, 1)
      all.push(...cohort.observation.current, ...cohort.transition.reward)
    }
    return all
  }
  const start = kept()
  await seen(1)
  const here = kept()
  const first = await seen(4)
  // The objects go another way, to the same step of the same episodes.
  putBack(start)
  cohort.weights.set(cohort.weights.map((_, i) => 5 * Math.sin(i)))
  await seen(1)
  expect(kept()).not.toEqual(here)
  putBack(here)
  expect(await seen(4)).toEqual(first)
  world.close()
})

test('an object whose answers do not follow from its seed is told of when it is led through its episode again', async () => {
  const folder = await temporaryFolder()
  const train = async (updates: number) => {
    const trainer = createTrainer(await worldOf(forgetful()), algorithm, { folder, threads: 1 })
    try {
      if (updates > 1) await trainer.restore()
      for await (const { update } of trainer.updates({ totalSteps: 20 * 96 })) if (update === updates) break
      await trainer.save()
    } finally {
      trainer.close()
    }
  }
  await train(1)
  await expect(train(2)).rejects.toThrow(
    /environment Forgetful-v0, lane \d \(episode \d+, step \d+\): got different answers when the episode/,
  )
})

describe('actions are', () => {
  const asked: unknown[] = []
  const listener = {
    reset: () => ({ observation: 0 }),
    step: (action: unknown) => {
      asked.push(action)
      return { observation: [0], reward: 0, terminated: false, truncated: false }
    },
  }
  const options = { id: 'Listener-v0', observationSpace: box({ low: 0, high: 1 }), maxEpisodeSteps: 4 }
  test.each([
    ['a number for one choice', discrete(2), (action: unknown) => action === 0 || action === 1],
    ['a list for several', multiDiscrete([2, 3]), (action: unknown) => Array.isArray(action) && action.length === 2],
    ['a list for a box', box({ low: -1, high: 1 }), (action: unknown) => Array.isArray(action) && action.length === 1],
  ])('%s', async (_, actionSpace, fits) => {
    asked.length = 0
    const world = await worldOf(fromObjects(() => listener, { ...options, actionSpace })() as never, 2)
    await collect(world, 6)
    expect(asked).toHaveLength(12)
    expect(asked.every(fits)).toBe(true)
    world.close()
  })

  test('of the type that the space says, or it does not compile', () => {
    const texts: ObjectEnvironment<ReturnType<typeof discrete>> = {
      reset: () => ({ observation: 0 }),
      // @ts-expect-error: one choice is a number.
      step: (action: string) => ({ observation: action.length, reward: 0, terminated: false, truncated: false }),
    }
    expect(typeof texts.step).toBe('function')
  })
})

describe('what is wrong is said', () => {
  const good = { observation: [0], reward: 0, terminated: false, truncated: false }
  const options = {
    id: 'Odd-v0',
    observationSpace: box({ low: 0, high: 1 }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 4,
  }
  const playing = async (object: object) => {
    const world = await worldOf(fromObjects(() => object as never, options)() as never, 2)
    await collect(world, 4)
  }
  const AT = 'environment Odd-v0, step in lane 0 (episode 0, step 0)'
  test.each<[string, unknown, string]>([
    ['an array', [[0], 0, false, {}], `${AT}: got an array, expected an object with observation, reward, terminated`],
    ['nothing', undefined, `${AT}: got undefined, expected an object`],
    ['with a promise of nothing', Promise.resolve(), `${AT}: got undefined, expected an object`],
    ['no flag', { ...good, truncated: undefined }, `${AT}, truncated: got undefined, expected true or false`],
    ['an end that is a number', { ...good, terminated: 1 }, `${AT}, terminated: got 1, expected true or false`],
    ['a reward that is none', { ...good, reward: Number.NaN }, `${AT}, reward: got NaN, expected a finite number`],
    ['a reward that is a text', { ...good, reward: '1' }, `${AT}, reward: got "1", expected a finite number`],
    ['too many numbers', { ...good, observation: [0, 1] }, `${AT}, observation: got 2 numbers, expected 1 numbers`],
    ['a text', { ...good, observation: ['0'] }, `${AT}, observation[0]: got "0", expected a number`],
    ['an unknown part', { ...good, done: true }, `${AT}, key: got "done"`],
  ])('of a step that answers %s', async (_, answer, message) => {
    await expect(playing({ reset: () => ({ observation: 0 }), step: () => answer })).rejects.toThrow(message)
  })

  test('as a TypeError where the answer is an array', async () => {
    await expect(playing({ reset: () => ({ observation: 0 }), step: () => [] })).rejects.toThrow(TypeError)
  })

  test('with the lane and the cause where the object throws', async () => {
    const cause = new Error('no apples')
    const object = {
      reset: () => ({ observation: 0 }),
      step: () => {
        throw cause
      },
    }
    await expect(playing(object)).rejects.toMatchObject({
      message: expect.stringContaining(`${AT} threw: no apples`),
      cause,
    })
    await expect(playing({ reset: async () => ({ observation: 0 }), step: () => good })).rejects.toThrow(
      'reset in lane 0 (episode 0, step 0): got a promise, expected an answer at once',
    )
    const outside = { reset: () => ({ observation: 2 }), step: () => good }
    await expect(playing(outside)).rejects.toThrow('got 2 in observation[0] of lane 0')
  })

  test('of options and of objects that are none', async () => {
    expect(() => fromObjects({} as never, options)).toThrow('fromObjects Odd-v0: got {}, expected a function')
    expect(() => fromObjects(() => ({}) as never, { ...options, maxEpisodeSteps: 0 })).toThrow('maxEpisodeSteps: got 0')
    await expect(playing({ reset: () => ({ observation: 0 }) })).rejects.toThrow('step of its object: got undefined')
  })
})

test('objects keep the contract of environments, and may be allocated', () => {
  const { checks, holds } = checkEnvironment(wanderer(), { numLanes: 8, steps: 50 })
  expect(checks.filter(({ status }) => status !== 'held').map(({ name, status }) => `${name} ${status}`)).toEqual([
    'allocation unasked',
  ])
  expect(holds).toBe(true)
})

describe('a step that goes wrong', () => {
  const NUM_STEPS = 24
  const observationSpace = box({ low: -1, high: 1, shape: [2] })
  const faults = {
    throws: () => {
      throw new Error('the wheel came off')
    },
    'answers NaN': () => ({ observation: [Number.NaN, 0], reward: 0, terminated: false, truncated: false }),
    'leaves its space': () => ({ observation: [0, 2], reward: 0, terminated: false, truncated: false }),
    'changes its shape': () => ({ observation: [0], reward: 0, terminated: false, truncated: false }),
    'has no reward': () => ({ observation: [0, 0], reward: Number.NaN, terminated: false, truncated: false }),
    'answers with a list': () => [[0, 0], 0, false, false] as never,
  }

  /** Sees its steps and its seed; the fifth step of an odd seed goes wrong. */
  const stumbling = (fault: (() => unknown) | null, onFault?: 'stop' | 'end-episode') =>
    fromObjects(
      () => {
        let [steps, seed] = [0, 0]
        const observation = () => [steps / 100, seed / 2 ** 32]
        return {
          reset(given) {
            ;[steps, seed] = [0, given]
            return { observation: observation() }
          },
          step() {
            steps++
            if (fault !== null && steps === 5 && seed % 2 === 1) return fault() as never
            return { observation: observation(), reward: 1, terminated: false, truncated: false }
          },
        }
      },
      {
        ...{ id: 'Stumbling-v0', observationSpace, actionSpace: discrete(2), maxEpisodeSteps: 8 },
        ...(onFault === undefined ? {} : { onFault }),
      },
    )()

  const rolloutOf = async (environment: ReturnType<typeof stumbling>) => {
    const world = await createWorld({ environment, policy, numLanes: 4, seed: 3 })
    world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
    await collect(world, NUM_STEPS)
    const cohort = world.cohorts[0]!
    if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
    return cohort.rollout
  }

  test.each(Object.entries(faults))('and %s takes its own lane out, where that is asked for', async (_, fault) => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const rollout = await rolloutOf(stumbling(fault, 'end-episode'))
    const random = new Random(3)
    let cuts = 0
    for (let n = 0; n < 4; n++) {
      let [episode, step] = [0, 0]
      for (let t = 0; t < NUM_STEPS; t++) {
        random.draw(Stream.reset, n, episode, 0)
        const seed = random.words[0]!
        const row = 4 * t + n
        const isCut = step === 4 && seed % 2 === 1
        expect([...rollout.observation.subarray(2 * row, 2 * row + 2)]).toEqual([
          ...Float32Array.of(step / 100, seed / 2 ** 32),
        ])
        expect([rollout.reward[row], rollout.terminated[row]]).toEqual([isCut ? 0 : 1, 0])
        expect(rollout.truncated[row]).toBe(isCut || step === 7 ? 1 : 0)
        if (isCut) cuts++
        if (isCut || step === 7) [episode, step] = [episode + 1, 0]
        else step++
      }
    }
    expect(cuts).toBeGreaterThan(2)
    expect(cuts).toBeLessThan(11)
    expect(warned).toHaveBeenCalledTimes(cuts)
    expect(warned.mock.calls[0]).toEqual([
      expect.stringMatching(
        /Stumbling-v0, step in lane \d.*step 4\).*its episode is truncated \(fault 1 of this thread\)/s,
      ),
      'EnvironmentFault',
    ])
    warned.mockRestore()
  })

  test.each(Object.entries(faults))('and %s stops, where nothing else is asked for', async (_, fault) => {
    await expect((async () => rolloutOf(stumbling(fault)))()).rejects.toThrow(/lane \d \(episode \d, step 4\)/)
  })

  test('is either of the two', () => {
    expect(() => stumbling(null, 'ignore' as never)).toThrow('Stumbling-v0 onFault: got "ignore"')
  })
})
