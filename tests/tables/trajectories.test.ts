import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { groupNumbers, Trajectories } from '../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../src/tables/trajectories/trajectory.ts'
import * as fc from '../support/properties.ts'
import { anyTrajectory, plain, trajectory } from '../support/trajectories.ts'

function tableOf(rows: readonly Trajectory[]): Trajectories {
  const trajectories = new Trajectories()
  for (const row of rows) trajectories.append(row)
  return trajectories
}

function rowsOf(trajectories: Trajectories): Trajectory[] {
  return Array.from({ length: trajectories.count }, (_, i) => plain(trajectories.row(i)))
}

describe('what is appended', () => {
  test('is read back as it was, however many come after it; components that it has not are null', () => {
    fc.assert(
      fc.property(fc.array(anyTrajectory, { maxLength: 90 }), (rows) => {
        const names = new Set(rows.flatMap(({ components }) => Object.keys(components)))
        const nulls = Object.fromEntries([...names].map((name) => [name, null]))
        const trajectories = tableOf(rows)
        expect(rowsOf(trajectories)).toEqual(
          rows.map((row) => ({ ...plain(row), components: { ...nulls, ...row.components } })),
        )
        expect(trajectories.numTokens).toBe(rows.reduce((sum, { token }) => sum + token.length, 0))
      }),
      { numRuns: 30 },
    )
  })

  test('stands where columns had to grow: more rows, and more tokens, than there was room for', () => {
    const long = (i: number, length: number) => {
      const of = (value: number) => new Array<number>(length).fill(value)
      const tokens = { token: of(i), lossMask: of(1), logprob: of(-i), version: of(i + 1), turn: of(0) }
      return trajectory({ ...tokens, member: i, reward: i / 2, turnReward: [i, i + 1] })
    }
    const rows = Array.from({ length: 200 }, (_, i) => long(i, i === 150 ? 5000 : 1 + (i % 7)))
    const trajectories = tableOf(rows)
    trajectories.setAdvantages(rows.map((_, i) => -i))
    trajectories.append(long(200, 9000))
    expect(rowsOf(trajectories)).toEqual([...rows, long(200, 9000)].map(plain))
    expect([...trajectories.columns().advantage]).toEqual([...rows.map((_, i) => -i), Number.NaN])
  })

  test('is a copy: the lane that it came from may be overwritten', () => {
    const token = Int32Array.of(5, 6, 7, 8)
    const trajectories = tableOf([trajectory({ token })])
    token.fill(0)
    expect(Array.from(trajectories.row(0).token)).toEqual([5, 6, 7, 8])
  })

  test('can be seen in the columns without a copy, and the tokens of row i lie from offsets[i] to offsets[i + 1]', () => {
    const longer = { token: [1], lossMask: [1], logprob: [-1], version: [3], turn: [0] }
    const columns = tableOf([trajectory(), trajectory(longer)]).columns()
    expect([...columns.offsets]).toEqual([0, 4, 5])
    expect(columns.token.buffer).toBe(columns.token.subarray(1).buffer)
    const trajectories = tableOf([trajectory()])
    trajectories.columns().logprob[2] = -9
    expect(trajectories.row(0).logprob[2]).toBe(-9)
  })

  test('is forgotten by clear, and what comes after it shows nothing of it', () => {
    const trajectories = tableOf([trajectory({ components: { right: 1 }, error: 'gone' })])
    trajectories.setAdvantages([3])
    trajectories.clear()
    expect([trajectories.count, trajectories.numTokens]).toEqual([0, 0])
    trajectories.append(trajectory({ reward: null }))
    expect(rowsOf(trajectories)).toEqual([plain(trajectory({ reward: null }))])
    expect([...trajectories.columns().advantage]).toEqual([Number.NaN])
  })
})

describe('what is not a trajectory', () => {
  test.each<[string, Partial<Trajectory>, RegExp]>([
    ['a mask that covers the prompt beside tokens that do not', { token: [7, 8] }, /lossMask: got 4 .* expected 2/],
    ['logprobs of the response alone', { logprob: [-0.5, -1] }, /logprob: got 2 elements, expected 4/],
    ['no token', { token: [] }, /got no token/],
    ['a token that is no id', { token: [5, 6.5, 7, 8] }, /token\[1\]: got 6.5/],
    ['a negative token', { token: [5, 6, -7, 8] }, /token\[2\]: got -7/],
    ['a mask that is neither 0 nor 1', { lossMask: [0, 0, 1, 0.5] }, /lossMask\[3\]: got 0.5, expected 0 or 1/],
    [
      'no logprob of what known weights chose',
      { logprob: [0, 0, Number.NaN, -1] },
      /logprob\[2\]: got NaN.*NaN \(not recorded\) if the version is -1/,
    ],
    [
      'a logprob 3 too high',
      { logprob: [0, 0, -0.5, 2] },
      /logprob\[3\]: got 2, expected a finite number of at most 0/,
    ],
    ['a logprob of minus infinity', { logprob: [0, 0, Number.NEGATIVE_INFINITY, -1] }, /logprob\[2\]/],
    ['a version below -1', { version: [-1, -1, -2, 0] }, /version\[2\]: got -2/],
    ['a group that is not whole', { group: 0.5 }, /group: got 0.5/],
    ['an example number past 32 bits', { promptId: 2 ** 31 }, /promptId: got 2147483648/],
    ['an epoch that is missing', { epoch: undefined as never }, /epoch: got undefined/],
    ['a reward that is NaN', { reward: Number.NaN }, /reward: got NaN.*null if unknown/],
    ['a component that is infinite', { components: { short: Number.POSITIVE_INFINITY } }, /short: got Infinity/],
    [
      'candidate sets of fewer tokens',
      { candidateCount: [0, 0, 1], candidateIds: [7] },
      /3 candidate counts.*expected 4 counts/,
    ],
    ['candidate sets without their ids', { candidateCount: [0, 0, 2, 2] }, /4 together, for 0 ids/],
    [
      'candidate sets of a negative length',
      { candidateCount: [0, 0, 2, -2], candidateIds: [7] },
      /candidateCount\[3\]: got -2/,
    ],
    ['candidate sets of what is no id', { candidateCount: [0, 0, 1, 0], candidateIds: [0.5] }, /candidateIds: got 0.5/],
    ['a stop reason that nobody knows', { stopReason: 'stopped' as never }, /did you mean "stop"/],
  ])('is refused, and nothing of it stays: %s', (_, wrong, message) => {
    const trajectories = tableOf([trajectory()])
    expect(() => trajectories.append(trajectory({ group: 1, ...wrong }))).toThrow(message)
    expect(() => trajectories.append(trajectory(wrong))).toThrow(InputError)
    expect(rowsOf(trajectories)).toEqual([plain(trajectory())])
  })

  test('advantages of another number of rows, and rows that are not there, are errors', () => {
    const trajectories = tableOf([trajectory()])
    expect(() => trajectories.setAdvantages([1, 2])).toThrow('got 2 numbers, expected 1, one a trajectory')
    expect(() => trajectories.setAdvantages([Number.POSITIVE_INFINITY])).toThrow(
      'advantage of row 0: got Infinity, expected a finite number, or NaN to exclude the row',
    )
    for (const row of [-1, 1, 0.5]) expect(() => trajectories.row(row)).toThrow(InputError)
    expect(() => trajectories.take([0, 1])).toThrow(InputError)
  })
})

describe('a group', () => {
  test('is (source, epoch, promptId, group): tables of two runs share none, whatever their numbers are', () => {
    const rows = ['run a', 'run b'].flatMap((source) =>
      [0, 1].flatMap((epoch) =>
        [3, 4].flatMap((promptId) =>
          [0, 1].flatMap((group) => [0, 1].map((member) => ({ source, epoch, promptId, group, member }))),
        ),
      ),
    )
    const numbers = groupNumbers(tableOf(rows.map((row) => trajectory(row))).columns())
    expect([...numbers]).toEqual(rows.map((_, i) => i >> 1))
    // A source that spells numbers is no other group's.
    const [a, b] = [
      { source: '1 x', group: 2 },
      { source: 'x', group: 21 },
    ]
    expect([...groupNumbers(tableOf([trajectory(a), trajectory(b)]).columns())]).toEqual([0, 1])
  })

  test.each([
    ['a source that is no text', { source: 3 as never }, /source: got 3, expected a text/],
    ['no group', { group: undefined as never }, /group: got undefined, expected a whole number/],
  ])('is not made up: %s is refused', (_, wrong, message) => {
    expect(() => new Trajectories().append(trajectory(wrong))).toThrow(message)
  })
})

describe('order', () => {
  test('does not depend on who was done first: groups are never mixed in order of completion', () => {
    const members = Array.from({ length: 12 }, (_, i) =>
      trajectory({ epoch: Math.floor(i / 6), group: Math.floor(i / 3), member: i % 3, token: [i, 1, 2, 3] }),
    )
    members.push(
      trajectory({ source: 'a', group: 1, promptId: 1, member: 1 }),
      trajectory({ source: 'a', group: 1, promptId: 2, member: 0 }),
      trajectory({ source: 'b' }),
    )
    fc.assert(
      fc.property(fc.shuffledSubarray(members, { minLength: members.length }), (finished) => {
        const trajectories = tableOf(finished)
        expect(rowsOf(trajectories.take(trajectories.order()))).toEqual(members.map(plain))
      }),
    )
  })

  test('take copies: what is appended to one is not in the other', () => {
    const trajectories = tableOf([trajectory(), trajectory({ member: 1 })])
    const taken = trajectories.take([1])
    taken.append(trajectory({ member: 2 }))
    expect([trajectories.count, taken.count]).toEqual([2, 2])
    expect(rowsOf(taken).map(({ member }) => member)).toEqual([1, 2])
  })
})

describe('a segment', () => {
  const first = { source: 'run', promptId: 3, group: 4, member: 5, epoch: 6 }

  test('follows the one before it, and the conversation is counted once', () => {
    const trajectories = tableOf([trajectory(first), trajectory({ ...first, segment: 1 })])
    trajectories.append(trajectory({ ...first, segment: 2 }))
    expect([trajectories.count, trajectories.numConversations]).toEqual([3, 1])
    trajectories.append(trajectory({ ...first, member: 6 }))
    expect([trajectories.count, trajectories.numConversations]).toEqual([4, 2])
    expect([...trajectories.columns().segment]).toEqual([0, 1, 2, 0])
    trajectories.keep([0, 3])
    expect([trajectories.count, trajectories.numConversations]).toEqual([2, 2])
    trajectories.clear()
    expect(trajectories.numConversations).toBe(0)
  })

  test.each<[string, Partial<Trajectory>]>([
    ['segment 0 is before it, and not segment 1', { segment: 2 }],
    ['the one before it is of another source', { source: 'walk' }],
    ['the one before it is of another prompt', { promptId: 9 }],
    ['the one before it is of another group', { group: 9 }],
    ['the one before it is of another member', { member: 9 }],
    ['the one before it is of another epoch', { epoch: 9 }],
  ])('is refused where %s', (_, wrong) => {
    const trajectories = tableOf([trajectory(first)])
    const segment = trajectory({ ...first, segment: 1, ...wrong })
    const expected = `segment ${segment.segment! - 1} of its conversation first`
    expect(() => trajectories.append(segment)).toThrow(`got segment ${segment.segment}, expected ${expected}`)
    expect([trajectories.count, trajectories.numConversations]).toEqual([1, 1])
  })

  test('is refused where nothing is before it', () => {
    expect(() => new Trajectories().append(trajectory({ segment: 1 }))).toThrow(/got segment 1, expected segment 0/)
  })
})
