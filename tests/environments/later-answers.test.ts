/** Objects whose `step` answers with a promise: their lanes wait, and others go on. */
import { expect, test, vi } from 'vitest'
import { checkEnvironment, fromObjects } from '../../dist/src/entries/environments.js'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  box,
  collect,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  ppo,
  reset,
  restart,
  tick,
  type World,
} from '../../dist/src/index.js'

const { patient, wanderer } = await import(new URL('../support/wanderer.mjs', import.meta.url).href)
const policy = mlp({ hidden: [8] })
const cohortOf = (world: World) => world.cohorts[0] as EpisodeCohort
const worldOf = (environment: EnvironmentDefinition, numLanes: number, seed = 3) =>
  createWorld({ environment, policy, numLanes, seed })

/** Objects that count their steps, and of which the `late`-th made answers the step after its second as `answer` says. */
function counters(
  answer: (given: object) => unknown,
  options: object = {},
  onStep = (_made: number, _step: number) => {},
) {
  let made = 0
  const acted: number[][] = []
  const environment = fromObjects(
    () => {
      const [number, actions] = [made++, [] as number[]]
      acted.push(actions)
      let steps = 0
      return {
        reset: () => {
          steps = 0
          return { observation: 0 }
        },
        step: ([action]) => {
          steps++
          actions.push(action!)
          onStep(number, steps)
          const given = { observation: steps / 100, reward: steps, terminated: false, truncated: false }
          return (number === 0 && steps === 3 ? answer(given) : given) as typeof given
        },
      }
    },
    {
      ...{ id: 'Counter-v0', observationSpace: box({ low: 0, high: 1 }), actionSpace: box({ low: -1, high: 1 }) },
      ...{ maxEpisodeSteps: 50, ...options },
    },
  )()
  return { environment, acted }
}

async function recorded(environment: EnvironmentDefinition, numSteps: number, wake: (world: World) => void = () => {}) {
  const world = await worldOf(environment, 2)
  world.reserve(world.draft(), { numSteps, learner: {} })
  wake(world)
  try {
    await collect(world, numSteps)
  } finally {
    world.close()
  }
  return cohortOf(world).rollout
}

test('a lane that waits does not hold others, and its row is the one in which its answer has come', async () => {
  let give = (): void => {}
  let world: World | undefined
  const { environment, acted } = counters(
    (given) => new Promise((resolve) => (give = () => resolve(given))),
    {},
    (made, step) => {
      if (made !== 1) return
      if (step === 5) cohortOf(world!).weights.fill(0.3) // What it would choose now is something else.
      if (step === 8) give()
    },
  )
  const rollout = await recorded(environment, 12, (made) => {
    world = made
  })
  const rowsOf = (column: ArrayLike<number>, n: number) => Array.from({ length: 12 }, (_, t) => column[2 * t + n]!)
  expect(rowsOf(rollout.valid, 1)).toEqual(Array(12).fill(1))
  expect(rowsOf(rollout.valid, 0)).toEqual([1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
  expect(rowsOf(rollout.step, 0)).toEqual([0, 1, -1, -1, -1, -1, -1, -1, 2, 3, 4, 5])
  expect(rowsOf(rollout.reward, 0)).toEqual([1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 6])
  expect(rowsOf(rollout.observation, 0).map((x) => Math.round(100 * x))).toEqual([0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 4, 5])
  const [asked, taken] = [2 * 2, 2 * 8]
  expect(acted[0]![2]).toBe(rollout.appliedAction[taken])
  expect(rollout.action[taken]).toBe(rollout.action[asked])
  expect(rollout.logprob[taken]).toBe(rollout.logprob[asked])
  expect(rollout.value[taken]).not.toBe(rollout.value[asked]) // The weights are others.
})

/** What each lane came to, row after row in which it acted. */
async function courses(world: World, ticks: number): Promise<string[][]> {
  const cohort = cohortOf(world)
  const lanes = Array.from({ length: cohort.numLanes }, () => [] as string[])
  for (let t = 0; t < ticks; t++) {
    await tick(world)
    const { valid, reward, terminated, truncated } = cohort.transition
    for (const [n, lane] of lanes.entries()) {
      if (valid[n] === 1) lane.push(`${cohort.episode.episode[n]} ${reward[n]} ${terminated[n]} ${truncated[n]}`)
    }
  }
  return lanes
}

test('lanes that wait at each step come to the same as those that do not; so do objects that are made anew', async () => {
  const expected = await courses(await worldOf(wanderer(), 5), 40)
  const world = await worldOf(patient(), 5)
  const first = await courses(world, 45)
  for (const [n, lane] of first.entries()) {
    expect(lane.length).toBeGreaterThan(18)
    expect(lane).toEqual(expected[n]!.slice(0, lane.length))
  }
  const other = await worldOf(patient(), 5)
  reset(other) // Its columns are taken.
  const columns = [...world.columns()].map(({ column }) => column.slice())
  for (const [i, { column }] of [...other.columns()].entries()) column.set(columns[i] as never)
  const second = await courses(other, 60)
  for (const [n, lane] of second.entries()) {
    expect(lane.length).toBeGreaterThan(5)
    const rest = expected[n]!.slice(first[n]!.length)
    expect(lane.slice(0, rest.length)).toEqual(rest.slice(0, lane.length))
  }
  world.close()
  other.close()
})

test('training goes on past lanes that wait, in one thread', async () => {
  const trained = async (threads: number) => {
    const world = await worldOf(patient(), 6)
    const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2 }), { threads })
    try {
      for await (const { update } of trainer.updates({ totalSteps: 3 * 96 })) if (update === 3) break
      return world.cohorts[0]!.weights.slice()
    } finally {
      trainer.close()
      world.close()
    }
  }
  expect((await trained(1)).every(Number.isFinite)).toBe(true)
  await expect(trained(2)).rejects.toThrow('got a promise, expected an immediate answer, or lanes of one thread')
})

test.each([
  ['never comes', () => new Promise(() => {}), 'threw: got no answer in 0.02 s'],
  ['is refused', () => Promise.reject(new Error('no apples')), 'threw: no apples'],
  ['is wrong', () => Promise.resolve({}), 'observation: got none'],
])('an answer that %s is a fault of its lane: it stops, or takes the lane out', async (_, answer, message) => {
  const at = 'environment Counter-v0, step in lane 0 (episode 0, step 2)'
  const ticks = async (onFault: string) => {
    const { environment } = counters(answer, { timeoutSeconds: 0.02, onFault }, (made, step) => {
      // The other lane, which does not wait, takes its time.
      if (made === 1 && step > 2) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4)
    })
    return recorded(environment, 16)
  }
  await expect(ticks('stop')).rejects.toThrow(`${at}`)
  await expect(ticks('stop')).rejects.toThrow(message)
  const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const rollout = await ticks('end-episode')
  expect(told.mock.calls[0]![0]).toContain(at)
  told.mockRestore()
  const cut = Array.from({ length: 16 }, (_, t) => 2 * t).find((row) => rollout.truncated[row] === 1)!
  expect([rollout.reward[cut], rollout.valid[cut], rollout.step[cut]]).toEqual([0, 1, 2])
  expect([rollout.episode[cut + 2], rollout.step[cut + 2]]).toEqual([1, 0])
  expect(Array.from({ length: 16 }, (_, t) => rollout.step[2 * t + 1])).toEqual(Array.from({ length: 16 }, (_, t) => t))
})

test('where lanes cannot wait it is said', async () => {
  const { environment } = counters(async (given) => given)
  await expect(
    Promise.resolve().then(() => checkEnvironment(environment, { numLanes: 2, steps: 4 })),
  ).resolves.toMatchObject({
    checks: expect.arrayContaining([expect.objectContaining({ name: 'runs', status: 'failed' })]),
  })
  expect(() => counters(() => 0, { timeoutSeconds: 0 })).toThrow('Counter-v0 timeoutSeconds: got 0')
  const { environment: patientOne } = counters(() => new Promise(() => {}))
  const world = await worldOf(patientOne, 2)
  world.reserve(world.draft(), { numSteps: 8, learner: {} })
  for (let t = 0; t < 4; t++) await tick(world)
  expect(() => restart(cohortOf(world), [0])).toThrow('0, which waits for its environment within a rollout')
  world.close()
})
