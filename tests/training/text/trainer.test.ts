import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { corrections } from '../../../src/algorithms/losses/loss-presets.ts'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { InputError } from '../../../src/base/errors.ts'
import { reverse } from '../../../src/environments/tasks/sequences.ts'
import type { Reply } from '../../../src/environments/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { saveLora } from '../../../src/language/transformer/lora-folder.ts'
import { listCheckpoints } from '../../../src/training/folder/checkpoint.ts'
import { createTrainer, type Trainer } from '../../../src/training/loop/trainer.ts'
import { configureRun, startRun } from '../../../src/training/run/run.ts'
import { evaluateText } from '../../../src/training/text/evaluate/evaluate.ts'
import { type ConversationCohort, loadAdapter } from '../../../src/world/conversations/cohort.ts'
import { createWorld } from '../../../src/world/world.ts'
import { digits } from '../../support/conversations.ts'
import { contents, temporaryFolder } from '../../support/temporary.ts'
import { rowsOf } from '../../support/tiers.ts'

const environment = reverse({ maxLength: 3 })
const small = { width: 16, layers: 1, heads: 2 }

async function trainerOf(
  settings: Parameters<typeof rl>[0] = {},
  {
    steps = 5,
    seed = 1,
    env = environment,
    model = small as object,
    numLanes = 5,
    folder = undefined as string | undefined,
  } = {},
): Promise<Trainer<ConversationCohort>> {
  const algorithm = rl({ groupsPerUpdate: 4, groupSize: 4, updates: 3, ...settings })
  const { groupSize, temperature, topK, topP, minP } = algorithm.settings
  const sampling = { temperature, topK, topP, minP }
  const world = await createWorld({
    environment: env,
    policy: languageModel(model),
    numLanes,
    seed,
    groupSize,
    sampling,
    rewardReduction: env === slow ? 'sum' : 'last',
  })
  const training = [sft({ updates: steps, batchSize: 8 }), algorithm]
  return createTrainer(world, training, folder === undefined ? {} : { folder, ifExists: 'refuse' })
}

async function supervised(trainer: Trainer<ConversationCohort>): Promise<Trainer<ConversationCohort>> {
  for await (const _ of trainer.updates({ phase: 'sft' }));
  return trainer
}

/** The Arrow files of all updates, and the weights after them. */
async function outcome(
  trainer: Trainer<ConversationCohort>,
  folder: string,
): Promise<{ tables: Buffer[]; weights: Float32Array }> {
  const tables: Buffer[] = []
  for await (const { step } of trainer.updates()) {
    const path = join(folder, `${step}.arrow`)
    await trainer.writeTrajectories(path)
    tables.push(await readFile(path))
  }
  return { tables, weights: trainer.world.cohort().weights.slice() }
}

/** An environment of several turns whose replies take time. */
const slow = digits({
  maxTurns: 3,
  respond: async ({ completion, turn }): Promise<Reply> => {
    await new Promise((resolve) => setTimeout(resolve, 1))
    return { reward: completion.length / 6 + turn, messages: [{ role: 'user', content: '7' }] }
  },
})

describe('a training that is killed', () => {
  const moments: [string, typeof environment, number, number][] = [
    ['in a later update', environment, 1, 4],
    ['among turns and replies that are owed', slow, 0, 11],
    ['with filters on groups', environment, 0, 9],
    ['in its first update', environment, 0, 3],
    ['with conversations under way', environment, 0, 9],
    ['with filters on what is drawn', environment, 0, 7],
  ]
  test.each(rowsOf(moments, 3))(
    '%s goes on to the same tables and weights, byte for byte, partial conversations included',
    async (name, env, updates, ticks) => {
      const filters = name.includes('drawn')
        ? { topK: 6, topP: 0.9 }
        : name.includes('groups')
          ? { filter: 'reward-nonzero-std' as const, groupSize: 2 }
          : {}
      const options = { env, steps: env === slow ? 0 : 5 }
      const folder = await temporaryFolder()
      const whole = await outcome(await supervised(await trainerOf(filters, options)), folder)

      const killed = await supervised(await trainerOf(filters, options))
      const stop = new AbortController()
      const tables: Buffer[] = []
      if (updates === 0) stopAfter(killed, ticks, stop)
      for await (const { step } of killed.updates({ signal: stop.signal })) {
        const path = join(folder, `killed-${step}.arrow`)
        await killed.writeTrajectories(path)
        tables.push(await readFile(path))
        if (step === updates) stopAfter(killed, ticks, stop)
      }
      expect(killed.progress().rlUpdates).toBe(updates)
      await killed.save(folder)

      const resumed = await trainerOf(filters, options)
      expect((await resumed.restore(folder)).warnings).toEqual([])
      const rest = await outcome(resumed, folder)
      expect([...tables, ...rest.tables]).toEqual(whole.tables)
      expect(rest.weights).toEqual(whole.weights)
    },
  )

  test('in its first update is not taken up with other supervised steps before it', async () => {
    const folder = await temporaryFolder()
    const killed = await supervised(await trainerOf({}, { steps: 2 }))
    const stop = new AbortController()
    stopAfter(killed, 3, stop)
    for await (const _ of killed.updates({ signal: stop.signal }));
    expect(killed.progress()).toMatchObject({ sftSteps: 2, rlUpdates: 0 })
    await killed.save(folder)
    await expect((await trainerOf({}, { steps: 3 })).restore(folder)).rejects.toThrow(
      'sft, updates, followed by those of rl: got 2, expected 3',
    )
    const between = await temporaryFolder()
    await (await supervised(await trainerOf({}, { steps: 2 }))).save(between)
    expect((await (await trainerOf({}, { steps: 3 })).restore(between)).warnings).toHaveLength(1)
  })

  test('is not taken up by another training, and says in what they differ', async () => {
    const folder = await temporaryFolder()
    await (await supervised(await trainerOf())).save(folder)
    await expect((await trainerOf({ groupSize: 2 })).restore(folder)).rejects.toThrow(/groupSize/)
    await expect((await trainerOf({}, { seed: 2 })).restore(folder)).rejects.toThrow(/seed/)
    const turns = await temporaryFolder()
    await (await trainerOf({}, { env: slow, steps: 0 })).save(turns)
    const cohort = { environment: slow, policy: languageModel(small), numLanes: 5, seed: 1, groupSize: 4 }
    const other = createTrainer(await createWorld({ ...cohort, rewardReduction: 'mean' }), [
      sft({ updates: 0, batchSize: 8 }),
      rl({ groupsPerUpdate: 4, groupSize: 4, updates: 3 }),
    ])
    await expect(other.restore(turns)).rejects.toThrow(/rewardReduction: got "sum", expected "mean"/)
  })
})

describe('a trainer of language models with a folder', () => {
  test('keeps its checkpoints there, and goes on from them, also with other numbers of steps and updates', async () => {
    const folder = join(await temporaryFolder(), 'new')
    const trainer = await supervised(await trainerOf({}, { folder }))
    expect(await trainer.save()).toBe(join(folder, 'checkpoints', '00000005'))
    const other = await trainerOf({ updates: 1 }, { folder })
    expect((await other.restore()).warnings).toHaveLength(1)
    for await (const _ of other.updates());
    await other.save()
    expect(await listCheckpoints(folder)).toEqual([5, other.checkpointNumber])
  })

  test('does not begin to train where another training is, or what is there already', async () => {
    const folder = await temporaryFolder()
    const trainer = await supervised(await trainerOf())
    await trainer.save(folder)
    const before = await contents(folder)
    const cases: [Trainer<ConversationCohort>, RegExp][] = [
      [await trainerOf({}, { folder, seed: 2 }), /00000005, seed: got 1, expected 2, as in this training/],
      [
        await trainerOf({ groupSize: 2 }, { folder }),
        /00000005, rl, groupSize: got 4, expected 2, as in this training/,
      ],
      [
        await trainerOf({}, { folder }),
        /^folder: got .+ holds the checkpoint 5 of this training, which stands at 0, exp/,
      ],
    ]
    for (const [other, message] of cases) {
      for (const phase of [other.updates({ phase: 'sft' }), other.updates()]) {
        await expect(phase.next()).rejects.toThrow(message)
        expect(other.checkpointNumber).toBe(0)
      }
    }
    expect(await contents(folder)).toEqual(before)
  })

  test('does not begin to train where a run of another training began, without a checkpoint of it', async () => {
    const folder = join(await temporaryFolder(), 'run')
    const keys = { 'languageModel.width': '16', 'languageModel.layers': '1', 'rl.groupSize': '4', numLanes: '5' }
    const definition = await configureRun('text/reverse', { ...keys, threads: '1' })
    const run = await startRun(definition, folder)
    const { environment: env, policy } = run.definition
    const began = async (seed: number) => {
      const world = await createWorld({ environment: env, policy, numLanes: 5, seed, groupSize: 4 })
      return createTrainer(world, [run.definition.sft!, run.definition.rl!], { folder, ifExists: 'refuse' })
    }
    await expect((await began(9)).updates({ phase: 'sft' }).next()).rejects.toThrow(
      /^run .+, seed: got 1, expected 9, as in this/,
    )
    const batch = [sft({ ...run.definition.sft!.settings, batchSize: 3 }), run.definition.rl!]
    const world = await createWorld({ environment: env, policy, numLanes: 5, seed: 1, groupSize: 4 })
    const other = createTrainer(world, batch, { folder, ifExists: 'refuse' })
    await expect(other.updates({ phase: 'sft' }).next()).rejects.toThrow(
      /^run .+, sft, batchSize: got \d+, expected 3, as in this/,
    )
    const same = await began(1)
    await same.updates({ phase: 'sft' }).next()
    expect(same.progress().sftSteps).toBe(1)
  })
})

/** Aborts once the trainer has made so many more ticks. */
function stopAfter(trainer: Trainer<ConversationCohort>, ticks: number, stop: AbortController): void {
  const end = trainer.checkpointNumber + ticks
  const { signal } = stop
  Object.defineProperty(signal, 'aborted', { get: () => trainer.checkpointNumber >= end, configurable: true })
}

describe('learning from conversations', () => {
  test('does not depend on how many lanes there are, nor on the micro-batches that lengths give', async () => {
    const folder = await temporaryFolder()
    const few = await outcome(await supervised(await trainerOf({}, { numLanes: 2 })), folder)
    const many = await outcome(await supervised(await trainerOf({}, { numLanes: 16 })), folder)
    expect(many.tables).toEqual(few.tables)
    expect(many.weights).toEqual(few.weights)
  })

  test.each(['grpo', 'dr-grpo', 'dapo', 'rloo', 'gspo', 'cispo', 'sapo', 'reinforce++', 'ppo'] as const)(
    '%s makes an update whose figures are there and finite',
    async (loss) => {
      const model = { ...small, critic: loss === 'ppo' }
      const trainer = await supervised(await trainerOf({ loss, lossSettings: { maxLength: 9 } }, { model }))
      const before = trainer.world.cohort().weights.slice()
      for await (const { rl: figures, gradNorm } of trainer.updates()) {
        const { entropy, kl, ratio, reward } = figures!
        for (const figure of [entropy, kl.k1, kl.k2, kl.k3, ratio, reward, gradNorm])
          expect(Number.isFinite(figure)).toBe(true)
        expect(entropy).toBeGreaterThan(0)
        // What is sampled is to the bit what is evaluated, so on the first step the ratio is 1 and all three KLs are 0.
        expect([ratio, kl.k1, kl.k2, kl.k3].map((figure) => Math.abs(figure))).toEqual([1, 0, 0, 0])
        break
      }
      expect(trainer.world.cohort().weights).not.toEqual(before)
    },
  )

  test('filters on what is drawn are those of the training too: the first ratio is 1 and every KL 0', async () => {
    const trainer = await supervised(await trainerOf({ topK: 4, topP: 0.9, temperature: 1.3 }))
    for await (const { rl: figures } of trainer.updates()) {
      const { ratio, kl } = figures!
      expect([ratio, kl.k1, kl.k2, kl.k3].map(Math.abs)).toEqual([1, 0, 0, 0])
      break
    }
  })

  test('another distribution in training than in sampling is refused, but for a correction, which tells how far apart they are', async () => {
    const apart = async (settings: Parameters<typeof rl>[0]) => {
      const options = { environment, policy: languageModel(small), numLanes: 4, seed: 1, groupSize: 4 }
      const world = await createWorld({ ...options, sampling: { temperature: 1.3 } })
      return createTrainer(world, rl({ groupsPerUpdate: 4, groupSize: 4, updates: 1, ...settings }))
    }
    await expect(apart({})).rejects.toThrow(/rl\.temperature.*1\.3/s)
    const trainer = await apart({ lossSettings: { ...corrections.tis } })
    for await (const { rl: figures } of trainer.updates()) {
      expect(figures!.mismatchKl).toBeGreaterThan(0)
      const { mean, min, max } = figures!.importanceWeight!
      expect(min).toBeLessThan(mean)
      expect(max).toBeLessThanOrEqual(2)
    }
    const right = await apart({ temperature: 1.3, lossSettings: { ...corrections.tis } })
    for await (const { rl: figures } of right.updates()) {
      expect(figures!.mismatchKl).toBe(0)
      expect(figures!.importanceWeight).toEqual({ mean: 1, min: 1, max: 1 })
    }
  })

  test('of an adapter only the adapter is trained, what is sampled is what is evaluated, and a resumed run goes on with it', async () => {
    const model = { ...small, loraRank: 2, loraTargets: ['q_proj', 'down_proj'] }
    const folder = await temporaryFolder()
    const trainer = await supervised(await trainerOf({ lossSettings: { klCoef: 0.1 } }, { model }))
    const { weights, adapter } = trainer.world.cohort()
    const [frozen, before] = [weights.slice(), adapter!.weights.slice()]
    await trainer.save(folder)
    for await (const { rl: figures, step } of trainer.updates()) {
      if (step === 1) expect([figures!.ratio, figures!.kl.k3, figures!.referenceKl!.k3]).toEqual([1, 0, 0])
      else expect(figures!.referenceKl!.k3).toBeGreaterThan(0)
    }
    expect(weights).toEqual(frozen)
    expect(adapter!.weights).not.toEqual(before)
    const resumed = await trainerOf({ lossSettings: { klCoef: 0.1 } }, { model })
    await resumed.restore(folder)
    for await (const _ of resumed.updates());
    expect(resumed.world.cohort().adapter!.weights).toEqual(adapter!.weights)
  })

  test.each([
    [8, 32],
    [4, 32],
    [16, 32],
    [4, 8],
    [4, 4],
  ] as const)(
    'a model in %d bits, its embedding in %d, is frozen under its adapter, which learns, and a resumed run goes on with both',
    async (quantize, embeddingBits) => {
      const model = { ...small, loraRank: 2, quantize, embeddingBits }
      const folder = await temporaryFolder()
      const trainer = await supervised(await trainerOf({ lossSettings: { klCoef: 0.1 } }, { model }))
      const { weights, quantized, adapter } = trainer.world.cohort()
      expect(weights.length).toBe(0)
      const [frozen, before] = [structuredClone(quantized), adapter!.weights.slice()]
      await trainer.save(folder)
      for await (const { rl: figures, step } of trainer.updates()) {
        if (step === 1) expect([figures!.ratio, figures!.kl.k3, figures!.referenceKl!.k3]).toEqual([1, 0, 0])
      }
      expect(quantized).toEqual(frozen)
      expect(adapter!.weights).not.toEqual(before)
      const resumed = await trainerOf({ lossSettings: { klCoef: 0.1 } }, { model })
      resumed.world.cohort().quantized!.values.fill(0)
      await resumed.restore(folder)
      for await (const _ of resumed.updates());
      expect(resumed.world.cohort().quantized).toEqual(frozen)
      expect(resumed.world.cohort().adapter!.weights).toEqual(adapter!.weights)
      await expect(trainerOf({}, { model: { ...small, quantize } })).rejects.toThrow(
        `languageModel.quantize: got ${quantize}, without an adapter`,
      )
      await expect(trainerOf({}, { model: { ...model, quantize: 5 as 4 } })).rejects.toThrow(
        'languageModel.quantize: got 5, expected one of 32, 16, 8, 4',
      )
      const rounds = { ...small, loraRank: 2, quantizeActivations: true }
      await expect(trainerOf({}, { model: rounds })).rejects.toThrow(
        'languageModel.quantizeActivations: got true, without quantize, expected quantize=8 or 4, or false',
      )
    },
  )

  test('an adapter that is loaded in between has a version of its own, which a resumed training goes on from', async () => {
    const model = { ...small, loraRank: 2 }
    const folder = await temporaryFolder()
    const trainer = await supervised(await trainerOf({}, { model }))
    const cohort = trainer.world.cohort()
    expect(cohort.version).toBe(5)
    await saveLora(
      folder,
      cohort.adapter!.lora,
      cohort.adapter!.weights.map((value) => value / 2),
    )
    await loadAdapter(cohort, folder)
    await trainer.save(folder)
    const resumed = await trainerOf({}, { model })
    await resumed.restore(folder)
    for (const each of [trainer, resumed]) {
      expect(each.world.cohort().version).toBe(6)
      await each.updates().next()
      expect(each.world.cohort().version).toBe(7)
    }
    expect(resumed.world.cohort().adapter!.weights).toEqual(cohort.adapter!.weights)
  })

  test('of an adapter a folder can be evaluated, in place of its weights', async () => {
    const policy = languageModel({ ...small, loraRank: 2 })
    const trainer = await supervised(await trainerOf({}, { model: { ...small, loraRank: 2 } }))
    const { weights, adapter } = trainer.world.cohort()
    const folder = await temporaryFolder()
    await saveLora(folder, adapter!.lora, adapter!.weights)
    const options = { environment, policy, weights, episodes: 6, explore: true }
    const evaluation = await evaluateText({ ...options, adapter: folder })
    expect(evaluation).toEqual(await evaluateText({ ...options, adapter: adapter!.weights }))
    expect(evaluation).not.toEqual(await evaluateText(options))
  })

  test('groups that a filter drops are replaced by others, counted by reason, and an update is whole groups that differ', async () => {
    const trainer = await supervised(await trainerOf({ filter: 'reward-nonzero-std', groupSize: 2 }))
    for await (const { rl: figures } of trainer.updates()) {
      expect(figures!.trajectories).toBe(8)
      expect(figures!.fracRewardZeroStd).toBe(0)
      expect(figures!.groupRewards.length).toBe(4)
      expect(Object.keys(figures!.drops)).toEqual(['zero_std'])
      break
    }
  })

  test('where all groups are dropped the training ends with how many were and why, and not in a loop', async () => {
    const env = digits({ respond: () => ({ reward: 0.5 }) })
    const trainer = await trainerOf({ filter: 'reward-nonzero-std', dropsMax: 20 }, { env, steps: 0 })
    await expect(trainer.updates().next()).rejects.toThrow(/dropsMax: got 21 groups dropped.*21 zero_std/s)
  })

  test('a reference makes all three KLs to it be told, from the forward pass of the training', async () => {
    const trainer = await supervised(await trainerOf({ lossSettings: { klCoef: 0.1 }, updates: 2, learningRate: 0.01 }))
    const seen = []
    for await (const { rl: figures } of trainer.updates()) seen.push(figures!.referenceKl!)
    expect(seen[0]).toEqual({ k1: 0, k2: 0, k3: 0 })
    expect(seen[1]!.k2).toBeGreaterThan(0)
    expect(seen[1]!.k3).toBeGreaterThan(0)
  })

  test('conversations without a reward are left out and counted, and nothing is learned where none is known', async () => {
    const env = digits({
      respond: ({ exampleIndex, completion }) => {
        if (exampleIndex === 0) throw new Error('no idea')
        return { reward: completion.length }
      },
    })
    const trainer = await trainerOf({ groupsPerUpdate: 5 }, { env, steps: 0 })
    for await (const { rl: figures } of trainer.updates()) {
      expect(figures!.numUnknown).toBe(4)
      expect(figures!.firstError).toBe('no idea')
      expect(figures!.groupRewards.length).toBe(4)
      break
    }
    const never = digits({
      respond: () => {
        throw new Error('never')
      },
    })
    const lost = await trainerOf({}, { env: never, steps: 0 })
    await expect(lost.updates().next()).rejects.toThrow(/never/)
  })

  test('an update that failed is not followed by another before a checkpoint is restored, which goes on to the same bits', async () => {
    let isMute = false
    const env = digits({ respond: ({ completion }) => (isMute ? {} : { reward: completion.length }) as Reply })
    const begin = () => trainerOf({ groupsPerUpdate: 2, groupSize: 2 }, { env, steps: 0 })
    const folder = await temporaryFolder()
    const whole = await outcome(await begin(), folder)
    const trainer = await begin()
    await trainer.updates().next()
    await trainer.save(join(folder, 'saved'))
    isMute = true
    const failed = /update 2: got no reward of 4 conversations known/
    await expect(trainer.updates().next()).rejects.toThrow(failed)
    isMute = false
    const refused =
      /: got a call after update 2 failed \(.*no reward.*\), expected trainer\.restore\(\) before it, or a new/
    await expect(trainer.updates().next()).rejects.toThrow(refused)
    await expect(trainer.save(join(folder, 'unsaved'))).rejects.toThrow(refused)
    await trainer.restore(join(folder, 'saved'))
    const rest = await outcome(trainer, folder)
    expect(rest.tables).toEqual(whole.tables.slice(1))
    expect(rest.weights).toEqual(whole.weights)
  })

  test('the first reason is told where none is known, and not of one that gives none', async () => {
    const env = digits({
      respond: ({ exampleIndex }) => {
        if (exampleIndex === 3) throw new Error('of the fourth')
        return { reward: null }
      },
    })
    const trainer = await trainerOf({ groupsPerUpdate: 5 }, { env, steps: 0 })
    await expect(trainer.updates().next()).rejects.toThrow(
      'text/digits, update 1: got no reward of 20 conversations known (of the fourth), expected at least one',
    )
  })

  test('advantages are kept of conversations that were compared, also where all are equal, and of no other', async () => {
    const env = digits({
      respond: ({ exampleIndex, completion }) => {
        if (exampleIndex === 0) throw new Error('no idea')
        return { reward: exampleIndex === 1 ? 0.5 : completion.length }
      },
    })
    const trainer = await trainerOf({ groupsPerUpdate: 5 }, { env, steps: 0 })
    await trainer.updates().next()
    const { promptId, advantage, reward } = trainer.world.cohort().trajectories.columns()
    const of = (prompt: number) => [...advantage].filter((_, i) => promptId[i] === prompt)
    expect(of(0)).toEqual(Array(4).fill(Number.NaN))
    expect(of(1)).toEqual(Array(4).fill(0))
    for (const prompt of [2, 3, 4]) {
      const rewards = [...reward].filter((_, i) => promptId[i] === prompt)
      const mean = rewards.reduce((sum, value) => sum + value) / 4
      expect(of(prompt).map(Math.sign)).toEqual(rewards.map((value) => Math.sign(value - mean)))
    }
  })

  test('rewards that are all equal teach nothing, and are told', async () => {
    const trainer = await trainerOf({}, { env: digits({ respond: () => ({ reward: 0.5 }) }), steps: 0 })
    const before = trainer.world.cohort().weights.slice()
    for await (const { rl: figures, gradNorm } of trainer.updates()) {
      expect(figures!.fracRewardZeroStd).toBe(1)
      expect(gradNorm).toBe(0)
      break
    }
    expect(trainer.world.cohort().weights).toEqual(before)
  })

  test('groups of one, a critic that is not there, and an example without an answer are errors', async () => {
    expect(() => rl({ groupSize: 1 })).toThrow(InputError)
    await expect(trainerOf({ loss: 'ppo' })).rejects.toThrow(/value head/)
    const env = digits({ example: () => ({ prompt: '1' }) })
    await expect((await trainerOf({}, { env })).updates({ phase: 'sft' }).next()).rejects.toThrow(
      /example \d.*no answer/s,
    )
  })
})

describe('what does not fit', () => {
  test('groups of another size than the world begins, and answers that are not drawn, are errors', async () => {
    const options = { environment, policy: languageModel(small), numLanes: 4, groupSize: 4 }
    const algorithm = rl({ groupsPerUpdate: 2, groupSize: 8 })
    const world = await createWorld(options)
    expect(() => createTrainer(world, algorithm)).toThrow(/rl\.groupSize.*8.*4/s)
    const greedy = await createWorld({ ...options, explore: false })
    expect(() => createTrainer(greedy, rl({ groupSize: 4 }))).toThrow(/explore/)
  })

  test('what is no phase, none, or phases in another order are errors that say what came', async () => {
    const refused = async (algorithm: object, got: string) => {
      const world = await createWorld({ environment, policy: languageModel(small), numLanes: 2 })
      expect(() => createTrainer(world, { languageModel: algorithm } as never)).toThrow(
        `algorithm of languageModel: got ${got}, expected sft(), rl(), or [sft(), rl()]`,
      )
    }
    await refused({ id: 'sft' }, '{"id":"sft"}')
    await refused([{ id: 'rl', loss: 3, settings: {} }], '{"id":"rl","loss":3,"settings":{}}')
    await refused([], 'none')
    await refused([rl(), sft()], 'rl, sft')
    await refused([sft(), sft()], 'sft, sft')
  })

  test('a world of two cohorts needs to know whose the algorithm is, before it takes memory', async () => {
    const cohort = { environment, policy: languageModel(small), numLanes: 2 }
    const world = await createWorld({
      cohorts: [
        { ...cohort, name: 'one' },
        { ...cohort, name: 'two' },
      ],
    })
    expect(() => createTrainer(world, sft())).toThrow(
      /one algorithm for 2 cohorts, expected an object with one of one, two for each key/,
    )
    expect(world.cohorts).toHaveLength(2)
  })

  test('rewards that cannot be told are counted in an evaluation, with the first reason', async () => {
    const options = { policy: languageModel(small), episodes: 4 }
    const broken = digits({
      respond: () => {
        throw new Error('the judge is out')
      },
    })
    const lost = await evaluateText({ ...options, environment: broken })
    expect([lost.reward, lost.numUnknown, lost.firstError]).toEqual([null, 4, 'the judge is out'])
    expect((await evaluateText({ ...options, environment })).firstError).toBeNull()
  })

  test('weights of another size are not evaluated', async () => {
    const options = { environment, policy: languageModel(small), episodes: 1 }
    await expect(evaluateText({ ...options, weights: new Float32Array(3) })).rejects.toThrow(/weights.*3 numbers/s)
    await expect(evaluateText({ ...options, adapter: new Float32Array(3) })).rejects.toThrow(/adapter.*3 numbers/s)
  })
})

describe('a training that is told to stop', () => {
  test('waits no longer for replies that are owed, tells the environment, and asks again later', async () => {
    const signals: AbortSignal[] = []
    let isAway = true
    const env = digits({
      respond: ({ completion }, signal) => {
        signals.push(signal)
        return isAway ? new Promise<Reply>(() => {}) : { reward: completion.length / 6 }
      },
    })
    const trainer = await trainerOf({}, { env, steps: 0 })
    const stop = new AbortController()
    const first = trainer.updates({ signal: stop.signal }).next()
    while (signals.length < 5) await new Promise((resolve) => setTimeout(resolve, 1))
    stop.abort()
    expect((await first).done).toBe(true) // Without this the reply's deadline, a minute, would come first.
    expect(signals.every(({ aborted }) => aborted)).toBe(true)
    isAway = false
    const { value } = await trainer.updates().next()
    expect(value!.rl!.numUnknown).toBe(0)
  })

  test('drops the same of an adapter’s inputs however many ticks the replies took', async () => {
    const model = { ...small, loraRank: 2, loraTargets: ['q_proj'], loraDropout: 0.5 }
    const trained = async (milliseconds: number): Promise<Float32Array> => {
      const respond = async ({ completion }: { completion: string }): Promise<Reply> => {
        await new Promise((resolve) => setTimeout(resolve, milliseconds))
        return { reward: completion.length / 6 }
      }
      const env = digits({ respond })
      const trainer = await trainerOf({ updates: 2 }, { env, steps: 0, model, numLanes: 3 })
      for await (const _ of trainer.updates()) ticks.push(trainer.checkpointNumber)
      return trainer.world.cohort().adapter!.weights.slice()
    }
    const ticks: number[] = []
    const prompt = await trained(0)
    expect(await trained(30)).toEqual(prompt)
    expect(new Set(ticks).size).toBeGreaterThan(2) // They did take others.
  })
})
