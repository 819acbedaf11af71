/** Backends by the contract: the one of this process, alone and in a team, and one of a few lines. */

import { expect, test } from 'vitest'
import { optimizerSettings } from '../../src/algorithms/optimizers/optimizer.ts'
import { tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { Clock } from '../../src/base/clock.ts'
import { InputError } from '../../src/base/errors.ts'
import { Random } from '../../src/base/random.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { defineArrayBackend } from '../../src/training/backends/array-backend.ts'
import type {
  BackendCall,
  BackendContext,
  BackendDefinition,
  TrainFuture,
} from '../../src/training/backends/backend.ts'
import { defineBackend } from '../../src/training/backends/define-backend.ts'
import { localBackend } from '../../src/training/backends/local-backend.ts'
import { type BackendUnderTest, backendSuite } from '../support/backend-suite.ts'
import { unigrams } from '../support/unigrams.ts'

const model = transformer({
  ...{ model_type: 'llama', vocab_size: 8, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 },
  ...{ intermediate_size: 16, max_position_embeddings: 32, rms_norm_eps: 1e-5, rope_theta: 10_000 },
  initializer_range: 0.8,
})

/** What a backend of a small model is made of. */
function underTest() {
  const { arena, columns } = takeArena({
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, 8, 32, { optimizer: 'sgd' }, true),
  })
  model.initialize(columns.weights, new Random(7), 0)
  const kernels = createKernels(arena.memory, 'plain')
  const { weights } = columns
  const context: BackendContext = {
    ...{ model, weights, trained: weights, adapter: null, weightBits: 32 as const, context: 32, rows: 8 },
    ...{ optimizer: 'sgd', hasReference: true, columns: columns.learner, kernels },
    ...{ clock: new Clock(), kernelBuild: 'plain', sampledWhileLearning: false, team: null },
  }
  return { context, kernels }
}

/** A backend that has begun. */
async function begun(definition: BackendDefinition): Promise<BackendUnderTest> {
  const { context, kernels } = underTest()
  const backend = definition.create(context)
  await backend.start()
  return { backend, kernels }
}

backendSuite('local', () => begun(localBackend))
backendSuite('of unigrams, which knows no descriptors', () =>
  begun(unigrams([3, 1, 4, 1, 5, 9, 2, 6].map((x) => x / 5))),
)

test('a call that nobody waits for and that fails is no unhandled rejection', async () => {
  const unhandled: unknown[] = []
  const listen = (reason: unknown) => unhandled.push(reason)
  process.on('unhandledRejection', listen)
  const { backend } = await begun(unigrams([1, 2]))
  const settings = { ...optimizerSettings(1e-8), optimizer: 'sgd' }
  void backend.optimStep(settings as never, 0.1, 1)
  await new Promise((resolve) => setImmediate(resolve))
  process.off('unhandledRejection', listen)
  expect(unhandled).toEqual([])
})

/** A backend whose work takes its time, and says in which order it was done; `fails` are calls that fail. */
async function slow(fails: readonly BackendCall[] = []) {
  const log: string[] = []
  const said = async (call: BackendCall, answer?: unknown) => {
    log.push(`${call} begins`)
    await new Promise((resolve) => setTimeout(resolve, 5 - (log.length % 5)))
    log.push(`${call} ends`)
    if (fails.includes(call)) throw new Error(`no ${call}`)
    return answer as never
  }
  const definition = defineBackend('slow', () => ({
    start: () => said('start'),
    forward: () => said('forward'),
    backward: () => said('backward'),
    optimStep: () => said('optimStep', 1),
    saveCheckpoint: (name) => said('saveCheckpoint', name),
    loadCheckpoint: () => said('loadCheckpoint'),
    getWeights: (version) => said('getWeights', { version, weights: new Float32Array(1) }),
    loadWeights: () => said('loadWeights'),
  }))
  const { backend } = await begun(definition)
  return { backend, log }
}

test('a backend does one call after another, and offers no more than its work does', async () => {
  const { backend, log } = await slow()
  log.length = 0
  const none = null as never
  await Promise.all([
    backend.backward(none, none, none),
    backend.optimStep(none, 1, 1),
    backend.getWeights(7),
    backend.saveCheckpoint('a'),
  ])
  const calls = ['backward', 'optimStep', 'getWeights', 'saveCheckpoint']
  expect(log).toEqual(calls.flatMap((call) => [`${call} begins`, `${call} ends`]))
  expect(Object.keys(backend)).not.toContain('forwardBackward')
  expect(Object.keys(backend)).not.toContain('takeUpColumns')
})

test.each<[BackendCall, boolean]>([
  ['forward', false],
  ['backward', true],
  ['optimStep', true],
  ['saveCheckpoint', false],
  ['getWeights', false],
  ['loadWeights', false],
])('a call of %s that fails, and whether the backend is poisoned by it', async (call, isPoisoned) => {
  const { backend } = await slow([call])
  const none = null as never
  if (call === 'optimStep') await backend.backward(none, none, none)
  const made = (backend[call] as (...given: never[]) => TrainFuture<unknown>)(none, none, none)
  await expect(made).rejects.toThrow(`no ${call}`)
  const next = backend.start()
  if (!isPoisoned) return next
  await expect(next).rejects.toThrow(`got a call after ${call}() failed (no ${call}), expected loadCheckpoint() before`)
  await backend.loadCheckpoint('a')
  await backend.start()
})

test('a call that a backend of arrays refuses leaves it as it was', async () => {
  const weights = Float32Array.of(1, 2)
  const refusing = defineArrayBackend('refusing', () => ({
    weights,
    forward() {},
    backward() {
      throw new InputError('batch', 'a token 9', 'ids below 2')
    },
  }))
  const { backend } = await begun(refusing)
  const settings = { ...optimizerSettings(1e-8), optimizer: 'sgd' as const }
  await expect(backend.backward(null as never, null as never, null as never)).rejects.toThrow('a token 9')
  await expect(backend.optimStep(settings as never, 0.1, 1)).rejects.toThrow('no gradient')
  expect((await backend.getWeights(2)).weights).toEqual(weights)
  await backend.start()
})

test('a checkpoint that cannot be loaded leaves a backend as poisoned as it was', async () => {
  const { backend } = await slow(['loadCheckpoint', 'backward'])
  const none = null as never
  await expect(backend.loadCheckpoint('a')).rejects.toThrow('no loadCheckpoint')
  await backend.start()
  await expect(backend.backward(none, none, none)).rejects.toThrow('no backward')
  await expect(backend.loadCheckpoint('a')).rejects.toThrow('no loadCheckpoint')
  await expect(backend.start()).rejects.toThrow(/after backward\(\) failed/)
})
