import { describe, expect, test } from 'vitest'
import type { Tokenizer } from '../../../src/language/tokenizers/tokenizer.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { refusalOf, rowsOfGroup } from '../../../src/training/text/collect/group-filter.ts'
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
    const judge = (group: number) => refusalOf(data, tokenizer, rowsOfGroup(data, group), 0, filter as never)
    expect([rowsOfGroup(data, 0), rowsOfGroup(data, 1), rowsOfGroup(data, 2)]).toEqual([[[0], [1, 2]], [[3]], []])
    expect([judge(0), judge(1)]).toEqual([null, 'alone'])
    expect(seen).toEqual([
      [
        { reward: 3, response: '7 8', responseLength: 2 },
        { reward: 4, response: '9 1 2', responseLength: 3 },
      ],
      [{ reward: null, response: '7 8', responseLength: 2 }],
    ])
  })

  test('is not asked of groups that are stale, or in which nothing was said behind a prompt of one token', () => {
    const data = new Trajectories()
    data.append(trajectory({ group: 0, version: [-1, -1, 2, 3] }))
    data.append(trajectory({ group: 1, version: [-1, -1, 3, 2], lossMask: [0, 0, 1, 0] }))
    data.append(trajectory({ group: 2, version: [-1, -1, -1, 3] }))
    const one = { token: [5], lossMask: [0], logprob: [Number.NaN], version: [-1], turn: [0] }
    data.append(trajectory({ group: 3, reward: null, ...one }))
    const filter = Object.assign(
      () => {
        throw new Error('asked')
      },
      { id: 'never' },
    )
    const judge = (group: number, oldest: number, by: object | null) =>
      refusalOf(data, tokenizer, rowsOfGroup(data, group), oldest, by as never)
    expect([judge(0, 3, filter), judge(3, 3, filter)]).toEqual(['stale', 'failed'])
    expect([0, 1, 2, 3].map((group) => judge(group, 3, null))).toEqual(['stale', null, null, 'failed'])
    expect([0, 1, 2].map((group) => judge(group, 2, null))).toEqual([null, null, null])
  })
})
