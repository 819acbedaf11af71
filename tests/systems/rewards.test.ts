/** Systems that change what is learned from rewards: against sums of their own, and in runs. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { clipRewards, fromObjects, normalizeRewards } from '../../src/entries/environments.ts'
import { integer } from '../../src/entries/settings.ts'
import {
  box,
  collect,
  configureRun,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  type EpisodeCohort,
  evaluate,
  loadPolicy,
  mlp,
  ppo,
  recordEpisodes,
  restart,
  resumeRun,
  type SystemDefinition,
  startRun,
} from '../../src/index.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Episodes of 3 to 6 steps, ended and cut by turns, with rewards that differ by lane, episode and step. */
const uneven = defineEnvironment({
  id: 'Uneven-v0',
  settings: { scale: integer(7, 'size of rewards') },
  state: () => ({}),
  make: ({ scale }) => ({
    observationSpace: box({ low: 0, high: 1 }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 100,
    returnThreshold: null,
    reset({ observation }, rows, count) {
      for (let i = 0; i < count; i++) observation[rows[i]!] = 0
    },
    step({ observation, reward, terminated, truncated, lane, episode, step }, from, to) {
      for (let n = from; n < to; n++) {
        observation[n] = 0.5
        reward[n] = scale * Math.sin(1 + 3 * lane[n]! + 5 * episode[n]! + 2 * step[n]!)
        if (step[n]! < 2 + ((lane[n]! + episode[n]!) % 4)) continue
        if (episode[n]! % 2 === 0) terminated[n] = 1
        else truncated[n] = 1
      }
    },
  }),
})

const NUM_LANES = 3
const NUM_STEPS = 16

async function worldOf(systems: readonly SystemDefinition[], autoreset: 'same-step' | 'next-step' = 'same-step') {
  const policy = mlp({ hidden: [4] })
  const world = await createWorld({ environment: uneven(), policy, numLanes: NUM_LANES, systems, autoreset })
  world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
  return { world, cohort: world.cohort() as EpisodeCohort }
}

/** The rows of a rollout, as they come. */
function rowsOf({ rollout }: EpisodeCohort) {
  return Array.from(rollout.reward, (reward, row) => ({
    reward,
    lane: rollout.lane[row]!,
    isOver: rollout.terminated[row]! + rollout.truncated[row]! > 0,
    isValid: rollout.valid[row] === 1,
    episodeReturn: rollout.episodeReturn[row]!,
  }))
}

describe('normalizeRewards', () => {
  test.each(['same-step', 'next-step'] as const)(
    'divides by the deviation of all discounted returns so far (%s)',
    async (autoreset) => {
      const [gamma, clip, epsilon] = [0.8, 1.1, 0.25]
      const bare = await worldOf([], autoreset)
      const { world, cohort } = await worldOf([normalizeRewards({ gamma, clip, epsilon })], autoreset)
      const running = new Array<number>(NUM_LANES).fill(0)
      const all: number[] = []
      let numClipped = 0
      for (let rollout = 0; rollout < 3; rollout++) {
        collect(bare.world, NUM_STEPS)
        collect(world, NUM_STEPS)
        const paid = rowsOf(bare.cohort)
        expect(paid.some(({ isValid }) => !isValid)).toBe(autoreset === 'next-step')
        for (const { reward, lane, isOver, isValid } of paid) {
          if (!isValid) continue
          running[lane] = gamma * running[lane]! + reward
          all.push(running[lane]!)
          if (isOver) running[lane] = 0
        }
        const mean = all.reduce((sum, value) => sum + value, 0) / all.length
        const variance = all.reduce((sum, value) => sum + (value - mean) ** 2, 0) / all.length
        const learned = rowsOf(cohort)
        for (const [row, { reward, episodeReturn, isValid }] of paid.entries()) {
          const expected = reward / Math.sqrt(variance + epsilon)
          if (isValid && Math.abs(expected) > clip) numClipped++
          expect(learned[row]!.reward).toBeCloseTo(Math.min(Math.max(expected, -clip), clip), 5)
          expect(learned[row]!.episodeReturn).toBe(episodeReturn)
        }
      }
      expect(numClipped).toBeGreaterThan(5)
      expect(numClipped).toBeLessThan(100)
    },
  )
})

test('normalizeRewards begins the return of an episode anew where the one before was cut by a restart', async () => {
  const gamma = 0.5
  const { world, cohort } = await worldOf([normalizeRewards({ gamma })])
  const bare = await worldOf([])
  for (const each of [world, bare.world]) collect(each, 1) // One row of 16: in the middle of a rollout, and of an episode.
  for (const each of [cohort, bare.cohort]) restart(each)
  for (const each of [world, bare.world]) collect(each, NUM_STEPS - 1)
  const { discounted } = cohort.systems[0]!.rollout.recorded as { discounted: Float32Array }
  const running = new Array<number>(NUM_LANES).fill(0)
  for (const [row, { reward, lane }] of rowsOf(bare.cohort).entries()) {
    running[lane] = (bare.cohort.rollout.step[row] === 0 ? 0 : gamma * running[lane]!) + reward
    expect(discounted[row]).toBeCloseTo(running[lane]!, 5)
  }
  expect([...bare.cohort.rollout.step.subarray(0, 2 * NUM_LANES)]).toEqual(new Array(2 * NUM_LANES).fill(0))
})

test('normalizeRewards passes over rows in which a lane waits for its environment', async () => {
  const gamma = 0.5
  const late = fromObjects(
    () => ({
      reset: () => ({ observation: 0 }),
      step: async () => ({ observation: 0, reward: 1, terminated: false, truncated: false }),
    }),
    { id: 'Late-v0', observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), maxEpisodeSteps: 100 },
  )
  const systems = [normalizeRewards({ gamma })]
  const world = await createWorld({ environment: late(), policy: mlp({ hidden: [4] }), numLanes: 1, systems })
  world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
  await collect(world, NUM_STEPS)
  const cohort = world.cohort() as EpisodeCohort
  const { discounted } = cohort.systems[0]!.rollout.recorded as { discounted: Float32Array }
  const { valid } = cohort.rollout
  let acted = 0
  for (const [row, value] of discounted.entries()) {
    if (valid[row] === 0) continue
    acted++
    expect(value).toBeCloseTo(2 - 2 * gamma ** acted, 5) // 1 + γ + γ² + …
  }
  expect(acted).toBeGreaterThan(1)
  expect(acted).toBeLessThan(NUM_STEPS)
})

test('clipRewards keeps what is learned from between its bounds, and returns as they were', async () => {
  const bare = await worldOf([])
  const { world, cohort } = await worldOf([clipRewards({ low: -2, high: 3 })])
  collect(bare.world, NUM_STEPS)
  collect(world, NUM_STEPS)
  const paid = rowsOf(bare.cohort)
  expect(rowsOf(cohort)).toEqual(paid.map((row) => ({ ...row, reward: Math.min(Math.max(row.reward, -2), 3) })))
  expect(Math.min(...paid.map(({ reward }) => reward))).toBeLessThan(-2)
  expect(Math.max(...paid.map(({ reward }) => reward))).toBeGreaterThan(3)
  expect(() => clipRewards({ low: 1, high: 1 })).toThrow('low 1 and high 1, expected low below high')
})

test('a trainer that learns from a table refuses a system that works on full rollouts', async () => {
  const { world } = await worldOf([])
  collect(world, NUM_STEPS)
  const policy = mlp({ hidden: [4] })
  const other = await createWorld({ environment: uneven(), policy, numLanes: NUM_LANES, systems: [clipRewards()] })
  const trainer = await createTrainer(other, ppo({ numSteps: NUM_STEPS }))
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  const learning = trainer.learn(trainer.rollout.table)
  await expect(async () => {
    for await (const _ of learning);
  }).rejects.toThrow('system clipRewards, which works on rollouts of lanes')
})

describe('a run', () => {
  const words = ['systems=normalizeRewards,clipRewards', 'normalizeRewards.gamma=0.9', 'clipRewards.high=0.4']

  test('has systems, keeps them in its folder, and goes on with them to the same bits, on two threads too', async () => {
    const whole = join(await temporaryFolder(), 'whole')
    await (await startRun(await smallRun(...words), whole)).train()
    const { systems } = JSON.parse(await readFile(join(whole, 'config.json'), 'utf8'))
    expect(systems).toEqual([
      { id: 'normalizeRewards', parameters: { gamma: 0.9, clip: 10, epsilon: 1e-8 } },
      { id: 'clipRewards', parameters: { low: -1, high: 0.4 } },
    ])
    const stopped = join(await temporaryFolder(), 'stopped')
    const run = await startRun(await smallRun(...words, 'threads=2'), stopped)
    const stop = new AbortController()
    await run.train({ onUpdate: ({ update }) => update === 3 && stop.abort(), signal: stop.signal })
    await (await resumeRun(stopped)).train()
    expect(await fingerprint(stopped)).toEqual(await fingerprint(whole))
    const without = join(await temporaryFolder(), 'without')
    await (await startRun(await smallRun(), without)).train()
    expect((await fingerprint(without)).checkpoint).not.toBe((await fingerprint(whole)).checkpoint)
  })

  test('plays with them what it evaluates, and has what they have kept', async () => {
    const folder = join(await temporaryFolder(), 'run')
    const module = new URL('../support/bonus.ts', import.meta.url).pathname
    const given = [`systems=${module}`, 'bonus.first=2', 'evaluateEvery=8', 'evaluateEpisodes=3']
    await (await startRun(await smallRun(...given), folder)).train()
    const trained = await loadPolicy(folder)
    expect(trained.shared).toEqual({ bonus: { paid: Float32Array.of(16) } })
    const { episodeReturn, episodeLength } = await evaluate({ ...trained, episodes: 3, seed: 1_000_008 })
    expect(episodeReturn.mean).toBeCloseTo(3 * episodeLength.mean)
    const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trimEnd().split('\n')
    expect(JSON.parse(lines.at(-1)!).evaluation.mean).toBeCloseTo(episodeReturn.mean)
    const wrong = evaluate({ ...trained, shared: { bonus: { paid: new Float32Array(2) } } })
    await expect(wrong).rejects.toThrow('shared column paid of bonus: got 2 elements, expected 1')
    await expect(evaluate({ ...trained, shared: { other: {} } })).rejects.toThrow('shared columns of system')
  })

  test('records what the environment pays, and leaves what systems keep as it is given', async () => {
    const environment = uneven()
    const policy = mlp({ hidden: [4] })
    const { numParameters } = policy.build(environment.observationSpace, environment.actionSpace)
    const played = { environment, policy, weights: new Float32Array(numParameters), episodes: 3 }
    const systems = [normalizeRewards({ clip: 0.1 }), clipRewards({ low: -0.1, high: 0.1 })]
    const kept = { mean: 1, squares: 8, count: 2, center: 1, deviation: 2 }
    const given = Object.fromEntries(
      Object.entries(kept).map(([name, value]) => [
        name,
        name === 'center' || name === 'deviation' ? Float32Array.of(value) : Float64Array.of(value),
      ]),
    )
    let seen: object | undefined
    const shared = { normalizeRewards: given, clipRewards: {} }
    const watch = (cohort: EpisodeCohort) => {
      seen = cohort.systems[0]!.rollout.shared as object
    }
    const [bare, table] = [await recordEpisodes(played), await recordEpisodes({ ...played, systems, shared, watch })]
    const rewardOf = ({ fields }: typeof bare) => fields.find(({ name }) => name === 'reward')!.column
    expect(rewardOf(table)).toEqual(rewardOf(bare))
    expect(Math.max(...rewardOf(bare))).toBeGreaterThan(1)
    expect(Object.entries(seen!).map(([name, [value]]) => [name, value])).toEqual(Object.entries(kept))
  })

  test.each([
    [{ systems: 'normaliseRewards' }, 'did you mean "normalizeRewards"'],
    [{ systems: 'clipRewards,clipRewards' }, 'expected ids that differ'],
    [{ systems: 'clipRewards', from: 'rows.arrow' }, 'rows.arrow'],
    [{ 'clipRewards.low': '0' }, 'clipRewards.low'],
  ])('refuses %o', async (texts, message) => {
    await expect(configureRun('CartPole-v1', texts)).rejects.toThrow(message)
  })
})
