/** Work that threads share, by their turns: helpers here are objects of this thread, and one is a thread that comes late. */
import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { Clock } from '../../src/base/clock.ts'
import type { PartedWork } from '../../src/base/parted.ts'
import { Aborted } from '../../src/training/threads/orders.ts'
import { aborting, Sharing, SharingWord, sharingColumns } from '../../src/training/threads/sharing.ts'

/** Who did which part, and with which numbers. */
type Done = [thread: number, part: number, told: number]

function crew(count: number) {
  const columns = sharingColumns()
  const done: Done[] = []
  /** What a thread does before it does a part. */
  const before: ((part: number) => void)[] = []
  const works = Array.from({ length: count }, (_, thread): PartedWork => {
    let told = Number.NaN
    return {
      open: ([number]) => {
        told = number!
      },
      part: (i) => {
        before[thread]?.(i)
        done.push([thread, i, told])
      },
    }
  })
  const sharings = works.map((_, thread) => new Sharing(columns, thread, count, 1, new Clock()))
  const [work] = sharings.map((sharing, thread) => sharing.share(works[thread]!))
  const [dealt] = sharings.map((sharing, thread) => sharing.deal(works[thread]!))
  sharings[0]!.team = count
  return { columns, sharings, work: work!, dealt: dealt!, done, before }
}

describe('shared work', () => {
  test('is done by whoever claims it, each part once, with the numbers of thread 0', () => {
    const { sharings, work, done, before } = crew(3)
    work.told[0] = 7
    before[0] = (part) => {
      if (part !== 0) return
      sharings[2]!.help(2)
      sharings[1]!.help(1)
    }
    expect(work.run(6)).toBeUndefined()
    expect(done.toSorted(([, a], [, b]) => a - b)).toEqual([
      [0, 0, 7],
      [2, 1, 7],
      [2, 2, 7],
      [1, 3, 7],
      [0, 4, 7],
      [0, 5, 7],
    ])
  })

  test('does not wait for helpers that come late: they find nothing, and help with the next run', () => {
    const { sharings, work, done, before } = crew(2)
    for (const told of [1, 2, 3]) {
      work.told[0] = told
      expect(work.run(4)).toBeUndefined()
    }
    sharings[1]!.help()
    expect(done.map(([thread]) => thread)).toEqual(new Array(12).fill(0))
    work.told[0] = 4
    before[0] = () => sharings[1]!.help()
    expect(work.run(4)).toBeUndefined()
    expect(done.slice(12).map(([thread, , told]) => [thread, told])).toEqual([
      [1, 4],
      [1, 4],
      [1, 4],
      [0, 4],
    ])
  })

  test('is that of thread 0 alone if the team is 1, if there is one part, and wakes nobody then', () => {
    const { columns, sharings, work, done } = crew(2)
    sharings[0]!.team = 1
    work.run(3)
    sharings[0]!.team = 2
    work.run(1)
    expect(done.map(([thread]) => thread)).toEqual([0, 0, 0, 0])
    expect(Atomics.load(columns.words, SharingWord.run)).toBe(0)
  })

  test('of another team size leaves out the helpers beyond it', () => {
    const { sharings, work, done, before } = crew(4)
    sharings[0]!.team = 2
    before[0] = () => {
      for (const helper of [3, 2, 1]) sharings[helper]!.help(1)
    }
    work.run(4)
    expect(new Set(done.map(([thread]) => thread))).toEqual(new Set([0, 1]))
  })

  test('is waited for if it was begun: its promise settles when the part is done', async () => {
    const { columns, work, done, before } = crew(2)
    const { words } = columns
    before[0] = (part) => {
      if (part === 0) Atomics.add(words, SharingWord.claim, 1) // Somebody begins part 1.
    }
    const pending = work.run(3)
    expect(pending).toBeInstanceOf(Promise)
    expect(done.map(([, part]) => part)).toEqual([0, 2])
    const finish = `
      const { workerData: [words, done] } = require('node:worker_threads')
      Atomics.add(words, done, 1)
      Atomics.notify(words, done)`
    const worker = new Worker(finish, { eval: true, workerData: [words, SharingWord.done] })
    await pending
    await worker.terminate()
  })

  test('that is aborted is not waited for, nor begun', async () => {
    const { columns, sharings, work, before } = crew(2)
    before[0] = () => Atomics.add(columns.words, SharingWord.claim, 1) // Somebody begins a part and never ends.
    const pending = work.run(2) as Promise<void>
    const settled = expect(pending).rejects.toThrow(Aborted)
    aborting(sharings[0]!.columns)()
    await settled
    expect(() => work.run(2)).toThrow(Aborted)
    expect(() => sharings[1]!.help()).toThrow(Aborted)
    sharings[0]!.restart()
    before[0] = () => {}
    expect(work.run(2)).toBeUndefined()
  })
})

test('dealt work has a part for each thread, by its number; nobody else takes it', () => {
  const { sharings, dealt, done } = crew(3)
  dealt.told[0] = 5
  dealt.begin(1, 3)
  for (const helper of [2, 1]) sharings[helper]!.help()
  expect(dealt.finish()).toBeUndefined()
  expect(done).toEqual([
    [2, 2, 5],
    [1, 1, 5],
  ])
  dealt.begin(1, 1) // Of one thread.
  expect(dealt.finish()).toBeUndefined()
})
