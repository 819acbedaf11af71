/** Engines by the contract, and what conversations are made of by an engine of one's own. */
import { setImmediate, setTimeout } from 'node:timers/promises'
import { describe, expect, test, vi } from 'vitest'
import { number } from '../../src/base/settings.ts'
import { defineEngine, type OpenTurn } from '../../src/engines/define-engine.ts'
import { defineEngineFactory } from '../../src/engines/define-engine-factory.ts'
import {
  areOfSampling,
  deliverWeights,
  logprobKinds,
  type TurnEnd,
  type TurnRequest,
} from '../../src/engines/engine.ts'
import type { LocalEngine } from '../../src/engines/local/local.ts'
import { type ScriptStep, scriptedEngine } from '../../src/engines/scripted.ts'
import { PolledColumns } from '../../src/engines/servers/polled.ts'
import { tick } from '../../src/index.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { digits, localEngineOf, talkUntil, talkWorld } from '../support/conversations.ts'
import { type EngineUnderTest, engineSuite } from '../support/engine-suite.ts'

async function underTest(options: Parameters<typeof talkWorld>[0]): Promise<EngineUnderTest> {
  const world = await talkWorld({ numLanes: 4, ...options })
  const { engine, numLanes, context, model, sampling, explore, stopStrings, weights } = world.cohort()
  const drawing = { sampling, explore, stopStrings }
  return { engine, numSlots: numLanes, context, vocabularySize: model.shape.vocabularySize, drawing, weights }
}

/** A token of the first `size` that its ids and its key decide, and what a uniform draw of it weighs. */
function decided({ key }: TurnRequest, ids: readonly number[], size: number): { token: number; logprob: number } {
  const hash = [...key, ...ids].reduce((sum, id) => (Math.imul(sum, 31) + id) >>> 0, 7)
  return { token: (hash >>> 3) % size, logprob: -Math.log(size) }
}

/** Generates whole turns in one step. */
const atOnce = defineEngine('at-once', () => ({
  logprobs: 'candidates',
  advance(turns) {
    for (const turn of turns) {
      while (turn.isOpen) {
        const { token, logprob } = decided(turn.request, turn.ids, 5)
        turn.add(token, logprob, [token, 5, 6])
      }
    }
  },
}))

/** Generates by itself, a token of each turn every millisecond, as a server streams them. */
const streaming = (tokens: number) =>
  defineEngine('streaming', () => ({
    logprobs: 'tempered',
    async begin(turn) {
      while (turn.isOpen) {
        await setTimeout(1, undefined, { signal: turn.signal })
        const { token, logprob } = decided(turn.request, turn.ids, tokens)
        turn.add(token, logprob)
      }
    },
    setWeights: async ({ version }) => version,
  }))

engineSuite('local', () => underTest({}))
engineSuite('local, with candidate sets', () => underTest({ sampling: { topK: 3, temperature: 0.8 } }))
engineSuite('scripted', () => underTest({ engine: scriptedEngine((turn, ids) => decided(turn, ids, 5)) }))
engineSuite('that generates whole turns at once', () => underTest({ engine: atOnce }))
engineSuite('that generates by itself', () => underTest({ engine: streaming(5) }))
engineSuite('scripted, with delays and raw log-probabilities', () => {
  const script = (turn: TurnRequest, ids: readonly number[], step: number): ScriptStep =>
    step % 3 === turn.slot % 3 ? decided(turn, ids, 5) : 'wait'
  return underTest({ engine: scriptedEngine(script, { logprobs: 'raw' }) })
})

/** An open turn of an engine that `begin` is told of, and the engine. */
async function begun(given: Partial<TurnRequest> = {}, options: Parameters<typeof talkWorld>[0] = {}) {
  const open: OpenTurn[] = []
  const engine = defineEngine('own', () => ({ logprobs: 'raw', begin: (turn) => void open.push(turn) }))
  const made = await underTest({ engine, ...options })
  const ids = Int32Array.of(1, 2)
  const turn = { slot: 1, ids, generated: 0, unchanged: 0, maxTokens: 3, key: [0, 0, 0] as const, ...made.drawing }
  made.engine.submit({ ...turn, ...given })
  return { engine: made.engine, turn: open[0]! }
}

describe('a turn of an engine of one’s own', () => {
  test('ends with its last token, and what is said of it afterwards changes nothing', async () => {
    const { engine, turn } = await begun()
    for (const token of [3, 4, 5]) {
      expect(turn.isOpen).toBe(true)
      turn.add(token, -1)
    }
    expect([turn.isOpen, turn.signal.aborted, turn.ids]).toEqual([false, true, [1, 2, 3, 4, 5]])
    turn.add(6, -1)
    turn.end('stop')
    turn.fail('gone')
    const { tokens, ends } = engine.poll()
    expect([tokens[0]!.count, ends]).toEqual([3, [{ slot: 1, reason: 'length' }]])
    expect(engine.poll()).toEqual({ tokens: [], ends: [] })
  })

  test('ends with a token of the tokenizer’s, and where the engine says so', async () => {
    const { endIds } = (await talkWorld()).cohort().tokenizer
    for (const end of [(turn: OpenTurn) => turn.add(endIds[0]!, -1), (turn: OpenTurn) => turn.end('stop')]) {
      const { engine, turn } = await begun()
      end(turn)
      expect(engine.poll().ends).toEqual([{ slot: 1, reason: 'stop' }])
    }
  })

  test('ends with a stop string, of which tokens that were generated before it was submitted again are a part', async () => {
    const { tokenizer } = (await talkWorld()).cohort()
    const [first, second] = tokenizer.encode('ab')
    for (const [generated, ends] of [
      [1, [{ slot: 1, reason: 'stop' }]],
      [0, []],
    ] as const) {
      const { engine, turn } = await begun({ ids: Int32Array.of(1, first!), generated }, { stopStrings: ['ab'] })
      turn.add(second!, -1)
      expect(engine.poll().ends).toEqual(ends)
    }
  })

  test('fails with what its promise was rejected with', async () => {
    const engine = defineEngine('own', () => ({
      logprobs: 'none',
      async begin({ request }) {
        throw request.slot === 1 ? new Error('no memory left') : 'down'
      },
    }))
    const made = await underTest({ engine })
    const turn = { ids: Int32Array.of(1), generated: 0, unchanged: 0, maxTokens: 2, key: [0, 0, 0] as const }
    for (const slot of [1, 2]) made.engine.submit({ ...turn, slot, ...made.drawing })
    await made.engine.arrival
    expect(made.engine.poll().ends).toEqual([
      { slot: 1, reason: 'failed', error: 'no memory left' },
      { slot: 2, reason: 'failed', error: 'down' },
    ])
  })

  test('has a signal that tells when it is broken off, and when the engine is closed', async () => {
    const { engine, turn } = await begun()
    expect(turn.signal.aborted).toBe(false)
    engine.abort(1)
    expect([turn.signal.aborted, engine.poll().ends]).toEqual([true, [{ slot: 1, reason: 'aborted' }]])
    const other = await begun()
    const { signal } = other.turn
    other.engine.close()
    expect([signal.aborted, other.engine.poll()]).toEqual([true, { tokens: [], ends: [] }])
  })

  test('carries the version that the engine names for a token, else the one that was confirmed last', async () => {
    const { engine, turn } = await begun()
    await engine.setWeights({ version: 5, weights: new Float32Array(1) })
    turn.add(3, -1)
    turn.add(4, -1, [], 4)
    expect([...engine.poll().tokens[0]!.version.slice(0, 2)]).toEqual([5, 4])
  })

  test('comes of advance or of begin: an engine with neither is refused', async () => {
    const engine = defineEngine('mute', () => ({ logprobs: 'none' }))
    await expect(talkWorld({ engine }).then((world) => world.cohort())).rejects.toThrow(
      'engine mute: got neither advance nor begin',
    )
  })
})

test('columns of tokens grow, and those of a poll stand until the next', () => {
  const polled = new PolledColumns(true)
  for (let i = 0; i < 200; i++) polled.add(i, 2 * i, -i, 3, [2 * i, 1000])
  const [block, ...others] = polled.take().tokens
  polled.add(7, 8, 9, 10, [])
  expect(others).toEqual([])
  const { count, slot, token, logprob, version, candidate, candidateOffset } = block!
  expect(count).toBe(200)
  for (let i = 0; i < 200; i++) {
    expect([slot[i], token[i], logprob[i], version[i]]).toEqual([i, 2 * i, -i, 3])
    expect(candidate!.slice(candidateOffset[i], candidateOffset[i + 1])).toEqual(Int32Array.of(2 * i, 1000))
  }
  const [next] = polled.take().tokens
  expect([next!.count, next!.slot[0], next!.candidateOffset[1]]).toEqual([1, 7, 0])
  expect(polled.take()).toEqual({ tokens: [], ends: [] })
})

test('an engine that confirms another version than it was given is refused', async () => {
  const { engine, weights } = await underTest({ engine: scriptedEngine(() => 'wait') })
  const lying = Object.assign(Object.create(engine), { setWeights: async () => 4 })
  await expect(deliverWeights(lying, { version: 5, weights })).rejects.toThrow(
    'weights of engine scripted: got version 4 confirmed, expected version 5, as delivered',
  )
  const late = Object.assign(Object.create(engine), { setWeights: async () => 5 })
  await expect(deliverWeights(late, { version: 5, weights })).rejects.toThrow('got version -1 confirmed')
})

test('the local engine draws each turn as it asks, and beside others with the tokens that it has alone', async () => {
  const turn = { ids: Int32Array.of(1, 2), generated: 0, unchanged: 0, maxTokens: 8 }
  const whole = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  const ways = [
    { sampling: whole, explore: true },
    { sampling: { ...whole, temperature: 0.5, topK: 3 }, explore: true },
    { sampling: { ...whole, topP: 0.6 }, explore: true },
    { sampling: whole, explore: false },
  ]
  const run = async (options: Parameters<typeof talkWorld>[0], slots: readonly number[]) => {
    const made = await underTest(options)
    const said = new Map<number, unknown[]>(slots.map((slot) => [slot, []]))
    for (const slot of slots) {
      const key = [slot, 1, 0] as const
      made.engine.submit({ ...turn, ...ways[slot]!, slot, key, stopStrings: made.drawing.stopStrings })
    }
    for (let i = 0; i < 8; i++) {
      made.engine.advance()
      for (const block of made.engine.poll().tokens) {
        for (let row = 0; row < block.count; row++) {
          const [from, to] = [block.candidateOffset[row]!, block.candidateOffset[row + 1]!]
          const set = Array.from(block.candidate!.subarray(from, to))
          said.get(block.slot[row]!)!.push([block.token[row], block.logprob[row], set])
        }
      }
    }
    return said
  }
  const together = await run({}, [0, 1, 2, 3])
  for (const slot of [0, 1, 2, 3]) {
    const alone = (await run({ ...ways[slot]! }, [slot])).get(slot) // By an engine that was made to draw so.
    expect(together.get(slot)).toEqual(alone)
    expect(alone!.length).toBeGreaterThan(0)
  }
})

test('the local engine draws each turn of a slot by its own numbers, also where only one of them is another than before', async () => {
  const whole = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  const changes = [{ temperature: 0.2 }, { topK: 2 }, { topP: 0.95 }, { minP: 0.02 }]
  const samplings = [whole, ...changes.flatMap((change) => [{ ...whole, ...change }, whole])]
  const made = async () => underTest({ numLanes: 1, sampling: { temperature: 0.9 } })
  const say = ({ engine, drawing: { stopStrings } }: Awaited<ReturnType<typeof made>>, sampling: typeof whole) => {
    const turn = {
      slot: 0,
      ids: Int32Array.of(1, 2),
      generated: 0,
      unchanged: 0,
      maxTokens: 1,
      key: [0, 1, 0] as const,
    }
    engine.submit({ ...turn, sampling, explore: true, stopStrings })
    engine.advance()
    const [block] = engine.poll().tokens
    return [block!.token[0], block!.logprob[0], block!.candidateOffset[1]! - block!.candidateOffset[0]!]
  }
  const one = await made()
  const said: unknown[] = []
  for (const sampling of samplings) {
    const alone = say(await made(), sampling)
    expect(say(one, sampling), JSON.stringify(sampling)).toEqual(alone)
    said.push(String(alone))
  }
  expect(new Set(said).size).toBe(5) // Each number acts.
})

test('the local engine feeds a prompt that several answers begin with once, and each answer is what it is alone', async () => {
  const options = { groupSize: 3, numLanes: 6, policy: languageModel({ width: 16, layers: 2, heads: 2 }) }
  const world = await talkWorld(options)
  const feed = vi.spyOn(localEngineOf(world.cohort()).decoder, 'feed')
  const together = await talkUntil(world, 12)
  const prompts = together.map(({ token, lossMask }) => String(token.slice(0, lossMask.indexOf(1))))
  expect(feed.mock.calls.length).toBe(6) // Of a group whose lanes become free one by one, not all begin together.
  expect(new Set(prompts).size).toBe(4)
  expect(together).toEqual(await talkUntil(await talkWorld({ ...options, numLanes: 1 }), 12))
})

test('the local engine chooses nothing while somebody holds it, and all that it would have chosen afterwards', async () => {
  const chosen = async (order: readonly number[]) => {
    const { engine, drawing } = await underTest({ numLanes: 1 })
    const ids = Int32Array.of(1, 2)
    engine.submit({ slot: 0, ids, generated: 0, unchanged: 0, maxTokens: 1, key: [0, 0, 0], ...drawing })
    const releases = await Promise.all(order.map(() => engine.hold!()))
    const advanced = engine.advance()
    for (const holder of order) {
      await setImmediate()
      expect(engine.poll()).toMatchObject({ tokens: [], ends: [] })
      releases[holder]!()
      releases[holder]!() // Once is enough.
    }
    await advanced
    return engine.poll().tokens.flatMap(({ token, count }) => [...token.subarray(0, count)])
  }
  const free = await chosen([])
  expect(free.length).toBe(1)
  for (const order of [[0], [0, 1], [1, 0]]) expect(await chosen(order)).toEqual(free)
})

test('the local engine refuses to advance over what was not polled', async () => {
  const made = await underTest({})
  const turn = { slot: 0, ids: Int32Array.of(1), generated: 0, unchanged: 0, maxTokens: 2, key: [0, 0, 0] as const }
  made.engine.submit({ ...turn, ...made.drawing })
  made.engine.advance()
  expect(() => made.engine.advance()).toThrow('engine local: got unpolled tokens, expected poll() first')
})

test('the local engine finds a stop string whose first token was generated before the turn was submitted again', async () => {
  const { tokenizer } = (await talkWorld()).cohort()
  const [first, second] = tokenizer.encode('ab')
  const made = await underTest({ stopStrings: ['ab'] })
  const turn = { slot: 0, unchanged: 0, maxTokens: 3, key: [0, 0, 0] as const, ...made.drawing }
  const { decoder } = made.engine as LocalEngine
  const { advance } = decoder
  decoder.advance = (rows, ...rest) => {
    advance.call(decoder, rows, ...rest)
    decoder.columns.chosen.fill(second!)
  }
  for (const [generated, reason] of [
    [1, 'stop'],
    [0, 'length'],
  ] as const) {
    made.engine.submit({ ...turn, ids: Int32Array.of(1, first!), generated })
    const ends: TurnEnd[] = []
    for (let i = 0; i < 3; i++) {
      made.engine.advance()
      ends.push(...made.engine.poll().ends)
    }
    expect(ends).toEqual([{ slot: 0, reason }])
  }
})

describe('log-probabilities', () => {
  test.each([
    [{}, ['candidates', 'tempered', 'raw']],
    [{ temperature: 0.7 }, ['candidates', 'tempered']],
    [{ topK: 5 }, ['candidates']],
    [{ topP: 0.9 }, ['candidates']],
    [{ minP: 0.1 }, ['candidates']],
  ])('are of the distribution that %o draws from where they are %s', (given, kinds) => {
    const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, ...given }
    expect(logprobKinds.filter((kind) => areOfSampling(kind, sampling))).toEqual(kinds)
  })
})

describe('conversations by an engine of one’s own', () => {
  const environment = digits({ maxTokens: 4 })

  test('have the tokens, log-probabilities, versions and candidate sets that it says', async () => {
    const engine = scriptedEngine((turn, ids) => {
      const token = decided(turn, ids, 4).token
      return { token, logprob: Math.log(0.25 + token / 10), candidates: token === 3 ? [] : [token, 3] }
    })
    const world = await talkWorld({ environment, engine, sampling: { topK: 2 } })
    const cohort = world.cohort()
    await deliverWeights(cohort.engine, { version: 6, weights: cohort.weights })
    for (const row of await talkUntil(world, 12)) {
      const sets: number[] = []
      row.token.forEach((token, t) => {
        if (row.lossMask[t] === 0) return
        const key = [row.group, row.member, 0] as const
        expect(token).toBe(decided({ key } as TurnRequest, row.token.slice(0, t), 4).token)
        expect(row.logprob[t]).toBe(Math.fround(Math.log(0.25 + token / 10)))
        expect(row.version[t]).toBe(6)
        expect(row.candidateCount[t]).toBe(token === 3 ? 0 : 2)
        if (token !== 3) sets.push(token, 3)
      })
      expect(row.candidateIds).toEqual(sets)
      expect(row.lossMask.filter((flag) => flag === 1).length).toBeGreaterThan(0)
    }
  })

  test('keep a log-probability of another distribution as one of a distribution that nobody knows', async () => {
    const engine = scriptedEngine((turn, ids) => decided(turn, ids, 4), { logprobs: 'raw' })
    const world = await talkWorld({ environment, engine, sampling: { temperature: 0.5 } })
    const exact = await talkWorld({ environment, engine })
    for (const [each, length] of [
      [world, [-1]],
      [exact, []],
    ] as const) {
      for (const { lossMask, candidateCount, logprob } of await talkUntil(each, 4)) {
        const drawn = lossMask.flatMap((flag, t) => (flag === 1 ? [t] : []))
        expect([...new Set(drawn.flatMap((t) => candidateCount[t] ?? []))]).toEqual(length)
        expect(logprob.map((value) => +!Number.isNaN(value))).toEqual(lossMask)
      }
    }
  })

  test('go on where it broke a turn off, wait where it waits, and end with an unknown reward where it fails', async () => {
    const calm = scriptedEngine((turn, ids) => decided(turn, ids, 4))
    const rough = scriptedEngine((turn, ids, step) => {
      if (turn.key[0] === 2) return step === 1 ? { failed: 'no memory left' } : decided(turn, ids, 4)
      if (step === 0 && turn.key[0] % 2 === 1) return 'wait'
      return step === 2 ? 'aborted' : decided(turn, ids, 4)
    })
    const expected = await talkUntil(await talkWorld({ environment, engine: calm }), 12)
    const found = await talkUntil(await talkWorld({ environment, engine: rough }), 12)
    expect(found.map(({ group, error }) => [group, error])).toEqual(
      expected.map(({ group }) => [group, group === 2 ? 'engine scripted: no memory left' : null]),
    )
    const untold = found[2]!
    expect([untold.reward, untold.stopReason, untold.lossMask.filter((flag) => flag === 1).length]).toEqual([
      null,
      'aborted',
      1,
    ])
    expect(found.filter(({ group }) => group !== 2)).toEqual(expected.filter(({ group }) => group !== 2))
  })

  test('wait for an engine that generates by itself, without turning round', async () => {
    const calm = await talkUntil(
      await talkWorld({ environment, engine: scriptedEngine((turn, ids) => decided(turn, ids, 4)) }),
      9,
    )
    const world = await talkWorld({ environment, engine: streaming(4) })
    const cohort = world.cohort()
    cohort.released = 9
    let ticks = 0
    for (; cohort.trajectories.numConversations < 9; ticks++) {
      const waiting = tick(world)
      if (waiting !== undefined) await waiting
    }
    expect(ticks).toBeLessThan(100) // At most one for each token, and a few for replies.
    expect(cohort.trajectories.take(cohort.trajectories.order()).columns().token).toEqual(
      Int32Array.from(calm.flatMap(({ token }) => token)),
    )
  })

  test('refuse what is no engine, and what an engine may not say', async () => {
    await expect(talkWorld({ engine: {} as never })).rejects.toThrow(
      'engine: got {}, expected an engine with id and create(), like scriptedEngine(…)',
    )
    const world = await talkWorld({ environment, engine: scriptedEngine(() => ({ token: 4000, logprob: -1 })) })
    expect(() => tick(world)).toThrow(
      /engine scripted: got token 4000, expected ids of the cohort's tokenizer, below \d+/,
    )
  })
})

test('a kind of engine makes engines of its settings, and refuses what it does not know', async () => {
  const kind = defineEngineFactory({
    id: 'half',
    settings: { share: number(0.5, 'probability of each token', { above: 0, max: 1 }) },
    make: ({ share }) =>
      defineEngine('half', () => ({ logprobs: 'tempered', begin: (turn) => turn.add(1, Math.log(share)) })),
  })
  const { engine, sampling, explore, stopStrings } = (await talkWorld({ engine: kind({ share: 0.25 }) })).cohort()
  const turn = { slot: 0, ids: Int32Array.of(1), generated: 0, unchanged: 0, maxTokens: 1, key: [0, 0, 0] as const }
  engine.submit({ ...turn, sampling, explore, stopStrings })
  expect(engine.poll().tokens[0]!.logprob[0]).toBeCloseTo(Math.log(0.25), 6)
  expect([kind.id, kind().id, kind().parameters]).toEqual(['half', 'half', { share: 0.5 }])
  expect(() => kind({ share: 2 })).toThrow('half.share: got 2, expected a number > 0 and ≤ 1')
  expect(() => kind({ shar: 1 } as never)).toThrow(/half setting: got "shar".*did you mean "share"/)
})
