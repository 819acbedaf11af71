/** What several threads say together, and what stays in the cache: the same tokens as one thread says alone. */
import { expect, test, vi } from 'vitest'
import { Random } from '../../../src/base/random.ts'
import { ConversationPhase } from '../../../src/components/conversation.ts'
import type { DecodingWorkers } from '../../../src/engines/engine.ts'
import { type DecodingThread, decodeShare } from '../../../src/engines/local/decode-share.ts'
import { TransformerDecoder } from '../../../src/language/transformer/decoder.ts'
import { infer, reset } from '../../../src/systems/tick.ts'
import { digits, localEngineOf, talkUntil, talkWorld } from '../../support/conversations.ts'

const SEED = 3
const CONVERSATIONS = 40

/** Up to three turns, of replies that come at once or later. */
const environment = digits({
  maxTurns: 3,
  respond: async ({ turn, exampleIndex }) => {
    if (exampleIndex % 2 === 1) await new Promise((resolve) => setTimeout(resolve, exampleIndex))
    return { reward: turn, messages: [{ role: 'user', content: String(exampleIndex + turn) }] }
  },
})

/** Of three questions one is drawn by itself, one is, and ends at digits, and one is drawn like all. */
const drawnApart = digits({
  example: (index) => ({
    prompt: String(index),
    ...[{}, { sampling: { temperature: 2, topP: 0.7 } }, { sampling: { topK: 3, stopStrings: ['3', '4'] } }][index % 3],
  }),
})

/** A world of 11 lanes in which two speak; the second stands in this thread. */
async function shared(numParameters: number, task = environment) {
  const world = await talkWorld({ environment: task, numLanes: 11, seed: SEED, sampling: { topK: 7 } })
  world.split(2)
  const cohort = world.cohort()
  const { conversation, context, sampling, explore, model, weights } = cohort
  const engine = localEngineOf(cohort)
  const { turns, ids, decoder: columns } = engine.columnsOf(1)
  const decoder = new TransformerDecoder(model, weights, columns, world.kernels, new Random(SEED))
  const second: DecodingThread = {
    turns,
    ids,
    decoder,
    context,
    sampling,
    explore,
    slots: new Int32Array(11),
    source: new Int32Array(11),
    samplings: [],
  }
  Object.defineProperty(model, 'numParameters', { value: numParameters })
  const ticks: { count: number; shares: number; rows: number[] }[] = []
  let shares = 1
  const workers: DecodingWorkers = {
    async begin(numShares) {
      expect(numShares).toBeGreaterThan(1) // Nobody is called who has nothing to do.
      shares = numShares
      decodeShare(second, 1, numShares)
    },
    async finish() {},
  }
  engine.workers = workers
  const theirs = vi.spyOn(decoder, 'advance')
  const { advance } = engine.decoder
  engine.decoder.advance = (rows, ...rest) => {
    const count = conversation.phase.filter((phase) => phase === ConversationPhase.model).length
    ticks.push({ count, shares, rows: [rows, ...theirs.mock.calls.map(([given]) => given)] })
    theirs.mockClear()
    shares = 1
    advance.call(engine.decoder, rows, ...rest)
  }
  return { world, ticks, second, theirs }
}

test.each([
  [2 ** 21 / 8, 8], // A pass over 8 lanes is worth it.
  [2 ** 21 / 4, 8], // It is over 4, but each thread has to have 4.
  [2 ** 21 / 10, 11],
  [1, Number.POSITIVE_INFINITY],
])('of %d parameters two threads say the same as one, together from %d lanes on', async (numParameters, least) => {
  const alone = await talkUntil(
    await talkWorld({ environment, numLanes: 1, seed: SEED, sampling: { topK: 7 } }),
    CONVERSATIONS,
  )
  const { world, ticks } = await shared(Math.floor(numParameters))
  expect(await talkUntil(world, CONVERSATIONS)).toEqual(alone)
  for (const { count, shares, rows } of ticks) {
    expect(shares).toBe(count >= least ? 2 : 1)
    expect(rows).toEqual(count >= least ? [Math.floor(count / 2), count - Math.floor(count / 2)] : [count])
  }
  const counts = new Set(ticks.map(({ count }) => count))
  expect([counts.has(11), Math.min(...counts) < 8]).toEqual([true, true])
})

test('two threads draw each turn as it asks, and end it as it asks, with the tokens that one thread draws', async () => {
  const alone = await talkUntil(
    await talkWorld({ environment: drawnApart, numLanes: 1, seed: SEED, sampling: { topK: 7 } }),
    CONVERSATIONS,
  )
  const { world, second } = await shared(2 ** 21, drawnApart)
  const theirs = vi.spyOn(second.decoder, 'drawRows')
  expect(await talkUntil(world, CONVERSATIONS)).toEqual(alone)
  expect(new Set(theirs.mock.calls.map(([, , { temperature, topK }]) => `${temperature} ${topK}`))).toEqual(
    new Set(['1 7', '2 7', '1 3']),
  )
})

test('a cohort behind one in which several threads speak is not forgotten: it speaks in the same tick', async () => {
  const { world } = await shared(2 ** 21)
  const behind = await talkWorld({ environment, numLanes: 3, seed: SEED })
  for (const each of [world, behind]) reset(each)
  const lengths = () => [...behind.cohort().conversation.length]
  const before = lengths()
  const waiting = infer(world, [world.cohort(), behind.cohort()])
  expect(waiting).toBeInstanceOf(Promise)
  expect(lengths()).toEqual(before)
  await waiting
  expect(lengths()).toEqual(before.map((length) => length + 1))
})

test('a thread for which there is no share says nothing', async () => {
  const { second, theirs } = await shared(1)
  decodeShare(second, 1, 1)
  expect(theirs).not.toHaveBeenCalled()
})

test('each token is fed once: after a tick only the last of a lane that spoke is not in the cache', async () => {
  const world = await talkWorld({ environment, numLanes: 3, seed: SEED })
  const { conversation, context } = world.cohort()
  const { decoder, turns } = localEngineOf(world.cohort())
  const fed = vi.spyOn(decoder, 'feed')
  const { advance } = decoder
  let checked = 0
  decoder.advance = (rows, ...rest) => {
    expect(rows).toBeGreaterThan(0) // Where every lane waits for a reply, nobody speaks.
    const { slot, forward } = decoder.columns
    for (let row = 0; row < rows; row++) {
      const n = slot[row]!
      expect(forward.position[row]).toBe(conversation.length[n]! - 1)
      expect(forward.token[row]).toBe(conversation.token[n * context + conversation.length[n]! - 1])
      expect(turns.cached[n]).toBe(conversation.length[n])
      checked++
    }
    advance.call(decoder, rows, ...rest)
  }
  const rows = await talkUntil(world, 12)
  expect(checked).toBe(rows.reduce((sum, { lossMask }) => sum + lossMask.reduce((said, flag) => said + flag, 0), 0))
  // A prompt or a reply of one token needs no feeding but for the token that was said before it.
  for (const [, tokens] of fed.mock.calls) expect(tokens.length).toBe(1)
  expect(fed.mock.calls.length).toBe(rows.reduce((sum, { turns }) => sum + turns - 1, 0))
})
