/** Self-play against earlier selves: who plays whom, how they are exchanged, and how they are rated. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { race } from '../examples/league.ts'
import { snake } from '../src/environments/grids/snake.ts'
import {
  cartPole,
  configureRun,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  mlp,
  ppo,
  startRun,
  type Trainer,
} from '../src/index.ts'
import { runMetrics } from '../src/training/run/run.ts'
import { advanceTo, columnsOf } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'

const policy = mlp({ hidden: [8] })
const learner = () => ppo({ numSteps: 16, learningRate: 3e-3 })

async function begin(selfPlay: object, threads = 1): Promise<Trainer<EpisodeCohort>> {
  const options = { environment: race({ length: 6 }), policy, numLanes: 24, seed: 3 }
  const world = await createWorld({ ...options, selfPlay: selfPlay as { opponents: number } })
  return createTrainer(world, learner(), { threads }) as Trainer<EpisodeCohort>
}

describe('lanes', () => {
  const setsOf = async (environment: ReturnType<typeof race>, numLanes: number, selfPlay: object) => {
    const world = await createWorld({ environment, policy, numLanes, selfPlay: selfPlay as { opponents: number } })
    return [...world.cohort().league!.lanes.policy]
  }

  test('of a part of the games act by the earlier selves, each as often, in the second half of their lanes', async () => {
    expect(await setsOf(race(), 16, { opponents: 3 })).toEqual([0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1])
    expect(await setsOf(race(), 8, { opponents: 2, share: 1 })).toEqual([0, 1, 0, 2, 0, 1, 0, 2])
    expect(await setsOf(race(), 16, { opponents: 2, share: 0.25 })).toEqual(
      Array.from({ length: 16 }, (_, n) => (n === 7 ? 1 : n === 15 ? 2 : 0)),
    )
    expect(await setsOf(snake() as never, 8, { opponents: 2, share: 1 })).toEqual([0, 0, 1, 1, 0, 0, 2, 2])
    expect(await setsOf(snake({ snakes: 3 }) as never, 3, { opponents: 1, share: 1 })).toEqual([0, 0, 1])
  })
})

describe('earlier selves', () => {
  test('are what the policy was, the oldest first, and all learn what a program that exchanges them does', async () => {
    const trainer = await begin({ opponents: 2, every: 3 })
    const { league, selfPlay } = trainer.world.cohort()
    const drawn = [...league!.weights[0]!]
    const byHand = createTrainer(
      await createWorld({ environment: race({ length: 6 }), policy, numLanes: 24, weightSets: 3, seed: 3 }),
      learner(),
    )
    const other = byHand.world.cohort().league!
    for (let n = 0; n < 24; n++) other.lanes.policy[n] = n % 4 === 3 ? 1 + ((n >> 2) % 2) : 0
    const kept: number[][] = []
    const updates = byHand.updates({ totalSteps: 1e9 })
    for await (const { update } of trainer.updates({ totalSteps: 1e9 })) {
      await updates.next()
      if (update % 3 === 0) other.weights[update % 2 === 1 ? 1 : 2]!.set(other.weights[0]!)
      for (const set of [0, 1, 2]) expect([...league!.weights[set]!]).toEqual([...other.weights[set]!])
      if (update % 3 === 0) kept.push([...league!.weights[0]!])
      if (update === 2) expect([...league!.weights[2]!]).toEqual(drawn)
      if (update === 9) break
    }
    expect([...league!.weights[1]!]).toEqual(kept[2])
    expect([...league!.weights[2]!]).toEqual(kept[1])
    expect(selfPlay!.oldest[0]).toBe(1)
  })

  test('are rated as a count of the games by Elo does, from one rollout to the next', async () => {
    const trainer = await begin({ opponents: 2, every: 2, share: 1 })
    const { selfPlay, rollout, league } = trainer.world.cohort()
    const ratings = [1000, 1000, 1000]
    let all = 0
    for await (const metrics of trainer.updates({ totalSteps: 1e9 })) {
      let [games, score] = [0, 0]
      for (const [row, ended] of rollout.terminated.entries()) {
        if (ended === 0 || row % 2 === 0) continue
        const opponent = league!.acted[row]!
        const result = { '-1': 0, 0: 0.5, 1: 1 }[-rollout.reward[row]!]!
        const chance = 10 ** (ratings[0]! / 400) / (10 ** (ratings[0]! / 400) + 10 ** (ratings[opponent]! / 400))
        ratings[0] = ratings[0]! + 4 * (result - chance)
        games++
        score += result
      }
      all += games
      expect(metrics).toMatchObject({ opponentGames: games, opponentScore: score / games })
      expect(metrics.eloRating).toBeCloseTo(ratings[0]!, 9)
      expect(metrics.eloRatingOpponents).toBeCloseTo((ratings[1]! + ratings[2]!) / 2, 9)
      if (metrics.update % 2 === 0) ratings[metrics.update % 4 === 2 ? 1 : 2] = ratings[0]!
      for (const [set, rating] of ratings.entries()) expect(selfPlay!.rating[set]).toBeCloseTo(rating, 9)
      expect(Object.keys(metrics).filter((name) => name !== 'cohorts')).toEqual(Object.keys(trainer.metrics))
      if (metrics.update === 5) break
    }
    expect(all).toBeGreaterThan(100)
    expect(new Set(ratings).size).toBe(3)
  })

  test('come to the same bits with several threads, and after a checkpoint', async () => {
    const train = async (threads: number, until: number, from?: string, to?: string) => {
      const trainer = await begin({ opponents: 2, every: 2 }, threads)
      if (from !== undefined) await trainer.restore(from)
      await advanceTo(trainer, until)
      if (to !== undefined) await trainer.save(to)
      trainer.close()
      return [columnsOf(trainer), [...trainer.world.cohort().selfPlay!.rating]]
    }
    const alone = await train(1, 6)
    const folder = await temporaryFolder()
    await train(2, 3, undefined, folder)
    expect(await train(1, 6, folder)).toEqual(alone)
    const otherwise = await begin({ opponents: 2, every: 3 })
    await expect(otherwise.restore(folder)).rejects.toThrow(/selfPlay.*every/)
  })
})

describe('a run', () => {
  test('of connect four plays against earlier selves, and tells their ratings', async () => {
    const keys = { totalSteps: '1024', numLanes: '16', 'ppo.numSteps': '32', 'mlp.hidden': '8', opponentsEvery: '1' }
    const definition = await configureRun('ConnectFour-v0', { ...keys, threads: '1', rollouts: 'none' })
    expect(definition.settings).toMatchObject({ opponents: 4, opponentsFraction: 0.5 })
    const folder = join(await temporaryFolder(), 'run')
    const run = await startRun(definition, folder)
    await run.train({})
    const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trim().split('\n')
    const told = JSON.parse(lines.at(-1)!)
    expect(lines).toHaveLength(2)
    expect(Object.keys(told)).toEqual(Object.keys(await runMetrics('ConnectFour-v0', keys)))
    expect(told.opponentGames).toBeGreaterThan(0)
    expect(told.eloRating).not.toBe(1000)
    expect(Object.keys(await runMetrics('ConnectFour-v0', { opponents: '0' }))).not.toContain('eloRating')
  })

  test('says of how opponents are exchanged that there are none', async () => {
    await expect(configureRun('CartPole-v1', { opponentsEvery: '5' })).rejects.toThrow(
      'opponentsEvery: got 5, expected 20, since opponents is 0',
    )
    await expect(configureRun('CartPole-v1', { opponents: '2' })).rejects.toThrow(
      'opponents: got 2 in CartPole-v1, a single-player environment, expected 0',
    )
    await expect(configureRun('CartPole-v1', { opponentsFraction: '0.25' })).rejects.toThrow(
      'opponentsFraction: got 0.25',
    )
  })
})

describe('bad input', () => {
  const options = { environment: race(), policy, numLanes: 4 }

  test.each([
    [{}, 'selfPlay opponents: got undefined, expected a whole number from 1 to 255'],
    [{ opponents: 256 }, 'selfPlay opponents: got 256'],
    [{ opponents: 2, every: 0 }, 'selfPlay every: got 0, expected a whole number ≥ 1'],
    [{ opponents: 2, share: 0 }, 'selfPlay share: got 0, expected a number above 0 and at most 1'],
    [{ opponents: 2, share: 1.5 }, 'selfPlay share: got 1.5'],
    [{ opponents: 2, often: 1 }, 'selfPlay: got "often", expected one of opponents, every, share'],
    [4, 'selfPlay: got 4, expected an object like { opponents: 4 }'],
  ])('selfPlay %j is refused', async (selfPlay, message) => {
    await expect(createWorld({ ...options, selfPlay: selfPlay as never })).rejects.toThrow(message)
  })

  test('so are other sets of weights beside it, and lanes that play alone', async () => {
    const selfPlay = { opponents: 2 }
    await expect(createWorld({ ...options, selfPlay, weightSets: 3 })).rejects.toThrow(
      'weightSets: got 3, together with selfPlay',
    )
    await expect(createWorld({ ...options, selfPlay, learningSets: 1 })).rejects.toThrow(
      'learningSets: got 1, together',
    )
    await expect(createWorld({ ...options, environment: cartPole(), selfPlay })).rejects.toThrow(
      'selfPlay: got CartPole-v1, whose games have 1 player, expected a game of several players',
    )
  })
})
