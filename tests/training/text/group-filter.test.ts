import { describe, expect, test } from 'vitest'
import { Trajectories } from '../../../src/tables/trajectories.ts'
import type { Tokenizer } from '../../../src/text/tokenizer.ts'
import { refuseGroups } from '../../../src/training/text/group-filter.ts'
import { trajectory } from '../../support/trajectories.ts'

const tokenizer = { decode: (ids: readonly number[]) => ids.join(' ') } as unknown as Tokenizer

describe('the filter of groups', () => {
  test('sees of each conversation its reward and what the model said in all of its rows, and each group once', () => {
    const data = new Trajectories()
    data.append(trajectory({ group: 0, member: 0, reward: 3 }))
    data.append(trajectory({ group: 0, member: 1, reward: 4, token: [5, 6, 9, 9], lossMask: [0, 0, 1, 0] }))
    data.append(trajectory({ group: 0, member: 1, segment: 1, reward: 4, token: [5, 6, 1, 2] }))
    data.append(trajectory({ group: 1, promptId: 1, member: 0, reward: null }))
    const seen: unknown[] = []
    const filter = Object.assign(
      (samples: readonly object[]) => {
        seen.push(samples)
        return seen.length === 1 ? { keep: true } : { keep: false, reason: 'alone' }
      },
      { id: 'seen' },
    )
    const admitted = new Set<number>()
    const drops: Record<string, number> = { alone: 2 }
    const first = refuseGroups(data, tokenizer, 0, filter as never, admitted, drops)
    expect(first).toEqual({ keep: [0, 1, 2], dropped: 1 })
    expect(seen).toEqual([
      [
        { reward: 3, response: '7 8', responseLength: 2 },
        { reward: 4, response: '9 1 2', responseLength: 3 },
      ],
      [{ reward: null, response: '7 8', responseLength: 2 }],
    ])
    expect([[...admitted], drops]).toEqual([[0], { alone: 3 }])
    expect(refuseGroups(data.take(first.keep), tokenizer, 0, filter as never, admitted, drops).keep).toEqual([0, 1, 2])
    expect(seen).toHaveLength(2) // What was admitted is not judged again.
  })

  test('is not asked of groups that are stale, or in which nothing was said behind a prompt of one token', () => {
    const data = new Trajectories()
    data.append(trajectory({ group: 0, version: [-1, -1, 2, 3] }))
    data.append(trajectory({ group: 1, version: [-1, -1, 3, 2], lossMask: [0, 0, 1, 0] }))
    data.append(trajectory({ group: 2, version: [-1, -1, -1, 3] }))
    const one = { token: [5], lossMask: [0], logprob: [Number.NaN], version: [-1], turn: [0] }
    data.append(trajectory({ group: 3, reward: null, ...one }))
    const drops: Record<string, number> = {}
    expect(refuseGroups(data, tokenizer, 3, null, new Set(), drops)).toEqual({ keep: [1, 2], dropped: 2 })
    expect(drops).toEqual({ stale: 1, failed: 1 })
    expect(refuseGroups(data.take([0, 1, 2]), tokenizer, 2, null, new Set(), {}).dropped).toBe(0)
  })
})
