/** When a stream is told of what has been generated, and of an engine that breaks down. */
import { afterEach, expect, test, vi } from 'vitest'
import { Batcher, type Generation, type GenerationGroup, steps, whole } from '../../../src/agents/serving/batcher.ts'
import { defineEngine } from '../../../src/engines/define-engine.ts'
import type { Engine, TurnRequest } from '../../../src/engines/engine.ts'
import { talkWorld } from '../../support/conversations.ts'

afterEach(() => void vi.useRealTimers())

/** A group of one turn, to which tokens are added by hand. */
function byHand() {
  const turn = {
    tokens: [] as Generation['tokens'][number][],
    numCached: 0,
    end: null as Generation['end'],
    error: null,
  }
  let waiting: { readonly all: boolean; readonly resolve: () => void }[] = []
  const group: GenerationGroup = {
    turns: [turn],
    more: (all = false) => new Promise((resolve) => waiting.push({ all, resolve })),
    abort: () => {},
  }
  const tell = () => {
    const told = waiting.filter(({ all }) => !all || turn.end !== null)
    waiting = waiting.filter((each) => !told.includes(each))
    for (const { resolve } of told) resolve()
  }
  const add = (id: number, end: Generation['end'] = null) => {
    turn.tokens.push({ id, logprob: -1, version: 0, candidates: [], top: [] })
    turn.end = end
    tell()
  }
  return { group, turn, add }
}

test('a stream is told of its first token and its end at once, and of others at most twenty times a second', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const { group, turn, add } = byHand()
  const told: (readonly [ms: number, tokens: number])[] = []
  const reading = (async () => {
    for await (const _ of steps(group, new AbortController().signal)) told.push([performance.now(), turn.tokens.length])
  })()
  const begun = performance.now()
  await vi.advanceTimersByTimeAsync(100)
  for (let i = 0; i < 13; i++) {
    add(i, i === 12 ? 'stop' : null)
    await vi.advanceTimersByTimeAsync(10)
  }
  await reading
  expect(told.map(([ms, tokens]) => [ms - begun, tokens])).toEqual([
    [0, 0],
    [100, 1],
    [150, 5],
    [200, 10],
    [220, 13],
  ])
  expect(vi.getTimerCount()).toBe(0)
})

test('an engine that breaks down as it is asked fails what was asked of it, and takes nothing more', async () => {
  const told = vi.spyOn(console, 'error').mockImplementation(() => {})
  const broken = defineEngine('broken', () => ({
    logprobs: 'none',
    begin() {
      throw new Error('out of order')
    },
  }))
  const { engine, tokenizer } = (await talkWorld({ engine: broken })).cohort()
  const batcher = new Batcher(engine, 1, 8)
  const ids = Int32Array.from(tokenizer.encode('ab'))
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  const request = { ids, maxTokens: 2, sampling, explore: true, stopStrings: [], key: [0, 0, 0] as const, numTop: 0 }
  await expect(whole(batcher.submit([request, request]), new AbortController().signal)).rejects.toThrow('engine failed')
  expect(told.mock.calls.flat().join()).toContain('out of order')
  expect(() => batcher.submit([request])).toThrow('the server is stopping')
  told.mockRestore()
})

test('an engine is told how many ids of a prompt its slot has computed, by the same weights, and not what was there before', async () => {
  const { engine: inner, tokenizer } = (
    await talkWorld({
      engine: defineEngine('three', () => ({
        logprobs: 'none',
        advance(turns) {
          for (const turn of turns) turn.add(7, Number.NaN)
        },
      })),
    })
  ).cohort()
  const given: number[] = []
  const engine = Object.create(inner, {
    version: { value: 0, writable: true },
    submit: {
      value(turn: TurnRequest) {
        given.push(turn.unchanged)
        inner.submit({ ...turn, unchanged: 0 })
      },
    },
    advance: { value: () => inner.advance() },
    poll: { value: () => inner.poll() },
    arrival: { get: () => inner.arrival },
  }) as Engine & { version: number }
  expect(tokenizer.endIds).not.toContain(7)
  const batcher = new Batcher(engine, 1, 8)
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  const told: number[] = []
  const ask = async (...prompt: number[]) => {
    const ids = Int32Array.from(prompt)
    const drawn = { maxTokens: 3, sampling, explore: true, stopStrings: [], key: [0, 0, 0] as const, numTop: 0 }
    const group = batcher.submit([{ ids, ...drawn }])
    await whole(group, new AbortController().signal)
    expect(group.turns[0]!.tokens.map(({ id }) => id)).toEqual([7, 7, 7])
    told.push(group.turns[0]!.numCached)
  }
  await ask(1, 2, 3) // The slot has 1 2 3 7 7: the last token's keys are not computed.
  await ask(1, 2, 3, 7, 7, 7, 4)
  await ask(1, 5) // Now it has 1 5 7 7.
  await ask(1, 5, 7, 7, 7, 7, 4)
  await ask(1)
  await ask(1, 7, 7, 7, 7, 7, 4)
  engine.version = 1
  await ask(1, 7, 7)
  expect(given).toEqual([0, 5, 1, 4, 1, 3, 0])
  expect(told).toEqual(given)
})

test('an answer of at least three tokens ends at the third, where each is an end token', async () => {
  const { engine, tokenizer } = (
    await talkWorld({
      engine: defineEngine('ends', ({ tokenizer }) => ({
        logprobs: 'none',
        advance(turns) {
          for (const turn of turns) turn.add(tokenizer.endIds[0]!, Number.NaN)
        },
      })),
    })
  ).cohort()
  const batcher = new Batcher(engine, 1, 8)
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  const drawn = { maxTokens: 5, sampling, explore: true, stopStrings: [], key: [0, 0, 0] as const, numTop: 0 }
  const group = batcher.submit([{ ids: Int32Array.of(1, 2), ...drawn, changes: { minTokens: 3 } }])
  await whole(group, new AbortController().signal)
  const [end] = tokenizer.endIds
  expect(group.turns[0]).toMatchObject({ end: 'stop', tokens: [{ id: end }, { id: end }, { id: end }] })
})
