/** Text lies in the arena: what an update of a language model allocates, copies and shows. */
import { execFileSync } from 'node:child_process'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { InputError } from '../../../src/base/errors.ts'
import { ConversationPhase } from '../../../src/components/conversation.ts'
import { scriptedEngine } from '../../../src/engines/scripted.ts'
import { reverse } from '../../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { PackedTransformer } from '../../../src/language/transformer/packed.ts'
import { tick } from '../../../src/systems/tick.ts'
import { trajectoryTable } from '../../../src/tables/trajectories/trajectory-table.ts'
import { createTrainer } from '../../../src/training/loop/trainer.ts'
import type { ConversationCohort } from '../../../src/world/conversations/cohort.ts'
import { openConversations } from '../../../src/world/conversations/draft.ts'
import { checkLogRoom, conversationLogSize } from '../../../src/world/conversations/log.ts'
import type { World } from '../../../src/world/world.ts'
import { talkUntil, talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'

afterEach(() => vi.restoreAllMocks())

const origin = { environment: 'e', model: 'm', tokenizer: 't', algorithm: 'a', seed: 1, promptOf: () => '' }

/** The log's columns by name, as the world planned them. */
function logColumns(world: World<ConversationCohort>): Map<string, Float32Array> {
  const prefix = `${world.cohort().name}.log.`
  const own = world.columns().filter(({ planned }) => planned.name.startsWith(prefix))
  return new Map(own.map(({ planned, column }) => [planned.name.slice(prefix.length), column as Float32Array]))
}

async function trained(settings: Parameters<typeof rl>[0] = {}, numLanes = 5) {
  const algorithm = rl({ groupsPerUpdate: 4, groupSize: 4, updates: 2, ...settings })
  const { temperature, topK, topP, minP } = algorithm.settings
  const world = await talkWorld({ groupSize: 4, numLanes, sampling: { temperature, topK, topP, minP } })
  return { world, trainer: createTrainer(world, algorithm) }
}

const flags = ['--max-semi-space-size=256']
const script = new URL('../../support/text-allocation.mjs', import.meta.url).pathname

test('800 updates allocate nothing a token, by top-k and top-p: neither in the heap, nor in buffers, nor in shared ones', {
  timeout: 300_000,
}, () => {
  const cases = JSON.parse(execFileSync(process.execPath, [...flags, script], { encoding: 'utf8' }))
  for (const [name, { short, long }] of Object.entries<Record<'short' | 'long', Record<string, number>>>(cases)) {
    const tokens = long.tokens! - short.tokens!
    const per = (kind: string) => (long[kind]! - short[kind]!) / tokens
    console.log(`${name}, ${tokens} tokens more an update: ${per('heap').toFixed(2)} bytes of heap a token`)
    expect(tokens).toBeGreaterThan(200)
    // What is measured of none is within 5 to 8 either way; a number that is boxed once a token is 12.
    expect(per('heap')).toBeLessThan(9)
    expect([per('buffers'), per('shared')]).toEqual([0, 0])
  }
})

describe('the tokens of an update', () => {
  test('are copied once into the log, and from there on read where they lie', async () => {
    const { world, trainer } = await trained()
    const log = logColumns(world)
    const lies = (view: unknown, name: string) => {
      const column = log.get(name)!
      const { buffer, byteOffset, byteLength } = view as Float32Array
      const from = byteOffset - column.byteOffset
      return buffer === column.buffer && from >= 0 && from + byteLength <= column.byteLength && byteLength > 0
    }
    const names = ['token', 'lossMask', 'logprob', 'version', 'turn', 'candidateCount']
    const written = new Map(names.map((name) => [name, 0]))
    const copiedFrom: string[] = []
    const typed = Object.getPrototypeOf(Float32Array.prototype)
    for (const method of ['set', 'slice', 'copyWithin', 'map', 'filter'] as const) {
      const original = typed[method]
      vi.spyOn(typed, method).mockImplementation(function (this: Float32Array, ...args: unknown[]) {
        const [source] = args as [ArrayLike<number>]
        for (const name of names) {
          if (method === 'set' && lies(this, name)) written.set(name, written.get(name)! + source.length)
          const from = method === 'set' ? source : this
          if (ArrayBuffer.isView(from) && lies(from, name)) copiedFrom.push(`${method} of ${name}`)
        }
        return original.apply(this, args)
      })
    }
    const losses = vi.spyOn(world.kernels, 'policyLoss')
    const packs = vi.spyOn(PackedTransformer.prototype, 'pack')
    for await (const _ of trainer.updates()) break
    const { numTokens } = world.cohort().trajectories
    expect(Object.fromEntries(written)).toEqual(Object.fromEntries(names.map((name) => [name, numTokens])))
    expect(copiedFrom).toEqual([])
    expect(losses.mock.calls.length).toBeGreaterThan(0)
    for (const [outputs, inputs] of losses.mock.calls) {
      expect(inputs.oldLogprob).toBe(log.get('logprob'))
      const { logprob, entropy, advantage, counted } = inputs
      for (const column of [logprob, entropy, advantage, counted, outputs.dLogprob, outputs.dEntropy]) {
        expect(column.buffer).toBe(world.arena.buffer)
      }
    }
    expect(packs.mock.calls.length).toBeGreaterThan(0)
    for (const [tokens] of packs.mock.calls) expect(tokens).toBe(log.get('token'))
  })

  test('are the Arrow table: its buffers are the arena’s, in every record batch', async () => {
    for (const settings of [{}, { topK: 3, loss: 'reinforce++' as const }]) {
      const { world, trainer } = await trained(settings)
      for await (const _ of trainer.updates());
      const { trajectories } = world.cohort()
      const table = await trajectoryTable(trajectories, origin)
      expect(table.numRows).toBe(16)
      const lists = ['tokens', 'lossMask', 'logprobs', 'versions', 'turn', 'turnRewards']
      if ('topK' in settings) lists.push('candidateCounts', 'candidateIds')
      for (const { data } of table.batches) {
        data.type.children.forEach(({ name }, i) => {
          const child = data.children[i]!
          if (lists.includes(name)) expect([name, child.children[0]!.values.buffer]).toEqual([name, world.arena.buffer])
          if (name === 'reward' || name === 'group') expect(child.values.buffer).toBe(world.arena.buffer)
        })
      }
      // And they are the conversations': row by row in the table's order.
      const tokens = trajectories.order().map((i) => Array.from(trajectories.row(i).token))
      expect(Array.from(table.getChild('tokens')!, (list) => [...list])).toEqual(tokens)
    }
  })
})

describe('a log without room', () => {
  /** A world whose log has room for so many conversations, and not for those in flight. */
  async function tight(conversations: number, numLanes = 4) {
    const world = await talkWorld({ groupSize: 4, numLanes })
    const size = conversationLogSize(world.draft(), conversations - numLanes)
    world.reserve(world.draft(), { learner: {}, log: size })
    return world
  }

  test('lets conversations that are over wait, while others go on, and loses none', async () => {
    const free = await talkUntil(await talkWorld({ groupSize: 4 }), 24)
    const world = await tight(6)
    const cohort = world.cohort()
    const { trajectories, conversation } = cohort
    cohort.released = 24
    const context = cohort.context
    const found: unknown[] = []
    let hasWaited = 0
    for (let ticks = 0; found.length < 24; ticks++) {
      expect(ticks).toBeLessThan(5000)
      tick(world)
      expect(trajectories.count).toBeLessThanOrEqual(6)
      expect(trajectories.numTokens).toBeLessThanOrEqual(6 * context)
      const over = conversation.phase.filter((phase) => phase === ConversationPhase.ended).length
      expect(cohort.waiting).toBe(over)
      if (cohort.waiting > 0 && conversation.phase.includes(ConversationPhase.model)) hasWaited++
      if (ticks % 60 < 59) continue
      for (let i = 0; i < trajectories.count; i++)
        found.push([trajectories.row(i).group, trajectories.row(i).member, Array.from(trajectories.row(i).token)])
      trajectories.forget(trajectories.count)
    }
    expect(hasWaited).toBeGreaterThan(0)
    const all = free.map(({ group, member, token }) => [group, member, token])
    expect(found.map(String).sort()).toEqual(all.map(String).sort())
  })

  test('is told where nobody empties it and no lane goes on', async () => {
    const world = await tight(2)
    const cohort = world.cohort()
    for (let ticks = 0; cohort.waiting < 4; ticks++) {
      expect(ticks).toBeLessThan(500)
      checkLogRoom(cohort)
      tick(world)
    }
    expect(() => checkLogRoom(cohort)).toThrow(InputError)
    expect(() => checkLogRoom(cohort)).toThrow(/log of .*: got 2 rows of \d+ tokens, and 4 waiting conversations/)
    const before = cohort.conversation.length.slice()
    tick(world)
    expect(cohort.conversation.length).toEqual(before)
    cohort.trajectories.clear()
    tick(world)
    expect(cohort.waiting).toBe(2)
    expect(() => checkLogRoom(cohort)).not.toThrow()
  })
})

describe('candidate sets', () => {
  const engine = (numIds: number) => {
    const candidates = Array.from({ length: numIds }, (_, id) => id)
    return scriptedEngine(() => ({ token: 2, logprob: -1, candidates }))
  }

  test('have their planned ids a token: in each lane’s columns, and in the log behind one another', async () => {
    const world = await talkWorld({ engine: engine(3), sampling: { topK: 3 } })
    const { context, numLanes } = world.cohort()
    const planned = world.plan().find(({ name }) => name.endsWith('.conversation.candidateIds'))!
    expect([planned.rows, planned.width]).toEqual([numLanes, context * 3])
    for (const { lossMask, candidateCount, candidateIds } of await talkUntil(world, 8)) {
      expect(candidateCount).toEqual(lossMask.map((flag) => 3 * flag))
      expect(candidateIds).toEqual(lossMask.flatMap((flag) => (flag === 1 ? [0, 1, 2] : [])))
    }
  })

  test('that are larger than an engine may make them are an error, and not lost', async () => {
    const world = await talkWorld({ engine: engine(60), sampling: { topK: 1 } })
    const { context } = world.cohort()
    const expected = `ids of candidate sets in a conversation, expected at most ${context}, 1 per token (limited by topK)`
    await expect(talkUntil(world, 8)).rejects.toThrow(expected)
  })
})

describe('a training whose log had no room for a while', () => {
  const settings = { groupsPerUpdate: 3, groupSize: 4, updates: 2, learningRate: 0.01, topK: 4 }

  /** Nothing is stored while `isFull` says so. */
  function fill({ world }: { readonly world: World<ConversationCohort> }, isFull: () => boolean): void {
    const { trajectories } = world.cohort()
    const append = trajectories.appendConversation.bind(trajectories)
    trajectories.appendConversation = (rows) => !isFull() && append(rows)
  }

  test('learns the same, also where it is killed while lanes wait', async () => {
    const whole = await trained(settings)
    for await (const _ of whole.trainer.updates());

    const folder = await temporaryFolder()
    const stop = new AbortController()
    const killed = await trained(settings)
    let isFull = true
    fill(killed, () => {
      if (killed.world.cohort().trajectories.count < 2) return false
      stop.abort() // After this tick.
      return isFull
    })
    for await (const _ of killed.trainer.updates({ signal: stop.signal }));
    expect(killed.world.cohort().waiting).toBeGreaterThan(0)
    await killed.trainer.save(folder)
    isFull = false
    for await (const _ of killed.trainer.updates());
    expect(killed.world.cohort().weights).toEqual(whole.world.cohort().weights)

    const resumed = await trained(settings)
    expect((await resumed.trainer.restore(folder)).warnings).toEqual([])
    for await (const _ of resumed.trainer.updates());
    expect(resumed.world.cohort().weights).toEqual(whole.world.cohort().weights)
  })
})

describe('the size of a log', () => {
  const policy = languageModel({ width: 16, layers: 1, heads: 2 })
  const opened = (options = {}) => openConversations({ environment: reverse(), policy, numLanes: 3, ...options })

  test('is an update’s conversations and those in flight, each as long as the context, and candidate sets as sampling has them', async () => {
    const draft = await opened()
    const { context, model } = draft.opened
    const { vocabularySize } = model.shape
    expect(conversationLogSize(draft, 8)).toEqual({ rows: 11, tokens: 11 * context, candidateIds: 0, turnRewards: 11 })
    const idsOf = async (sampling: object) => {
      return conversationLogSize(await opened({ sampling }), 8).candidateIds / (11 * context)
    }
    expect(await idsOf({ topK: 2 })).toBe(2)
    expect(await idsOf({ topK: 2, topP: 0.5 })).toBe(2)
    expect(await idsOf({ topK: vocabularySize })).toBe(0)
    expect(await idsOf({ topP: 0.9 })).toBe(vocabularySize)
    expect(await idsOf({ minP: 0.1 })).toBe(vocabularySize)
  })

  test('is part of a trainer’s plan, whose impossible sizes are errors before the run', async () => {
    const world = await talkWorld({ groupSize: 4 })
    const tooMuch = () => createTrainer(world, [sft({ batchSize: 3 }), rl({ groupSize: 4, groupsPerUpdate: 2 ** 24 })])
    expect(tooMuch).toThrow(/memory: got a plan of .* GiB \(most of it for languageModel\.log\.token \d+ × 1 i32/)
    const planned = world.plan().find(({ name }) => name.endsWith('.log.token'))!
    expect(planned.rows).toBe((2 ** 26 + 4) * world.draft().opened.context)
  })
})
