import { describe, expect, test } from 'vitest'
import { narrowBf16, narrowF16, widenBf16, widenF16 } from '../src/base/half.ts'

const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits)
const formats = [
  ['f16', widenF16, narrowF16, { one: 0x3c00, largest: 0x7bff, infinite: 0x7c00, smallest: 2 ** -24 }],
  ['bf16', widenBf16, narrowBf16, { one: 0x3f80, largest: 0x7f7f, infinite: 0x7f80, smallest: 2 ** -133 }],
] as const

const bitsOf = (values: Float32Array) => new Uint32Array(values.buffer, values.byteOffset, values.length)

describe.each(formats)('%s', (_, widen, narrow, { one, largest, infinite, smallest }) => {
  test('has its landmarks where the standard puts them', () => {
    const got = widen(Uint16Array.of(0, 0x8000, one, one | 0x8000, 1, infinite, infinite | 0x8000, infinite + 1))
    expect([...got]).toEqual([0, -0, 1, -1, smallest, Infinity, -Infinity, Number.NaN])
  })

  test('widens and narrows every number to itself, and NaN to NaN', () => {
    const wide = widen(all)
    const back = narrow(wide)
    for (const bits of all) {
      if (Number.isNaN(wide[bits]!)) expect(back[bits]! & 0x7fff).toBeGreaterThan(infinite)
      else if (back[bits] !== bits) throw new Error(`${bits} became ${back[bits]}`)
    }
    expect(wide.filter(Number.isNaN).length).toBe(2 * (0x7fff - infinite))
  })

  test('takes the nearer of two neighbors, and in the middle the even one', () => {
    for (let bits = 0; bits < largest; bits++) {
      const [low, high] = widen(Uint16Array.of(bits, bits + 1)) as unknown as [number, number]
      const middle = Float32Array.of((low + high) / 2) // Has one bit more than its neighbors: exact.
      const [below, above] = [Float32Array.from(middle), Float32Array.from(middle)]
      bitsOf(below)[0]! -= 1
      bitsOf(above)[0]! += 1
      for (const sign of [1, -1]) {
        const got = narrow(Float32Array.of(sign * below[0]!, sign * middle[0]!, sign * above[0]!))
        const wanted = [bits, bits + (bits % 2), bits + 1].map((size) => size | (sign < 0 ? 0x8000 : 0))
        if (got.some((each, i) => each !== wanted[i])) throw new Error(`${got} beside ${wanted}`)
      }
    }
  })

  test('becomes infinite from half a step above the largest number on, and 0 up to half the smallest', () => {
    const [before, last] = widen(Uint16Array.of(largest - 1, largest)) as unknown as [number, number]
    const edge = Float32Array.of(last + (last - before) / 2)
    const under = Float32Array.from(edge)
    bitsOf(under)[0]! -= 1
    expect([...narrow(Float32Array.of(under[0]!, edge[0]!, -edge[0]!, 3.4028234663852886e38))]).toEqual([
      ...[largest, infinite, infinite | 0x8000, infinite],
    ])
    const half = smallest / 2
    expect([...narrow(Float32Array.of(half, -half, half * 1.001, 2 ** -149))]).toEqual([0, 0x8000, 1, 0])
  })
})
