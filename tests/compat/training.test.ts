/** The training loops of other systems over a backend: what they learn, whom they tell, and what they refuse. */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { grpo } from '../../src/compat/named-losses.ts'
import { AsyncRolloutManager, type RolloutConfig, type SavedRolloutManager } from '../../src/compat/rollout-manager.ts'
import {
  computeAdvantages,
  JsonlLogger,
  type RlTrainingConfig,
  runRlTraining,
  runSftTraining,
  type SyncedEngine,
  syncWeightsToEngines,
} from '../../src/compat/training.ts'
import { EmptyBatchError, type OpenBackendOptions, openTrainingBackend } from '../../src/compat/training-backend.ts'
import type { WeightsDelivery } from '../../src/engines/engine.ts'
import { DataBuffer } from '../../src/language/datasets/data-buffer.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { samplesToTrajectories } from '../../src/tables/trajectories/sample.ts'
import { evaluateText } from '../../src/training/text/evaluate/evaluate.ts'
import { Trainer } from '../../src/training/text/learn/token-trainer.ts'
import { createWorld } from '../../src/world/world.ts'
import { digits } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'

const environment = digits({})
const policy = languageModel({ width: 16, layers: 1, heads: 2 })
const open = (given: Partial<OpenBackendOptions> = {}) =>
  openTrainingBackend({ policy, environment, seed: 3, optimizer: { learningRate: 0.01 }, ...given })

/** Two answers to each prompt, of different lengths; what they are worth differs from prompt to prompt. */
const generateFn: RolloutConfig<string>['generateFn'] = (prompts) =>
  prompts.map((prompt, i) => {
    const said = Array.from({ length: i + 2 }, (_, t) => 3 + ((Number(prompt) + t + i) % 8))
    return {
      ...{ response: said.join(' '), tokens: [2 + Number(prompt), ...said] },
      ...{ lossMask: [0, ...said.map(() => 1)], reward: Number(prompt) * i + 0.25 * i },
    }
  })
const managerOf = (buffer: DataBuffer<string>, given: Partial<RolloutConfig<string>> = {}) =>
  new AsyncRolloutManager(buffer, { batchSize: 2, nSamplesPerPrompt: 2, generateFn, ...given })

/** Runs so many steps; the weights that come of it. */
async function trained(config: Partial<RlTrainingConfig> = {}, engines: readonly SyncedEngine[] = [], given = {}) {
  const backend = await open(given)
  const buffer = new DataBuffer(['1', '2', '3'], 5)
  const rollouts = managerOf(buffer)
  const before = backend.world.cohort().weights.slice()
  const steps = await runRlTraining(backend, buffer, rollouts, engines, { numSteps: 2, checkpointEvery: 0, ...config })
  return { backend, steps, before, weights: backend.world.cohort().weights.slice() }
}

/** An engine that keeps what it is given. */
function keeping(confirm: (version: number) => number = (version) => version) {
  const given: { version: number; first: number }[] = []
  const engine = {
    id: 'keeping',
    version: -1,
    setWeights({ version, weights }: WeightsDelivery) {
      given.push({ version, first: weights[0]! })
      engine.version = confirm(version)
      return engine.version
    },
  }
  return { engine, given }
}

describe('training from generated samples', () => {
  test('makes the steps that a trainer makes of the same samples', async () => {
    const { weights, before, steps } = await trained()
    const world = await createWorld({ environment, policy, numLanes: 1, seed: 3 })
    const trainer = new Trainer({
      ...{ model: world, advantageFn: grpo.computeAdvantages, lossFn: grpo.policyLoss },
      ...{ optimizer: { learningRate: 0.01 }, maxGradNorm: 1 },
    })
    const rollouts = managerOf(new DataBuffer(['1', '2', '3'], 5))
    const twin: number[] = []
    for (let step = 0; step < 2; step++) {
      const { samples } = await rollouts.generateBatch()
      twin.push((await trainer.train(samplesToTrajectories(samples))).gradNorm)
    }
    expect(weights).not.toEqual(before)
    expect(weights).toEqual(world.cohort().weights)
    expect(steps.map(({ gradNorm }) => gradNorm)).toEqual(twin)
    expect(steps.map(({ step, learningRate }) => [step, learningRate])).toEqual([
      [1, 0.01],
      [2, 0.01],
    ])
  })

  test('takes rewards less a baseline where there is one', async () => {
    const { steps } = await trained({ numSteps: 1, baseline: 0.5 })
    const { rewards } = await managerOf(new DataBuffer(['1', '2', '3'], 5)).generateBatch()
    const mean = rewards.reduce<number>((sum, reward) => sum + reward!, 0) / rewards.length
    // Before the first step each ratio is 1, so that the loss is what the advantages come to, a mean for each sample.
    expect(steps[0]!.loss).toBeCloseTo(-(mean - 0.5), 5)
    expect(steps[0]!.reward).toBe(mean)
    expect(computeAdvantages([1, null, 0], { baseline: 0.25 })).toEqual([0.75, Number.NaN, -0.25])
  })

  test('gives engines the weights at its beginning, every so many steps and at its end', async () => {
    const [one, two] = [keeping(), keeping()]
    const { backend } = await trained({ numSteps: 5, syncEvery: 2 }, [one.engine, two.engine])
    expect(one.given.map(({ version }) => version)).toEqual([0, 2, 4, 5])
    expect(new Set(one.given.map(({ first }) => first)).size).toBe(4)
    expect(one.given.at(-1)!.first).toBe(backend.world.cohort().weights[0])
    expect(two.given).toEqual(one.given)
    const wrong = keeping((version) => version - 1)
    await expect(trained({}, [wrong.engine])).rejects.toThrow(/weights of engine keeping: got version -1 confirmed/)
  })

  test('or the path of a checkpoint that has them', async () => {
    const paths: string[] = []
    const engine = { updateWeightsFromCheckpoint: async (path: string) => ({ success: paths.push(path) < 3 }) }
    const checkpointDir = await temporaryFolder()
    const { backend, weights } = await trained({ numSteps: 1 }, [engine], { checkpointDir })
    expect(paths).toEqual([0, 1].map((step) => join(checkpointDir, `step_${step}.safetensors`)))
    const again = await open({ checkpointDir })
    await again.loadCheckpoint(paths[1]!)
    expect(again.world.cohort().weights).toEqual(weights)
    await expect(syncWeightsToEngines([engine], 'x')).rejects.toThrow(/weights of engine 0: got {"success":false}/)
    expect((await backend.getWeights(7)).version).toBe(7)
  })

  test('goes on from a checkpoint and a manager’s state to the same weights', async () => {
    const whole = await trained({ numSteps: 4 })
    const checkpointDir = await temporaryFolder()
    const saved: { path: string; state: string }[] = []
    const backend = await open({ checkpointDir })
    const buffer = new DataBuffer(['1', '2', '3'], 5)
    const rollouts = managerOf(buffer, { overSamplingFactor: 1.5 })
    await runRlTraining(backend, buffer, rollouts, [], {
      ...{ numSteps: 2, checkpointEvery: 2 },
      onCheckpoint: async (path) => {
        saved.push({ path, state: JSON.stringify(await rollouts.stateDict()) })
      },
    })
    const resumed = await open()
    await resumed.loadCheckpoint(saved[0]!.path)
    const rest = new DataBuffer(['1', '2', '3'], 5)
    const others = managerOf(rest)
    await others.loadStateDict(JSON.parse(saved[0]!.state) as SavedRolloutManager)
    await runRlTraining(resumed, rest, others, [], { numSteps: 2, checkpointEvery: 0 })
    expect(saved.length).toBe(1)
    expect(resumed.world.cohort().weights).toEqual(whole.weights)
  })

  test('lets the learning rate go as its schedule says, and logs as often as it is told', async () => {
    const path = join(await temporaryFolder(), 'metrics.jsonl')
    const backend = await open()
    const buffer = new DataBuffer(['1', '2', '3'], 5)
    const logger = new JsonlLogger(path)
    const config = { numSteps: 4, checkpointEvery: 0, logEvery: 2, schedule: 'linear' as const }
    const steps = await runRlTraining(backend, buffer, managerOf(buffer), [], config, logger)
    expect(steps.map(({ learningRate }) => learningRate! / 0.01)).toEqual([1, 0.75, 0.5, 0.25])
    const lines = (await readFile(path, 'utf8')).trim().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toEqual([steps[1], steps[3]])
    expect(() => logger.log({}, 5)).toThrow(/after finish/)
  })

  test('refuses what it cannot use, and passes on what fails', async () => {
    await expect(trained({ numSteps: -1 })).rejects.toThrow(/numSteps: got -1/)
    await expect(trained({ syncEvery: 0 })).rejects.toThrow(/syncEvery: got 0/)
    await expect(trained({ steps: 3 } as never)).rejects.toThrow(/"steps"/)
    await expect(trained({ schedule: 'lienar' as never })).rejects.toThrow(/did you mean "linear"/)
    await expect(trained({}, [{} as never])).rejects.toThrow(/engine: got {}, expected one with setWeights/)
    await expect(trained({ checkpointEvery: 1 })).rejects.toThrow(/checkpointDir: got none/)
    const buffer = new DataBuffer(['1'], 5)
    const other = runRlTraining(await open(), buffer, managerOf(new DataBuffer(['1'], 5)), [], { numSteps: 1 })
    await expect(other).rejects.toThrow(/buffer: got another buffer than the manager’s/)
    await expect(runRlTraining({} as never, buffer, managerOf(buffer), [], { numSteps: 1 })).rejects.toThrow(
      /backend, forwardBackward: got undefined/,
    )
    await expect(trained({ onEmptyBatch: 'wait' as never })).rejects.toThrow(/onEmptyBatch: got "?wait"?, expected/)
  })
})

describe('a batch of unknown rewards', () => {
  /** The second of three batches has no known reward. */
  async function withEmpty(config: Partial<RlTrainingConfig>) {
    let numRewards = 0
    const backend = await open()
    const buffer = new DataBuffer(['1', '2', '3'], 5)
    const rollouts = managerOf(buffer, {
      rewardFn: () => (Math.floor(numRewards++ / 4) === 1 ? null : numRewards),
    })
    const steps = await runRlTraining(backend, buffer, rollouts, [], { numSteps: 3, checkpointEvery: 0, ...config })
    return { steps }
  }

  test('is counted and skipped, and training goes on', async () => {
    const { steps } = await withEmpty({})
    expect(steps.map(({ skipped, step }) => [skipped, step])).toEqual([
      [undefined, 1],
      [1, undefined],
      [undefined, 2],
    ])
  })

  test('ends it if asked, with the steps before it', async () => {
    const error = await withEmpty({ onEmptyBatch: 'stop' }).catch((cause) => cause)
    expect(error).toBeInstanceOf(EmptyBatchError)
    expect(error.message).toMatch(/no token to learn from: 4 rewards unknown/)
    expect(error.steps).toMatchObject([{ step: 1 }])
  })
})

describe('supervised training', () => {
  const samples = [{ tokens: [5, 6, 7, 0], lossMask: [0, 1, 1, 1] }]

  test('learns its samples by heart', async () => {
    const { tokenizer } = (await open()).world.cohort()
    const tokens = [...tokenizer.encode('1'), ...tokenizer.encode('23'), tokenizer.endIds[0]!]
    const backend = await open()
    const config = { numSteps: 60, batchSize: 1, checkpointEvery: 0 }
    const steps = await runSftTraining(backend, [{ tokens, lossMask: [0, 1, 1, 1] }], config)
    expect(steps[59]!.loss!).toBeLessThan(0.1 * steps[0]!.loss!)
    const asked = digits({ example: () => ({ prompt: '1' }) })
    const { weights } = backend.world.cohort()
    const { samples } = await evaluateText({ environment: asked, policy, weights, episodes: 1 })
    expect(samples[0]!.completion).toBe('23')
  })

  test('takes each sample once an epoch, in an order of its own', async () => {
    const seen: number[] = []
    const backend = await open()
    const watching = {
      ...{ optimStep: () => backend.optimStep(), saveCheckpoint: () => backend.saveCheckpoint(0) },
      ...{ getWeights: () => backend.getWeights(0), loadCheckpoint: (path: string) => backend.loadCheckpoint(path) },
      loadWeights: (weights: Float32Array) => backend.loadWeights(weights),
      forwardBackward: (batch: Parameters<typeof backend.forwardBackward>[0]) => {
        if ('tokens' in batch) seen.push(...batch.tokens.map((tokens) => tokens[0]!))
        return backend.forwardBackward(batch)
      },
    }
    const three = [3, 4, 5].map((id) => ({ tokens: [id, 6], lossMask: [0, 1] }))
    await runSftTraining(watching, three, { numSteps: 3, batchSize: 2, checkpointEvery: 0 })
    expect([seen.slice(0, 3).sort(), seen.slice(3).sort()]).toEqual([
      [3, 4, 5],
      [3, 4, 5],
    ])
  })

  test('refuses what it cannot learn', async () => {
    const of = async (given: object[], config = {}) =>
      runSftTraining(await open(), given as never, { numSteps: 1, batchSize: 1, checkpointEvery: 0, ...config })
    await expect(of([])).rejects.toThrow(/samples: got \[\]/)
    await expect(of([{ tokens: [1, 2], lossMask: [1] }])).rejects.toThrow(/lossMasks\[0\]: got 1 elements, expected 2/)
    await expect(of([{ tokens: [1, 2], lossMask: [0, 0] }])).rejects.toThrow(/no token to learn/)
    await expect(of(samples, { batchSize: 0 })).rejects.toThrow(/batchSize: got 0/)
    await expect(of(samples, { batch_size: 1 })).rejects.toThrow(/did you mean "batchSize"/)
  })
})

describe('a backend of batches', () => {
  test('does calls that are not awaited in their order, and goes on after a batch that it refuses', async () => {
    const [one, two] = [await open(), await open()]
    const { samples } = await managerOf(new DataBuffer(['1', '2', '3'], 5)).generateBatch()
    const made = one.forwardBackward({ samples })
    const stepped = one.optimStep(0.5)
    expect([made.done(), made.call, stepped.index]).toEqual([false, 'forwardBackward', 1])
    expect((await stepped.result()).learningRate).toBe(0.005)
    expect([made.done(), Number.isFinite((await made).loss)]).toEqual([true, true])
    const refused = two.forwardBackward({ samples, advantages: [1] })
    await expect(refused).rejects.toThrow(/advantages: got 1 numbers, expected 4/)
    await two.forwardBackward({ samples })
    await two.optimStep(0.5)
    expect(two.world.cohort().weights).toEqual(one.world.cohort().weights)
    await one.loadWeights(new Float32Array(one.world.cohort().weights.length).fill(0.5))
    expect(one.world.cohort().weights[3]).toBe(0.5)
  })

  test('is opened with what goes together', async () => {
    await expect(open({ lossFn: 'grpo' as never })).rejects.toThrow(/lossFn: got "grpo"/)
    await expect(open({ maxGradNorm: 0 })).rejects.toThrow(/maxGradNorm: got 0/)
    await expect(open({ learningRate: 1 } as never)).rejects.toThrow(/"learningRate"/)
    const without = await open({ optimizer: null })
    const { samples } = await managerOf(new DataBuffer(['1', '2'], 5)).generateBatch()
    await expect(without.forwardBackward({ samples })).rejects.toThrow(/expected an optimizer/)
  })
})
