/** What cohorts of both kinds refuse, before they have memory and after. */

import { describe, expect, test, vi } from 'vitest'
import type { localEnginePlan } from '../src/engines/local/local-columns.ts'
import { defineWrapper, wrap } from '../src/environments/wrapper.ts'
import { cartPole, createTrainer, createWorld, languageModel, mlp, pendulum, ppo, tick } from '../src/index.ts'
import { collect } from '../src/systems/tick.ts'
import { asConversations, asEpisodes } from '../src/world/cohort.ts'
import { type ConversationDraft, cancelReplies, canGoOn, owedAnswers } from '../src/world/conversations/cohort.ts'
import { planConversations } from '../src/world/conversations/draft.ts'
import { closeRollout } from '../src/world/episodes/cohort.ts'
import { checkWorld } from '../src/world/world.ts'
import { digits, talkWorld } from './support/conversations.ts'
import { later } from './support/later.ts'

type LocalPlan = ReturnType<typeof localEnginePlan>

const policy = mlp({ hidden: [8] })
const good = { environment: cartPole(), policy, numLanes: 3 }

describe('createWorld', () => {
  test.each([null, undefined, 7])('refuses options that are %s', async (options) => {
    await expect(createWorld(options as never)).rejects.toThrow(
      `createWorld(options): got ${options}, expected an object with environment, policy and numLanes`,
    )
  })

  test('refuses cohorts that are no list', async () => {
    await expect(createWorld({ cohorts: good as never })).rejects.toThrow('expected a list of cohorts')
    await expect(createWorld({ cohorts: [] })).rejects.toThrow('cohorts: got none, expected at least one cohort')
  })

  test('refuses what is no world', async () => {
    const world = createWorld(good)
    expect(() => checkWorld('tick(world)', world)).toThrow('tick(world): got a promise, expected a world')
    expect(() => checkWorld('tick(world)', 7)).toThrow('tick(world): got 7, expected a world')
    expect(checkWorld('tick(world)', await world)).toBeUndefined()
  })
})

describe('a cohort of episodes', () => {
  test.each([-1, 0.5, 0xffffffff - 2, '0'])('refuses firstLane %s', async (firstLane) => {
    await expect(createWorld({ ...good, firstLane: firstLane as number })).rejects.toThrow('firstLane: got ')
  })

  test('takes its last lane below 4294967295', async () => {
    const world = await createWorld({ ...good, firstLane: 0xffffffff - 3 })
    expect([...world.cohort().episode.lane]).toEqual([0xffffffff - 3, 0xffffffff - 2, 0xffffffff - 1])
  })

  test('counts its lanes from where the cohort of episodes before it ends', async () => {
    const talking = { environment: digits({}), policy: languageModel({ width: 8 }), numLanes: 5 }
    const world = await createWorld({
      cohorts: [
        { ...good, name: 'a', firstLane: 10 },
        { ...talking, name: 'b' },
        { ...good, name: 'c' },
      ],
    })
    const drafts = world.drafts.map(({ name, key, kind }) => ({ name, key, kind }))
    expect(drafts).toEqual([
      { name: 'a', key: 0, kind: 'episodes' },
      { name: 'b', key: 0, kind: 'conversations' },
      { name: 'c', key: 1, kind: 'episodes' },
    ])
    const [a, , c] = world.cohorts
    expect([...asEpisodes('test', a!).episode.lane]).toEqual([10, 11, 12])
    expect([...asEpisodes('test', c!).episode.lane]).toEqual([13, 14, 15])
    expect(() => asEpisodes('call', world.cohorts[1]!)).toThrow('call: got cohort b of conversations')
    expect(() => asConversations('call', a!)).toThrow('call: got cohort a of episodes')
    expect(asConversations('call', world.cohorts[1]!)).toBe(world.cohorts[1])
    const places = world.plan().map(({ name }) => name[0])
    expect(places.lastIndexOf('c')).toBeLessThan(places.indexOf('b')) // Threads lay out episodes alone.
  })

  test('refuses numLanes above what a column can count, an explore that is none, and functions that are async', async () => {
    await expect(createWorld({ ...good, numLanes: 2 ** 32 })).rejects.toThrow('numLanes: got 4294967296')
    await expect(createWorld({ ...good, explore: 1 as never })).rejects.toThrow(
      'explore: got 1, expected true or false',
    )
    for (const name of ['reset', 'step'] as const) {
      const environment = { ...cartPole(), [name]: async () => {} }
      await expect(createWorld({ ...good, environment })).rejects.toThrow(
        `got an async ${name}, expected a function that is done`,
      )
      await expect(createWorld({ ...good, environment: { ...cartPole(), [name]: 7 as never } })).rejects.toThrow(
        'expected an environment, like cartPole()',
      )
    }
    const asks = { ...good, policy: undefined as never }
    await expect(createWorld(asks)).rejects.toThrow('policy: got undefined, expected a policy, like mlp()')
  })

  test('explores unless it is told otherwise, and prepares its policy before it is built', async () => {
    expect((await createWorld(good)).cohort()).toMatchObject({ explore: true, autoreset: 'same-step', rests: false })
    expect((await createWorld({ ...good, explore: false })).cohort().explore).toBe(false)
    let isPrepared = false
    const prepared = {
      ...policy,
      prepare: async () => {
        isPrepared = true
      },
      build: (...spaces: Parameters<typeof policy.build>) => {
        expect(isPrepared).toBe(true)
        return policy.build(...spaces)
      },
    }
    await createWorld({ ...good, policy: prepared })
    expect(isPrepared).toBe(true)
  })

  test('shares the weights of a cohort before it, and only of one with the same spaces', async () => {
    const world = await createWorld({
      cohorts: [
        { ...good, name: 'a' },
        { ...good, name: 'b', policy: 'a' },
        { ...good, name: 'c', policy: 'b' },
      ],
    })
    const [a, b, c] = world.cohorts
    expect([a!.sharesWith, b!.sharesWith, c!.sharesWith]).toEqual([null, 'a', 'a'])
    expect(b!.weights.byteOffset).toBe(a!.weights.byteOffset)
    expect(c!.weights.byteOffset).toBe(a!.weights.byteOffset)
    expect(a!.weights.length).toBe(a!.model.numParameters)
    expect(world.plan().filter(({ name, bytes }) => name.endsWith('.weights') && bytes > 0)).toHaveLength(1)
    const other = { ...good, name: 'b', environment: pendulum(), policy: 'a' }
    await expect(createWorld({ cohorts: [{ ...good, name: 'a' }, other] })).rejects.toThrow(
      'policy: got a, whose network has other shapes than this environment requires',
    )
    await expect(
      createWorld({
        cohorts: [
          { ...good, name: 'left' },
          { ...good, name: 'b', policy: 'lest' },
        ],
      }),
    ).rejects.toThrow('policy: got "lest" (did you mean "left"?), expected one of left')
    await expect(createWorld({ ...good, policy: 'a' })).rejects.toThrow('or the name of an earlier cohort')
    const talking = { environment: digits({}), policy: languageModel({ width: 8, layers: 1, heads: 1 }), numLanes: 1 }
    await expect(
      createWorld({
        cohorts: [
          { ...talking, name: 'words' },
          { ...good, name: 'left' },
          { ...good, name: 'b', policy: 'words' },
        ],
      }),
    ).rejects.toThrow('policy: got "words", expected one of left')
  })

  test('bounds what actions and observations may be', async () => {
    const cohort = (await createWorld({ ...good, environment: pendulum() })).cohort()
    expect([...cohort.bounds.low, ...cohort.bounds.high, ...cohort.bounds.sizes]).toEqual([-2, 2])
    expect([...cohort.observationBounds.low]).toEqual([-1, -1, -8])
    const { bounds, observationBounds } = (await createWorld(good)).cohort()
    expect([bounds.low.length, bounds.high.length, ...bounds.sizes]).toEqual([0, 0, 2])
    for (const bound of [...observationBounds.low, ...observationBounds.high]) expect(bound).toSatisfy(Number.isFinite)
  })

  test('begins a rollout that was closed early with what its lanes see', async () => {
    const world = await createWorld(good)
    createTrainer(world, ppo({ numSteps: 8, numMinibatches: 1 }))
    const cohort = world.cohort()
    for (let t = 0; t < 3; t++) tick(world)
    expect(cohort.t).toBe(3)
    const seen = cohort.observation.next.slice()
    closeRollout(cohort)
    expect(cohort.t).toBe(8)
    tick(world)
    expect(cohort.t).toBe(1)
    expect(cohort.rollout.observation.slice(0, seen.length)).toEqual(seen)
  })
})

describe('a world', () => {
  test.each([0, 65, 1.5, '2'])('refuses to be split among %s threads', async (count) => {
    const world = await createWorld(good)
    expect(() => world.split(count as number)).toThrow(/^threads: got .+, expected a whole number from 1 to 64/)
    world.split(64)
    expect(world.threads.count).toBe(64)
  })

  test('that threads share is ticked by its trainer alone', async () => {
    const world = await createWorld(good)
    world.split(2)
    const message = 'tick: got a world shared by 2 threads, expected trainer.updates(), or threads: 1'
    expect(() => tick(world)).toThrow(message)
    expect(() => collect(world, 4)).toThrow(message)
  })

  test('collects a whole rollout, at once or when the last answer has come', async () => {
    const world = await createWorld(good)
    expect(collect(world, 5)).toBeUndefined()
    expect([...world.cohort().episode.step]).toEqual([5, 5, 5])
    const waits = await createWorld({ ...good, policy: later() })
    const collected = collect(waits, 5)
    expect([...waits.cohort().episode.step]).toEqual([0, 0, 0])
    await collected
    expect([...waits.cohort().episode.step]).toEqual([5, 5, 5])
    const breaks = await createWorld({ ...good, policy: later({ fails: 2 }) })
    await expect(collect(breaks, 5)).rejects.toThrow('the device is gone')
    expect(breaks.cohort().ticksLeft).toBe(Number.POSITIVE_INFINITY)
  })

  test('is split and learned in before its memory is taken', async () => {
    const world = await createWorld(good)
    const reservation = { numSteps: 4, learner: {} }
    world.reserve(world.draft(), reservation)
    expect(() => world.reserve(world.draft(), reservation)).toThrow('cohort mlp: got a second recorder')
    tick(world)
    expect(() => world.split(1)).toThrow('threads: got a world whose memory is already allocated')
    expect(() => world.reserve(world.draft(), reservation)).toThrow(
      'world: got a world whose memory is already allocated',
    )
  })

  test('is not split where a policy stays in its thread, or a definition has no module', async () => {
    const stays = await createWorld({ ...good, policy: later() })
    expect(() => stays.split(2)).toThrow(
      "2 threads, expected threads: 1, since its device serves only the caller's thread",
    )
    stays.split(1)
    for (const noun of ['environment', 'policy'] as const) {
      const { module: _, ...rest } = { ...good[noun] }
      const world = await createWorld({ ...good, [noun]: rest })
      expect(() => world.split(2)).toThrow(`${noun} ${rest.id}: got no module, and 2 threads`)
      world.split(1)
    }
    const half = defineWrapper({ id: 'half', settings: {}, make: () => ({}) })
    const wrapped = await createWorld({ ...good, environment: wrap(good.environment, half()) })
    expect(() => wrapped.split(2)).toThrow('wrapper half: got no module, and 2 threads')
    wrapped.split(1)
  })

  test('takes its memory when any part is asked for, once', async () => {
    for (const part of ['cohorts', 'kernels', 'arena'] as const) {
      const world = await createWorld(good)
      expect(world[part]).toBe(world[part])
      expect(world.cohorts).toBe(world.cohorts)
      const { arena } = world
      expect(world.columns()[0]!.column.buffer).toBe(arena.buffer)
      expect(world.arena).toBe(arena)
    }
  })

  test('gives back what its policies hold of devices, where it has taken it', async () => {
    let released = 0
    const held = {
      ...policy,
      build: (...spaces: Parameters<typeof policy.build>) => {
        const model = policy.build(...spaces)
        return {
          ...model,
          bind: (...given: Parameters<typeof model.bind>) =>
            Object.assign(model.bind(...given), { dispose: () => void released++ }),
        }
      },
    }
    const world = await createWorld({ ...good, policy: held })
    world.close()
    expect(released).toBe(0)
    tick(world)
    world.close()
    expect(released).toBe(1)
    const talking = await talkWorld()
    tick(talking)
    const close = vi.spyOn(talking.cohort().engine, 'close')
    talking.close()
    expect(close).toHaveBeenCalledTimes(1)
  })
})

describe('a cohort of conversations', () => {
  test.each([
    [{ numLanes: 0 }, 'numLanes: got 0, expected a whole number ≥ 1'],
    [{ maxTokens: 1.5 }, 'maxTokens: got 1.5, expected a whole number ≥ 1'],
    [{ groupSize: 0 }, 'groupSize: got 0, expected a whole number ≥ 1'],
    [{ replySeconds: 0 }, 'replySeconds: got 0, expected a number above 0'],
    [{ replySeconds: Number.POSITIVE_INFINITY }, 'replySeconds: got Infinity, expected a number above 0'],
    [{ tooLong: 'errors' }, 'tooLong: got "errors"'],
    [{ cutTurn: 'ends' }, 'cutTurn: got "ends"'],
    [{ rewardReduction: 'lasts' }, 'rewardReduction: got "lasts"'],
    [{ policy: {} }, 'policy: got {}, expected a language model, like languageModel()'],
    [{ policy: undefined }, 'policy: got undefined, expected a language model, like languageModel()'],
    [{ policy: { open() {} } }, 'expected a language model, like languageModel()'],
    [{ environment: { ...digits({}), numExamples: 0 } }, 'numExamples: got 0, expected a whole number ≥ 1'],
  ])('refuses %j', async (options, message) => {
    await expect(talkWorld(options as never)).rejects.toThrow(message)
  })

  test('refuses what a policy opened where it is no language model', async () => {
    const open = languageModel({ width: 8 }).open
    for (const [part, wrong] of Object.entries({
      model: { shape: {} },
      tokenizer: undefined,
      context: 1,
      adapter: undefined,
      openWeights: 7,
    })) {
      const definition = {
        ...languageModel({ width: 8 }),
        open: async (...given: Parameters<typeof open>) => ({ ...(await open(...given)), [part]: wrong }),
      }
      await expect(talkWorld({ policy: definition as never })).rejects.toThrow(`${part} of open()`)
    }
    const nothing = { ...languageModel({ width: 8 }), open: async () => undefined }
    await expect(talkWorld({ policy: nothing as never })).rejects.toThrow('model of open()')
  })

  test('plans a decoder for each thread but the first, with room for its share of the lanes', async () => {
    const [draft] = (await talkWorld({ numLanes: 60 })).drafts
    const { decoders } = planConversations(draft as ConversationDraft, 3).engine as LocalPlan
    expect(Object.keys(decoders)).toEqual(['1', '2'])
    expect(decoders[1]!.lane.rows).toBe(20)
    const few = planConversations((await talkWorld({ numLanes: 2 })).drafts[0] as ConversationDraft, 3)
    expect((few.engine as LocalPlan).decoders[1]!.lane.rows).toBe(8)
  })

  test('names in its source what its conversations depend on, and tells a loaded model from a new one', async () => {
    const cohort = (await talkWorld()).cohort()
    expect(cohort.isLoaded).toBe(false)
    expect((await talkWorld()).cohort().source).toBe(cohort.source)
    expect((await talkWorld({ seed: 4 })).cohort().source).not.toBe(cohort.source)
    expect((await talkWorld({ maxTokens: 3 })).cohort().source).not.toBe(cohort.source)
  })

  test('owes nothing until a lane asks its environment, and then one promise a lane', async () => {
    const environment = digits({ respond: () => new Promise(() => {}) as never })
    const world = await talkWorld({ environment, numLanes: 2, maxTokens: 2 })
    const cohort = world.cohort()
    expect(owedAnswers(cohort)).toEqual([])
    expect(canGoOn(cohort)).toBe(true)
    cohort.released = 2
    for (let ticks = 0; ticks < 100 && cohort.pending.includes(null); ticks++) void tick(world)
    expect(owedAnswers(cohort)).toEqual(cohort.pending.map((reply) => reply!.arrival))
    expect(canGoOn(cohort)).toBe(false)
    cancelReplies(cohort)
    expect(cohort.pending).toEqual([null, null])
    expect(owedAnswers(cohort)).toEqual([])
  })
})
