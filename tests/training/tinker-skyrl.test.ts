/**
 * SkyRL's server of Tinker's protocol on JAX, as it answered when it was recorded into `tests/golden/skyrl-0.3.0.json.gz`. Nothing of
 * what it computes is ours: forward pass, gradients, optimizer and sampler. `npm run test:tinker` asks the server itself, in an
 * environment that it makes (Python 3.12, some 5 GB, minutes), and also trains on it until it has learned;
 * with SKYRL_RECORD=1 the recording is made anew. SKYRL_URL names a server that runs already.
 */
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { markLearned, packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { tokenUpdatePlan } from '../../src/algorithms/tokens/token-thread.ts'
import { createWorld } from '../../src/index.ts'
import { spansOf } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import type { BackendDefinition, PreparedBatchLoss } from '../../src/training/backends/backend.ts'
import { localBackend } from '../../src/training/backends/local-backend.ts'
import { tinkerBackend } from '../../src/training/backends/tinker-backend.ts'
import { inOwnMemory } from '../../src/training/text/learn/token-update.ts'
import type { ConversationCohort } from '../../src/world/conversations/cohort.ts'
import type { World } from '../../src/world/world.ts'
import { SOURCE, start } from '../support/command.ts'
import { nextDigit, policy, SEED, trainerAt } from '../support/next-digit.ts'
import { recordService, replayService } from '../support/recorded-service.ts'
import { startSkyrl } from '../support/skyrl.ts'
import { temporaryFolder } from '../support/temporary.ts'

const isLive = process.env.COLONNADE_SERVICES === '1'
const isRecorded = isLive && process.env.SKYRL_RECORD === '1'
const RECORDING = new URL('../golden/skyrl-0.3.0.json.gz', import.meta.url).pathname
const HOUR_MS = 3_600_000
const UPDATES = 40

let url = ''
let close: () => unknown = () => {}
let save: (() => Promise<void>) | null = null
beforeAll(async () => {
  if (!isLive) {
    ;({ url, close } = await replayService(RECORDING))
    return
  }
  const server = await startSkyrl(await modelFolder())
  ;({ url, close } = server)
  if (!isRecorded) return
  const proxy = await recordService(url)
  url = proxy.url
  save = () => proxy.save(RECORDING)
}, HOUR_MS)
afterAll(async () => {
  await save?.()
  await close()
})

/** The model as it is drawn by the seed, in a folder for others. */
async function modelFolder(): Promise<string> {
  const { saveTransformer } = await import('../../src/language/transformer/folder.ts')
  const { saveTokenizer } = await import('../../src/language/tokenizers/tokenizer.ts')
  const world = await createWorld({ environment: nextDigit, policy, numLanes: 1, seed: SEED })
  const { model, weights, tokenizer } = world.cohort()
  const folder = await temporaryFolder()
  await saveTransformer(folder, model, weights as Float32Array)
  await saveTokenizer(folder, tokenizer)
  return folder
}

async function made(definition: BackendDefinition) {
  const world: World<ConversationCohort> = await createWorld({
    ...{ environment: nextDigit, policy, seed: SEED, numLanes: 1 },
  })
  const { model, adapter: lora, context } = world.draft().opened
  const shape = { model, weightBits: 32 as const, context, rows: 63, optimizer: 'adam' as const, hasReference: false }
  world.reserve(world.draft(), { learner: definition.plan?.({ ...shape, adapter: lora, threads: 1 }) ?? {} })
  const { weights, adapter, learner: columns } = world.cohort()
  const { kernels, kernelBuild, clock } = world
  const trained = adapter!.weights
  const backend = definition.create({
    ...{ ...shape, weights, adapter, trained, columns, kernels, kernelBuild, clock },
    ...{ sampledWhileLearning: false, team: null },
  })
  await backend.start()
  return { backend, kernels, trained }
}

/** Eight sequences of ids, and a loss of them whose ratios are a sequence's: the server knows no such one. */
const tokens = Array.from({ length: 8 }, (_, i) => Array.from({ length: 6 + i }, (_, t) => (3 * i + 5 * t * t) % 10))
const offsets = [0]
for (const { length } of tokens) offsets.push(offsets.at(-1)! + length)
const token = tokens.flat()
const spans = spansOf(Int32Array.from(offsets))
const batch = packBatch({ ...spans, token, lossMask: token.map((_, t) => (t % 4 === 0 ? 0 : 1)) }, 63)
const newUpdate = () => inOwnMemory(tokenUpdatePlan({ rows: 8, tokens: token.length }, false))
const options = { temperature: 1, step: 0 }
function work(loss: 'gspo' | 'grpo', kernels: Kernels): PreparedBatchLoss {
  const update = newUpdate()
  markLearned(update.learned, batch)
  const oldLogprob = Float32Array.from(token, (id, t) => -2.4 - ((id * 7 + t) % 5) / 9)
  const descriptor = describeLoss(loss, 'paper', { klCoef: 0, clipLow: 0.5, clipHigh: 0.5 })
  const whole = {
    ...{ spans: batch.spans, lossMask: update.learned, oldLogprob, behaviorLogprob: oldLogprob },
    ...{ reward: Float64Array.from([1, 0, 3, 2, 0, 0, 1, 5]), known: new Uint8Array(8).fill(1) },
    group: Int32Array.from([0, 0, 0, 0, 1, 1, 1, 1]),
  }
  const given = { oldLogprob, referenceLogprob: null, oldValue: new Float32Array(0), wholeTokens: null }
  return { loss: descriptor, totals: prepareLoss(descriptor, whole, update.prepared, kernels), given, update }
}
/** Adam whose steps are the gradient: nothing is remembered, and ε is large beside it. */
const gradientStep = {
  ...{ optimizer: 'adam' as const, momentum: 0, beta1: 0, beta2: 0, epsilon: 1000, weightDecay: 0 },
}
const cosine = (a: Float32Array, b: Float32Array) =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0) / (Math.hypot(...a) * Math.hypot(...b))

describe("SkyRL's server", () => {
  test(
    'has our log-probabilities and our gradients from the same start, by a name and by derivatives',
    async () => {
      const asked = await made(tinkerBackend({ url }))
      const own = await made(localBackend)
      for (const loss of ['grpo', 'gspo'] as const) {
        await asked.backend.getWeights(0)
        const before = asked.trained.slice()
        own.trained.set(before)
        const said = [newUpdate(), newUpdate()]
        await asked.backend.forward(batch, 'policy', 1, said[0]!)
        await own.backend.forward(batch, 'policy', 1, said[1]!)
        const apart = said[0]!.logprob.map((value, t) => Math.abs(value - said[1]!.logprob[t]!))
        expect(Math.max(...apart)).toBeLessThan(1e-4)
        for (const { backend, kernels } of [asked, own]) {
          await backend.forwardBackward!(batch, work(loss, kernels), options)
        }
        const norm = await own.backend.optimStep(gradientStep, 1000, 1e9)
        expect((await asked.backend.optimStep(gradientStep, 1000, 1e9)) / norm).toBeCloseTo(1, 3)
        await asked.backend.getWeights(1)
        const steps = [asked, own].map(({ trained }) => trained.map((value, i) => value - before[i]!))
        if (isLive) console.log({ loss, logprobs: Math.max(...apart), norm, cosine: cosine(steps[0]!, steps[1]!) })
        expect(cosine(steps[0]!, steps[1]!)).toBeGreaterThan(0.999)
      }
      asked.backend.close!()
    },
    HOUR_MS,
  )

  test(
    'samples what it is then trained on',
    async () => {
      const made = await trainerAt(url, { loss: 'grpo', updates: 3, groupSize: 4 })
      for await (const { rl: metrics } of made.updates({})) expect(metrics!.kl.k2).toBeLessThan(1e-9)
      expect(made.world.cohort().version).toBe(3)
      made.close()
    },
    HOUR_MS,
  )

  test(
    'keeps the weights of who samples in the place of those that learn, which is found out before anything is sampled ahead',
    async () => {
      const made = await trainerAt(url, { loss: 'grpo', updates: 3, groupSize: 4, maxStaleness: 1 })
      await expect(made.updates({}).next()).rejects.toThrow('got a service that samples from the weights in training')
      await made.close()
    },
    HOUR_MS,
  )

  test.runIf(isLive && !isRecorded).each(['grpo', 'gspo'])(
    'learns what there is to learn by %s, and goes on where its process was killed',
    async (loss) => {
      const folder = await temporaryFolder()
      const program = fileURLToPath(new URL('../support/skyrl-run.ts', import.meta.url))
      const train = () =>
        start(process.execPath, [...SOURCE, program, url, loss, String(UPDATES), folder], { timeout: HOUR_MS })
      const told = (stdout: string) =>
        [...stdout.matchAll(/^update (\d+) reward (\S+)$/gm)].map(([, update, reward]) => [
          Number(update),
          Number(reward),
        ])
      const killed = train()
      await killed.printed('update 10 ')
      killed.process.kill('SIGKILL')
      const first = await killed.ended
      expect(first.code, first.stderr).toBeNull()
      const second = await train().ended
      expect(second.code, second.stderr).toBe(0)
      const [before, after] = [told(first.stdout), told(second.stdout)]
      console.log(loss, [...before, ...after].map(([update, reward]) => `${update}: ${reward!.toFixed(2)}`).join(' '))
      // What was saved and not yet told of is not done again.
      expect(after[0]![0]).toBeGreaterThan(before.at(-1)![0]!)
      expect(after[0]![0]).toBeLessThanOrEqual(before.at(-1)![0]! + 2)
      expect(after.at(-1)![0]).toBe(UPDATES)
      const last = after.slice(-10).map(([, reward]) => reward!)
      expect(last.reduce((a, b) => a + b) / last.length).toBeGreaterThanOrEqual(0.9)
    },
    HOUR_MS,
  )
})
