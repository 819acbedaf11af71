/** Runners, workers, aggregators and coordinators: what they are given, what they give out, and what they refuse. */
import { describe, expect, test } from 'vitest'
import { BufferAggregator } from '../../src/compat/aggregator.ts'
import type { EnvironmentService, StepResult } from '../../src/compat/environment-service.ts'
import { RolloutCoordinator } from '../../src/compat/rollout-coordinator.ts'
import { RolloutRunner, RolloutWorker, type RunnerOptions } from '../../src/compat/runner.ts'
import {
  createStrategy,
  type PolicyFn,
  strategies,
  type TransitionData,
  validateTransitionData,
} from '../../src/compat/strategy.ts'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import { VirtualTime } from '../../src/fleet/time.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { mlp } from '../../src/policies/mlp.ts'
import { EpisodeBuffer } from '../../src/tables/episodes/episode-buffer.ts'
import type { TrajectoryColumns } from '../../src/tables/trajectories/trajectories.ts'
import { Trainer } from '../../src/training/text/learn/token-trainer.ts'
import { digits } from '../support/conversations.ts'
import * as fc from '../support/properties.ts'

type Ids = readonly number[]

/** Episodes of the given lengths, one after another: each prompt is `[100 · worker + episode]`, and what was said follows. */
function counting(worker: number, lengths: readonly number[], other: Partial<EnvironmentService<Ids, Ids>> = {}) {
  let [episode, step] = [-1, 0]
  let ids: number[] = []
  const service: EnvironmentService<Ids, Ids> = {
    async reset() {
      episode++
      step = 0
      ids = [100 * worker + episode]
      return { observation: ids, info: {} }
    },
    async step(action) {
      ids = [...ids, ...action]
      const terminated = ++step >= lengths[episode % lengths.length]!
      return { observation: ids, reward: step, terminated, truncated: false, info: {} }
    },
    ...other,
  }
  return service
}

/** Says how much it saw. */
const policy: PolicyFn = (observation) => ({ action: [observation.length], logprob: [-1], version: 3, value: 0.5 })

const grpo = createStrategy('grpo')
const runner = (lengths: readonly number[], options: RunnerOptions = {}, other = {}) =>
  new RolloutRunner(counting(0, lengths, other), policy, grpo, options)

/** The episodes' ids. */
function episodesOf({ offsets, token, reward }: Pick<TrajectoryColumns, 'offsets' | 'token' | 'reward'>): number[][] {
  return Array.from({ length: reward.length }, (_, i) => [...token.subarray(offsets[i], offsets[i + 1])])
}
const given = (buffer: EpisodeBuffer) => (buffer.episodeCount === 0 ? [] : episodesOf(buffer.sample()))
/** Episode `number` of a worker, of so many steps. */
const episode = (worker: number, number: number, steps: number) => [
  100 * worker + number,
  ...Array.from({ length: steps }, (_, i) => i + 1),
]

describe('a runner', () => {
  test('gives out episodes that have ended; the others go on in the next collection', async () => {
    const rollouts = runner([2, 3], { maxSteps: 4 })
    const first = await rollouts.collect()
    expect([given(first), rollouts.openLength]).toEqual([[episode(0, 0, 2)], 3])
    const second = await rollouts.collect()
    expect([given(second), given(first)]).toEqual([[episode(0, 1, 3), episode(0, 2, 2)], [episode(0, 0, 2)]])
    const { reward, logprob, version, lossMask, stopReason } = second.sample()
    expect([[...reward], [...lossMask], stopReason]).toEqual([
      [3, 2],
      [0, 1, 1, 1, 0, 1, 1],
      ['stop', 'stop'],
    ])
    expect([[...logprob].slice(0, 3), [...version].slice(0, 3)]).toEqual([
      [Number.NaN, -1, -1],
      [-1, 3, 3],
    ])
    expect(rollouts.getStatistics()).toEqual({ steps: 8, episodes: 3, failedEpisodes: 0, value: 0.5, entropy: null })
  })

  test('stops where it has as many episodes as it may, and collects one where it is asked for one', async () => {
    const rollouts = runner([2], { maxEpisodes: 3 })
    expect((await rollouts.collect()).episodeCount).toBe(3)
    expect(rollouts.getStatistics().steps).toBe(6)
    expect(given(await rollouts.collectEpisode())).toEqual([episode(0, 3, 2)])
    await rollouts.close()
    await expect(rollouts.collect()).rejects.toThrow(/closed/)
  })

  test('keeps a cut apart from an end, and members of one prompt together', async () => {
    const cut = { observation: [7, 1], reward: null, terminated: false, truncated: true }
    const rollouts = runner([1], { maxSteps: 2 }, { reset: () => ({ observation: [7] }), step: () => cut })
    const { stopReason, promptId, member, known } = (await rollouts.collect()).sample()
    expect([stopReason, [...promptId], [...member], [...known]]).toEqual([
      ['length', 'length'],
      [0, 0],
      [0, 1],
      [0, 0],
    ])
  })

  test.each([
    [
      'step',
      () => [[1], 1, true, false, {}],
      TypeError,
      /step 0 of environment: got an array, expected an object with/,
    ],
    ['step', () => ({ observation: [1], reward: 1, done: true }), Error, /key: got "done"/],
    ['step', () => ({ observation: [1], reward: 1, terminated: true }), Error, /truncated: got none/],
    ['step', () => ({ observation: [1], reward: 'a', terminated: true, truncated: false }), Error, /reward: got "a"/],
    [
      'step',
      () => ({ observation: [1], reward: [1], terminated: true, truncated: false }),
      Error,
      /got \[1\], expected one/,
    ],
    ['step', () => ({ observation: [1], reward: 1, terminated: 1, truncated: false }), Error, /terminated: got 1/],
    ['step', () => null, Error, /got null/],
    ['reset', () => [[1], {}], TypeError, /reset of environment: got an array/],
    ['reset', () => ({}), Error, /observation: got none/],
  ])('refuses what its environment answers to %s: %s', async (method, answer, kind, message) => {
    const failure = runner([1], {}, { [method]: answer }).collect()
    await expect(failure).rejects.toThrow(kind)
    await expect(failure).rejects.toThrow(message)
  })

  test('waits for an answer so long and no longer; what had ended is in the next collection', async () => {
    const time = new VirtualTime()
    let steps = 0
    const signals: AbortSignal[] = []
    const good = counting(0, [1, 2])
    const step = (action: Ids, signal: AbortSignal): Promise<StepResult<Ids>> | StepResult<Ids> => {
      signals.push(signal)
      return ++steps === 3 ? new Promise(() => {}) : good.step(action, signal)
    }
    const rollouts = runner([], { maxSteps: 5, stepSeconds: 30, time }, { reset: good.reset, step })
    await expect(time.run(() => rollouts.collect())).rejects.toThrow(
      'step 1 of environment: got no answer in 30 s, expected an answer, or a longer time limit',
    )
    expect([time.now(), signals.at(-1)!.aborted, rollouts.getStatistics().failedEpisodes]).toEqual([30, true, 1])
    const buffer = await time.run(() => rollouts.collect())
    expect(given(buffer)).toEqual([episode(0, 0, 1), episode(0, 2, 1), episode(0, 3, 2), episode(0, 4, 1)])
  })

  test('refuses a policy that throws, or answers with something else', async () => {
    const with_ = (answer: unknown) =>
      new RolloutRunner(counting(0, [1]), () => answer as never, createStrategy('ppo')).collect()
    const fails = () => {
      throw new Error('no weights')
    }
    await expect(new RolloutRunner(counting(0, [1]), fails, grpo).collect()).rejects.toThrow('no weights')
    await expect(with_([1])).rejects.toThrow(/answer of the policy, under strategy ppo: got \[1\]/)
    await expect(with_({ action: [1], logprob: [-1] })).rejects.toThrow(/value: got none/)
    await expect(with_({ action: [1], logprobs: [-1], value: 1 })).rejects.toThrow(/did you mean "logprob"/)
    await expect(with_({ action: [1], logprob: [-1, -2], value: 1 })).rejects.toThrow(
      /logprob: got 2 numbers, expected 1/,
    )
    expect(() => runner([1], { maxSteps: 0 })).toThrow(/maxSteps: got 0/)
    expect(() => runner([1], { steps: 3 } as never)).toThrow(/did you mean "stepSeconds"|"steps"/)
    expect(() => new RolloutRunner({} as never, policy, grpo)).toThrow(/environment, reset: got undefined/)
    expect(() => new RolloutRunner(counting(0, [1]), policy, 'grpo' as never)).toThrow(/strategy: got "grpo"/)
  })
})

describe('transitions', () => {
  const transition: TransitionData = { obs: [1], act: [2], rew: 1, nextObs: null, done: true }

  test('have required keys and optional ones, and no others', () => {
    expect(() =>
      validateTransitionData({ ...transition, timeout: true, logprob: [-1], value: 1, entropy: 2 }),
    ).not.toThrow()
    expect(() => validateTransitionData([[1], [2], 1, null, true])).toThrow(TypeError)
    expect(() => validateTransitionData({ ...transition, next_obs: [1] })).toThrow(/did you mean "nextObs"/)
    for (const key of Object.keys(transition)) {
      expect(() => validateTransitionData({ ...transition, [key]: undefined })).toThrow(`transition, ${key}: got none`)
    }
    expect(() => validateTransitionData({ ...transition, value: Number.NaN })).toThrow(/value: got NaN/)
    expect(() => validateTransitionData({ ...transition, done: 1 })).toThrow(/done: got 1/)
    expect(() => validateTransitionData({ ...transition, done: false, timeout: true })).toThrow(/timeout: got true/)
    expect(() => validateTransitionData(null)).toThrow(/got null/)
  })

  test('are stored as their strategy wants them, which goes by its name', () => {
    expect(strategies).toEqual(expect.arrayContaining(['grpo', 'gspo', 'ppo']))
    expect(() => createStrategy('grop')).toThrow(/did you mean "grpo"/)
    const buffer = new EpisodeBuffer({ maxEpisodes: 2 })
    expect(() => createStrategy('grpo').storeTransition(buffer, transition)).toThrow(/logprob: got none/)
    createStrategy('gspo').storeTransition(buffer, { ...transition, logprob: [-2], timeout: true }, 4)
    const { token, version, stopReason } = buffer.sample()
    expect([[...token], [...version], stopReason]).toEqual([[1, 2], [-1, 4], ['length']])
  })
})

describe('workers', () => {
  const worker = (index: number, lengths: readonly number[], options: RunnerOptions = {}) =>
    new RolloutWorker(
      (i) => counting(i, lengths),
      () => policy,
      grpo,
      { maxSteps: 4, ...options },
      index,
    )

  test('collect beside one another, and each episode is given out once', async () => {
    const one = worker(0, [2])
    expect([one.hasData(), one.getBuffer().episodeCount, one.getStatistics()]).toEqual([false, 0, null])
    const collecting = one.collectAsync()
    expect(one.collectAsync()).toBe(collecting)
    await collecting
    expect(one.hasData()).toBe(true)
    expect(given(one.getBuffer())).toEqual([episode(0, 0, 2), episode(0, 1, 2)])
    expect([one.hasData(), one.getBuffer().episodeCount]).toEqual([false, 0])
    await one.close()
  })

  test('fill an aggregator, worker after worker, as far as it has room', async () => {
    const workers = [worker(0, [2]), worker(1, [1])]
    const aggregator = new BufferAggregator({ maxEpisodes: 5 })
    expect(workers.map((each) => aggregator.addWorker(each))).toEqual([0, 1])
    await Promise.all(workers.toReversed().map((each) => each.collectAsync()))
    expect([aggregator.ready(), aggregator.consumeAll(), aggregator.episodeCount]).toEqual([false, 5, 5])
    const expected = [episode(0, 0, 2), episode(0, 1, 2), episode(1, 0, 1), episode(1, 1, 1), episode(1, 2, 1)]
    expect(episodesOf(aggregator.sample())).toEqual(expected)
    expect([...aggregator.sample().promptId]).toEqual([0, 1, 2, 3, 4])
    expect(episodesOf(aggregator.sampleEpisodes(1, 'desc'))).toEqual([[102, 1]])
    expect([...aggregator.sampleLatestSteps(3).token]).toEqual([1, 102, 1])
    const { validMask, batchSize } = aggregator.sampleSequences(2, 4)
    expect([[...validMask], batchSize]).toEqual([[1, 1, 1, 0, 1, 1, 1, 0], 2])
    expect([workers[1]!.hasData(), aggregator.consumeFromWorker(1)]).toEqual([true, 0])
    aggregator.clear()
    expect([aggregator.consumeFromWorker(1), episodesOf(aggregator.sample())]).toEqual([1, [episode(1, 3, 1)]])
    expect(() => aggregator.consumeFromWorker(2)).toThrow(/worker: got 2, expected a number from 0 to 1/)
    expect(() => aggregator.addWorker({} as never)).toThrow(/a RolloutWorker/)
  })

  test('may observe one number, which is the id behind those before it', async () => {
    let state = 0
    const service = () => ({
      reset() {
        state = 7
        return { observation: state }
      },
      step: () => ({ observation: ++state, reward: 1, terminated: state === 9, truncated: false }),
    })
    const seen: (readonly number[])[] = []
    const watched: PolicyFn = (observation) => {
      seen.push(observation)
      return { action: [observation.at(-1)! + 20], logprob: [-1] }
    }
    const coordinator = new RolloutCoordinator(service, () => watched, { algorithm: 'grpo', maxSteps: 2 })
    const { token, lossMask } = (await coordinator.collect()).sample()
    expect(seen).toEqual([[7], [7, 27, 8]])
    expect([[...token], [...lossMask]]).toEqual([
      [7, 27, 8, 28],
      [0, 1, 0, 1],
    ])
    const wrong = () => ({ ...service(), reset: () => ({ observation: 'x' as never }) })
    const other = new RolloutCoordinator(wrong, () => watched, { algorithm: 'grpo', maxSteps: 2 })
    await expect(other.collect()).rejects.toThrow('observation: got "x", expected a list of ids, or one id')
  })

  test('that begin from one prompt make one group of it', async () => {
    const same = () => counting(0, [1], { reset: () => ({ observation: [7] }), step: () => ended })
    const ended = { observation: [], reward: 1, terminated: true, truncated: false }
    const coordinator = new RolloutCoordinator(same, () => policy, { algorithm: 'grpo', numWorkers: 2, maxSteps: 2 })
    const { promptId, member, group } = (await coordinator.collect()).sample()
    expect([[...promptId], [...member], [...group]]).toEqual([
      [0, 0, 0, 0],
      [0, 1, 2, 3],
      [0, 0, 0, 0],
    ])
  })
})

describe('a coordinator', () => {
  test('of plain functions has the same data with no worker and with one, and those of several in their order', async () => {
    const collected = async (numWorkers: number) => {
      const made: number[] = []
      const coordinator = new RolloutCoordinator(
        (worker) => {
          made.push(worker)
          return counting(worker, [3, 2])
        },
        () => policy,
        { algorithm: 'grpo', numWorkers, maxSteps: 4 },
      )
      const collections = [given(await coordinator.collect()), given(await coordinator.collect())]
      await coordinator.close()
      await expect(coordinator.collect()).rejects.toThrow(/closed/)
      return { made, collections }
    }
    const of = (worker: number) => [[episode(worker, 0, 3)], [episode(worker, 1, 2), episode(worker, 2, 3)]]
    expect(await collected(0)).toEqual({ made: [0], collections: of(0) })
    expect(await collected(1)).toEqual({ made: [0], collections: of(0) })
    const [a, b, c] = [of(0), of(1), of(2)]
    expect(await collected(3)).toEqual({
      made: [0, 1, 2],
      collections: [0, 1].map((i) => [...a[i]!, ...b[i]!, ...c[i]!]),
    })
  })

  test('of definitions makes a world, whose conversations a trainer learns from', async () => {
    const environment = digits({ respond: ({ completion }) => ({ reward: completion.length }) })
    const model = languageModel({ width: 16, layers: 1, heads: 2 })
    const options = { algorithm: 'grpo', numWorkers: 4, groupSize: 2, maxSteps: 7, seed: 5 }
    const coordinator = new RolloutCoordinator(
      () => environment,
      () => model,
      options,
    )
    const first = await coordinator.collect()
    const second = await coordinator.collect()
    expect([[...first.columns().group], [...first.columns().member]]).toEqual([
      [0, 0, 1, 1, 2, 2],
      [0, 1, 0, 1, 0, 1],
    ])
    expect([...second.columns().group]).toEqual([3, 3, 4, 4, 5, 5])
    const trainer = new Trainer({
      model: (await coordinator.world()) as never,
      advantageFn: ({ reward }) => reward,
      lossFn: ({ logprob }) => ({ loss: 0, dLogprob: logprob }),
      optimizer: {},
    })
    expect((await trainer.trainEpoch(coordinator, 2)).map(({ step }) => step)).toEqual([1, 2])
    await coordinator.close()
  })

  test('of lanes that step gives a rollout a collection, whose episodes go on', async () => {
    const coordinator = new RolloutCoordinator(
      () => cartPole(),
      () => mlp(),
      {
        algorithm: 'ppo',
        numWorkers: 2,
        maxSteps: 5,
      },
    )
    const steps: number[][] = []
    for (let i = 0; i < 2; i++) {
      const { fields, numRows } = await coordinator.collect()
      expect(numRows).toBe(10)
      steps.push([...fields.find(({ name }) => name === 'step')!.column] as number[])
    }
    expect(steps).toEqual([
      [0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
      [5, 5, 6, 6, 7, 7, 8, 8, 9, 9],
    ])
    await coordinator.close()
  })

  test('refuses what it cannot use', async () => {
    const of = (options: object) => () =>
      new RolloutCoordinator(
        () => counting(0, [1]),
        () => policy,
        options as never,
      )
    expect(of({})).toThrow(/algorithm: got undefined/)
    expect(of({ algorithm: 'grop' })).toThrow(/did you mean "grpo"/)
    expect(of({ algorithm: 'grpo', numWorkers: -1 })).toThrow(/numWorkers: got -1/)
    expect(of({ algorithm: 'grpo', num_workers: 1 })).toThrow(/did you mean "numWorkers"/)
    expect(() => new RolloutCoordinator(counting(0, [1]) as never, () => policy, { algorithm: 'grpo' })).toThrow(
      /envFn/,
    )
    await expect(of({ algorithm: 'grpo', groupSize: 2 })().collect()).rejects.toThrow(/groupSize: got 2, expected none/)
    await expect(of({ algorithm: 'grpo' })().world()).rejects.toThrow(/a coordinator of plain functions/)
    const text = new RolloutCoordinator(
      () => digits({}),
      () => languageModel({ width: 16, layers: 1, heads: 2 }),
      {
        algorithm: 'grpo',
        groupSize: 4,
        maxEpisodes: 3,
      },
    )
    await expect(text.collect()).rejects.toThrow(/less than a group of 4/)
    const lanes = new RolloutCoordinator(
      () => cartPole(),
      () => mlp(),
      { algorithm: 'grpo' },
    )
    await expect(lanes.collect()).rejects.toThrow(/algorithm: got "grpo" \(did you mean "ppo"\?\), expected one of ppo/)
    const fails = new RolloutCoordinator(
      () => counting(0, [1]),
      () => policy,
      { algorithm: 'grpo', maxSteps: 2 },
    )
    const both = [fails.collect(), fails.collect()]
    expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
  })
})

test('whatever takes how long or fails: each episode once, whole, in the order of its worker', async () => {
  const schedule = fc.record({
    numWorkers: fc.integer({ min: 0, max: 4 }),
    maxSteps: fc.integer({ min: 1, max: 9 }),
    maxEpisodes: fc.integer({ min: 1, max: 4 }),
    lengths: fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 }),
    delays: fc.array(fc.nat(70), { minLength: 1, maxLength: 7 }),
  })
  await fc.assert(
    fc.asyncProperty(schedule, async ({ lengths, delays, ...options }) => {
      const time = new VirtualTime()
      let calls = 0
      const failed = new Set<number>()
      const environment = (worker: number) => {
        const { reset, step } = counting(worker, lengths)
        let prompt = 0
        const service: EnvironmentService<Ids, Ids> = {
          async reset(given, signal) {
            const answer = await reset(given, signal)
            prompt = answer.observation[0]!
            return answer
          },
          async step(action, signal) {
            const seconds = delays[calls++ % delays.length]!
            if (seconds > 60) failed.add(prompt)
            await time.sleep(seconds)
            return step(action, signal)
          },
        }
        return service
      }
      const coordinator = new RolloutCoordinator(environment, () => policy, { algorithm: 'grpo', time, ...options })
      const seen: number[][] = []
      for (let collection = 0; collection < 6; collection++) {
        // A step that comes after its deadline is nobody's: the environment has to be at rest before it is asked again.
        const buffer = await time.run(async () => {
          const found = await coordinator.collect().catch(() => null)
          await time.sleep(1000)
          return found
        })
        if (buffer !== null) seen.push(...given(buffer))
      }
      for (let worker = 0; worker < Math.max(1, options.numWorkers); worker++) {
        const own = seen.filter(([prompt]) => Math.floor(prompt! / 100) === worker)
        const numbers = own.map(([prompt]) => prompt! % 100)
        const complete = Array.from({ length: (numbers.at(-1) ?? -1) + 1 }, (_, i) => i)
        expect(numbers).toEqual(complete.filter((i) => !failed.has(100 * worker + i)))
        expect(own).toEqual(numbers.map((i) => episode(worker, i, lengths[i % lengths.length]!)))
      }
    }),
    { numRuns: 60 },
  )
})
