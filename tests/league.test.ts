/** Several sets of weights in a cohort: which acts where, what is learned from, and games of several lanes. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromIPC } from 'apache-arrow'
import { query } from 'bitecs'
import { describe, expect, test } from 'vitest'
import { race } from '../examples/league.ts'
import {
  breakout,
  cartPole,
  cartPolePosition,
  collect,
  createTrainer,
  createWorld,
  defineEnvironment,
  type EpisodeCohort,
  mlp,
  Present,
  pendulum,
  ppo,
  recurrent,
  restart,
  type Trainer,
  tick,
  ticTacToe,
  type World,
  writeArrow,
} from '../src/index.ts'
import { later } from './support/later.ts'
import { advanceTo, columnsOf } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'
import { rowsOf } from './support/tiers.ts'

const policy = mlp({ hidden: [8] })

/** Weights that differ from set to set. */
function fill(weights: Float32Array, set: number) {
  for (let i = 0; i < weights.length; i++) weights[i] = Math.sin(1 + 7 * set + i) / 4
}

describe('a lane acts with the weights that the column names', () => {
  test.each([
    ['choices', cartPole(), policy],
    ['a box', pendulum(), policy],
    ['a mask', ticTacToe(), policy],
    ['a wide observation', breakout(), policy],
    ['a memory', cartPolePosition(), recurrent({ units: 4, hidden: [4] })],
  ] as const)('as in a cohort of those weights alone: %s', async (_, environment, policy) => {
    const numLanes = 11
    const sets = Uint8Array.of(0, 2, 2, 1, 0, 1, 1, 1, 2, 0, 1)
    const options = { environment, policy, numLanes, seed: 6 }
    const world = await createWorld({ ...options, weightSets: 3 })
    const cohort = world.cohort()
    const { lanes, weights } = cohort.league!
    lanes.policy.set(sets)
    expect([...query(world.ecs, [lanes, Present])]).toEqual([...cohort.lanes])
    const { weights: begun } = (await createWorld(options)).cohort()
    for (const each of weights) expect([...each]).toEqual([...begun]) // All begin as the first does.
    const worlds = await Promise.all(
      [0, 1, 2].map(async (set) => {
        const single = await createWorld(options)
        fill(single.cohort().weights, set)
        single.cohort().policy.refresh?.()
        return single
      }),
    )
    for (const [set, each] of weights.entries()) fill(each, set)
    for (const policy of cohort.league!.policies) policy.refresh?.()
    for (let t = 0; t < 12; t++) {
      tick(world)
      for (const single of worlds) tick(single)
      for (const [n, set] of sets.entries()) {
        const other = worlds[set]!.cohort()
        const width = cohort.action.chosen.length / numLanes
        const memoryWidth = cohort.memory.next.length / numLanes
        const of = (column: ArrayLike<number>, width: number) => Array.from(column).slice(n * width, (n + 1) * width)
        expect(of(cohort.action.chosen, width)).toEqual(of(other.action.chosen, width))
        expect(cohort.action.logprob[n]).toBe(other.action.logprob[n])
        expect(cohort.action.value[n]).toBe(other.action.value[n])
        expect(of(cohort.memory.next, memoryWidth)).toEqual(of(other.memory.next, memoryWidth))
      }
    }
  })
})

describe('what is learned', () => {
  test('is what the first set did: the same as in a cohort of its lanes alone', async () => {
    const options = { environment: cartPole(), policy, seed: 2 }
    const learner = () => ppo({ numSteps: 16, numMinibatches: 3, updateEpochs: 2, learningRate: 3e-3 })
    const world = await createWorld({ ...options, numLanes: 10, weightSets: 2 })
    const trainer = createTrainer(world, learner())
    const { league, weights } = world.cohort()
    league!.lanes.policy.fill(1, 6)
    fill(league!.weights[1]!, 1)
    const opponent = [...league!.weights[1]!]
    const alone = await createWorld({ ...options, numLanes: 6 })
    const other = createTrainer(alone, learner())
    const names = ['episodes', 'episodeReturn', 'policyLoss', 'valueLoss', 'entropy', 'gradNorm', 'explainedVariance']
    const pick = (metrics: object) => names.map((name) => (metrics as Record<string, number>)[name])
    const others = other.updates({ totalSteps: 96 * 100 })
    for await (const metrics of trainer.updates({ totalSteps: 160 * 100 })) {
      const expected = (await others.next()).value!
      expect(pick(metrics)).toEqual(pick(expected))
      expect([...weights]).toEqual([...alone.cohort().weights])
      if (metrics.update === 5) break
    }
    expect([...league!.weights[1]!]).toEqual(opponent)
    expect(trainer.progress().episodes).toBeGreaterThan(0)
    const path = join(await temporaryFolder(), 'rollout.arrow')
    await writeArrow(path, trainer.rollout.table)
    const acted = [...tableFromIPC(await readFile(path)).getChild('policy')!]
    expect(acted).toEqual(Array.from({ length: 160 }, (_, row) => (row % 10 < 6 ? 0 : 1)))
    expect(other.rollout.table.fields.some(({ name }) => name === 'policy')).toBe(false)
  })
})

describe('several sets that learn', () => {
  const options = { environment: cartPole(), policy, seed: 2 }
  const learner = () => ppo({ numSteps: 16, numMinibatches: 3, updateEpochs: 2, learningRate: 3e-3 })
  const begin = async (learningSets: number) => {
    const world = await createWorld({ ...options, numLanes: 11, weightSets: 3, learningSets })
    const trainer = createTrainer(world, learner())
    const { league } = world.cohort()
    league!.lanes.policy.set([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
    return { trainer, world, league: league! }
  }

  test('each learn from their lanes: the same as in cohorts of these alone, in weights, metrics and advantages', async () => {
    const { trainer, world, league } = await begin(2)
    const frozen = [...league.weights[2]!]
    const alone = await Promise.all(
      [
        [6, 0],
        [4, 6],
      ].map(async ([numLanes, firstLane]) =>
        createTrainer(await createWorld({ ...options, numLanes: numLanes!, firstLane: firstLane! }), learner()),
      ),
    )
    const others = alone.map((each) => each.updates({ totalSteps: each.world.cohort().numLanes * 16 * 100 }))
    const names = ['episodes', 'episodeReturn', 'episodeLength', 'policyLoss', 'valueLoss', 'entropy', 'gradNorm']
    const pick = (metrics: object) => names.map((name) => (metrics as Record<string, number>)[name])
    for await (const metrics of trainer.updates({ totalSteps: 11 * 16 * 100 })) {
      expect(Object.keys(metrics.cohorts)).toEqual(['mlp', 'mlp.set1'])
      expect(metrics.episodes).toBeNaN() // Of no learner in particular.
      expect(metrics.steps).toBe(11 * 16 * metrics.update)
      const { rollout } = world.cohort()
      for (const [set, other] of others.entries()) {
        const expected = (await other.next()).value!
        const told = metrics.cohorts[set === 0 ? 'mlp' : 'mlp.set1']!
        expect(pick(told)).toEqual(pick(expected))
        expect(told.explainedVariance).toBeCloseTo(expected.explainedVariance!, 12) // Summed in another order.
        expect([...league.weights[set]!]).toEqual([...alone[set]!.world.cohort().weights])
        const theirs = alone[set]!.world.cohort().rollout
        for (const name of ['advantage', 'return'] as const) {
          expect(Array.from(rollout[name]).filter((_, row) => league.acted[row] === set)).toEqual([...theirs[name]])
        }
      }
      if (metrics.update === 5) break
    }
    expect([...league.weights[0]!]).not.toEqual([...league.weights[1]!])
    expect([...league.weights[2]!]).toEqual(frozen)
    for (const [set, name] of ['mlp', 'mlp.set1'].entries()) {
      const { episodes, episodeReturnLast100 } = alone[set]!.progress()
      expect(episodes).toBeGreaterThan(5)
      expect(trainer.progress(name)).toMatchObject({ episodes, episodeReturnLast100 })
    }
    expect(() => trainer.progress('mlp.set2')).toThrow(
      'cohort: got "mlp.set2" (did you mean "mlp.set1"?), expected one of mlp, mlp.set1',
    )
    await expect(trainer.learn(trainer.rollout.table).next()).rejects.toThrow('2 sets of weights that learn')
  })

  test('leave the same bits with several threads, and after a checkpoint that says how many they are', async () => {
    const train = async (threads: number, until: number, from?: string, to?: string) => {
      const world = await createWorld({
        ...{ environment: race({ length: 6 }), policy, numLanes: 12, weightSets: 2, learningSets: 2, seed: 3 },
      })
      const trainer = createTrainer(world, ppo({ numSteps: 16, learningRate: 3e-3 }), { threads })
      for (let n = 0; n < 12; n++) world.cohort().league!.lanes.policy[n] = n % 2
      if (from !== undefined) await trainer.restore(from)
      await advanceTo(trainer, until)
      if (to !== undefined) await trainer.save(to)
      trainer.close()
      return { columns: columnsOf(trainer), episodes: trainer.progress('mlp.set1').episodes }
    }
    const alone = await train(1, 6)
    const folder = await temporaryFolder()
    await train(2, 3, undefined, folder)
    expect(await train(1, 6, folder)).toEqual(alone)
    expect(alone.episodes).toBeGreaterThan(20)
    const one = await createWorld({ environment: race({ length: 6 }), policy, numLanes: 12, weightSets: 2, seed: 3 })
    const trainer = createTrainer(one, ppo({ numSteps: 16, learningRate: 3e-3 }))
    await expect(trainer.restore(folder)).rejects.toThrow(/learningSets.* 2.* 1/)
  })
})

describe('a league', () => {
  const begin = async (threads = 1) => {
    const world = await createWorld({ environment: race({ length: 6 }), policy, numLanes: 26, weightSets: 3, seed: 3 })
    const trainer = createTrainer(world, ppo({ numSteps: 16, learningRate: 3e-3 }), { threads })
    return trainer as Trainer<EpisodeCohort>
  }
  /** In odd lanes one opponent after the other; each is at times what the learner is then. */
  const exchange = (trainer: Trainer<EpisodeCohort>) => (update: number) => {
    const { lanes, weights } = trainer.world.cohort().league!
    for (let n = 1; n < 26; n += 2) lanes.policy[n] = 1 + ((n + update) % 4 === 1 ? 1 : 0)
    if (update % 3 === 0) weights[1 + (update % 2)]!.set(weights[0]!)
  }
  const train = async (trainer: Trainer<EpisodeCohort>, until: number) => {
    if (trainer.update === 0) exchange(trainer)(0)
    await advanceTo(trainer, until, exchange(trainer))
    trainer.close()
    return columnsOf(trainer)
  }

  test('leaves the same bits with 1, 3 and 5 threads, whole games in each, and after a checkpoint', async () => {
    const alone = await train(await begin(), 8)
    for (const threads of rowsOf([3, 5]))
      expect(await train(await begin(threads), 8), `${threads} threads`).toEqual(alone)
    const folder = await temporaryFolder()
    const first = await begin()
    await train(first, 5)
    await first.save(folder)
    const again = await begin()
    await again.restore(folder)
    expect(await train(again, 8)).toEqual(alone)
  })

  test('plays its games: of each, one wins what the other loses, at the same step', async () => {
    const trainer = await begin()
    await train(trainer, 2)
    const { reward, terminated, step } = trainer.world.cohort().rollout
    let ended = 0
    for (let row = 0; row < reward.length; row += 2) {
      expect(reward[row]! + reward[row + 1]!).toBe(0)
      expect([terminated[row + 1], step[row + 1]]).toEqual([terminated[row], step[row]])
      ended += terminated[row]!
    }
    expect(ended).toBeGreaterThan(13)
  })
})

describe('the players of a game', () => {
  test('begin and end their episodes together', async () => {
    const loner = {
      ...race(),
      step({ terminated }: { terminated: Uint8Array }) {
        terminated[3] = 1
      },
    }
    const world = await createWorld({ environment: loner as never, policy, numLanes: 4 })
    expect(() => tick(world)).toThrow(
      'environment Race-v0: got an end for lane 3 (episode 0, step 0) from step, but not for its whole game, expected an end for all its 2 players, or for none',
    )
    const games = (await createWorld({ environment: race(), policy, numLanes: 4 })).cohort()
    expect(() => restart(games, [2])).toThrow('lanes of cohort mlp: got 2 without 3, expected all players of a game')
    restart(games, [3, 2])
    restart(games)
  })
})

describe('bad input', () => {
  const options = { environment: cartPole(), policy, numLanes: 4 }

  test.each([0, 257, 1.5, '2'])('weightSets %s is refused', async (weightSets) => {
    await expect(createWorld({ ...options, weightSets: weightSets as number })).rejects.toThrow(
      /^weightSets: got .+, expected a whole number from 1 to 256/,
    )
  })

  test.each([0, 3, 1.5, '2'])('learningSets %s of two is refused', async (learningSets) => {
    const sets = { weightSets: 2, learningSets: learningSets as number }
    await expect(createWorld({ ...options, ...sets })).rejects.toThrow(
      /^learningSets: got .+, expected a whole number from 1 to weightSets, 2/,
    )
  })

  test('several sets of a policy that answers later are refused', async () => {
    await expect(createWorld({ ...options, policy: later(), weightSets: 2 })).rejects.toThrow(
      'which is asynchronous, expected a policy that answers at once, or 1',
    )
  })

  test('a set that is none is named', async () => {
    const world = (await createWorld({ ...options, weightSets: 2 })) as World<EpisodeCohort>
    world.cohort().league!.lanes.policy[2] = 2
    expect(() => collect(world, 1)).toThrow(
      'cohort mlp: got 2 in policy of lane 2, expected a set of weights, from 0 to 1',
    )
  })

  test('lanes that do not fill their games are refused, and games whose lanes come and go', async () => {
    const games = { ...options, environment: race() }
    await expect(createWorld({ ...games, numLanes: 5 })).rejects.toThrow(
      'numLanes: got 5, expected a multiple of 2, the players of Race-v0',
    )
    await expect(createWorld({ ...games, present: 2 })).rejects.toThrow(
      'present: got a cohort of Race-v0, which has 2 players, expected no option present: games need all their lanes',
    )
    const wrong = defineEnvironment({
      ...{ id: 'Wrong', settings: {}, state: () => ({}) },
      make: () => ({ ...race(), numPlayers: 0 }) as never,
    })
    expect(() => wrong()).toThrow('Wrong numPlayers: got 0, expected a whole number ≥ 1')
  })
})
