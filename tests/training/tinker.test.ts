/** A service of Tinker's protocol as training backend and engine, over a service that does what the protocol says, and what it must not. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { describeLoss, type LossDescriptor, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { markLearned, packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { tokenUpdatePlan } from '../../src/algorithms/tokens/token-thread.ts'
import { InputError } from '../../src/base/errors.ts'
import { tinkerEngine } from '../../src/engines/tinker/tinker.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { createTrainer, createWorld, rl } from '../../src/index.ts'
import { PolicySum, spansOf } from '../../src/kernels/bind.ts'
import { languageModel } from '../../src/language/language-model.ts'
import type { BackendDefinition, PreparedBatchLoss, TrainingBackend } from '../../src/training/backends/backend.ts'
import { localBackend } from '../../src/training/backends/local-backend.ts'
import { type TinkerBackendOptions, tinkerBackend } from '../../src/training/backends/tinker-backend.ts'
import { configureRun, resumeRun, startRun } from '../../src/training/run/run.ts'
import { inOwnMemory } from '../../src/training/text/learn/token-update.ts'
import type { ConversationCohort } from '../../src/world/conversations/cohort.ts'
import type { World } from '../../src/world/world.ts'
import { digits } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf, thorough } from '../support/tiers.ts'
import { type TinkerServiceOptions, tinkerService } from '../support/tinker-service.ts'

const policy = (settings: object = {}) =>
  languageModel({ width: 16, layers: 1, heads: 2, loraRank: 4, loraAlpha: 32, ...settings })

/** A backend over the model that a service has too. */
async function made(definition: BackendDefinition, settings: object = {}, hasReference = false) {
  const world: World<ConversationCohort> = await createWorld({
    ...{ environment: reverse(), policy: policy(settings), seed: 3, numLanes: 1 },
  })
  const { model, adapter: lora, context } = world.draft().opened
  const shape = { model, weightBits: 32 as const, context, rows: 63, optimizer: 'adam' as const, hasReference }
  world.reserve(world.draft(), { learner: definition.plan?.({ ...shape, adapter: lora, threads: 1 }) ?? {} })
  const { weights, adapter, learner: columns } = world.cohort()
  const { kernels, kernelBuild, clock } = world
  const backend = definition.create({
    ...{ ...shape, weights, adapter, trained: adapter?.weights ?? weights, columns },
    ...{ kernels, kernelBuild, clock, sampledWhileLearning: false, team: null },
  })
  await backend.start()
  return { backend, kernels, trained: adapter?.weights ?? weights }
}

/** A service, and a backend that asks it. */
async function pair(
  options: Partial<TinkerServiceOptions> = {},
  given: TinkerBackendOptions = {},
  hasReference = false,
) {
  const service = await tinkerService({ policy: policy(), ...options })
  const { backend, kernels, trained } = await made(tinkerBackend({ url: service.url, ...given }), {}, hasReference)
  return { service, backend, kernels, trained }
}

const offsets = Int32Array.of(0, 5, 9, 15)
const sampled = {
  ...spansOf(offsets),
  token: [1, 2, 3, 4, 5, 6, 7, 1, 3, 2, 2, 5, 6, 1, 4],
  lossMask: [0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1],
}
const batch = packBatch(sampled, 63)
const numTokens = sampled.token.length
/** Adam, whose steps are the gradient: nothing is remembered, and ε is large beside it. */
const gradientStep = {
  ...{ optimizer: 'adam' as const, momentum: 0, beta1: 0, beta2: 0, epsilon: 1, weightDecay: 0 },
}
const cosine = (a: Float32Array, b: Float32Array) =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0) / (Math.hypot(...a) * Math.hypot(...b))
const options = { temperature: 1, step: 0 }
const newUpdate = () => inOwnMemory(tokenUpdatePlan({ rows: 3, tokens: numTokens }, false))

/** A loss of the batch, by rewards in one group and probabilities of others. */
function work(loss: LossDescriptor, kernels: Parameters<typeof prepareLoss>[3]): PreparedBatchLoss {
  const update = newUpdate()
  markLearned(update.learned, batch)
  const oldLogprob = Float32Array.from(sampled.token, (token, t) => -3 - ((token * 7 + t) % 5) / 9)
  const behaviorLogprob = oldLogprob.map((logprob, t) => logprob - ((t * 5) % 7) / 9)
  const whole = {
    ...{ spans: batch.spans, lossMask: update.learned, oldLogprob, behaviorLogprob },
    ...{ reward: Float64Array.of(1, 4, 2), known: new Uint8Array(3).fill(1), group: new Int32Array(3) },
  }
  const given = { oldLogprob, referenceLogprob: null, oldValue: new Float32Array(0), wholeTokens: null }
  return { loss, totals: prepareLoss(loss, whole, update.prepared, kernels), given, update }
}

describe('a training service', () => {
  const losses: [string, LossDescriptor, string][] = [
    ['grpo', describeLoss('grpo', 'paper', { klCoef: 0 }), 'ppo'],
    ['grpo, whose bounds are reached', describeLoss('grpo', 'trl', { clipLow: 0.01, clipHigh: 0.02 }), 'ppo'],
    [
      'a corrected loss',
      describeLoss('grpo', 'paper', { klCoef: 0, correction: 'token-truncate', correctionHigh: 1.2 }),
      'ppo',
    ],
    ['no bounds', describeLoss('grpo', 'paper', { klCoef: 0, clipLow: null, clipHigh: null }), 'importance_sampling'],
    ['sft', describeLoss('sft'), 'cross_entropy'],
    ['gspo', describeLoss('gspo'), 'derivatives'],
    ['sapo', describeLoss('sapo'), 'derivatives'],
  ]

  test.each(
    losses.flatMap(([name, loss, goesBy]) =>
      (['sum', 'mean'] as const).map((reduction) => [name, reduction, goesBy, loss] as const),
    ),
  )('makes the gradient of %s that this process makes, where losses are added up as a %s', async (_, ...given) => {
    const [reduction, goesBy, loss] = given
    const { service, backend, kernels, trained } = await pair({ reduction })
    await backend.getWeights(0)
    const before = trained.slice() // The service's first ones.
    const own = await made(localBackend)
    own.trained.set(before)
    const told = work(loss, kernels)
    const asked = await backend.forwardBackward!(batch, told, options)
    const expected = await own.backend.forwardBackward!(batch, work(loss, own.kernels), options)
    for (const [i, value] of expected.policy.entries()) {
      if (i === PolicySum.entropy)
        expect(asked.policy[i]).toBeNaN() // The service does not tell.
      else expect(asked.policy[i]).toBeCloseTo(value, 4)
    }
    const norm = await own.backend.optimStep(gradientStep, 1, 0.05)
    expect((await backend.optimStep(gradientStep, 1, 0.05)) / norm).toBeCloseTo(1, 4)
    await backend.getWeights(1) // `trained` is what was downloaded last.
    const [step, expectedStep] = [trained, own.trained].map((after) => after.map((value, i) => value - before[i]!))
    expect(cosine(step!, expectedStep!)).toBeGreaterThan(0.99999)
    expect(Math.hypot(...step!) / Math.hypot(...expectedStep!)).toBeCloseTo(1, 3)
    const passes = service.asked.filter(({ path }) => path === 'forward_backward').slice(2) // Two asked how losses are added up.
    const isNamed = goesBy !== 'derivatives' && !(goesBy === 'cross_entropy' && reduction === 'mean')
    const byDerivatives = reduction === 'sum' ? 'cross_entropy' : 'importance_sampling'
    expect(passes.map(({ body }) => body.forward_backward_input.loss_fn)).toEqual([isNamed ? goesBy : byDerivatives])
  })

  test('says the log-probabilities of the policy and of the reference, which stays as it was', async () => {
    const { backend, trained, kernels } = await pair({}, {}, true)
    await backend.getWeights(0)
    const own = await made(localBackend, {}, true)
    own.trained.set(trained)
    await own.backend.start()
    const evaluate = async (by: TrainingBackend, whose: 'policy' | 'reference') => {
      const said = newUpdate()
      await by.forward(batch, whose, 1, said)
      return [...said.logprob]
    }
    for (const each of [backend, own.backend]) {
      await each.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)
      await each.optimStep(gradientStep, 1, 1)
    }
    for (const whose of ['policy', 'reference'] as const) {
      const [said, expected] = [await evaluate(backend, whose), await evaluate(own.backend, whose)]
      for (const [t, value] of said.entries()) expect(value).toBeCloseTo(expected[t]!, 4)
    }
    expect(await evaluate(backend, 'reference')).not.toEqual(await evaluate(backend, 'policy'))
    const said = newUpdate()
    await backend.forward(batch, 'policy', 1, said)
    // Entropies the service does not tell.
    expect([...said.entropy].filter((value) => !Number.isNaN(value))).toEqual([0, 0, 0])
  })

  test('is asked in requests that are as large as it takes them', async () => {
    const { service, backend, kernels } = await pair({ datums: 2 })
    await backend.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)
    const sizes = service.asked.flatMap(({ path, body }) =>
      path === 'forward_backward' ? [body.forward_backward_input.data.length] : [],
    )
    expect(sizes).toEqual([1, 1, 2, 1])
    expect(await backend.optimStep(gradientStep, 1, 1)).toBeGreaterThan(0)
  })

  test('goes on from what it saved: weights, optimizer and reference, also in a place of another session', async () => {
    const remembers = { ...gradientStep, beta1: 0.9, beta2: 0.99 }
    const first = await pair({}, {}, true)
    const step = async ({ backend, kernels }: Pick<typeof first, 'backend' | 'kernels'>) => {
      await backend.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)
      await backend.optimStep(remembers, 0.1, 1)
      const said = [newUpdate(), newUpdate()]
      await backend.forward(batch, 'policy', 1, said[0]!)
      await backend.forward(batch, 'reference', 1, said[1]!)
      return said.map(({ logprob }) => [...logprob])
    }
    await step(first)
    const name = await first.backend.saveCheckpoint('runs/a/checkpoints/00000003.languageModel')
    expect(name).toMatch(/^tinker:\/\/model-\d+\/weights\/00000003-languageModel-\w+\?steps=1&reference=tinker/)
    const next = await step(first)
    await first.backend.loadCheckpoint(name)
    expect(await step(first)).toEqual(next)
    const second = await made(tinkerBackend({ url: first.service.url }), {}, true)
    await second.backend.loadCheckpoint(name)
    expect(await step(second)).toEqual(next)
    for (const each of [first, second]) each.backend.close!()
    await expect.poll(() => first.service.models.size).toBe(0)
    for (const wrong of [
      'tinker://model-1/weights/none?steps=1',
      'runs/a/00000003',
      'tinker://x/weights/y?steps=one',
    ]) {
      const { backend } = await made(tinkerBackend({ url: first.service.url }))
      await expect(backend.loadCheckpoint(wrong)).rejects.toThrow(InputError)
    }
  })

  test('starts again with a new optimizer, where it loads weights alone', async () => {
    const remembers = { ...gradientStep, beta1: 0.9, beta2: 0.99 }
    const step = async ({ backend, kernels }: Pick<Awaited<ReturnType<typeof pair>>, 'backend' | 'kernels'>) => {
      await backend.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)
      await backend.optimStep(remembers, 0.1, 1)
    }
    const one = await pair()
    await one.backend.getWeights(0)
    const own = await made(localBackend)
    own.trained.set(one.trained)
    for (const each of [one, own]) {
      await step(each)
      await each.backend.start()
      await step(each)
    }
    await one.backend.getWeights(1)
    for (const [i, value] of own.trained.entries()) expect(one.trained[i]).toBeCloseTo(value, 4)
    const other = await pair({ lacks: ['optimizer'] })
    await step(other)
    await expect(other.backend.start()).rejects.toThrow(
      /got a start after optimizer steps, on a service that loads weights only together with the optimizer/,
    )
  })
})

describe('a training service refuses', () => {
  type Made = Awaited<ReturnType<typeof pair>>
  const grpo = (overrides: object) => describeLoss('grpo', 'paper', { klCoef: 0, ...overrides })
  const learn = (loss: LossDescriptor) => (made: Made) =>
    made.backend.forwardBackward!(batch, work(loss, made.kernels), options)
  const step = async (made: Made, given: object = {}, maxNorm = 1) => {
    await learn(describeLoss('sft'))(made)
    return made.backend.optimStep({ ...gradientStep, ...given }, 1, maxNorm)
  }
  const forward = (given: { temperature?: number; candidates?: object }) => (made: Made) =>
    made.backend.forward(
      { ...batch, candidates: (given.candidates ?? null) as never },
      'policy',
      given.temperature ?? 1,
      newUpdate(),
    )
  const withDerivatives = (name: 'dLogprob' | 'dEntropy', value: number) => (made: Made) => {
    const update = newUpdate()
    update[name][3] = value
    return made.backend.backward(batch, update, options)
  }

  test.each<[string, (made: Made) => Promise<unknown>, RegExp, Partial<TinkerServiceOptions>?]>([
    [
      'entropies',
      learn(grpo({ entropyCoef: 0.01 })),
      /loss grpo: got entropyCoef 0.01, expected .*returns no entropies/,
    ],
    ['derivatives by them', withDerivatives('dEntropy', 0.5), /a derivative by the entropy, 0.5 at 3/],
    ['derivatives that are no numbers', withDerivatives('dLogprob', Number.NaN), /a loss value that is not finite/],
    ['another temperature', forward({ temperature: 0.7 }), /temperature: got 0.7, expected temperature 1/],
    ['candidate sets', forward({ candidates: {} }), /batch: got tokens drawn from candidate sets/],
    ['another optimizer', (made) => step(made, { optimizer: 'sgd' }), /optimizer: got sgd, expected adam/],
    [
      'a bound of the norm that nobody heeds',
      step,
      /maxGradNorm: got 1, expected 1000000 or more: the service does not clip gradients/,
      { lacks: ['grad_clip_norm'] },
    ],
    ['weights of others', ({ backend }) => backend.loadWeights(new Float32Array(4)), /does not accept weights/],
  ])('%s', async (_, ask, message, service = {}) => {
    const made = await pair(service)
    const count = made.service.asked.filter(({ path }) => path === 'optim_step').length
    const asked = ask(made)
    await expect(asked).rejects.toThrow(InputError)
    await expect(asked).rejects.toThrow(message)
    // No more steps than those that asked how losses are added up.
    expect(made.service.asked.filter(({ path }) => path === 'optim_step').length - count).toBeLessThanOrEqual(2)
  })

  test('before it is asked, and goes on as if that had not been: a gradient, then a step of the last one', async () => {
    const [made, other] = [await pair(), await pair()]
    const sft = describeLoss('sft')
    await expect(learn(grpo({ entropyCoef: 0.01 }))(made)).rejects.toThrow(/entropyCoef/)
    await expect(withDerivatives('dEntropy', 0.5)(made)).rejects.toThrow(/derivative by the entropy/)
    await expect(made.backend.optimStep(gradientStep, 1, 1)).rejects.toThrow('got no gradient')
    await expect(step(made, { optimizer: 'sgd' })).rejects.toThrow(/expected adam/)
    await expect(learn(sft)(made)).rejects.toThrow('a gradient before the step of the last')
    await made.backend.optimStep(gradientStep, 1, 1)
    await step(other)
    await Promise.all([made, other].map(({ backend }) => backend.getWeights(1)))
    expect(made.trained).toEqual(other.trained)
  })

  test.each<[string, object, TinkerBackendOptions, RegExp]>([
    ['a whole model', { loraRank: 0, loraAlpha: 0 }, {}, /got a whole model, expected an adapter/],
    ['dropout', { loraDropout: 0.1 }, {}, /got an adapter with dropout 0.1/],
    ['half of what is trained together', { loraTargets: ['q_proj'] }, {}, /loraTargets: got an adapter of q_proj/],
    ['another alpha', { loraAlpha: 8 }, {}, /got an adapter of rank 4, alpha 32, expected rank 4, alpha 8/],
    [
      'a base model that it has not',
      {},
      { baseModel: 'large' },
      /base model: got "large", expected one that it has: tiny/,
    ],
    ['no address', {}, { url: 'nowhere' }, /url: got "nowhere"/],
    [
      'a key that is not set',
      {},
      { apiKeyVariable: 'NO_SUCH_KEY' },
      /apiKeyVariable: got NO_SUCH_KEY, which is not set/,
    ],
  ])('%s', async (_, given, told, message) => {
    const service = await tinkerService({ policy: policy() })
    const asked = async () => {
      const { backend } = await made(tinkerBackend({ url: service.url, ...told }), given)
      await backend.getWeights(0)
    }
    await expect(asked()).rejects.toThrow(InputError)
    await expect(asked()).rejects.toThrow(message)
  })
})

describe('of a service that', () => {
  type Answer = TinkerServiceOptions['answer']
  /** Every answer of this path is so. */
  const always =
    (of: string, said: ReturnType<Answer>): Answer =>
    (path) =>
      path === of ? said : undefined
  const none = { type: 'try_again', request_id: '1', queue_state: 'paused_capacity' }

  test.each<[string, Answer, RegExp, TinkerBackendOptions?]>([
    [
      'wants a key',
      always('create_session', { status: 401, json: { detail: 'no key' } }),
      /status 401.*API key is missing/,
    ],
    [
      'knows another request',
      always('create_model', { status: 409, json: {} }),
      /status 409.*another request was made/,
    ],
    ['forgot the answer', always('retrieve_future', { status: 410, json: {} }), /status 410.*expired/],
    ['has no such future', always('retrieve_future', { status: 404, json: {} }), /status 404.*no such model/],
    ['is refused for the moment', always('create_session', { status: 429, json: {} }), /status 429.*too many requests/],
    ['fails', always('create_session', { status: 500, text: 'oops' }), /status 500, "oops"/],
    ['fails behind a future', always('retrieve_future', { status: 503, json: {} }), /status 503/],
    ['answers half a JSON', always('retrieve_future', { text: '{"model_id": ' }), /got .*expected a JSON object/],
    ['breaks the connection', always('retrieve_future', null), /retrieve_future: /],
    [
      'says that the user is wrong',
      always('retrieve_future', { json: { error: 'bad rank', category: 'user' } }),
      /refused, bad rank/,
    ],
    [
      'says that it is wrong',
      always('retrieve_future', { json: { error: 'crash', category: 'server' } }),
      /failed, crash/,
    ],
    [
      'has no room for long',
      always('retrieve_future', { json: none }),
      /not done in 1 s \(queue "paused_capacity"\)/,
      { deadline: 1 },
    ],
    [
      'waits to be paid',
      always('retrieve_future', { status: 402, json: {} }),
      /not done in 1 s \(.*status 402/,
      { deadline: 1 },
    ],
    ['gives no name of a future', always('create_model', { json: {} }), /got request_id undefined/],
    ['is none', always('get_server_capabilities', { json: {} }), /got supported_models undefined/],
  ])('%s it is said', async (_, answer, message, given = {}) => {
    const { backend } = await pair({ answer }, { retries: 1, reduction: 'sum', ...given })
    await expect(backend.getWeights(0)).rejects.toThrow(message)
  })

  test('has no place for an adapter it is said, and places are given back', async () => {
    const { service, backend } = await pair({ slots: 1 })
    await backend.getWeights(0)
    const other = await made(tinkerBackend({ url: service.url, reduction: 'sum' }))
    await expect(other.backend.getWeights(0)).rejects.toThrow(/refused, Maximum number of LoRA adapters \(1\) reached/)
    backend.close!()
    await expect.poll(() => service.models.size).toBe(0)
    await other.backend.getWeights(0)
  })

  test('passes over faults a request is done once', async () => {
    let faults = 0
    const { service, backend, kernels } = await pair(
      {
        notDone: 1,
        // Each request is refused at first, or its connection breaks behind the service's work.
        answer: () => (faults++ % 5 === 1 ? { status: [408, 429, 503][faults % 3]!, json: {} } : undefined),
      },
      { reduction: 'sum' },
    )
    await backend.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)
    await backend.optimStep(gradientStep, 1, 1)
    await backend.getWeights(1)
    const [model] = service.models.values()
    expect([...model!.requests.keys()]).toEqual([1, 2, 3])
    expect(faults).toBeGreaterThan(20)
  })

  test('knows no numbers of requests, none is sent a second time that may have been done', async () => {
    let sent = 0
    const answer: Answer = (path) => {
      if (path !== 'forward_backward') return undefined
      sent++
      return null
    }
    for (const [lacks, expected] of [
      [[], 4],
      [['seq_id'], 1],
    ] as const) {
      sent = 0
      const { backend, kernels } = await pair({ lacks, answer }, { reduction: 'sum' })
      await expect(backend.forwardBackward!(batch, work(describeLoss('sft'), kernels), options)).rejects.toThrow(
        /forward_backward: /,
      )
      expect(sent).toBe(expected)
    }
  })

  test('tells other log-probabilities than there are tokens nothing is learned', async () => {
    let wrong: unknown
    const answer: Answer = (path) => (path === 'retrieve_future' && wrong !== undefined ? { json: wrong } : undefined)
    for (const [outputs, message] of [
      [[], /got those of 0 sequences, expected 3/],
      [[1, 2, 3].map(() => ({ logprobs: { data: [-1] } })), /got \[-1\], expected \d numbers ≤ 0 of sequence 0/],
      [[1, 2, 3].map(() => ({})), /got undefined, expected \d numbers/],
    ] as const) {
      wrong = undefined
      const { backend } = await pair({ answer }, { reduction: 'sum' })
      await backend.getWeights(0)
      wrong = { loss_fn_outputs: outputs }
      await expect(backend.forward(batch, 'policy', 1, newUpdate())).rejects.toThrow(message)
    }
  })
})

describe('a training by a service', () => {
  /** The answer to a digit is the next one. */
  const next = digits({
    ...{ numExamples: 2, maxTokens: 1 },
    respond: ({ example, completion }) => ({ reward: completion === example.answer ? 1 : 0 }),
  })
  const model = () => policy({ width: 32, heads: 4 })
  const training = (loss: string, updates: number, ahead: object) =>
    rl({
      ...{ loss, lossSettings: { klCoef: 0 }, updates, groupsPerUpdate: 2, groupSize: 16, learningRate: 0.05 },
      ...ahead,
    } as never)
  async function trainer(
    url: string,
    loss: string,
    updates: number,
    folder?: string,
    ahead: object = {},
    codec: 'json' | 'protobuf' = 'json',
  ) {
    const world = await createWorld({
      ...{ environment: next, policy: model(), seed: 3, numLanes: 32, groupSize: 16 },
      engine: tinkerEngine({ url, codec }),
    })
    const backend = tinkerBackend({ url, codec })
    return createTrainer(world, training(loss, updates, ahead), {
      backend,
      ...(folder === undefined ? {} : { folder }),
    })
  }
  const serve = (given: Partial<TinkerServiceOptions> = {}) =>
    tinkerService({ policy: model(), environment: next, ...given })
  async function train(made: Awaited<ReturnType<typeof trainer>>, updates = Number.POSITIVE_INFINITY) {
    const rewards: number[] = []
    for await (const { rl: metrics } of made.updates({})) {
      // What the engine said is what the backend says of the same tokens, by the weights that were delivered.
      expect(metrics!.kl.k2).toBeLessThan(1e-9)
      expect(metrics!.entropy).toBeNaN()
      rewards.push(metrics!.reward!)
      if (rewards.length === updates) break
    }
    return rewards
  }

  thorough.each([
    ['grpo', 'ppo'],
    ['gspo', 'cross_entropy'],
  ])('learns what there is to learn by %s, which goes as %s', async (loss, goesAs) => {
    const service = await serve()
    const made = await trainer(service.url, loss, 25)
    const rewards = await train(made)
    expect(rewards[0]).toBeLessThan(0.5)
    expect(Math.max(...rewards.slice(-5))).toBeGreaterThanOrEqual(0.9)
    await made.close()
    const passes = service.asked.filter(({ path }) => path === 'forward_backward').slice(2)
    expect(new Set(passes.map(({ body }) => body.forward_backward_input.loss_fn))).toEqual(new Set([goesAs]))
    await expect.poll(() => service.models.size).toBe(0)
  })

  test.each(rowsOf(['grpo', 'gspo']))(
    'comes to the same weights by %s in JSON and in protocol buffers',
    async (loss) => {
      const trained = async (codec: 'json' | 'protobuf') => {
        const service = await serve({ takesJson: codec === 'json' })
        const made = await trainer(service.url, loss, 1, undefined, {}, codec)
        await train(made)
        const passes = service.asked.filter(({ path }) => path === 'forward' || path === 'forward_backward')
        const lossesOf = passes.map(({ path, body }) => [path, body[`${path}_input`].loss_fn, body.seq_id])
        return { weights: made.world.cohort().adapter!.weights.slice(), lossesOf }
      }
      const [json, protobuf] = [await trained('json'), await trained('protobuf')]
      expect(protobuf.lossesOf).toEqual(json.lossesOf)
      expect(protobuf.weights).toEqual(json.weights)
    },
  )

  test('whose service takes no JSON is told so, and what to do', async () => {
    const service = await serve({ takesJson: false })
    await expect(train(await trainer(service.url, 'grpo', 1))).rejects.toThrow(/passes are protobuf.*codec=protobuf/)
  })

  test.each([{ maxStaleness: 1 }, { overSampling: 1.5 }])(
    'by a service that samples from the weights in training is refused before anything is sampled, with %o',
    async (ahead) => {
      const service = await serve({ samplesByLearner: true })
      const refused = await trainer(service.url, 'grpo', 2, undefined, ahead)
      await expect(train(refused)).rejects.toThrow(
        /^backend tinker at \S+: got a service that samples from the weights in training, expected a service with separate weights for sampling; .* rl.maxStaleness 0, rl.overSampling 1$/,
      )
      await refused.close()
      await expect.poll(() => service.models.size).toBe(0)
      // Of the probe alone, not of any conversation.
      expect(service.asked.filter(({ path }) => path === 'asample').length).toBe(2)
    },
  )

  test('of which nothing is sampled meanwhile may share its weights with who samples, and one that shares none is asked ahead', async () => {
    const sharing = await serve({ samplesByLearner: true })
    expect((await train(await trainer(sharing.url, 'grpo', 2))).length).toBe(2)
    const apart = await serve()
    const made = await trainer(apart.url, 'grpo', 2, undefined, { maxStaleness: 1 })
    for await (const { rl: metrics } of made.updates({})) expect(metrics!.trajectories).toBe(32)
    expect(made.world.cohort().version).toBe(2)
    // Two probes and the one that learned were made one after another, each in the place that the one before gave back.
    expect(apart.asked.filter(({ path }) => path === 'create_model').length).toBe(3)
  })

  test('goes on to the same weights where it was stopped', async () => {
    const service = await serve()
    const whole = await trainer(service.url, 'grpo', 3)
    await train(whole)
    const expected = whole.world.cohort().adapter!.weights.slice()
    const folder = await temporaryFolder()
    const first = await trainer(service.url, 'grpo', 3, folder)
    await train(first, 2)
    await first.save()
    const resumed = await trainer(service.url, 'grpo', 3, folder)
    await resumed.restore()
    expect(resumed.world.cohort().adapter!.weights).toEqual(first.world.cohort().adapter!.weights)
    await train(resumed)
    expect(resumed.world.cohort().adapter!.weights).toEqual(expected)
  })

  test('is a run by its keys, which is resumed from the service, also at another address', async () => {
    const small = { width: '16', layers: '1', heads: '2', loraRank: '4', loraAlpha: '32' }
    const model = languageModel({ width: 16, layers: 1, heads: 2, loraRank: 4, loraAlpha: 32 })
    const service = await tinkerService({ policy: model, environment: reverse(), seed: 3 })
    const keys = (url: string) => ({ backend: `tinker:${url}`, engine: `tinker:${url}` })
    const given = {
      ...Object.fromEntries(Object.entries(small).map(([key, value]) => [`languageModel.${key}`, value])),
      ...{ mode: 'rl', seed: '3', threads: '1', numLanes: '4', 'rl.groupSize': '2', 'rl.groupsPerUpdate': '2' },
      ...{ 'rl.updates': '2', 'backend.seed': '7', 'loss.entropyCoef': '0', ...keys(service.url) },
    }
    const out = join(await temporaryFolder(), 'run')
    const run = await startRun(await configureRun('text/reverse', given), out)
    expect((await run.train()).updates).toBe(2)
    const { settings: kept } = JSON.parse(await readFile(join(out, 'config.json'), 'utf8'))
    expect(kept).toMatchObject({ backend: `tinker:${service.url}`, backendSettings: ['seed=7'] })
    expect(service.asked.find(({ path }) => path === 'create_model')!.body.lora_config.seed).toBe(7)
    const other = service.url.replace('127.0.0.1', 'localhost')
    const resumed = await resumeRun(out, { settings: { ...keys(other), 'rl.updates': '3' } })
    expect((await resumed.train()).updates).toBe(3)
    expect(service.asked.filter(({ path }) => path === 'load_weights').length).toBe(1)
    expect(service.asked.filter(({ path }) => path === 'optim_step').length).toBe(2 + 2 + 2 + 1)
    const lines = (await readFile(join(out, 'metrics.jsonl'), 'utf8')).trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line).entropy)).toEqual([null, null, null])
    for (const [wrong, message] of [
      [
        { backend: 'tinkr:http://127.0.0.1:1' },
        'backend: got "tinkr" (did you mean "tinker"?), expected one of local, tinker',
      ],
      [{ backend: 'tinker:nowhere' }, 'url: got "nowhere"'],
      [{ backend: 'local' }, 'backendSettings: got ["seed=7"], expected none'],
      [{ 'backend.sed': '1' }, /setting of the backend tinker: got "sed"/],
    ] as const) {
      await expect(configureRun('text/reverse', { ...given, ...wrong })).rejects.toThrow(message)
    }
  })

  test.each<[string, TinkerServiceOptions['answer'], RegExp]>([
    [
      'other weights',
      (path, body) =>
        path === 'create_sampling_session' && /v1-/.test(body.model_path)
          ? { json: { sampling_session_id: 'sampling-of-nobody' } }
          : undefined,
      /status 404/,
    ],
    ['no session', (path) => (path === 'create_sampling_session' ? { json: {} } : undefined), /got session undefined/],
  ])('ends where the engine has %s', async (_, answer, message) => {
    const service = await serve({ answer })
    await expect(train(await trainer(service.url, 'grpo', 2))).rejects.toThrow(message)
  })

  test('ends where the engine samples by older weights under a new name', async () => {
    const service = await serve({
      answer(path, body) {
        if (path !== 'create_sampling_session' || !/\/v1-/.test(body.model_path)) return undefined
        const older = [...service.kept.keys()].find((name) => /sampler_weights\/v0-/.test(name))
        body.model_path = older
        return undefined
      },
    })
    await expect(train(await trainer(service.url, 'grpo', 2))).rejects.toThrow(
      /got log-probabilities [\d.]+ nats from the learner.s, at version 1, expected at most 0.0001/,
    )
  })

  test('fails turns that it cuts off before they have as many tokens as were asked for', async () => {
    const service = await serve({
      answer(path, body) {
        // Probes take the most probable tokens.
        if (path === 'asample' && body.sampling_params.temperature > 0) return { json: { request_id: 'cut' } }
        if (path !== 'retrieve_future' || body.request_id !== 'cut') return undefined
        return { json: { sequences: [{ tokens: [], logprobs: [], stop_reason: 'length' }] } }
      },
    })
    const trained = train(await trainer(service.url, 'grpo', 1, undefined, { failure: 'throw' }))
    await expect(trained).rejects.toThrow(/engine tinker: stop reason "length" after 0 of \d+ tokens/)
  })

  test('ends before it learns from a session whose weights were swapped under their name', async () => {
    let asked = 0
    const service = await serve({
      samplesByLearner: true,
      answer(path) {
        // The first is the probe of the delivery.
        if (path !== 'asample' || ++asked !== 8) return undefined
        const { weights } = [...service.models.values()].at(-1)!
        weights.set(weights.map((weight, i) => weight + 0.1 * Math.sin(i)))
        return undefined
      },
    })
    const made = await trainer(service.url, 'grpo', 2)
    const numSteps = () => service.asked.filter(({ path }) => path === 'optim_step').length
    await expect(made.updates({}).next()).rejects.toThrow(
      /got log-probabilities [\d.]+ nats from those at the delivery of version 0, expected at most 0.0001/,
    )
    expect(asked).toBe(1 + 32 + 1)
    expect(numSteps()).toBe(2) // Those that asked how losses are added up.
  })
})
