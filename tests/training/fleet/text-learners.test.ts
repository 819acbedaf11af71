/** Gradients of a language model that a learner computes together with helpers: the bits of a learner alone. */
// Helpers import the modules of what is built, and what they make must be made of the same ones here.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { PackedBatch } from '../../../dist/src/algorithms/tokens/token-batch.js'
import { slotRoom, TokenLearner, type TokenLossSums } from '../../../dist/src/algorithms/tokens/token-learner.js'
import { MemoryBus } from '../../../dist/src/fleet/bus/memory-bus.js'
import { FolderStore } from '../../../dist/src/fleet/store/folder-store.js'
import {
  createTrainer,
  createWorld,
  languageModel,
  rl,
  sft,
  type TrainerOptions,
  textEnvironmentFactory,
} from '../../../dist/src/index.js'
import { defineArrayBackend } from '../../../dist/src/training/backends/array-backend.js'
import { runActor } from '../../../dist/src/training/fleet/fleet-actor.js'
import { fleetCollector } from '../../../dist/src/training/fleet/fleet-groups.js'
import type { CollectorDefinition } from '../../../dist/src/training/loop/collector.js'
import { helpersOn } from '../../support/gradient-helpers.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { rowsOf } from '../../support/tiers.ts'

/** A filter on tokens, whose candidates travel too. */
const sampling = { temperature: 1.2, topK: 8 }
const UPDATES = 3

async function place() {
  const folder = await temporaryFolder()
  const [bus, store] = [new MemoryBus(), new FolderStore(folder)]
  const told: string[] = []
  /** The hashes of what the learner put. */
  const hashes: string[] = []
  const put = store.put.bind(store)
  store.put = async (bytes) => {
    const hash = await put(bytes)
    hashes.push(hash)
    return hash
  }
  const collector = (learners: number): CollectorDefinition =>
    fleetCollector(1, {
      open: async () => ({ bus, store, storeAddress: { kind: 'folder', path: folder }, close: async () => {} }),
      ...{ acknowledge: 'update', seconds: 30, learners },
      tell: (message) => told.push(message),
    })
  return { bus, store, hashes, told, collector }
}

/** Each gradient's log-probabilities and entropies, in the order of its batch. */
const passes: number[][] = []
beforeEach(() => {
  const { differentiate, differentiateWith } = TokenLearner.prototype
  const seen = ({ spans, parts }: PackedBatch, sums: TokenLossSums) => {
    const pass: number[] = []
    for (let i = parts[0]!; i < parts.at(-1)!; i++) {
      for (const column of [sums.logprob, sums.entropy]) pass.push(...column.subarray(spans.begin[i], spans.end[i]))
    }
    passes.push(pass)
    return sums
  }
  vi.spyOn(TokenLearner.prototype, 'differentiate').mockImplementation(function* (this: TokenLearner, ...given) {
    return seen(given[0], yield* differentiate.apply(this, given))
  })
  const withOthers = async function (this: TokenLearner, ...given: Parameters<typeof differentiateWith>) {
    return seen(given[2], await differentiateWith.apply(this, given))
  }
  vi.spyOn(TokenLearner.prototype, 'differentiateWith').mockImplementation(withOthers)
})
afterEach(() => vi.restoreAllMocks())

interface Text {
  readonly model?: object
  readonly settings?: object
  readonly loss?: object
  /** Supervised steps before. */
  readonly lessons?: number
  readonly drawn?: object
}

/** The weights after three updates, each one's metrics of learning, and each gradient's forward passes; `joined` is awaited after the first. */
async function learn(
  { model = {}, settings = {}, loss = {}, lessons = 0, drawn = sampling }: Text,
  options: TrainerOptions,
  joined: () => Promise<unknown> = async () => {},
) {
  const world = await createWorld({
    environment: textEnvironmentFactory('text/reverse')(),
    policy: languageModel({ width: 16, layers: 1, heads: 2, context: 40, ...model }),
    ...{ numLanes: 32, seed: 5, groupSize: 8, sampling: drawn },
  })
  const learning = rl({
    ...{ updates: UPDATES, groupsPerUpdate: 8, groupSize: 8, ...drawn },
    ...settings,
    lossSettings: loss,
  } as never)
  const phases = lessons === 0 ? learning : [sft({ updates: lessons, batchSize: 4 }), learning]
  const trainer = createTrainer(world, phases as never, options)
  const metrics: object[] = []
  for await (const { phase, step, loss, gradNorm, rl } of trainer.updates()) {
    const { kl = null, valueLoss = null, entropy = null, ratio = null } = rl ?? {}
    metrics.push({ loss, gradNorm, kl, valueLoss, entropy, ratio })
    if (phase === 'rl' && step === 1) await joined()
  }
  const { weights, adapter } = trainer.world.cohort()
  trainer.close()
  return { weights: [...(adapter?.weights ?? weights)], metrics, passes: passes.splice(0) }
}

describe('learners of a language model in several processes', () => {
  const rows = rowsOf<[string, number, number, Text & { threads?: number }]>(
    [
      ['all weights, in two minibatches and passes', 2, 1, { settings: { numMinibatches: 2, updateEpochs: 2 } }],
      ['an adapter with dropout', 4, 1, { model: { loraRank: 2, loraDropout: 0.2 } }],
      [
        'a critic and a correction',
        4,
        2,
        { model: { critic: true }, loss: { advantage: 'critic', correction: 'token-truncate' } },
      ],
      ['a learner of two threads, after supervised steps', 4, 2, { threads: 2, lessons: 2 }],
      ['three slots, whose shares are uneven', 2, 1, {}],
    ],
    3,
  )
  test.each(rows)(
    '%s: %i shares by a learner and %i helpers have the bits of one',
    async (name, learners, count, text) => {
      const { elements } = slotRoom
      if (name.startsWith('three')) slotRoom.elements = 20_000
      try {
        const { bus, store, hashes, told, collector } = await place()
        const { threads = 1 } = text
        const expected = await learn(text, {})
        const actor = runActor(bus)
        const helpers = helpersOn(bus, count)
        const learned = await learn(text, { threads, collector: collector(learners) }, helpers.joined)
        expect(learned).toEqual(expected)
        expect(new Set(learned.weights).size).toBeGreaterThan(100)
        expect(learned.passes.length).toBeGreaterThanOrEqual(UPDATES)
        for (const { shares, failures, end } of await helpers.ended()) {
          expect([shares >= UPDATES - 1, failures, end]).toEqual([true, 0, 'run'])
        }
        await actor
        expect(told).toEqual([])
        expect(hashes.length).toBe(new Set(hashes).size) // Rows go once an update, not with each minibatch.
        expect((await store.list()).length).toBeLessThan(12)
      } finally {
        slotRoom.elements = elements
      }
    },
  )

  test('a model with one slot, another backend, a device and a teacher of given answers are refused', async () => {
    const { collector } = await place()
    const backend = defineArrayBackend('other', () => ({}) as never)
    await expect(learn({}, { backend, collector: collector(2) })).rejects.toThrow(
      'learners: got 2, and backend other, expected 1, or backend local',
    )
    await expect(learn({ model: { device: 'webgpu' }, drawn: {} }, { collector: collector(2) })).rejects.toThrow(
      'learners: got 2, and languageModel.device webgpu, expected 1, or device none',
    )
    const world = await createWorld({
      ...{ environment: textEnvironmentFactory('text/reverse')(), policy: languageModel({ width: 16, layers: 1 }) },
      ...{ numLanes: 8, seed: 5, groupSize: 8, sampling },
    })
    const phases = [sft({ updates: 1, teacher: '/nowhere' }), rl({ groupSize: 8, ...sampling })]
    expect(() => createTrainer(world, phases as never, { collector: collector(2) })).toThrow(
      'learners: got 2, and sft.teacher, expected 1, or no teacher',
    )
    const { elements } = slotRoom
    slotRoom.elements = 0
    try {
      await expect(learn({}, { collector: collector(2) })).rejects.toThrow(
        /^learners: got 2, and \d+ trained weights in .*, whose gradient has one slot, expected 1, or at most 16,777,216/,
      )
    } finally {
      slotRoom.elements = elements
    }
  })
})
