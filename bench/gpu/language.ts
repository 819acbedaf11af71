/** Updates of language models on the device beside the same on all threads of the processor. */
import { availableParallelism } from 'node:os'
import { openTrainingBackend } from '../../src/entries/compat.ts'
import { createTrainer, createWorld, defineTextEnvironment, languageModel, sft } from '../../src/index.ts'

type Device = 'none' | 'webgpu'
type Shape = Parameters<typeof languageModel>[0]

/** The largest differences between the two after three steps from the same weights, as a part of the largest number. */
export async function checkLanguage(): Promise<object[]> {
  const shapes: [string, Shape][] = [
    ['width 64, 2 layers', { width: 64, layers: 2, heads: 4, context: 96, anyText: true }],
    ['width 256, 4 layers', { width: 256, layers: 4, heads: 4, context: 96, anyText: true }],
    [
      'width 64, 2 layers, adapter of rank 8',
      { width: 64, layers: 2, heads: 4, context: 96, anyText: true, loraRank: 8 },
    ],
  ]
  const rows: object[] = []
  const tokens = Array.from({ length: 40 }, (_, i) =>
    Array.from({ length: 2 + ((i * 37) % 94) }, (_, t) => (i * 31 + t * 17 + t * t) % 250),
  )
  const lossMasks = tokens.map((ids) => ids.map((_, t) => (t % 5 === 0 ? 0 : 1)))
  for (const [name, shape] of shapes) {
    const learned = async (device: Device) => {
      // With the usual ε, the last digits of a gradient near 0 would decide a step.
      const optimizer = { learningRate: 1e-3, weightDecay: 0.1, epsilon: 1e-5 }
      const backend = await openTrainingBackend({ policy: languageModel({ ...shape, device }), optimizer })
      const losses: number[] = []
      const norms: number[] = []
      for (let step = 0; step < 3; step++) {
        losses.push((await backend.forwardBackward({ tokens, lossMasks })).loss!)
        norms.push((await backend.optimStep()).gradNorm!)
      }
      const { weights } = (await backend.getWeights(1)) as { weights: Float32Array }
      return { losses, norms, weights: weights.slice() }
    }
    const [cpu, gpu] = [await learned('none'), await learned('webgpu')]
    const [weights, loss, gradNorm] = (['weights', 'losses', 'norms'] as const).map((part) =>
      distance(cpu[part], gpu[part]),
    ) as [number, number, number]
    rows.push({ model: name, weights, loss, gradNorm, isRight: weights < 1e-4 && Math.max(loss, gradNorm) < 1e-5 })
  }
  return rows
}

function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [apart, largest] = [0, 0]
  for (let i = 0; i < a.length; i++) {
    apart = Math.max(apart, Math.abs(a[i]! - b[i]!))
    largest = Math.max(largest, Math.abs(a[i]!))
  }
  return apart / largest
}

/** Answers of this many letters: texts of about so many tokens. */
const texts = (length: number) =>
  defineTextEnvironment({
    id: 'text/answers',
    settings: {},
    make: () => ({
      numExamples: 4096,
      maxTokens: length + 2,
      example: (index) => ({
        prompt: 'a',
        answer: Array.from({ length }, (_, t) => 'abcdefghijklmnopqrstuvwxyz'[(index * 7 + t * 11 + t * t) % 26]).join(
          '',
        ),
      }),
      respond: () => ({ reward: 0 }),
    }),
  })()

/** Models, tokens of a sequence, and sequences of a step. */
const CELLS = {
  full: [
    { shape: { width: 64, layers: 2, heads: 4 }, length: 32, batches: [64, 1024] },
    { shape: { width: 256, layers: 4, heads: 4 }, length: 128, batches: [16, 128] },
    { shape: { width: 512, layers: 8, heads: 8 }, length: 256, batches: [8, 64] },
    { shape: { width: 768, layers: 16, heads: 12 }, length: 256, batches: [8, 32] },
  ],
  small: [{ shape: { width: 16, layers: 1, heads: 2 }, length: 16, batches: [4] }],
} as const

const STEPS = 4
/** The processor is asked for two steps where one takes so long, and for none where it would take as long as the second. */
const [SLOW_SECONDS, TOO_LONG_SECONDS] = [3, 20]

/** Tokens/s of supervised steps, transfers of the weights included. */
export async function timeLanguage(size: 'full' | 'small', keep: (rows: object[]) => void): Promise<void> {
  const table: object[] = []
  const threads = availableParallelism()
  for (const { shape, length, batches } of CELLS[size]) {
    let perSequence = 0
    for (const batchSize of batches) {
      const gpu = await secondsOfStep(shape, length, batchSize, 'webgpu', threads, STEPS)
      const expected = perSequence * batchSize
      const steps = expected > SLOW_SECONDS ? 2 : STEPS
      const cpu =
        expected > TOO_LONG_SECONDS ? null : await secondsOfStep(shape, length, batchSize, 'none', threads, steps)
      if (cpu !== null) perSequence = cpu.seconds / batchSize
      table.push({
        ...{ ...shape, millions: gpu.parameters / 1e6, tokens: gpu.tokens, threads },
        cpuTokensPerSecond: cpu && cpu.tokens / cpu.seconds,
        gpuTokensPerSecond: gpu.tokens / gpu.seconds,
        ratio: cpu && cpu.seconds / gpu.seconds,
        lossApart: cpu && Math.abs(cpu.loss / gpu.loss - 1),
      })
      keep(table)
    }
  }
}

/** Median seconds of a step after the first, and the loss of the second. */
async function secondsOfStep(
  shape: Shape,
  length: number,
  batchSize: number,
  device: Device,
  threads: number,
  updates: number,
): Promise<{ seconds: number; tokens: number; parameters: number; loss: number }> {
  const policy = languageModel({ ...shape, context: length + 8, anyText: true, device })
  const world = await createWorld({ environment: texts(length), policy, numLanes: 1, seed: 1 })
  const trainer = createTrainer(world, [sft({ updates, batchSize, learningRate: 1e-4 })], { threads })
  const seconds: number[] = []
  let [tokens, loss, before] = [0, 0, 0]
  for await (const metrics of trainer.updates()) {
    seconds.push(metrics.seconds - before)
    before = metrics.seconds
    tokens = metrics.tokens!
    if (seconds.length <= 2) loss = metrics.loss!
  }
  const parameters = world.cohort().model.numParameters
  trainer.close()
  world.close()
  return {
    seconds: seconds.slice(1).toSorted((a, b) => a - b)[Math.floor((seconds.length - 1) / 2)]!,
    tokens,
    parameters,
    loss,
  }
}
