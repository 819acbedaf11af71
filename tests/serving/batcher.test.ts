/** When a stream is told of what has been generated. */
import { afterEach, expect, test, vi } from 'vitest'
import { type Generation, type GenerationGroup, steps } from '../../src/serving/batcher.ts'

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
