/** Updates of language models by our own shaders on SwiftShader, beside the learner on the processor. */
import { expect, test, vi } from 'vitest'
import { describeLoss, type LossBatch, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { type DeviceLearner, startDeviceLearner } from '../../src/algorithms/tokens/device-learner.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { Random, Stream } from '../../src/base/random.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { openTrainingBackend } from '../../src/entries/compat.ts'
import { createTrainer, createWorld, languageModel, sft } from '../../src/index.ts'
import { createKernels, spansOf } from '../../src/kernels/bind.ts'
import { startGpu } from '../../src/kernels/webgpu/start.ts'
import { lora } from '../../src/language/transformer/lora.ts'
import { type TransformerModel, transformer } from '../../src/language/transformer/model.ts'
import { skipLoudly } from '../support/command.ts'
import { digits } from '../support/conversations.ts'
import { webgpuSwiftShader } from '../support/swiftshader.ts'
import { updateOf } from '../support/updates.ts'

/** SwiftShader compiles the shader of a product in about two seconds. */
const TIMEOUT = 900_000

const small = {
  vocab_size: 40,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  intermediate_size: 36,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  initializer_range: 0.3,
}

/** Shapes with the parts that have shaders of their own. */
const MODELS: Record<string, { model: TransformerModel; rank?: number }> = {
  'a model like Llama': { model: transformer({ ...small, model_type: 'llama', tie_word_embeddings: true }) },
  'one like Qwen2, with shared keys, biases and a critic': {
    model: transformer({ ...small, model_type: 'qwen2', num_key_value_heads: 2 }, { valueHead: true }),
  },
  'one like Qwen3, with normed heads': {
    model: transformer({ ...small, model_type: 'qwen3', num_key_value_heads: 1, head_dim: 10 }),
  },
  'one like Mistral, with a window, and its adapter': {
    model: transformer({ ...small, model_type: 'mistral', num_key_value_heads: 2, sliding_window: 5 }),
    rank: 3,
  },
}

/** Sequences of 2 to 40 tokens. */
function sequences(count: number) {
  const random = new Random(3)
  const token: number[] = []
  const offsets = [0]
  for (let i = 0; i < count; i++) {
    random.draw(Stream.reset, i, 0, 0)
    const length = 2 + Math.floor(random.uniform(0) * 39)
    for (let t = 0; t < length; t++) {
      if (t % 4 === 0) random.draw(Stream.reset, i, 1, t / 4)
      token.push(Math.floor(random.uniform(t % 4) * 40))
    }
    offsets.push(token.length)
  }
  return { ...spansOf(offsets), token, lossMask: token.map((_, t) => (t % 7 === 3 ? 0 : 1)) }
}

/** A learner's columns and work, on the processor or the device. */
async function learnerOf(model: TransformerModel, rank: number | undefined, isOnDevice: boolean, rows = 64) {
  const adapted = rank === undefined ? null : lora(model, { rank })
  const settings = { optimizer: 'adam' } as const
  const plan = {
    weights: column('f32', model.numParameters),
    adapter: column('f32', adapted?.numParameters ?? 0),
    learner: tokenLearnerPlan(model, rows, 64, settings, true, adapted),
  }
  const { arena, columns } = takeArena(plan)
  const random = new Random(7)
  model.initialize(columns.weights, random, 0)
  const adapter = adapted && { lora: adapted, weights: columns.adapter, random }
  // With B at 0, nothing would reach A.
  if (adapted) for (let i = 0; i < columns.adapter.length; i++) columns.adapter[i] = 0.2 * Math.sin(i * 1.7)
  if (model.hasValueHead) columns.weights.fill(0.1, model.numParameters - 1 - model.shape.width)
  const kernels = createKernels(arena.memory, 'plain')
  const own = new TokenLearner(model, columns.weights, columns.learner, kernels, adapter)
  own.trained.start()
  const { optimizer, reference } = columns.learner
  const options = { model, weights: columns.weights, adapter, context: 64, optimizer, reference, kernels }
  const device: DeviceLearner | null = isOnDevice ? await startDeviceLearner(options, 'adam') : null
  return { own, device, kernels, columns, trained: own.trained.weights }
}

/** What a learner makes of a batch: evaluations before and after some steps with a clipped loss, and its weights. */
async function learned(model: TransformerModel, rank: number | undefined, isOnDevice: boolean, rows?: number) {
  const { own, device, kernels, columns, trained } = await learnerOf(model, rank, isOnDevice, rows)
  const batch = packBatch(sequences(24), 64)
  const update = updateOf(batch, model.hasValueHead)
  const evaluate = async (whose: 'policy' | 'reference', temperature: number) => {
    const said = {
      logprob: new Float32Array(update.logprob.length),
      entropy: new Float32Array(update.logprob.length),
      value: new Float32Array(update.value.length),
    }
    if (device === null) alone(own.evaluate(batch, temperature, whose, said, update))
    else await device.evaluate(batch, temperature, whose, said)
    return said
  }
  const first = await evaluate('policy', 0.8)
  update.oldLogprob.set(first.logprob)
  update.oldValue.set(first.value)
  const loss = describeLoss(
    ...((model.hasValueHead ? ['ppo', 'paper', { klCoef: 0 }] : ['grpo', 'paper', { klCoef: 0.05 }]) as Parameters<
      typeof describeLoss
    >),
  )
  const whole: LossBatch = {
    spans: batch.spans,
    lossMask: update.learned,
    reward: Float64Array.from(batch.order, (i) => (i * 7) % 5),
    known: new Uint8Array(batch.order.length).fill(1),
    group: Int32Array.from(batch.order, (i) => Math.floor(i / 4)),
    oldLogprob: update.oldLogprob,
    oldValue: model.hasValueHead ? update.oldValue : null,
    value: update.oldValue,
    behaviorLogprob: update.oldLogprob,
    referenceLogprob: update.oldLogprob,
  } as LossBatch
  const totals = prepareLoss(loss, whole, update.prepared, kernels)
  const given = {
    oldLogprob: update.oldLogprob,
    referenceLogprob: update.oldLogprob,
    oldValue: model.hasValueHead ? update.oldValue : null,
    wholeTokens: null,
  }
  const settings = { ...sft().settings, weightDecay: 0.1 }
  const losses: number[] = []
  const norms: number[] = []
  for (let step = 0; step < 3; step++) {
    if (device === null) {
      losses.push(alone(own.differentiate(batch, loss, totals, given, update, 0.8)).policy[0]!)
      norms.push(own.trained.descend(settings, 3e-3, 0.7))
    } else {
      losses.push((await device.differentiate(batch, loss, totals, given, update, 0.8)).policy[0]!)
      norms.push(await device.descend(settings, 3e-3, 0.7))
    }
  }
  const last = await evaluate('policy', 1)
  const reference = await evaluate('reference', 1)
  await device?.home()
  device?.release()
  const { moment, squareMoment } = columns.learner.optimizer
  return { first, last, reference, losses, norms, trained, moment, squareMoment }
}

/** The largest difference as a part of the largest number. */
function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [apart, largest] = [0, 0]
  for (let i = 0; i < a.length; i++) {
    apart = Math.max(apart, Math.abs(a[i]! - b[i]!))
    largest = Math.max(largest, Math.abs(a[i]!))
  }
  return a.length === 0 ? 0 : apart / largest
}

test.for(Object.entries(MODELS))(
  'three updates of %s leave what the processor leaves, to 1e-4',
  { timeout: TIMEOUT },
  async ([, { model, rank }], context) => {
    const found = await webgpuSwiftShader()
    if ('why' in found) skipLoudly(context, `our own shaders (${found.why})`)
    await startGpu([`${found.folder}/`])
    const cpu = await learned(model, rank, false)
    const gpu = await learned(model, rank, true)
    for (const name of ['first', 'last', 'reference'] as const)
      for (const part of ['logprob', 'entropy', 'value'] as const)
        expect(distance(cpu[name][part], gpu[name][part]), `${name} ${part}`).toBeLessThan(1e-5)
    expect(distance(cpu.losses, gpu.losses)).toBeLessThan(1e-5)
    expect(distance(cpu.norms, gpu.norms)).toBeLessThan(1e-5)
    for (const name of ['trained', 'moment', 'squareMoment'] as const)
      expect(distance(cpu[name], gpu[name]), name).toBeLessThan(1e-4)
    expect(distance(cpu.first.logprob, cpu.last.logprob)).toBeGreaterThan(1e-3)
  },
)

test('languageModel.device moves the updates of a backend to the device', { timeout: TIMEOUT }, async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `our own shaders (${found.why})`)
  const gpu = await startGpu([`${found.folder}/`])
  const learned = async (device: 'none' | 'webgpu') => {
    const policy = languageModel({ width: 8, layers: 1, heads: 2, context: 8, device })
    const backend = await openTrainingBackend({ policy, optimizer: { learningRate: 1e-3 } })
    await backend.forwardBackward({ tokens: [[1, 2, 3, 4]], lossMasks: [[1, 1, 1, 1]] })
    await backend.optimStep()
    return (await backend.getWeights(1)) as { readonly weights: Float32Array }
  }
  const { weights } = await learned('none')
  const before = gpu.transfers.submits
  expect(distance(weights, (await learned('webgpu')).weights)).toBeLessThan(1e-3)
  expect(gpu.transfers.submits).toBeGreaterThan(before)
})

test('a gradient outlives a larger forward pass, and a step takes weights that came after its gradient', {
  timeout: TIMEOUT,
}, async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `our own shaders (${found.why})`)
  await startGpu([`${found.folder}/`])
  const [few, many] = [packBatch(sequences(1), 64), packBatch(sequences(24), 64)]
  const { model } = MODELS['a model like Llama']!
  const settings = { ...sft().settings, weightDecay: 0, epsilon: 1e-3 }
  const learned = async (isOnDevice: boolean) => {
    const { own, device, trained } = await learnerOf(model, undefined, isOnDevice)
    const update = updateOf(many, false)
    const zeros = () => new Float32Array(update.logprob.length)
    const derivatives = { dLogprob: zeros().fill(0.01), dEntropy: zeros() }
    const said = { logprob: zeros(), entropy: zeros(), value: new Float32Array(0) }
    const gradient = async () => {
      if (device === null) own.backward(few, derivatives, update, 1, 0)
      else await device.backward(few, derivatives, 1)
    }
    const step = async () =>
      device === null ? own.trained.descend(settings, 1e-2, 1) : device.descend(settings, 1e-2, 1)
    await gradient()
    if (device === null) alone(own.evaluate(many, 1, 'policy', said, update))
    else await device.evaluate(many, 1, 'policy', said)
    const norms = [await step()]
    await device?.home()
    await gradient()
    for (let i = 0; i < trained.length; i++) trained[i]! *= 2
    device?.moved()
    norms.push(await step())
    await device?.home()
    device?.release()
    return { norms, trained }
  }
  const [cpu, gpu] = [await learned(false), await learned(true)]
  expect(cpu.norms[0]).toBeGreaterThan(1e-3)
  expect(distance(cpu.norms, gpu.norms)).toBeLessThan(1e-4)
  expect(distance(cpu.trained, gpu.trained)).toBeLessThan(1e-5)
})

test('closing a training gives its buffers back, and a lost device says so', { timeout: TIMEOUT }, async (context) => {
  const found = await webgpuSwiftShader()
  if ('why' in found) skipLoudly(context, `our own shaders (${found.why})`)
  const gpu = await startGpu([`${found.folder}/`])
  const memories: { releases: number }[] = []
  const memory = gpu.memory.bind(gpu)
  gpu.memory = () => {
    const made = memory()
    const counted = { releases: 0 }
    const release = made.release.bind(made)
    made.release = () => {
      counted.releases++
      release()
    }
    memories.push(counted)
    return made
  }
  const environment = digits({})
  const policy = languageModel({ width: 8, layers: 1, heads: 2, device: 'webgpu' })
  const world = await createWorld({ environment, policy, numLanes: 1 })
  const trainer = createTrainer(world, [sft({ updates: 2, batchSize: 2 })])
  for await (const _ of trainer.updates());
  expect(memories.map(({ releases }) => releases)).toEqual([0])
  trainer.close()
  await vi.waitFor(() => expect(memories.map(({ releases }) => releases)).toEqual([1]))
  world.close()
  const { device } = await learnerOf(MODELS['a model like Llama']!.model, undefined, true)
  const batch = packBatch(sequences(2), 64)
  const { logprob, entropy, value } = updateOf(batch, false)
  const evaluate = () => device!.evaluate(batch, 1, 'policy', { logprob, entropy, value })
  await evaluate()
  gpu.destroy() // The last test: a process has one device.
  await expect(evaluate()).rejects.toThrow(/^device webgpu has failed, and needs a new process: .*destroyed/)
})
