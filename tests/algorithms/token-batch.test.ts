import { describe, expect, test } from 'vitest'
import { conversationsOf, minibatchOf, packBatch, tokensInOrder } from '../../src/algorithms/token-batch.ts'

/** Sequences of 2, 4, 3, 2 and 3 tokens; token t is 10 + t. */
const offsets = [0, 2, 6, 9, 11, 14]
const token = Array.from({ length: 14 }, (_, t) => 10 + t)
const lossMask = token.map(() => 1)
const sequences = { offsets, token, lossMask }

describe('packBatch', () => {
  test('orders tokens as it orders sequences, and of each the first token is predicted by nobody', () => {
    const batch = packBatch(sequences, 4)
    expect(batch.order).toEqual([1, 0, 2, 4, 3])
    expect(batch.parts).toEqual([0, 2, 4, 5])
    expect(batch.cuts).toEqual([0, 3])
    expect([...batch.offsets]).toEqual([0, 4, 6, 9, 12, 14])
    expect([...batch.token]).toEqual([12, 13, 14, 15, 10, 11, 16, 17, 18, 21, 22, 23, 19, 20])
    expect([...batch.lossMask]).toEqual([0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1])
    expect(batch.supports).toBeNull()
  })

  test('refuses a sequence of which nothing is predicted, and one that no micro-batch has room for', () => {
    const of = (ends: number[]) => () => packBatch({ ...sequences, offsets: [0, ...ends] }, 3)
    expect(of([2, 6])).not.toThrow()
    expect(of([2, 3])).toThrow('sequence 1: got 1 tokens, expected 2 to 4, the rows of a micro-batch and one')
    expect(of([2, 7])).toThrow('sequence 1: got 5 tokens')
  })

  test('keeps minibatches apart, each with micro-batches of its own', () => {
    const batch = packBatch(sequences, 4, [
      [0, 3, 4],
      [1, 2],
    ])
    expect(batch.order).toEqual([4, 0, 3, 1, 2])
    expect([batch.parts, batch.cuts]).toEqual([
      [0, 3, 4, 5],
      [0, 1, 3],
    ])
    const [first, second] = [minibatchOf(batch, 0), minibatchOf(batch, 1)]
    expect([first.parts, first.cuts]).toEqual([
      [0, 3],
      [0, 1],
    ])
    expect([second.parts, second.cuts]).toEqual([
      [3, 4, 5],
      [0, 2],
    ])
    expect(second.offsets).toBe(batch.offsets)
  })

  test('takes along from which tokens each was drawn', () => {
    const supportLength = [-1, 2, 0, 1, 0, 0, 0, 0, 3, -1, 0, 0, 0, 1]
    const supportIds = [3, 11, 13, 1, 2, 18, 23]
    const { supports } = packBatch({ ...sequences, supportLength, supportIds }, 4)
    // In the order 1, 0, 2, 4, 3.
    expect(supports!.offsets).toEqual([0, 0, 1, 1, 1, 1, 3, 3, 3, 6, 6, 6, 7, 7, 7])
    expect([...supports!.ids]).toEqual([13, 3, 11, 1, 2, 18, 23])
    expect(packBatch({ ...sequences, supportLength, supportIds: [] }, 4).supports).toBeNull()
    expect(packBatch({ ...sequences, supportIds }, 4).supports).toBeNull()
  })
})

test('conversations are their segments in order, by the place of each in the batch', () => {
  const batch = packBatch(sequences, 4) // In the order 1, 0, 2, 4, 3.
  expect(conversationsOf(batch, [0, 0, 1, 0, 1])).toEqual([[0, 2], [1], [4, 3]])
  expect(conversationsOf(batch, [0, 1, 2, 3, 4])).toEqual([[1, 0, 2, 4, 3]])
  expect(conversationsOf(batch, [0, 0, 0, 0, 0])).toEqual([[0], [1], [2], [3], [4]])
})

test('a column of tokens follows the batch; what is not recorded is 0 only where nothing is learned', () => {
  const batch = packBatch({ ...sequences, lossMask: token.map((id) => (id === 14 ? 0 : 1)) }, 4)
  const column = token.map((id) => ([12, 14, 15].includes(id) ? Number.NaN : id))
  const wanted = [0, 13, 0, Number.NaN, 10, 11, 16, 17, 18, 21, 22, 23, 19, 20]
  expect([...tokensInOrder(batch, offsets, column)]).toEqual(wanted)
})
