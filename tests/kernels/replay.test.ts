import { describe, expect, test } from 'vitest'
import { boxMuller, philox4x32, Random, Stream, unitFromWord } from '../../src/base/random.ts'
import { createKernels, TdSum } from '../../src/kernels/bind.ts'
import type { Numbers } from './calls.ts'
import { matches } from './laws.ts'

const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const { key0, key1 } = new Random(3)

describe('priorities', () => {
  const priority = Float32Array.of(0.5, 0, 2, 3, 0, 1, 4, 0.25)
  const rows = Uint32Array.from(priority, (_, row) => row)
  const tree = new Float64Array(16)

  test('are counted as they come and go, and the first element is their sum', () => {
    expect(kernels.setPriorities(tree, rows, priority, 8)).toBe(6)
    expect(tree[1]).toBe(10.75)
    expect(kernels.setPriorities(tree, Uint32Array.of(2, 4, 5), Float32Array.of(0, 1, 7), 3)).toBe(0)
    expect(tree[1]).toBe(10.75 - 2 + 1 + 6)
    expect(kernels.setPriorities(tree, rows, priority, 8)).toBe(0)
  })

  test('are given to as many rows as are said, whatever stands behind them', () => {
    const some = new Float64Array(16)
    expect(kernels.setPriorities(some, rows, priority, 3)).toBe(2)
    expect([...some.subarray(8)]).toEqual([0.5, 0, 2, 0, 0, 0, 0, 0])
    expect(kernels.setPriorities(some, rows, priority, 0)).toBe(0)
    expect(some[1]).toBe(2.5)
  })

  test('say which rows are drawn: the one in whose stretch of the sum each number falls', () => {
    const [count, step] = [13, 5]
    const [drawn, weight, words] = [new Uint32Array(count), new Float32Array(count), new Uint32Array(4)]
    kernels.drawByPriority(drawn, weight, tree, words, 6, 0.7, count, step, key0, key1)
    const raw: number[] = []
    for (let i = 0; i < count; i++) {
      philox4x32(words, Math.floor(i / 4), step, 0, Stream.replay, key0, key1)
      let left = ((i + unitFromWord(words[i % 4]!)) / count) * 10.75
      const row = priority.findIndex((p) => {
        left -= p
        return left < 0
      })
      expect(drawn[i]).toBe(row)
      raw.push(((6 * priority[row]!) / 10.75) ** -0.7)
    }
    for (const [i, each] of raw.entries()) expect(weight[i]).toBeCloseTo(each / Math.max(...raw), 5)
    expect(new Set(weight).size).toBeGreaterThan(3)
  })
})

describe('bodies in C', () => {
  /** A sum tree of a few of its rows, whose priorities are far apart; and how many rows those are. */
  const treeOf = (numbers: Numbers) => {
    const leaves = 2 ** numbers.whole(0, 9)
    const tree = new Float64Array(2 * leaves)
    const numRows = numbers.whole(1, leaves)
    for (let row = 0; row < numRows; row++) tree[leaves + row] = Math.fround(10 ** numbers.uniform(-12, 6))
    for (let node = leaves - 1; node >= 1; node--) tree[node] = tree[2 * node]! + tree[2 * node + 1]!
    return { leaves, tree, numRows }
  }
  const exact = { relative: 0 }
  const edges = [0, Number.NaN, Number.POSITIVE_INFINITY, 1 - 1e-6, 1e-30]

  matches(
    'setPriorities',
    (numbers) => {
      const { leaves, tree } = treeOf(numbers)
      const count = numbers.whole(0, 40)
      const rows = Uint32Array.from({ length: count + 1 }, () => numbers.whole(0, leaves - 1))
      const priority = numbers.floats(count + 1, 0, 3).map((each) => (each < 0.5 ? 0 : each))
      return [tree, rows, priority, count]
    },
    exact,
  )

  matches(
    'drawByPriority',
    (numbers) => {
      const { tree, numRows } = treeOf(numbers)
      const count = numbers.whole(1, 70)
      const keys = [numbers.whole(0, 2 ** 32 - 1), numbers.whole(0, 2 ** 21 - 1)]
      const correction = numbers.whole(0, 3) === 0 ? 0 : numbers.uniform()
      const step = numbers.whole(0, 1e6)
      return [
        new Uint32Array(count),
        new Float32Array(count),
        tree,
        new Uint32Array(4),
        numRows,
        correction,
        count,
        step,
        ...keys,
      ]
    },
    { ...exact, workspace: [3] },
  )

  matches(
    'prioritiesOfErrors',
    (numbers) => {
      const count = numbers.whole(0, 40)
      const error = Float32Array.from({ length: count + 2 }, () =>
        numbers.whole(0, 15) === 0 ? edges[numbers.whole(0, edges.length - 1)]! : 10 ** numbers.uniform(-20, 30),
      )
      return [error, numbers.uniform(0, numbers.whole(0, 3) === 0 ? 12 : 1), numbers.uniform(0, 2), count]
    },
    exact,
  )
})

/** Two lanes, five steps in a ring whose newest step is the second. */
const ring = {
  reward: Float32Array.of(1, 2, 3, 5, 7, 11, 13, 17, 19, 23),
  terminated: Uint8Array.of(0, 0, 0, 0, 0, 1, 0, 0, 0, 0),
  truncated: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 1, 0),
  valid: Uint8Array.of(1, 1, 1, 1, 1, 1, 1, 0, 1, 1),
  lane: Uint32Array.of(4, 5, 4, 5, 4, 5, 4, 5, 4, 5),
}

test('rows can be drawn whose steps are there: up to an end, or with an observation behind them', () => {
  const rows = new Uint32Array(2)
  const listed = (from: number, replay = ring) => [
    ...rows.subarray(0, kernels.listReplayable(rows, replay, from, 2, 2, 10)),
  ]
  expect(listed(6)).toEqual([6]) // Row 7 is a dead step.
  expect(listed(8)).toEqual([8, 9])
  expect(listed(4)).toEqual([4, 5])
  // Nobody asks what comes after an episode that was cut off.
  expect(listed(8, { ...ring, valid: Uint8Array.of(0, 1, 1, 1, 1, 1, 1, 0, 1, 1) })).toEqual([8, 9])
  expect(listed(4, { ...ring, lane: Uint32Array.of(4, 5, 4, 5, 4, 5, 6, 5, 6, 5) })).toEqual([5]) // Somebody else is in its place.
})

test('returns of several steps end where the episode does, and say where a value is due', () => {
  const written = {
    return: new Float32Array(4),
    discount: new Float32Array(4),
    next: new Uint32Array(4),
    isFinal: new Uint8Array(4),
  }
  kernels.multiStepReturns(written, ring, Uint32Array.of(99, 4, 5, 6, 9), 1, 4, 0.5, 2, 2, 10)
  expect([...written.return]).toEqual([7 + 0.5 * 13, 11, 13 + 0.5 * 19, 23 + 0.5 * 2])
  expect([...written.discount]).toEqual([0.25, 0, 0.25, 0.25])
  expect([...written.next]).toEqual([8, 5, 8, 3])
  expect([...written.isFinal]).toEqual([0, 0, 1, 0])
  const [seen, last] = [Float32Array.from({ length: 20 }, (_, i) => i), new Float32Array(20).fill(-1)]
  const gathered = new Float32Array(8)
  kernels.gatherNext(gathered, seen, last, written, 4, 2)
  expect([...gathered]).toEqual([16, 17, 10, 11, -1, -1, 6, 7])
})

describe('action values', () => {
  const values = Float32Array.of(1, 5, 2, 7, -1e9, 7)

  test('the highest is taken, or a legal one at random, with its probability', () => {
    const [chosen, logprob, value] = [new Int32Array(3), new Float32Array(3), new Float32Array(3)]
    const choose = (draws: number[]) => {
      kernels.chooseByValue(chosen, logprob, value, values, Float32Array.from(draws), 0.25, 2, 3, 1)
      return [...chosen.subarray(1)]
    }
    expect(choose([0.25, 0, 0.9, 0])).toEqual([1, 0])
    expect([...value]).toEqual([0, 5, 7])
    expect(logprob[1]).toBeCloseTo(Math.log(0.75 + 0.25 / 3))
    expect(logprob[2]).toBeCloseTo(Math.log(0.75 + 0.25 / 2))
    expect(choose([0.2, 0.99, 0.2, 0.5])).toEqual([2, 2]) // Of the second row's two legal ones the second.
    expect(logprob[1]).toBeCloseTo(Math.log(0.25 / 3))
    expect(logprob[2]).toBeCloseTo(Math.log(0.25 / 2))
    expect(choose([0.2, 0.1, 0.2, 0.49])).toEqual([0, 0])
  })

  test('those that one network judges best are valued by another', () => {
    const best = new Float32Array(3)
    kernels.valueOfBest(best, values, Float32Array.of(3, 2, 1, 0, 0, 1), 2, 3, 1)
    expect([...best]).toEqual([0, 1, 7])
  })
})

test('the loss of an error is half its square, and grows in a straight line from a size on', () => {
  const [dValue, error, sums] = [new Float32Array(3), new Float32Array(3), new Float64Array(5)]
  const targets = {
    return: Float32Array.of(1, 2, 3),
    discount: Float32Array.of(0.5, 0, 0.5),
    nextValue: Float32Array.of(2, 99, -8),
    weight: Float32Array.of(1, 0.5, 0.25),
  }
  kernels.tdLoss(dValue, error, sums, Float32Array.of(1.5, 5, 2), targets, 2, 0.1, 3, 2)
  // Errors 0.5, −3 and −3: two are beyond 2.
  expect([...error]).toEqual([0.5, 3, 3])
  for (const [i, each] of [-0.05, 0.1, 0.05].entries()) expect(dValue[i]).toBeCloseTo(each, 6)
  expect(sums[2 + TdSum.tdLoss]).toBeCloseTo(0.125 + 0.5 * 4 + 0.25 * 4, 6)
  expect(sums[2 + TdSum.tdError]).toBe(6.5)
  expect(sums[2 + TdSum.actionValue]).toBe(8.5)
})

test.each([
  [
    'drawReplayNormal',
    (words: Uint32Array, k: number) => boxMuller(words[k - (k % 2)]!, words[k - (k % 2) + 1]!, k % 2),
  ],
  ['drawReplayUniform', (words: Uint32Array, k: number) => (words[k]! >>> 8) / 2 ** 24],
] as const)('%s: numbers of a minibatch are keyed by the row, its element and what they are for', (name, numberOf) => {
  const [numRows, width, first] = [3, 6, 5]
  const drawn = (use: number) => {
    const numbers = new Float32Array(numRows * width)
    kernels[name](numbers, new Uint32Array(4), 9, use, first, key0, key1, numRows, width)
    return numbers
  }
  const words = new Uint32Array(4)
  const expected = Array.from({ length: numRows * width }, (_, i) => {
    const [row, k] = [Math.floor(i / width), i % width]
    philox4x32(words, 2 * (first + row) + Math.floor(k / 4), 9, 1, Stream.replay, key0, key1)
    return Math.fround(numberOf(words, k % 4))
  })
  expect([...drawn(1)]).toEqual(expected)
  expect(new Set([...drawn(1), ...drawn(2)]).size).toBe(2 * numRows * width)
})

test('a log standard deviation at its bounds, or beyond them, is not moved', () => {
  const logStds = [-21, -20, -19.5, 0, 1.5, 2, 3]
  const outputs = Float32Array.from(logStds.flatMap((logStd) => [0, logStd]))
  const ones = new Float32Array(logStds.length).fill(0.5)
  const derivatives = new Float32Array(outputs.length)
  kernels.squashedBackward(derivatives, ones, ones, outputs, ones, 0.5, 1, logStds.length, 1)
  const isMoved = logStds.map((_, row) => derivatives[2 * row + 1] !== 0)
  expect(isMoved).toEqual([false, false, true, true, true, false, false])
})

test('what was seen next is gathered for as many rows as are said, and for no other', () => {
  const gathered = new Float32Array(6)
  const replayed = { next: Uint32Array.of(1, 0, 1), isFinal: Uint8Array.of(0, 1, 0) }
  const [seen, last] = [Float32Array.of(1, 2, 3, 4), Float32Array.of(5, 6, 7, 8)]
  kernels.gatherNext(gathered, seen, last, replayed, 2, 2)
  expect([...gathered]).toEqual([3, 4, 5, 6, 0, 0])
})
