/** Several engines as one: who has which turn, what becomes of turns that fail, and members that do not prove their weights. */
import { describe, expect, test } from 'vitest'
import { defineEngine, type OpenTurn } from '../../src/engines/define-engine.ts'
import type { EngineDefinition, TurnEnd, TurnRequest } from '../../src/engines/engine.ts'
import { poolEngine } from '../../src/engines/pool.ts'
import { sglangEngine } from '../../src/engines/servers/sglang.ts'
import { vllmEngine } from '../../src/engines/servers/vllm.ts'
import { saveTransformer } from '../../src/entries/text.ts'
import { createTrainer, rl } from '../../src/index.ts'
import { talkWorld } from '../support/conversations.ts'
import { engineSuite } from '../support/engine-suite.ts'
import { lyingServer, pair, type ServerKind, serverKinds, talkPolicy } from '../support/server-engines.ts'
import { temporaryFolder } from '../support/temporary.ts'

engineSuite('pool, of a vllm and an sglang server of ours', async () => {
  const members = [await pair('vllm'), await pair('sglang', { logprobs: 'candidates' })]
  const world = await talkWorld({ numLanes: 4, engine: poolEngine(members.map(({ engine }) => engine)) })
  const { engine, numLanes, context, model, explore, stopStrings, weights, sampling } = world.cohort()
  const drawing = { sampling, explore, stopStrings }
  return { engine, numSlots: numLanes, context, vocabularySize: model.shape.vocabularySize, drawing, weights }
})

/** Members that keep their turns until a test says what comes of them. */
function members(count: number) {
  const turns: OpenTurn[][] = Array.from({ length: count }, () => [])
  const definitions = turns.map((list) =>
    defineEngine('kept', () => ({ logprobs: 'tempered', begin: (turn) => void list.push(turn) })),
  )
  return { turns, definitions }
}

/** A pool of such members in a cohort of 8 lanes, and what it tells. */
async function pooled(count: number, options: { limit?: number } = {}) {
  const { turns, definitions } = members(count)
  const cohort = (await talkWorld({ numLanes: 8, engine: poolEngine(definitions, options) })).cohort()
  const notices: string[] = []
  cohort.onNotice = (message) => void notices.push(message)
  const { engine, sampling, explore, stopStrings } = cohort
  const submit = (slot: number, key: readonly [number, number, number], ids: readonly number[] = [1, 2]) =>
    engine.submit({
      ...{ slot, key, ids: Int32Array.from(ids), generated: 0, unchanged: 0, maxTokens: 4 },
      ...{ sampling, explore, stopStrings },
    } satisfies TurnRequest)
  /** Polls until so many turns have ended. */
  const ends = async (number: number) => {
    const all: TurnEnd[] = []
    for (let i = 0; all.length < number; i++) {
      if (i > 50) throw new Error(`${all.length} of ${number} ends`)
      await Promise.race([engine.arrival, new Promise((resolve) => setTimeout(resolve, 20))])
      all.push(...engine.poll().ends)
    }
    return all
  }
  /** Which members have an open turn in a slot. */
  const whoHas = (slot: number) =>
    turns.flatMap((list, i) => (list.some((turn) => turn.isOpen && turn.request.slot === slot) ? [i] : []))
  return { engine, turns, submit, ends, whoHas, notices, weights: cohort.weights }
}

describe('a pool', () => {
  test('has a conversation’s turns at one member, and conversations at all of them', async () => {
    const { engine, submit, ends, whoHas, turns } = await pooled(3)
    const first = new Map<number, number>()
    for (const round of [0, 1]) {
      for (let slot = 0; slot < 8; slot++) submit(slot, [slot, 1, 10 * round])
      for (let slot = 0; slot < 8; slot++) {
        const [member] = whoHas(slot)
        if (round === 0) first.set(slot, member!)
        else expect(member).toBe(first.get(slot))
      }
      for (const turn of turns.flat()) turn.end('stop')
      await ends(8)
    }
    expect(new Set(first.values()).size).toBe(3)
    expect(engine.poll()).toEqual({ tokens: [], ends: [] })
  })

  test('gives no member more turns than its limit: others wait, and can be aborted meanwhile', async () => {
    const { engine, submit, ends, turns } = await pooled(2, { limit: 2 })
    const open = () => turns.map((list) => list.filter(({ isOpen }) => isOpen).length)
    for (let slot = 0; slot < 6; slot++) submit(slot, [slot, 0, 0])
    expect(open()).toEqual([2, 2])
    engine.abort(5)
    expect(await ends(1)).toEqual([{ slot: 5, reason: 'aborted' }])
    turns[1]!.find(({ isOpen }) => isOpen)!.end('stop')
    await ends(1)
    await Promise.resolve()
    expect(open()).toEqual([2, 2])
    expect(turns.flat().length).toBe(5)
  })

  test('asks another member for a turn that one fails in, and leaves one that fails three times in a row', async () => {
    const { engine, submit, ends, whoHas, turns, notices, weights } = await pooled(2)
    let slot = 0
    for (let failed = 0; failed < 3; slot++) {
      submit(slot % 8, [slot, 0, 0])
      const [member] = whoHas(slot % 8)
      const { request } = turns[member!]!.at(-1)!
      if (member === 0) {
        turns[0]!.at(-1)!.fail('no memory')
        failed++
        await engine.arrival
        expect(engine.poll().ends).toEqual([])
        await Promise.resolve()
        expect([whoHas(slot % 8), turns[1]!.at(-1)!.request]).toEqual([[1], request])
      }
      turns[1]!.at(-1)!.end('stop')
      expect(await ends(1)).toEqual([{ slot: slot % 8, reason: 'stop' }])
    }
    expect(notices).toEqual(['engine member 1 of 2 (kept) is excluded until it proves later weights: no memory'])
    for (let i = 0; i < 8; i++, slot++) {
      submit(slot % 8, [slot, 0, 0])
      expect(whoHas(slot % 8)).toEqual([1])
      turns[1]!.at(-1)!.end('stop')
      await ends(1)
    }
    await engine.setWeights({ version: 4, weights })
    expect(notices.at(-1)).toBe('engine member 1 of 2 (kept) is in use again, with version 4')
    for (let i = 0; i < 8; i++) submit(i, [i, 0, 0])
    expect(turns[0]!.some(({ isOpen }) => isOpen)).toBe(true)
  })

  test('counts failures of a member until it has generated a turn: one that was aborted says nothing', async () => {
    const { engine, submit, ends, whoHas, turns, notices } = await pooled(1)
    const endBy = async (end: (turn: OpenTurn) => void) => {
      submit(0, [0, 0, 0])
      expect(whoHas(0)).toEqual([0])
      end(turns[0]!.at(-1)!)
      return (await ends(1))[0]!.reason
    }
    const fail = () => endBy((turn) => turn.fail('no memory'))
    expect([await fail(), await fail()]).toEqual(['failed', 'failed'])
    expect(await endBy((turn) => turn.end('stop'))).toBe('stop')
    expect([await fail(), await fail()]).toEqual(['failed', 'failed'])
    expect(await endBy(() => engine.abort(0))).toBe('aborted')
    expect(notices).toEqual([])
    expect(await fail()).toBe('failed')
    expect(notices).toEqual([expect.stringMatching('member 1 of 1 .* is excluded')])
  })

  test('takes from a member that is excluded any more the turns that it has, and no others', async () => {
    const { engine, submit, ends, whoHas, turns } = await pooled(2)
    for (let slot = 0; slot < 8; slot++) submit(slot, [slot, 0, 0])
    const had = [0, 1].map((member) =>
      Array.from({ length: 8 }, (_, slot) => slot).filter((slot) => whoHas(slot)[0] === member),
    )
    expect(had[0]!.length).toBeGreaterThan(3)
    expect(had[1]!.length).toBeGreaterThan(0)
    const failing = had[0]!.slice(0, 3)
    for (const slot of failing) turns[0]!.find(({ request }) => request.slot === slot)!.fail('no memory')
    // Its other turns are broken off, and come again; those that failed go to the other member.
    const left = had[0]!.slice(3)
    expect(await ends(left.length)).toEqual(left.map((slot) => ({ slot, reason: 'aborted' })))
    for (const slot of [...failing, ...had[1]!]) expect(whoHas(slot)).toEqual([1])
    expect(turns[0]!.some(({ isOpen }) => isOpen)).toBe(false)
    for (const turn of turns[1]!) turn.end('stop')
    await ends(failing.length + had[1]!.length)
    expect(engine.poll()).toEqual({ tokens: [], ends: [] })
  })

  test('breaks a turn off that fails behind tokens, and fails one that no member can generate, with what each said', async () => {
    const { submit, ends, turns, whoHas } = await pooled(2)
    submit(3, [0, 0, 0])
    const [member] = whoHas(3)
    turns[member!]!.at(-1)!.add(1, -0.5)
    turns[member!]!.at(-1)!.fail('gone')
    expect(await ends(1)).toEqual([{ slot: 3, reason: 'aborted' }])
    submit(3, [0, 0, 0])
    turns[member!]!.at(-1)!.fail('still gone')
    await new Promise((resolve) => setTimeout(resolve, 5))
    const ended = ends(1)
    await new Promise((resolve) => setTimeout(resolve, 5))
    turns[1 - member!]!.at(-1)!.fail('full')
    const [end] = await ended
    expect(end).toMatchObject({ slot: 3, reason: 'failed' })
    const said = (end as { error: string }).error
    expect(said).toMatch(/member 1 of 2 \(kept\): \S.*; member 2 of 2 \(kept\): \S/)
    expect([said.includes('still gone'), said.includes('full')]).toEqual([true, true])
  })

  test('is of engines of one kind that generate by themselves, at least one', async () => {
    expect(() => poolEngine([])).toThrow('members of a pool: got [], expected a list of at least one engine')
    expect(() => poolEngine(members(1).definitions, { limit: 0 })).toThrow('limit of a pool: got 0')
    expect(() => poolEngine(members(1).definitions, { most: 2 } as never)).toThrow('"most"')
    const url = 'http://127.0.0.1:1'
    const mixed = poolEngine([vllmEngine({ url, weights: 'w' }), sglangEngine({ url, weights: 'w' })])
    expect([mixed.id, mixed.noTraining]).toEqual(['vllm+sglang', undefined])
    const made = async (engine: EngineDefinition) => (await talkWorld({ engine })).cohort()
    await expect(made(mixed)).rejects.toThrow(
      'pool, member 2 of 2 (sglang): got log-probabilities of kind "tempered", expected "candidates", the kind of member 1',
    )
    const told = defineEngine('told', () => ({ logprobs: 'tempered', advance: () => {} }))
    await expect(made(poolEngine([told]))).rejects.toThrow(
      'pool, member 1 of 1 (told): got an engine that generates in advance()',
    )
    expect(poolEngine([vllmEngine({ url })]).noTraining).toMatch('has no folder for weights')
  })
})

describe.each(Object.keys(serverKinds) as ServerKind[])('a training by two %s servers, of which one', (kind) => {
  const { make, turn } = serverKinds[kind]
  /** Trains by a healthy server and one at `url`; tells after each update what the user was told during it. */
  async function train(url: string, { settings = {}, during = async (_: number) => {} } = {}) {
    const healthy = await pair(kind, { settings })
    const weights = await temporaryFolder()
    const faulty: EngineDefinition = make({ url, weights, retries: 0 })
    const world = await talkWorld({
      ...{ engine: poolEngine([faulty, healthy.engine]), policy: talkPolicy(settings), numLanes: 8, groupSize: 4 },
    })
    const trainer = createTrainer(world, rl({ groupsPerUpdate: 2, groupSize: 4, updates: 4, learningRate: 0.02 }))
    const notices: string[] = []
    world.cohort().onNotice = (message) => void notices.push(message)
    const told: string[][] = []
    const kl: number[] = []
    await during(0)
    for await (const { rl: metrics } of trainer.updates({})) {
      told.push(notices.splice(0))
      kl.push(metrics!.kl.k2)
      expect(metrics!.trajectories).toBe(8)
      await during(told.length)
    }
    await trainer.close()
    return { told, kl }
  }
  const isTurn = (path: string) => path === turn

  test('silently does not apply an adapter is found by the first delivery that changes it, with the probe’s figure', async () => {
    // It loads the first adapter under each name.
    let first: string | null = null
    const rewrite = (path: string, body: { lora_path: string }) => {
      if (!/\/load_lora_adapter$/.test(path)) return body
      first ??= body.lora_path
      return { ...body, lora_path: first }
    }
    const faulty = await lyingServer(undefined, { settings: { loraRank: 2 } }, rewrite)
    const { told, kl } = await train(faulty.url, { settings: { loraRank: 2 } })
    expect(told[0]![0]).toMatch(
      /member 1 of 2 .* is excluded .*: weights of engine .*: got log-probabilities \S+ nats from the learner's, at version 1, expected at most 0.0001/,
    )
    expect(Math.max(...kl)).toBeLessThan(1e-9)
  })

  test('comes back with old weights is found by its first answer, of which nothing is used', async () => {
    const faulty = await lyingServer()
    let before = 0
    const { told, kl } = await train(faulty.url, {
      during: async (update) => {
        if (update !== 2) return
        before = faulty.asked.filter(({ path }) => isTurn(path)).length
        await faulty.replace()
      },
    })
    expect(told[2]!.join('\n')).toMatch(/tokens of version "default", expected 2/)
    // It is given the next weights as any other, proves them, and is used again.
    expect(told[2]!.at(-1)).toMatch(/is in use again, with version 3/)
    expect(faulty.asked.filter(({ path }) => isTurn(path)).length).toBeGreaterThan(before)
    expect(Math.max(...kl)).toBeLessThan(1e-9)
  })

  test('has its weights swapped in the middle of an answer, under their name, is found before anything is learned from it', async () => {
    const folder = `${await temporaryFolder()}/other`
    const { model, weights } = (await talkWorld()).cohort()
    await saveTransformer(
      folder,
      model,
      weights.slice().map((value, i) => value + 0.05 * Math.cos(i)),
    )
    let swapAt = Number.POSITIVE_INFINITY
    const faulty = await lyingServer(async (path, _, asked) => {
      if (!isTurn(path) || --swapAt > 0) return {}
      swapAt = Number.POSITIVE_INFINITY
      await faulty.tell('/update_weights_from_disk', { model_path: folder, weight_version: '1' })
      const { json } = await faulty.tell(path, asked) // What it says by then.
      return { json }
    })
    const { told, kl } = await train(faulty.url, {
      during: async (update) => {
        if (update === 1) swapAt = 1
        if (update === 2) expect(swapAt).toBe(Number.POSITIVE_INFINITY)
      },
    })
    // All of that update was sampled anew, by the other one.
    expect(Math.max(...kl)).toBeLessThan(1e-9)
    expect(told[1]![0]).toMatch(
      /got log-probabilities \S+ nats from those at the delivery of version 1, expected at most 0.0001: later samples/,
    )
  })
})
