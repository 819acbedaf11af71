import { describe, expect, test } from 'vitest'
import { conversationsOf, markLearned, minibatchOf, packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { spansOf } from '../../src/kernels/bind.ts'

/** Sequences of 2, 4, 3, 2 and 3 tokens; token t is 10 + t. */
const offsets = [0, 2, 6, 9, 11, 14]
const token = Array.from({ length: 14 }, (_, t) => 10 + t)
const lossMask = token.map(() => 1)
const sequences = { ...spansOf(offsets), token, lossMask }

describe('packBatch', () => {
  test('orders sequences, whose tokens stay where they are', () => {
    const batch = packBatch(sequences, 4)
    expect(batch.order).toEqual([1, 0, 2, 4, 3])
    expect(batch.parts).toEqual([0, 2, 4, 5])
    expect(batch.cuts).toEqual([0, 3])
    expect([...batch.spans.begin]).toEqual([2, 0, 6, 11, 9])
    expect([...batch.spans.end]).toEqual([6, 2, 9, 14, 11])
    expect(batch.token).toBe(token)
    expect(batch.lossMask).toBe(lossMask)
    expect(batch.candidates).toBeNull()
  })

  test('refuses a sequence of which nothing is predicted, and one that no micro-batch has room for', () => {
    const of = (ends: number[]) => () => packBatch({ ...sequences, ...spansOf([0, ...ends]) }, 3)
    expect(of([2, 6])).not.toThrow()
    expect(of([2, 3])).toThrow('sequence 1: got 1 tokens, expected 2 to 4, one more than the rows of a micro-batch')
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
    expect(second.spans).toBe(batch.spans)
  })

  test('takes along from which tokens each was drawn', () => {
    const candidateCount = [-1, 2, 0, 1, 0, 0, 0, 0, 3, -1, 0, 0, 0, 1]
    const candidateIds = Int32Array.of(3, 11, 13, 1, 2, 18, 23)
    const candidateBegin = [0, 2, 3, 6, 6]
    const drawn = { ...sequences, candidateCount, candidateIds, candidateBegin }
    const { candidates } = packBatch(drawn, 4)
    expect([...(candidates!.begin as Int32Array)]).toEqual([2, 0, 3, 6, 6]) // In the order 1, 0, 2, 4, 3.
    expect(candidates!.length).toBe(candidateCount)
    expect(candidates!.ids).toBe(candidateIds)
    expect(packBatch({ ...drawn, candidateIds: new Int32Array(0) }, 4).candidates).toBeNull()
    expect(packBatch({ ...sequences, candidateIds }, 4).candidates).toBeNull()
  })
})

test('conversations are their segments in order, by the place of each in the batch', () => {
  const batch = packBatch(sequences, 4) // In the order 1, 0, 2, 4, 3.
  expect(conversationsOf(batch, [0, 0, 1, 0, 1])).toEqual([[0, 2], [1], [4, 3]])
  expect(conversationsOf(batch, [0, 1, 2, 3, 4])).toEqual([[1, 0, 2, 4, 3]])
  expect(conversationsOf(batch, [0, 0, 0, 0, 0])).toEqual([[0], [1], [2], [3], [4]])
})

test('of each sequence the first token is predicted by nobody, and what lies between sequences is let be', () => {
  const spans = { begin: Int32Array.of(9, 1), end: Int32Array.of(11, 5) }
  const batch = packBatch({ ...spans, token, lossMask: token.map((id) => (id === 13 ? 0 : 1)) }, 4)
  const learned = new Uint8Array(14).fill(7)
  markLearned(learned, batch)
  expect([...learned]).toEqual([7, 0, 1, 0, 1, 7, 7, 7, 7, 0, 1, 7, 7, 7])
})
