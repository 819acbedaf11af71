import { describe, expect, test } from 'vitest'
import { philox4x32, Stream, unitFromWord } from '../../src/base/random.ts'
import { dropElements as dropBody, scaleElements as scaleBody } from '../../src/kernels/transformer/adapter.ts'
import { Numbers, strict } from './calls.ts'

const [dropElements, scaleElements] = [strict(dropBody), strict(scaleBody)]

test('scaleElements scales the elements that it is told of', () => {
  const x = Float32Array.of(1, -2, 3, 4)
  scaleElements(x, 0.5, 3)
  expect([...x]).toEqual([0.5, -1, 1.5, 4])
})

describe('dropElements', () => {
  const numRows = 3
  const sequence = Uint32Array.of(7, 7, 2)
  const position = Int32Array.of(0, 4, 4)

  function drop(x: Float32Array, width: number, rate: number, place: number, seed = 1, accumulate = false) {
    const out = new Float32Array(x.length).fill(10)
    const words = new Uint32Array(4)
    dropElements(out, x, words, sequence, position, rate, place, seed, 5, numRows, width, accumulate)
    return out
  }

  test.each([1, 4, 6, 9])(
    'keeps by the words of the sequence, the position, the place and the element, width %i',
    (width) => {
      const x = new Numbers(width).floats(numRows * width, 0.5, 1)
      const words = new Uint32Array(4)
      for (const [rate, place] of [
        [0.3, 0],
        [0.6, 5],
      ] as const) {
        const wanted = x.map((value, i) => {
          const [row, k] = [Math.floor(i / width), i % width]
          const block = place * Math.ceil(width / 4) + Math.floor(k / 4)
          philox4x32(words, block, position[row]!, sequence[row]!, Stream.dropout, 1, 5)
          return unitFromWord(words[k % 4]!) < rate ? 0 : value / (1 - rate)
        })
        const got = drop(x, width, rate, place)
        for (const [i, value] of wanted.entries()) expect(got[i]).toBeCloseTo(value, 6)
        const added = drop(x, width, rate, place, 1, true)
        for (const [i, value] of wanted.entries()) expect(added[i]).toBeCloseTo(10 + value, 5)
      }
    },
  )

  test('drops as many as the rate says, others for another place or key, and keeps the mean', () => {
    const x = new Float32Array(numRows * 4000).fill(1)
    const first = drop(x, 4000, 0.25, 0)
    const share = first.filter((value) => value === 0).length / x.length
    // 12,000 draws: five deviations are 0.02.
    expect(Math.abs(share - 0.25)).toBeLessThan(0.02)
    expect(new Set(first)).toEqual(new Set([0, Math.fround(1 / 0.75)]))
    expect(drop(x, 4000, 0.25, 0)).toEqual(first)
    expect(drop(x, 4000, 0.25, 1)).not.toEqual(first)
    expect(drop(x, 4000, 0.25, 0, 2)).not.toEqual(first)
    expect(drop(x, 4000, 0, 0)).toEqual(x)
  })
})
