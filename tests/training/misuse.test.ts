import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  box,
  cartPole,
  configureRun,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  type EnvironmentModel,
  evaluate,
  mlp,
  openRun,
  ppo,
  restart,
  startRun,
  tick,
} from '../../dist/src/index.js'
import { asEpisodes } from '../../dist/src/world/cohort.js'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

const policy = mlp({ hidden: [8] })
const once = { totalSteps: 64 }

async function cartTrainer(settings = {}, threads = 1) {
  const world = await createWorld({ environment: cartPole(), policy, numLanes: 4, seed: 1 })
  return createTrainer(world, ppo({ numSteps: 16, numMinibatches: 1, ...settings }), { threads })
}

const nothing = (): { there: number } => null as never

/** Episodes of one step, with `own` in the place of what resets or steps them. */
const oneStep = (own: Partial<Pick<EnvironmentModel<Record<never, never>>, 'reset' | 'step'>>) =>
  defineEnvironment({
    id: 'OneStep-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      observationSpace: box({ low: 0, high: 1 }),
      actionSpace: discrete(2),
      maxEpisodeSteps: 1,
      returnThreshold: null,
      reset({ observation }, rows, count) {
        for (const n of rows.subarray(0, count)) observation[n] = 0
      },
      step: ({ observation, reward }, from, to) => {
        observation.fill(0, from, to)
        reward.fill(0, from, to)
      },
      ...own,
    }),
  })()

/** Each step returns `reward`. */
const constant = (reward: number) =>
  oneStep({
    step: ({ observation, reward: rewards }, from, to) => {
      observation.fill(0, from, to)
      rewards.fill(reward, from, to)
    },
  })

test.each(['step', 'reset'] as const)(
  'an error of a user’s own %s begins and ends with lines of the user’s',
  async (method) => {
    const environment = oneStep({ [method]: () => void nothing().there })
    const world = await createWorld({ environment, policy, numLanes: 4, seed: 1 })
    const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 1 }), { threads: 1 })
    const caught: unknown = await (async () => {
      for await (const _ of trainer.updates(once));
    })().catch((error) => error)
    expect(caught).toBeInstanceOf(TypeError)
    const [head, ...frames] = (caught as TypeError).stack!.split('\n')
    expect(head).toBe("TypeError: Cannot read properties of null (reading 'there')")
    expect(frames[0]).toContain('misuse.test.ts')
    expect(frames.filter((frame) => /dist\/src|node:/.test(frame))).toEqual([])
  },
)

describe('a trainer that is used otherwise than it is meant', () => {
  test('begins its rollout with what the lanes see, when somebody ticked the world between updates', async () => {
    const trainer = await cartTrainer()
    for await (const _ of trainer.updates(once));
    for (let i = 0; i < 3; i++) tick(trainer.world)
    const { observation, rollout } = asEpisodes('test', trainer.world.cohort())
    const seen = observation.next.slice()
    for await (const _ of trainer.updates({ totalSteps: 128 }));
    expect(rollout.observation.slice(0, seen.length)).toEqual(seen)
  })

  test('saves nothing after an update that failed', async () => {
    const world = await createWorld({ environment: constant(Number.NaN), policy, numLanes: 4 })
    const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 1 }))
    await expect(trainer.updates(once).next()).rejects.toThrow('got NaN in reward[0]')
    await expect(trainer.save(join(folder, 'failed'))).rejects.toThrow('got NaN in reward[0]')
  })

  test('writes a whole checkpoint even if nobody waits for it before the next update', async () => {
    const trainer = await cartTrainer()
    const saves: Promise<string>[] = []
    const run = join(folder, 'unwaited')
    for await (const { update } of trainer.updates({ totalSteps: 640 })) if (update === 2) saves.push(trainer.save(run))
    await Promise.all(saves)
    const again = await cartTrainer()
    await again.restore(run)
    expect(again.update).toBe(2)
  })

  test('refuses a second loop and a checkpoint in the middle of an update', async () => {
    const trainer = await cartTrainer({}, 2)
    const first = trainer.updates(once).next()
    await expect(trainer.updates(once).next()).rejects.toThrow('during an update')
    await expect(trainer.save(join(folder, 'midst'))).rejects.toThrow('during an update')
    expect((await first).value).toMatchObject({ update: 1 })
    trainer.close()
  })

  test('ends with an error when the gradient is not finite', async () => {
    const trainer = await cartTrainer({ learningRate: 1e30, maxGradNorm: 1e30 })
    const all = async () => {
      for await (const _ of trainer.updates({ totalSteps: 1024 }));
    }
    await expect(all()).rejects.toThrow(/ppo: got a gradient of norm (NaN|Infinity)/)
  })
})

test('a module that trains when a worker imports it is refused there', async () => {
  const module = join(folder, 'trains.mjs')
  const index = new URL('../../dist/src/index.js', import.meta.url).href
  await writeFile(
    module,
    `import { cartPole, createTrainer, createWorld, defineEnvironment, mlp, ppo } from '${index}'
    const { id, parameters, ...model } = cartPole()
    export const mine = defineEnvironment({ id: 'Mine-v0', module: import.meta.url, settings: {}, state: () => model.state, make: () => model })
    export const world = await createWorld({ environment: mine(), policy: mlp(), numLanes: 2 })
    export const trainer = createTrainer(world, ppo({ numSteps: 8 }), { threads: 2 })`,
  )
  const { trainer } = await import(module)
  await expect(trainer.updates(once).next()).rejects.toThrow('createTrainer: got a call from a module that a worker')
})

test("an environment of one's own under a built-in id is found by its module", async () => {
  const module = join(folder, 'cart.mjs')
  const index = new URL('../../dist/src/index.js', import.meta.url).href
  await writeFile(
    module,
    `import { cartPole, defineEnvironment } from '${index}'
    export const mine = defineEnvironment({ id: 'CartPole-v1', module: import.meta.url, settings: {}, state: () => cartPole().state, make: () => ({ ...cartPole(), maxEpisodeSteps: 7 }) })`,
  )
  const run = join(folder, 'own')
  await startRun(await configureRun(module, {}), run)
  // The socket of the folder's owner is no file that could be copied.
  await cp(run, join(folder, 'copy'), { recursive: true, filter: (path) => !path.includes('.owner-') })
  const allowModule = ({ path }: { path: string }): boolean => path === module
  expect((await openRun(join(folder, 'copy'), { allowModule })).environment).toMatchObject({ maxEpisodeSteps: 7 })
})

test('evaluate plays more episodes than a function takes arguments', async () => {
  const environment = constant(2)
  const world = await createWorld({ environment, policy, numLanes: 1 })
  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 150_000 })
  expect(episodeReturn).toEqual({ mean: 2, std: 0, min: 2, max: 2 })
})

test('restart refuses lanes that are not the cohort’s', async () => {
  const world = await createWorld({ environment: cartPole(), policy, numLanes: 2 })
  expect(() => restart(world.cohorts[0]!, [2])).toThrow('lane of cohort mlp: got 2')
})

test('with several learners, solvedAtStep counts the steps of all lanes', async () => {
  const easy = { ...constant(2), returnThreshold: 2 }
  const world = await createWorld({
    cohorts: ['a', 'b'].map((name) => ({ name, environment: easy, policy, numLanes: 50 })),
  })
  const algorithm = ppo({ numSteps: 8, numMinibatches: 1 })
  const trainer = createTrainer(world, { a: algorithm, b: algorithm })
  for await (const _ of trainer.updates({ totalSteps: 800 }));
  expect(trainer.progress('a').solvedAtStep).toBe(200) // 100 episodes of one step, in two ticks of 100 lanes.
})
