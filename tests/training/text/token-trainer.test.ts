import { describe, expect, test } from 'vitest'
import { describeLoss } from '../../../src/algorithms/losses/losses.ts'
import { InputError, OptimizerRequiredError } from '../../../src/base/errors.ts'
import { grpo, gspo } from '../../../src/compat/named-losses.ts'
import { RolloutCoordinator } from '../../../src/compat/rollout-coordinator.ts'
import { copy } from '../../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { loadLora } from '../../../src/language/transformer/lora-folder.ts'
import { wholeWeights } from '../../../src/language/transformer/quantized.ts'
import { EpisodeBuffer } from '../../../src/tables/episodes/episode-buffer.ts'
import { Trajectories, type TrajectoryColumns } from '../../../src/tables/trajectories/trajectories.ts'
import { transformerLogprobs } from '../../../src/training/backends/transformer-logprobs.ts'
import {
  type LossFn,
  selectAllData,
  selectRecentData,
  Trainer,
  type TrainerParts,
  type TrainingColumns,
} from '../../../src/training/text/learn/token-trainer.ts'
import { digits, talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'

/** Prompts of one to five digits, and rewards that differ within groups. */
const environment = digits({
  example: (index) => ({ prompt: '12345'.slice(0, index + 1), answer: '1' }),
  respond: ({ completion }) => ({ reward: completion.length + (completion.charCodeAt(0) % 3) }),
})

/** A world with two collections of four groups of four, of tokens that differ in number. */
async function collected(model: object = {}) {
  const policy = languageModel({ width: 16, layers: 1, heads: 2, ...model })
  const world = await talkWorld({ environment, policy, groupSize: 4, numLanes: 8 })
  const coordinator = new RolloutCoordinator(world, { episodes: 16 })
  return { world, coordinator, data: await coordinator.collect(), cohort: world.cohort() }
}

const sgd = { optimizer: 'sgd', learningRate: 0.1 } as const
const grpoParts = { advantageFn: grpo.computeAdvantages, lossFn: grpo.policyLoss }

/** −A · logprob, summed: its derivative by logprob is −A. */
const reinforce: LossFn = ({ advantage, logprob, counted }) => {
  let loss = 0
  advantage.forEach((value, t) => {
    if (counted[t] === 1) loss -= value * logprob[t]!
  })
  return { loss, dLogprob: advantage.map((value) => -value) }
}

/** The columns that a loss of one's own is given. */
async function given(parts: Partial<TrainerParts> = {}): Promise<{ seen: TrainingColumns; data: Trajectories }> {
  const { world, data } = await collected()
  let seen: TrainingColumns | undefined
  const lossFn: LossFn = (columns) => {
    seen = structuredClone(columns)
    return reinforce(columns)
  }
  await new Trainer({ model: world, ...grpoParts, lossFn, optimizer: sgd, ...parts }).train(data)
  return { seen: seen!, data }
}

/** The rows of the table by their tokens, which is how a batch's sequences are found again in it. */
function find(data: Trajectories, seen: TrainingColumns, i: number) {
  const length = seen.offsets[i + 1]! - seen.offsets[i]!
  const rows = Array.from({ length: data.count }, (_, row) => data.row(row))
  return rows.filter(({ token, reward }) => token.length === length && reward === seen.reward[i])
}

describe('a step', () => {
  test('moves the weights in place, by descriptors or by the same loss as a function of columns', async () => {
    const loss = describeLoss('dapo', 'paper', { aggregation: 'constant-length-sum', maxLength: 1 })
    const outcomes: Float32Array[] = []
    for (const lossFn of [loss, reinforce]) {
      const { world, cohort, data } = await collected()
      const before = cohort.weights.slice()
      const trainer = new Trainer({ model: world, ...grpoParts, lossFn, optimizer: sgd, maxGradNorm: null })
      const { step, tokens } = await trainer.train(data)
      expect([step, trainer.stepCount, cohort.version]).toEqual([1, 1, 1])
      expect(tokens).toBeGreaterThan(0)
      expect(cohort.weights).not.toEqual(before)
      outcomes.push(cohort.weights.slice())
    }
    // On the first step the ratio is 1, so both have the gradient −A.
    const [a, b] = outcomes as [Float32Array, Float32Array]
    a.forEach((value, i) => {
      expect(Math.abs(value - b[i]!)).toBeLessThan(1e-5)
    })
  })

  test.each<[string, Partial<TrainerParts>]>([
    [
      'lossFn',
      {
        lossFn: () => {
          throw new RangeError('broken')
        },
      },
    ],
    [
      'advantageFn',
      {
        advantageFn: () => {
          throw new RangeError('broken')
        },
      },
    ],
    [
      'getLogprobsFn',
      {
        getLogprobsFn: () => {
          throw new RangeError('broken')
        },
      },
    ],
    [
      'metricsFn',
      {
        metricsFn: () => {
          throw new RangeError('broken')
        },
      },
    ],
    [
      'dataSelectorFn',
      {
        dataSelectorFn: () => {
          throw new RangeError('broken')
        },
      },
    ],
  ])(
    'whose %s throws says so, and leaves weights, moments, count, figures and buffer as they were',
    async (_, broken) => {
      const outcomes: Float32Array[] = []
      for (const isBroken of [false, true]) {
        const { world, cohort, data } = await collected()
        let throws = false
        const buffer = data.take(data.order())
        const options = { model: world, ...grpoParts, optimizer: { learningRate: 0.01 }, buffer, onPolicy: false }
        const sound: Record<string, unknown> = {
          ...options,
          getLogprobsFn: (columns: { logprob: Float32Array }) => columns.logprob,
          metricsFn: () => ({}),
          dataSelectorFn: (given: Trajectories) => given.columns(),
          advantageFn: ({ reward }: { reward: Float64Array }) => reward.map((value) => value - 3),
          lossFn: reinforce,
        }
        const [name, bad] = Object.entries(broken)[0]! as [string, () => never]
        const trainer = new Trainer({
          ...(sound as unknown as TrainerParts),
          [name]: (...words: never[]) => (throws ? bad() : (sound[name] as (...w: never[]) => unknown)(...words)),
        })
        await trainer.train()
        const before = cohort.weights.slice()
        if (isBroken) {
          throws = true
          await expect(trainer.train()).rejects.toThrow(RangeError)
          throws = false
          expect(cohort.weights).toEqual(before)
          expect([trainer.stepCount, cohort.version, trainer.getMetrics()!.steps, buffer.count]).toEqual([1, 1, 1, 16])
        }
        await trainer.train()
        outcomes.push(cohort.weights.slice())
      }
      // Adam's second step would differ if the moments had moved.
      expect(outcomes[1]).toEqual(outcomes[0])
    },
  )

  test('that would not be finite is refused before the weights are touched', async () => {
    const { world, cohort, data } = await collected()
    const before = cohort.weights.slice()
    for (const lossFn of [
      () => ({ loss: Number.NaN, dLogprob: [] }),
      ({ logprob }: TrainingColumns) => ({ loss: 1, dLogprob: logprob.map(() => Number.NaN) }),
      ({ logprob }: TrainingColumns) => ({ loss: 1, dLogprob: logprob.map(() => 3e38) }),
      () => ({ loss: 1, dLogprob: [1] }),
    ]) {
      const trainer = new Trainer({ model: world, ...grpoParts, lossFn, optimizer: sgd })
      await expect(trainer.train(data)).rejects.toThrow(InputError)
      expect(trainer.stepCount).toBe(0)
    }
    expect(cohort.weights).toEqual(before)
  })

  test('what a function answers is as many numbers as were asked for, finite where they are read', async () => {
    const { world, data } = await collected()
    const numTokens = data.columns().token.length
    const trained = (given: Partial<TrainerParts>) =>
      new Trainer({ model: world, ...grpoParts, optimizer: sgd, ...given } as TrainerParts).train(data)
    const spoiled = (flag: number) => (columns: { logprob: Float32Array; lossMask: Uint8Array }) => {
      const at = columns.lossMask.indexOf(flag)
      return columns.logprob.map((value, t) => (t === at ? Number.NaN : value))
    }
    const at = data.columns().lossMask.indexOf(1)
    await expect(trained({ getLogprobsFn: spoiled(1) })).rejects.toThrow(
      `getLogprobsFn[${at}]: got NaN, expected a finite number`,
    )
    await trained({ getLogprobsFn: spoiled(0) }) // Of a prompt none is read.
    await expect(trained({ getLogprobsFn: () => [1] })).rejects.toThrow(
      `getLogprobsFn: got 1 numbers, expected ${numTokens} numbers`,
    )
    await expect(trained({ getLogprobsFn: () => undefined as never })).rejects.toThrow('getLogprobsFn: got nothing')
    const advantages = (value: number) => ({
      advantageFn: ({ reward }: { reward: Float64Array }) => Array.from(reward, (_, i) => (i === 3 ? value : i - 8)),
    })
    await expect(trained(advantages(Number.POSITIVE_INFINITY))).rejects.toThrow(
      'advantageFn[3]: got Infinity, expected a finite number',
    )
    await trained(advantages(Number.NaN)) // Left out.
  })

  test('without an optimizer is an error of its own', async () => {
    const { world, data } = await collected()
    for (const none of [{}, { optimizer: null }]) {
      const trainer = new Trainer({ model: world, ...grpoParts, ...none })
      await expect(trainer.train(data)).rejects.toThrow(OptimizerRequiredError)
    }
  })

  test('tells the norm before clipping, and goes no further than the clipped one', async () => {
    const { world, cohort, data } = await collected()
    const before = cohort.weights.slice()
    const trainer = new Trainer({ model: world, ...grpoParts, lossFn: reinforce, optimizer: sgd })
    const { gradNorm } = await trainer.train(data)
    expect(gradNorm).toBeGreaterThan(1)
    const moved = Math.sqrt(cohort.weights.reduce((sum, value, i) => sum + (value - before[i]!) ** 2, 0))
    expect(moved).toBeCloseTo(0.1 * 0.5, 4)
  })
})

describe('what a loss is given', () => {
  test('has each trajectory at its own length, its own prompt masked, and its own advantage on all of its tokens', async () => {
    const { seen, data } = await given({ advantageFn: ({ reward }) => reward.map((value) => value - 2.5) })
    const prompts = new Set<number>()
    for (let i = 0; i + 1 < seen.offsets.length; i++) {
      const [from, to] = [seen.offsets[i]!, seen.offsets[i + 1]!]
      const counted = Array.from(seen.counted.subarray(from, to))
      expect(find(data, seen, i).map(({ lossMask }) => Array.from(lossMask))).toContainEqual(counted)
      prompts.add(counted.indexOf(1))
      for (let t = from; t < to; t++) expect(seen.advantage[t]).toBe(seen.counted[t] === 1 ? seen.reward[i]! - 2.5 : 0)
    }
    expect(prompts.size).toBeGreaterThan(2)
    expect(new Set(seen.offsets.slice(1).map((end, i) => end - seen.offsets[i]!)).size).toBeGreaterThan(2)
  })

  test('has log-probabilities of each trajectory by teacher forcing, never the first one’s, zeros, or the old ones', async () => {
    const { seen, data } = await given({ getLogprobsFn: ({ logprob }) => logprob.map(() => -9) })
    const { cohort } = await collected()
    const model = transformerLogprobs(cohort)
    for (let i = 0; i + 1 < seen.offsets.length; i++) {
      const own = Array.from(seen.logprob.subarray(seen.offsets[i]! + 1, seen.offsets[i + 1]!))
      const among = await model.logprobs(find(data, seen, i).map(({ token }) => Array.from(token)))
      expect(among).toContainEqual(own)
    }
    expect(new Set(seen.oldLogprob)).toEqual(new Set([-9]))
    expect(seen.logprob.filter((value) => value === 0).length).toBe(seen.offsets.length - 1)
  })

  test('has advantages of the group, and not of the batch', async () => {
    const { seen } = await given()
    for (const group of new Set(seen.group)) {
      const members = [...seen.group.keys()].filter((i) => seen.group[i] === group)
      expect(members.length).toBe(4)
      const own = members.map((i) => seen.advantage[seen.offsets[i + 1]! - 1]!)
      expect(own.reduce((sum, value) => sum + value, 0)).toBeCloseTo(0, 4)
    }
    expect(new Set(seen.group).size).toBe(4)
  })

  test('has the entropy of the vocabulary, and not of the tokens that were chosen', async () => {
    const { seen, data } = await given()
    const { cohort } = await collected()
    const [row] = find(data, seen, 0)
    const model = transformerLogprobs(cohort)
    const next = Array.from(await model.nextLogprobs!(Array.from(row!.token).slice(0, 1)))
    const entropy = -next.reduce((sum, value) => sum + Math.exp(value) * value, 0)
    expect(seen.entropy[1]).toBeCloseTo(entropy, 4)
    expect(seen.entropy[1]).not.toBeCloseTo(-seen.logprob[1]!, 4)
  })

  test('has of each trajectory its reward, its group, and whether the reward is known', async () => {
    const { world, data } = await collected()
    const rows = Array.from({ length: data.count }, (_, i) => data.row(i))
    const some = new Trajectories()
    for (const [i, row] of rows.entries()) some.append(i % 5 === 2 ? { ...row, reward: null } : row)
    let seen: TrainingColumns | undefined
    const lossFn: LossFn = (columns) => {
      seen = structuredClone(columns)
      return reinforce(columns)
    }
    await new Trainer({ model: world, ...grpoParts, lossFn, optimizer: sgd }).train(some)
    const { reward, known, group } = seen!
    const members = (of: (i: number) => number, count: number) =>
      Array.from({ length: count }, (_, i) => of(i)).toSorted((a, b) => a - b)
    expect([...known].filter((flag) => flag === 0)).toHaveLength(rows.filter((_, i) => i % 5 === 2).length)
    const kept = rows.filter((_, i) => i % 5 !== 2).map((row) => row.reward!)
    expect([...reward].filter((_, i) => known[i] === 1).toSorted((a, b) => a - b)).toEqual(
      kept.toSorted((a, b) => a - b),
    )
    expect(members((i) => group[i]!, 16)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3])
  })

  test('leaves out trajectories whose advantage is NaN', async () => {
    const { seen } = await given({
      advantageFn: ({ reward }) => reward.map((value, i) => (i < 8 ? value : Number.NaN)),
    })
    const learned = [...seen.group.keys()].filter((i) =>
      seen.counted.subarray(seen.offsets[i]!, seen.offsets[i + 1]!).includes(1),
    )
    expect(learned.length).toBe(8)
  })
})

describe('figures', () => {
  test('have all three KLs and the clip fractions; a sequence-level ratio that is clipped is counted', async () => {
    const { world, data } = await collected()
    expect([grpo.policyLoss.level, gspo.policyLoss.level]).toEqual(['token', 'sequence'])
    const parts = { advantageFn: gspo.computeAdvantages, lossFn: gspo.policyLoss, optimizer: { learningRate: 0.05 } }
    const trainer = new Trainer({ model: world, ...parts })
    const first = await trainer.train(data)
    expect([first.ratio, first['kl/k1'], first['kl/k2'], first['kl/k3']].map((each) => Math.abs(each!))).toEqual([
      1, 0, 0, 0,
    ])
    const second = await trainer.train(data)
    expect(second['kl/k2']).toBeGreaterThan(0)
    expect(second['kl/k3']).toBeGreaterThan(0)
    expect(second['clipRatio/low']! + second['clipRatio/high']!).toBeGreaterThan(0)
    const { steps, mean, last } = trainer.getMetrics()!
    expect([steps, last]).toEqual([2, second])
    expect(mean.loss).toBeCloseTo((first.loss + second.loss) / 2, 12)
    trainer.resetMetrics()
    expect([trainer.getMetrics(), trainer.stepCount]).toEqual([null, 2])
  })

  test('of metricsFn are of the forward pass that the step was made of', async () => {
    const { world, data } = await collected()
    const metricsFn = ({ logprob, oldLogprob, counted }: TrainingColumns) => ({
      apart: Math.max(...logprob.map((value, t) => (counted[t] === 1 ? Math.abs(value - oldLogprob[t]!) : 0))),
    })
    const trainer = new Trainer({ model: world, ...grpoParts, optimizer: sgd, metricsFn })
    expect((await trainer.train(data)).apart).toBe(0)
    expect((await trainer.train(data)).apart).toBeGreaterThan(0)
  })
})

test('old log-probabilities can be those of the weights as they are, told in the order of the table', async () => {
  const { world, data } = await collected()
  const { logprob: recorded, lossMask } = data.columns()
  let told: Float32Array | undefined
  const getLogprobsFn: TrainerParts['getLogprobsFn'] = (_, evaluate) => {
    told = evaluate()
    return told
  }
  const trainer = new Trainer({ model: world, ...grpoParts, optimizer: sgd, getLogprobsFn })
  await trainer.train(data)
  expect(told!.filter((_, t) => lossMask[t] === 1)).toEqual(recorded.filter((_, t) => lossMask[t] === 1))
  expect((await trainer.train(data))['kl/k2']).toBe(0)
})

describe('where trajectories come from', () => {
  test('a linked buffer is cleared after the step that was made of it, unless told otherwise, and then is empty', async () => {
    const { world, data } = await collected()
    const trainer = new Trainer({ model: world, ...grpoParts, optimizer: sgd })
    await expect(trainer.train()).rejects.toThrow(/linked buffer/)
    trainer.linkBuffer(data)
    await trainer.train()
    expect(data.count).toBe(0)
    await expect(trainer.train()).rejects.toThrow(/no trajectory/)
    trainer.unlinkBuffer()
    await expect(trainer.train()).rejects.toThrow(/linked buffer/)
  })

  test('a selector takes all, or the last few, of either buffer', async () => {
    const { data } = await collected()
    const buffer = new EpisodeBuffer({ maxEpisodes: 20 })
    for (let i = 0; i < data.count; i++) buffer.addEpisodeFromDict(data.row(i))
    const places = ({ group, member }: TrajectoryColumns) => [...group].map((g, i) => `${g}.${member[i]}`)
    const all = places(data.columns())
    expect(places(selectAllData(data))).toEqual(all)
    expect(places(selectAllData(buffer))).toEqual(all)
    expect(places(selectRecentData(3)(data))).toEqual(all.slice(-3))
    expect(places(selectRecentData(3)(buffer)).sort()).toEqual(all.slice(-3).sort())
    expect(places(selectRecentData(99)(data))).toEqual(all)
    expect(() => selectRecentData(0)).toThrow(/count.*a whole number/s)
  })

  test('a buffer of episodes is one too, and a selector says what of it', async () => {
    const { world, data } = await collected()
    const buffer = new EpisodeBuffer({ maxEpisodes: 20 })
    for (let i = 0; i < data.count; i++) buffer.addEpisodeFromDict(data.row(i))
    const dataSelectorFn = () => buffer.sampleEpisodes(4)
    let rows = 0
    const metricsFn = ({ reward }: TrainingColumns) => {
      rows = reward.length
      return {}
    }
    const parts = { ...grpoParts, optimizer: sgd, buffer, metricsFn, onPolicy: false }
    await new Trainer({ model: world, ...parts, dataSelectorFn }).train()
    expect(rows).toBe(4)
    await new Trainer({ model: world, ...parts }).train()
    expect(rows).toBe(16)
  })

  test('an epoch collects under the weights of its own step, so that the first ratio of each is 1', async () => {
    const { world, coordinator } = await collected()
    const trainer = new Trainer({ model: world, ...grpoParts, optimizer: { learningRate: 0.01 } })
    const metrics = await trainer.trainEpoch(coordinator, 3)
    expect(metrics.map(({ step }) => step)).toEqual([1, 2, 3])
    for (const each of metrics) expect(each['kl/k2']).toBe(0)
  })

  test('over epochs the reward at least doubles', async () => {
    const policy = languageModel({ width: 32, layers: 1 })
    const world = await talkWorld({ environment: copy({ maxLength: 2 }), policy, numLanes: 32, groupSize: 8, seed: 1 })
    const coordinator = new RolloutCoordinator(world, { episodes: 256 })
    const trainer = new Trainer({ model: world, ...grpoParts, optimizer: { learningRate: 3e-3 } })
    const first = (await trainer.trainEpoch(coordinator, 5)).map(({ reward }) => reward!)
    await trainer.trainEpoch(coordinator, 60)
    const last = (await trainer.trainEpoch(coordinator, 5)).map(({ reward }) => reward!)
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    expect(mean(last)).toBeGreaterThan(2 * mean(first))
  })

  test('nothing to learn from is an error that counts why', async () => {
    const { world, data } = await collected()
    const trainer = new Trainer({ model: world, ...grpoParts, optimizer: sgd })
    await expect(trainer.train(data.take([0]))).rejects.toThrow(/1 alone in their group/)
    await expect(trainer.train(new Trajectories())).rejects.toThrow(/no trajectory/)
  })
})

describe('models', () => {
  test('an open model is trained in place, as a world is', async () => {
    const { world, cohort, data } = await collected()
    const open = { model: cohort.model, weights: cohort.weights.slice() }
    for (const model of [open, world]) await new Trainer({ model, ...grpoParts, optimizer: sgd }).train(data)
    expect(open.weights).toEqual(cohort.weights)
  })

  test('an adapter alone is trained, and saved after each step', async () => {
    const { world, cohort, data } = await collected({ loraRank: 2 })
    const [before, adapter] = [cohort.weights.slice(), cohort.adapter!.weights.slice()]
    const folder = await temporaryFolder()
    await new Trainer({ model: world, ...grpoParts, optimizer: sgd, autoSaveLora: folder }).train(data)
    expect(cohort.weights).toEqual(before)
    expect(cohort.adapter!.weights).not.toEqual(adapter)
    expect((await loadLora(folder, cohort.model)).weights).toEqual(cohort.adapter!.weights)
    const bare = await collected()
    expect(() => new Trainer({ model: bare.world, ...grpoParts, autoSaveLora: folder })).toThrow(/adapter/)
  })

  test('an adapter of a model in 8 bits is trained as of the weights that the bytes stand for', async () => {
    const { world, cohort, data } = await collected({ loraRank: 2, quantize: 8 })
    const adapter = { lora: cohort.adapter!.lora, weights: cohort.adapter!.weights.slice() }
    const open = { model: cohort.model, weights: wholeWeights(cohort.model, cohort.quantized!), adapter }
    for (const model of [open, world]) await new Trainer({ model, ...grpoParts, optimizer: sgd }).train(data)
    expect(adapter.weights).toEqual(cohort.adapter!.weights)
    const bare = { model: cohort.model, weights: cohort.quantized! }
    expect(() => new Trainer({ model: bare, ...grpoParts, optimizer: sgd })).toThrow(/quantized.*adapter/s)
  })

  test('a saved adapter is taken up in place, in a world or in an open model, and the next step goes on from it', async () => {
    const { world, cohort, data } = await collected({ loraRank: 2 })
    const folder = await temporaryFolder()
    await new Trainer({ model: world, ...grpoParts, optimizer: sgd, autoSaveLora: folder }).train(data)
    const goOn = async (model: TrainerParts['model']): Promise<void> => {
      const trainer = new Trainer({ model, ...grpoParts, optimizer: sgd })
      await trainer.loadAdapter(folder)
      await trainer.train(data)
    }
    const fresh = await collected({ loraRank: 2 })
    await goOn(fresh.world)
    expect(fresh.cohort.version).toBe(2)
    const { lora, weights } = (await collected({ loraRank: 2 })).cohort.adapter!
    const open = {
      model: cohort.model,
      weights: cohort.weights,
      adapter: { lora: { ...lora, base: cohort.model }, weights },
    }
    await goOn(open)
    await new Trainer({ model: world, ...grpoParts, optimizer: sgd }).train(data)
    expect(fresh.cohort.adapter!.weights).toEqual(cohort.adapter!.weights)
    expect(weights).toEqual(cohort.adapter!.weights)
    const bare = await collected()
    const trainer = new Trainer({ model: { model: bare.cohort.model, weights: bare.cohort.weights }, ...grpoParts })
    await expect(trainer.loadAdapter(folder)).rejects.toThrow(/without an adapter/)
  })

  test('PPO has its critic', async () => {
    const lossFn = describeLoss('ppo')
    const parts = { advantageFn: { settings: lossFn.settings }, lossFn, optimizer: sgd }
    const { world, data } = await collected({ critic: true })
    expect((await new Trainer({ model: world, ...parts }).train(data)).gradNorm).toBeGreaterThan(0)
    const bare = await collected()
    expect(() => new Trainer({ model: bare.world, ...parts })).toThrow(/value head/)
  })

  test('parts that are none are errors', async () => {
    const { world } = await collected()
    const options = { model: world, ...grpoParts }
    expect(() => new Trainer({ ...options, lossFn: 'grpo' as never })).toThrow(/lossFn/)
    expect(() => new Trainer({ ...options, advantageFn: undefined as never })).toThrow(/advantageFn/)
    expect(() => new Trainer({ ...options, maxGradNorm: 0 })).toThrow(/maxGradNorm/)
    expect(() => new Trainer({ ...options, model: {} as never })).toThrow(/model/)
    expect(() => new Trainer({ ...options, optimizer: { learningRate: -1 } })).toThrow(/learningRate/)
    expect(() => new RolloutCoordinator(world, { episodes: 6 })).toThrow(/group size/)
  })
})
