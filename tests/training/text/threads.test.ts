import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { slotRoom } from '../../../dist/src/algorithms/tokens/token-learner.js'
import { defineArrayBackend } from '../../../dist/src/entries/algorithms.js'
import { scriptedEngine } from '../../../dist/src/entries/engines.js'
// Workers load compiled files, and what they share must be made by the same ones here.
import {
  type ConversationCohort,
  createTrainer,
  createWorld,
  defineTextEnvironment,
  InputError,
  languageModel,
  rl,
  sft,
  type Trainer,
  textEnvironmentFactory,
} from '../../../dist/src/index.js'
import { start } from '../../support/command.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf, thorough } from '../../support/tiers.ts'
import { unigramModel } from '../../support/unigrams.ts'

const reverse = textEnvironmentFactory('text/reverse')
const small = { width: 16, layers: 2, heads: 2 }

interface Options {
  readonly model?: object
  readonly settings?: Parameters<typeof rl>[0]
  readonly numLanes?: number
  readonly steps?: number
  readonly batchSize?: number
  readonly kernels?: 'plain' | 'simd'
  readonly engine?: ReturnType<typeof scriptedEngine>
  readonly backend?: ReturnType<typeof defineArrayBackend>
}

async function trainerOf(
  threads: number,
  { model = small, settings = {}, numLanes = 13, steps = 3, batchSize = 40, kernels, engine, backend }: Options,
): Promise<Trainer<ConversationCohort>> {
  const algorithm = rl({ groupsPerUpdate: 8, groupSize: 6, updates: 3, ...settings })
  const { groupSize, temperature, topK, topP, minP } = algorithm.settings
  const world = await createWorld({
    environment: reverse({ maxLength: 6 } as never),
    policy: languageModel(model as never),
    numLanes,
    seed: 3,
    groupSize,
    sampling: { temperature, topK, topP, minP },
    ...(kernels === undefined ? {} : { kernels }),
    ...(engine === undefined ? {} : { engine }),
  })
  return createTrainer(world, [sft({ updates: steps, batchSize }), algorithm], {
    threads,
    ...(backend === undefined ? {} : { backend }),
  })
}

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** SHA-256 of every saved column. */
function bits(trainer: Trainer<ConversationCohort>): Record<string, string> {
  return Object.fromEntries(
    trainer.world
      .columns()
      .filter(({ planned }) => planned.saved)
      .map(({ planned, column: { buffer, byteOffset, byteLength } }) => [
        planned.name,
        sha(Uint8Array.from(new Uint8Array(buffer, byteOffset, byteLength))),
      ]),
  )
}

/** Figures without what a clock has a part in. */
function untimed(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (key, each) => (/seconds?$/i.test(key) ? undefined : each)))
}

/** Trains on to the end; returns figures, the Arrow files of the updates, and the saved columns. */
async function outcome(trainer: Trainer<ConversationCohort>, folder: string) {
  const metrics: unknown[] = []
  const tables: string[] = []
  for await (const each of trainer.updates({ phase: 'sft' })) metrics.push(untimed(each))
  for await (const each of trainer.updates()) {
    metrics.push(untimed(each))
    const path = join(folder, `${each.step}.arrow`)
    await trainer.writeTrajectories(path)
    tables.push(sha(await readFile(path)))
  }
  const result = { metrics, tables, bits: bits(trainer) }
  trainer.close()
  return result
}

async function expectSame(options: Options, teams: readonly number[]) {
  const folder = await temporaryFolder()
  const alone = await outcome(await trainerOf(1, options), folder)
  for (const threads of teams) {
    expect(await outcome(await trainerOf(threads, options), folder), `${threads} threads`).toEqual(alone)
  }
  return alone
}

describe('same bits for any number of threads', () => {
  test.each(['dpo', 'kto'])('on preferences, by %s', async (loss) => {
    const pairs = defineTextEnvironment({
      id: 'text/pairs',
      settings: {},
      make: () => ({
        numExamples: 30,
        example: (i: number) => ({ prompt: `${i}`, answer: `${i}`.repeat(1 + (i % 7)), rejected: `${i}${i % 4}` }),
        respond: () => ({ reward: 0 }),
      }),
    })()
    const outcomes = []
    for (const threads of [1, 3]) {
      const policy = languageModel({ width: 16, layers: 2, heads: 2, anyText: true })
      const world = await createWorld({ environment: pairs, policy, numLanes: 1, seed: 3 })
      const trainer = createTrainer(world, sft({ loss, updates: 4, batchSize: 25 }), { threads })
      outcomes.push(await outcome(trainer, ''))
    }
    expect(outcomes[1]).toEqual(outcomes[0])
    expect(outcomes[0]!.metrics).toHaveLength(4)
  })

  const matrix: [string, Options][] = [
    ['of the whole model', {}],
    [
      'of an adapter with dropout, against a reference',
      { model: { ...small, loraRank: 4, loraDropout: 0.1 }, settings: { lossSettings: { klCoef: 0.1 } } },
    ],
    ['with a critic', { model: { ...small, critic: true }, settings: { loss: 'ppo' } }],
    ['with more micro-batches than gradient slots', { batchSize: 500 }],
    [
      'with plain kernels, two epochs and a correction',
      { kernels: 'plain', settings: { updateEpochs: 2, lossSettings: { correction: 'token-truncate' } } },
    ],
    ['where filters leave tokens out', { settings: { topK: 8, topP: 0.95 } }],
  ]

  test.each(rowsOf(matrix, 3))('%s', async (_, options) => {
    const { metrics, tables } = await expectSame(options, rowsOf([3, 2, 5]))
    expect(metrics).toHaveLength(6)
    expect(new Set(tables).size).toBe(3)
  })
})

describe('same bits for any number of threads in a single gradient slot', () => {
  const room = slotRoom.elements
  beforeAll(() => {
    slotRoom.elements = 0
  })
  afterAll(() => {
    slotRoom.elements = room
  })
  const models: [string, Options][] = [
    ['of the whole model, with tied embeddings', {}],
    ['of an adapter, with activations recomputed', { model: { ...small, loraRank: 4, checkpointing: true } }],
  ]

  test.each(rowsOf(models, 2))('%s', async (_, options) => {
    await expectSame({ ...options, batchSize: 200 }, rowsOf([3, 2, 5]))
  })

  test('weights that are not finite end an update with an error, and no thread waits', async () => {
    const trainer = await trainerOf(3, { batchSize: 200 })
    const { learner, model } = trainer.world.cohort()
    const { weights } = trainer.world.cohort()
    expect(learner).toHaveProperty('gradient.length', weights.length + model.shape.vocabularySize * model.shape.width)
    weights.fill(NaN)
    const updates = trainer.updates()
    await expect(updates.next()).rejects.toThrow(InputError)
    trainer.close()
  })
})

describe('threads of a language model', () => {
  /** Enough for the lanes of a tick to be shared. */
  const shared: Options = { model: { width: 64, layers: 2 }, numLanes: 40 }

  const models: [string, Options][] = [
    ['', shared],
    [' of which filters leave some out', { ...shared, settings: { topK: 8, topP: 0.95 } }],
    [' with an adapter', { ...shared, model: { width: 64, layers: 2, loraRank: 4 } }],
    [' of a frozen model in 4 bits', { ...shared, model: { width: 64, layers: 2, loraRank: 4, quantize: 4 } }],
  ]

  test.each(rowsOf(models))('choose the same tokens%s where they share the lanes', async (_, options) => {
    await expectSame({ ...options, steps: 1 }, rowsOf([3, 2, 12]))
  })

  test('learn together from what an engine of another kind has chosen, which they do not help', async () => {
    const engine = scriptedEngine(({ key }, ids) => {
      const hash = [...key, ...ids].reduce((sum, id) => (Math.imul(sum, 31) + id) >>> 0, 7)
      return { token: (hash >>> 3) % 9, logprob: -Math.log(9) }
    })
    await expectSame({ engine, settings: { temperature: 0.9 } }, [3])
  })

  // In the fast tier the test above has lanes that threads do not help with.
  thorough('help an engine whose weights come from a backend that they do not help', async () => {
    const backend = defineArrayBackend('first-logits', ({ model, trained }) => {
      const size = model.shape.vocabularySize
      const { forward, backward } = unigramModel([])
      return {
        weights: trained,
        forward: (weights, ...given) => forward(weights.subarray(0, size), ...given),
        backward: (weights, batch, derivatives, options, gradient) =>
          backward(weights.subarray(0, size), batch, derivatives, options, gradient.subarray(0, size)),
      }
    })
    await expectSame({ ...shared, steps: 1, backend, settings: { lossSettings: { klCoef: 0 } } }, [2])
  })

  test('all do a part: of the lanes, and of the micro-batches', async () => {
    const trainer = await trainerOf(2, shared)
    const { engine, learner } = trainer.world.cohort()
    const decoders = [0, 1].map((index) => engine.threads!.columnsOf(index).decoder)
    await outcome(trainer, await temporaryFolder())
    const { packed } = learner as unknown as { packed: Record<string, { forward: { position: Int32Array } }> }
    for (const { position } of [decoders[0]!.forward, decoders[1]!.forward, packed[0]!.forward, packed[1]!.forward]) {
      expect(position.some((each) => each > 0)).toBe(true)
    }
  })

  test.each(
    rowsOf([
      [2, 3],
      [3, 1],
      [1, 2],
    ]),
  )('save by %i, with conversations under way, what %i go on from to the same bits', async (before, after) => {
    const folder = await temporaryFolder()
    const whole = await outcome(await trainerOf(1, shared), folder)
    const first = await trainerOf(before, shared)
    const metrics: unknown[] = []
    for await (const each of first.updates({ phase: 'sft' })) metrics.push(untimed(each))
    const stop = new AbortController()
    for await (const each of first.updates({ signal: stop.signal })) {
      metrics.push(untimed(each))
      const end = first.checkpointNumber + 5
      Object.defineProperty(stop.signal, 'aborted', { get: () => first.checkpointNumber >= end })
    }
    expect(first.progress().rlUpdates).toBe(1)
    await first.save(folder)
    first.close()
    const second = await trainerOf(after, shared)
    expect((await second.restore(folder)).warnings).toEqual([])
    const rest = await outcome(second, folder)
    expect([...metrics, ...rest.metrics]).toEqual(whole.metrics)
    expect(rest.tables).toEqual(whole.tables.slice(1))
    expect(rest.bits).toEqual(whole.bits)
  })

  test.each([0, -1, 1.5, 65, Number.NaN, '2', null])('are refused as %s', async (threads) => {
    await expect(trainerOf(threads as number, {})).rejects.toThrow(
      /^threads: got .* expected a whole number from 1 to 64$/,
    )
  })

  test('serve one loop at a time, and are not saved in the middle of an update', async () => {
    const trainer = await trainerOf(2, shared)
    const steps = trainer.updates({ phase: 'sft' })
    const first = steps.next()
    await expect(trainer.updates({ phase: 'sft' }).next()).rejects.toThrow(InputError)
    await expect(trainer.save(await temporaryFolder())).rejects.toThrow(/during a tick or an update/)
    expect((await first).value).toMatchObject({ step: 1 })
    trainer.close()
  })
})

describe('a training of a language model in which something goes wrong', () => {
  const script = fileURLToPath(new URL('../../support/text-threads-failure.mjs', import.meta.url))

  /** Runs it in a process of its own, which nothing but its last handle ends. */
  async function run(order: object) {
    const { code, stdout, stderr } = await start(process.execPath, [script, JSON.stringify(order)]).ended
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const records = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const errors = records.filter(({ message }) => message !== undefined)
    const complete = records.find((record) => record.complete)?.complete
    return { errors, complete, exit: records.find(({ exiting }) => exiting) }
  }

  let undisturbed: ReturnType<typeof run>
  beforeAll(() => {
    undisturbed = run({})
  })

  test.each(
    rowsOf([
      ['at work', 'midway'],
      ['between updates', 'between'],
    ]),
  )('because a worker is killed %s says so, and goes on with another to the same bits', async (_, terminate) => {
    const { errors, complete, exit } = await run({ terminate })
    const said = expect.stringMatching(/^worker 1 of 2 threads of speakers ended with code [01]$/) // Node says 0 of one that had nothing to do.
    expect(errors.map(({ message }) => message)).toEqual([said])
    expect(complete).toMatch(/^[0-9a-f]{64}$/)
    expect(complete).toBe((await undisturbed).complete)
    expect(exit.started).toBe(2)
  })

  test('because a worker is killed while its turn is waited for says so, and does not go on', async () => {
    const { errors } = await run({ terminate: 'in turn' })
    const said = 'worker 1 of 2 threads of speakers ended with code 1'
    expect(errors.map(({ message }) => message)).toEqual([
      said,
      expect.stringMatching(
        /^trainer\.updates\(\): got a call after update 1 failed \(.+\), expected trainer\.restore\(\) before it, or a new trainer$/,
      ),
    ])
  })

  // In the fast tier tests/training/threads.test.ts closes a training of lanes.
  thorough.each([
    ['at work', 'close'],
    ['while its workers are on their way', 'close early'],
  ])('because it is closed %s says so, and goes on to the same bits', async (_, terminate) => {
    const { errors, complete } = await run({ terminate })
    expect(errors.map(({ message }) => message)).toEqual(['the trainer was closed during an update'])
    expect(complete).toBe((await undisturbed).complete)
  })

  test.each(
    rowsOf([
      [
        "by a worker ends with the error and the worker's name",
        39,
        'worker 1 of 2 threads of speakers failed: token: got',
      ],
      ["by the caller's own thread ends with its error", 0, 'token: got'],
    ]),
  )('%s', async (_, spoil, message) => {
    const { errors } = await run({ spoil })
    expect(errors).toHaveLength(2) // The token is still there when it is tried again.
    for (const error of errors) {
      expect(error.name).toBe('InputError')
      expect(error.message.startsWith(`${message} 10000, expected a whole number`)).toBe(true)
    }
  })

  // In the fast tier tests/training/threads.test.ts shows it of lanes, by the same team of threads.
  thorough('leaves nothing that holds the process when it is only left and forgotten', async () => {
    const { exit } = await run({ leave: true })
    expect(exit.started).toBe(1)
  })
})
