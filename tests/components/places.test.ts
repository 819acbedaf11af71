import { describe, expect, test } from 'vitest'
import { receiveColumns, sendColumns } from '../../src/components/places.ts'

describe('columns apart, in a message', () => {
  test('are the same ones beyond 4 GiB, which views in a message are not', () => {
    const apart = new SharedArrayBuffer(2 ** 32 + 2 ** 20) // Not touched, so it takes no memory.
    const near = new Int32Array(new SharedArrayBuffer(8))
    const far = {
      floats: new Float32Array(apart, 2 ** 32 + 64, 4),
      most: new Uint8Array(apart, 2 ** 30, 3 * 2 ** 30),
      deeper: { doubles: new Float64Array(apart, 2 ** 31, 2), none: null, list: [near], count: 3 },
    }
    far.floats[2] = 5
    far.deeper.doubles[1] = 7
    const { message, buffer } = structuredClone({ message: sendColumns({ ...far, near }, apart), buffer: apart })
    const { floats, most, deeper, near: same } = receiveColumns(message, buffer)
    expect(floats).toEqual(Float32Array.of(0, 0, 5, 0))
    expect(most).toHaveLength(3 * 2 ** 30)
    expect(deeper.doubles).toEqual(Float64Array.of(0, 7))
    expect([deeper.none, deeper.count]).toEqual([null, 3])
    floats[3] = 6
    same[1] = 8
    expect(far.floats[3]).toBe(6)
    expect(near[1]).toBe(8)
    expect(deeper.list[0]![1]).toBe(8)
  })

  test('stay views where nothing lies apart', () => {
    const column = Float32Array.of(1, 2)
    expect(receiveColumns(sendColumns({ column }, null), null).column).toBe(column)
  })
})
