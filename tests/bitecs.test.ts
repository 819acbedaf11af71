/** That bitecs decides which lanes work: what its query finds acts, what it does not find does not. */
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { sft } from '../src/algorithms/tokens/sft.ts'
import { ConversationPhase } from '../src/components/conversation.ts'
import { reverse } from '../src/environments/tasks/sequences.ts'
import {
  cartPole,
  collect,
  createTrainer,
  createWorld,
  despawn,
  type EpisodeCohort,
  mlp,
  ppo,
  rl,
  spawn,
  type Trainer,
  tick,
} from '../src/index.ts'
import { languageModel } from '../src/language/language-model.ts'
import type { ConversationCohort } from '../src/world/conversations/cohort.ts'
import { talkUntil, talkWorld } from './support/conversations.ts'
import { advanceTo } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'

const fault = vi.hoisted(() => ({ find: (entities: readonly number[]) => entities, adds: true }))

vi.mock('bitecs', async (original) => {
  const bitecs = await original<typeof import('bitecs')>()
  return {
    ...bitecs,
    query: (...given: Parameters<typeof bitecs.query>) => fault.find([...bitecs.query(...given)]),
    addComponents: (...given: Parameters<typeof bitecs.addComponents>) => {
      if (fault.adds) bitecs.addComponents(...given)
    },
  }
})

beforeEach(() => Object.assign(fault, { find: (entities: readonly number[]) => entities, adds: true }))

const options = { environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 6, present: 4 }
const everySecond = (entities: readonly number[]) => entities.filter((entity) => entity % 2 === 0)

test('whom its query leaves out does not act in the next rollout', async () => {
  const { addEntity, addComponents, getEntityComponents } = await import('bitecs')
  const world = await createWorld(options)
  const cohort = world.cohort()
  tick(world)
  fault.find = (entities) => entities.filter((entity) => entity !== 1)
  addComponents(world.ecs, addEntity(world.ecs), [cohort.state]) // Something happens, but nobody of the cohort.
  tick(world)
  expect(cohort.present).toBe(4)
  addComponents(world.ecs, addEntity(world.ecs), getEntityComponents(world.ecs, cohort.lanes[0]!) as object[])
  tick(world)
  expect([...cohort.lanes]).toEqual([0, 2, 3, 5])
  expect([...cohort.episode.step]).toEqual([3, 3, 3, 1, 0, 0])
})

test('without its query, or without components, nobody is there', async () => {
  const extinct = 'cohort mlp: got no present lane, expected at least one to train on'
  const { present: _, ...fixed } = options
  const training = async () =>
    advanceTo(createTrainer(await createWorld(fixed), ppo({ numSteps: 4 })) as Trainer<EpisodeCohort>, 1)
  fault.find = () => []
  await expect(training()).rejects.toThrow(extinct)
  fault.find = (entities) => entities
  fault.adds = false
  await expect(training()).rejects.toThrow(extinct)
})

describe('where its query finds every second entity', () => {
  const numSteps = 8
  const cartPoleTraining = async (threads = 1) => {
    const world = await createWorld({ environment: cartPole(), policy: options.policy, numLanes: 8, seed: 2 })
    return createTrainer(world, ppo({ numSteps, numMinibatches: 2 }), { threads }) as Trainer<EpisodeCohort>
  }

  test.each([1, 2])('the default training of CartPole runs on those lanes alone, with %i threads', async (threads) => {
    const whole = await cartPoleTraining()
    fault.find = everySecond
    const half = await cartPoleTraining(threads)
    const cohort = half.world.cohort()
    for (let update = 1; update <= 3; update++) {
      await advanceTo(half, update)
      expect([...cohort.lanes]).toEqual([0, 2, 4, 6])
      const { lane, valid, step } = cohort.rollout
      for (let t = 0; t < numSteps; t++) {
        const rows = [8 * t, 8 * t + 8] as const
        expect([...lane.subarray(...rows)]).toEqual([0, 2, 4, 6, 0, 0, 0, 0])
        expect([...valid.subarray(...rows)]).toEqual([1, 1, 1, 1, 0, 0, 0, 0])
        expect([...step.subarray(...rows)].slice(4)).toEqual([-1, -1, -1, -1])
      }
      expect(half.steps).toBe(update * 4 * numSteps)
    }
    half.close()

    // A lane does what it does beside the others: its random numbers are its own.
    fault.find = (entities) => entities
    await collect(whole.world, numSteps)
    fault.find = everySecond
    const again = await cartPoleTraining()
    await collect(again.world, numSteps)
    const [all, some] = [whole.world.cohort().rollout, again.world.cohort().rollout]
    for (let t = 0; t < numSteps; t++) {
      for (let n = 0; n < 4; n++) {
        const [row, other] = [8 * t + n, 8 * t + 2 * n]
        expect([...some.observation.subarray(4 * row, 4 * row + 4)]).toEqual([
          ...all.observation.subarray(4 * other, 4 * other + 4),
        ])
        for (const name of ['lane', 'logprob', 'value', 'reward', 'step'] as const) {
          expect(some[name][row], `${name} of row ${row}`).toBe(all[name][other])
        }
      }
    }
  })

  test('the default training of text runs on those lanes alone, and learns the same', async () => {
    const outcome = async (trainer: Trainer<ConversationCohort>) => {
      const spoke = new Set<number>()
      const { conversation, weights } = trainer.world.cohort()
      const { submit } = trainer.world.cohort().engine
      trainer.world.cohort().engine.submit = function (turn) {
        spoke.add(turn.slot)
        return submit.call(this, turn)
      }
      const steps: number[] = []
      for await (const { step } of trainer.updates()) steps.push(step)
      return { spoke: [...spoke].sort(), phase: [...conversation.phase], steps, weights: weights.slice() }
    }
    const whole = await outcome(await textTraining())
    fault.find = everySecond
    const half = await outcome(await textTraining())
    expect(whole.spoke).toEqual([0, 1, 2, 3, 4, 5])
    expect(half.spoke).toEqual([0, 2, 4])
    const { absent } = ConversationPhase
    expect(half.phase.filter((_, n) => n % 2 === 1)).toEqual([absent, absent, absent])
    expect(half.steps).toEqual(whole.steps)
    expect(half.weights).toEqual(whole.weights) // What is said depends on the conversation, not on its lane.
  })
})

describe('lanes of conversations', () => {
  const phases = (cohort: ConversationCohort) => [...cohort.conversation.phase]
  const { absent } = ConversationPhase

  test('that go finish what they have begun, and those that come take their rows', async () => {
    const world = await talkWorld({ numLanes: 3 })
    const cohort = world.cohort()
    cohort.released = 100
    await tick(world)
    const group = cohort.conversation.group[1]!
    despawn(cohort, [cohort.lanes[1]!])
    expect(cohort.conversation.phase[1]).toBe(ConversationPhase.model)
    while (cohort.conversation.phase[1] !== absent) {
      expect(cohort.conversation.group[1]).toBe(group)
      await tick(world)
    }
    expect(Array.from({ length: cohort.trajectories.count }, (_, i) => cohort.trajectories.row(i).group)).toContain(
      group,
    )
    for (let i = 0; i < 30; i++) await tick(world)
    expect(cohort.conversation.phase[1]).toBe(absent)
    expect(cohort.conversation.group[1]).toBe(group)
    const [entity] = spawn(cohort)
    await tick(world)
    expect(cohort.lanes[1]).toBe(entity)
    expect(cohort.conversation.group[1]).toBeGreaterThan(group)
    expect(() => spawn(cohort)).toThrow('spawn into cohort languageModel: got 1, expected a whole number from 0 to 0')
  })

  test('of which none is there are told of, and not waited for', async () => {
    const world = await talkWorld({ numLanes: 2 })
    const cohort = world.cohort()
    cohort.released = 4
    despawn(cohort, cohort.lanes)
    expect(() => tick(world)).toThrow('got no present lane, expected at least one: call spawn(cohort)')
    spawn(cohort, 2)
    await talkUntil(world, 4)
  })

  test('that leave, or wait for a row, do so after a checkpoint, too', async () => {
    const folder = await temporaryFolder()
    const first = await textTraining()
    const stop = new AbortController()
    const cohort = first.world.cohort()
    const submit = cohort.engine.submit
    let left = 0
    cohort.engine.submit = function (turn) {
      if (turn.key[0] > 0 && left++ === 0) {
        despawn(cohort, cohort.lanes.slice(0, 3)) // In the middle of conversations.
        spawn(cohort, 1) // It waits for the row of one of them.
        stop.abort()
      }
      return submit.call(this, turn)
    }
    for await (const _ of first.updates({ signal: stop.signal }));
    const { phase } = cohort.conversation
    expect([0, 1, 2].some((n) => phase[n] !== absent)).toBe(true)
    await first.save(folder)
    const again = await textTraining()
    await again.restore(folder)
    expect(again.world.cohort().entities.count).toBe(4)
    for await (const _ of again.updates());
    expect(phases(again.world.cohort()).filter((each) => each === absent)).toHaveLength(2)
  })

  test('that are absent stay so after a checkpoint', async () => {
    const folder = await temporaryFolder()
    const first = await textTraining()
    despawn(first.world.cohort(), first.world.cohort().lanes.slice(1, 3))
    for await (const { phase } of first.updates()) if (phase === 'rl') break
    expect(phases(first.world.cohort()).map((phase) => phase === absent)).toEqual([
      false,
      true,
      true,
      false,
      false,
      false,
    ])
    await first.save(folder)
    const again = await textTraining()
    await again.restore(folder)
    expect(again.world.cohort().entities.count).toBe(4)
    for await (const _ of again.updates());
    expect(phases(again.world.cohort()).map((phase) => phase === absent)).toEqual([
      false,
      true,
      true,
      false,
      false,
      false,
    ])
  })
})

async function textTraining() {
  const world = await createWorld({
    environment: reverse({ maxLength: 3 }),
    policy: languageModel({ width: 16, layers: 1, heads: 2 }),
    ...{ numLanes: 6, groupSize: 4, seed: 1 },
  })
  const training = [sft({ updates: 2, batchSize: 8 }), rl({ groupsPerUpdate: 2, groupSize: 4, updates: 2 })]
  return createTrainer(world, training) as Trainer<ConversationCohort>
}
