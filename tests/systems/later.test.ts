import { describe, expect, test } from 'vitest'
import { cartPole, collect, createTrainer, createWorld, evaluate, mlp, ppo, tick } from '../../src/index.ts'
import type { PolicyDefinition } from '../../src/policies/policy.ts'
import { counter } from '../support/counter.ts'
import { later } from '../support/later.ts'

const settings = { numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 1e-3 }

async function train(...policies: PolicyDefinition[]) {
  const cohorts = policies.map((policy, i) => ({ environment: cartPole(), policy, numLanes: 300, name: `cohort${i}` }))
  const world = await createWorld({ cohorts, seed: 2 })
  const trainer = createTrainer(world, Object.fromEntries(cohorts.map(({ name }) => [name, ppo(settings)])))
  const totalSteps = 4 * 16 * 300 * policies.length
  for await (const _ of trainer.updates({ totalSteps }));
  return world.cohorts.map(({ weights, rollout }) => ({ weights: [...weights], reward: rollout.reward.slice() }))
}

describe('a policy whose answers come later', () => {
  test('learns the same, bit for bit, as one that answers at once', async () => {
    expect(await train(later())).toEqual(await train(mlp({ hidden: [8] })))
  })

  test('learns the same beside others, however long each takes', async () => {
    let turn = 0
    const uneven = () => [0, 3, 1][turn++ % 3]!
    const at = mlp({ hidden: [8] })
    expect(await train(later({ delay: uneven }), at, later())).toEqual(await train(at, at, at))
  })

  test('evaluates to the same', async () => {
    const at = mlp({ hidden: [8] })
    const environment = cartPole({ maxEpisodeSteps: 60 })
    const { numParameters } = at.build(environment.observationSpace, environment.actionSpace)
    const weights = Float32Array.from({ length: numParameters }, (_, i) => Math.sin(i))
    const [later_, at_] = await Promise.all([later(), at].map((policy) => evaluate({ environment, policy, weights })))
    expect(later_).toEqual(at_)
  })

  test('holds up no other cohort: theirs go on in every tick while it waits', async () => {
    let release = () => {}
    const held = later()
    const cohorts = [
      { environment: counter(), policy: mlp({ hidden: [4] }), numLanes: 2, name: 'quick' },
      { environment: counter(), policy: held, numLanes: 2, name: 'slow' },
    ]
    const world = await createWorld({ cohorts, seed: 1 })
    const [quick, slow] = world.cohorts as [(typeof world.cohorts)[0], (typeof world.cohorts)[0]]
    const { infer } = slow.policy
    slow.policy.infer = async (...given) => {
      await new Promise<void>((resolve) => {
        release = resolve
      })
      await infer.apply(slow.policy, given)
    }
    for (let t = 1; t <= 3; t++) {
      await tick(world)
      expect([...quick.episode.step]).toEqual([t, t])
      expect([...slow.episode.step]).toEqual([0, 0])
    }
    release()
    await new Promise((resolve) => setTimeout(resolve, 20))
    await tick(world)
    expect([...slow.episode.step]).toEqual([1, 1])
  })

  test('whose answer fails ends the tick that takes it in, and the update', async () => {
    const world = await createWorld({ environment: counter(), policy: later({ fails: 3 }), numLanes: 2 })
    const ticking = (async () => {
      for (let t = 0; t < 9; t++) await tick(world)
    })()
    await expect(ticking).rejects.toThrow('the device is gone')
    const training = train(later({ fails: 20 }))
    await expect(training).rejects.toThrow('the device is gone')
  })

  test('stays in one thread', async () => {
    const world = await createWorld({ environment: cartPole(), policy: later(), numLanes: 4 })
    expect(() => createTrainer(world, ppo(settings), { threads: 2 })).toThrow(
      "policy mlp: got 2 threads, expected threads: 1, since its device serves only the caller's thread",
    )
  })
})

test('a policy that answers at once makes no promise', async () => {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4 })
  expect(tick(world)).toBeUndefined()
  expect(collect(world, 10)).toBeUndefined()
})
