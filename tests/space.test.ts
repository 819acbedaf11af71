import { describe, expect, test } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import {
  box,
  choiceSizes,
  dict,
  discrete,
  multiDiscrete,
  type Space,
  sideBySide,
  spaceToJson,
  spaceType,
  spaceWidth,
} from '../src/base/space.ts'
import * as fc from './support/properties.ts'

const INFINITY = Number.POSITIVE_INFINITY

describe('a discrete space', () => {
  test('takes one i32 and lists its one choice', () => {
    const space = discrete(5)
    expect(space).toEqual({ kind: 'discrete', n: 5 })
    expect([spaceWidth(space), spaceType(space), choiceSizes(space)]).toEqual([1, 'i32', [5]])
  })

  test.each([0, -1, 1.5, Number.NaN, INFINITY, '2'])('of %j choices is refused', (n) => {
    expect(() => discrete(n as number)).toThrow(InputError)
    expect(() => discrete(n as number)).toThrow(/^discrete\(n\): got .+, expected a whole number ≥ 1 and < 2\^31$/)
  })
})

describe('a multi-discrete space', () => {
  test('takes one i32 a choice', () => {
    const space = multiDiscrete([3, 1, 4])
    expect(space).toEqual({ kind: 'multi-discrete', sizes: [3, 1, 4] })
    expect([spaceWidth(space), spaceType(space), choiceSizes(space)]).toEqual([3, 'i32', [3, 1, 4]])
  })

  test('does not change with the list it was made of', () => {
    const sizes = [3, 2]
    const space = multiDiscrete(sizes)
    sizes[0] = 9
    expect(space.sizes).toEqual([3, 2])
  })

  test.each([[[]], [[2, 0]], [[2, 1.5]], [[-1]]])('of sizes %j is refused', (sizes) => {
    expect(() => multiDiscrete(sizes)).toThrow(InputError)
    expect(() => multiDiscrete(sizes)).toThrow(JSON.stringify(sizes))
  })
})

describe('a box', () => {
  test('takes its shape from the bounds where it is not given', () => {
    expect(box({ low: [-1, -8], high: [1, 8] })).toEqual({ kind: 'box', shape: [2], low: [-1, -8], high: [1, 8] })
    expect(box({ low: 0, high: [1, 2, 3] })).toEqual({ kind: 'box', shape: [3], low: [0, 0, 0], high: [1, 2, 3] })
    expect(box({ low: [0, 1], high: 1 })).toEqual({ kind: 'box', shape: [2], low: [0, 1], high: [1, 1] })
    expect(box({ low: -2, high: 2 })).toEqual({ kind: 'box', shape: [1], low: [-2], high: [2] })
  })

  test('of more elements than a row may have is refused before its bounds are written', () => {
    for (const shape of [[2 ** 24 + 1], [4096, 4096, 3], [2 ** 32], [1e9, 1e9]]) {
      const elements = shape.reduce((product, side) => product * side, 1)
      expect(() => box({ low: 0, high: 1, shape })).toThrow(
        `box shape: got ${JSON.stringify(shape)}, ${elements} elements, expected at most 16777216 elements`,
      )
    }
  })

  test('spreads one bound over its shape, whose product is its width', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 }), (shape) => {
        const space = box({ low: -INFINITY, high: 3, shape })
        const width = shape.reduce((product, side) => product * side, 1)
        expect(spaceWidth(space)).toBe(width)
        expect(space.low).toEqual(Array(width).fill(-INFINITY))
        expect(space.high).toEqual(Array(width).fill(3))
        expect(space.shape).toEqual(shape)
      }),
    )
  })

  test('is f32 and has no choices', () => {
    const space = box({ low: 0, high: 1 })
    expect([spaceType(space), choiceSizes(space)]).toEqual(['f32', []])
  })

  test('does not change with the arrays it was made of', () => {
    const low = [0, 0]
    const space = box({ low, high: 1 })
    low[0] = 1
    expect(space.low).toEqual([0, 0])
  })

  test('may have a single point for an element', () => {
    expect(box({ low: [1, 2], high: [1, 3] }).low).toEqual([1, 2])
  })

  test.each([
    ['no shape', { low: [], high: [] }, 'box shape: got [0], expected one or more whole numbers ≥ 1'],
    ['a side of 0', { low: 0, high: 1, shape: [2, 0] }, 'box shape: got [2,0], expected one or more whole numbers ≥ 1'],
    ['half a side', { low: 0, high: 1, shape: [2.5] }, 'box shape: got [2.5], expected one or more whole numbers ≥ 1'],
    ['too few bounds', { low: [0, 0], high: [1, 1, 1] }, 'box high: got 3 bounds, expected 2 (shape [2])'],
    [
      'bounds beside its shape',
      { low: [0], high: 1, shape: [2, 2] },
      'box low: got 1 bounds, expected 4 (shape [2,2])',
    ],
    [
      'crossed bounds',
      { low: [0, 2], high: [1, 1] },
      'box element 1: got low 2 and high 1, expected low ≤ high, neither NaN',
    ],
    ['a NaN', { low: Number.NaN, high: 1 }, 'box element 0: got low NaN and high 1, expected low ≤ high, neither NaN'],
  ])('with %s is refused', (_, bounds, message) => {
    expect(() => box(bounds)).toThrow(InputError)
    expect(() => box(bounds)).toThrow(message)
  })
})

describe('spaceToJson', () => {
  test('writes infinite bounds as words', () => {
    expect(spaceToJson(box({ low: [-INFINITY, 0], high: [1.5, INFINITY] }))).toBe(
      '{"kind":"box","shape":[2],"low":["-Infinity",0],"high":[1.5,"Infinity"]}',
    )
  })

  test('loses nothing: reading the words back gives the space', () => {
    const bound = fc.oneof(fc.double({ noNaN: true }), fc.constantFrom(INFINITY, -INFINITY))
    const boxes = fc.array(fc.tuple(bound, bound), { minLength: 1, maxLength: 6 }).map((pairs) => {
      const sorted = pairs.map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const)
      return box({ low: sorted.map(([low]) => low + 0), high: sorted.map(([, high]) => high + 0) })
    })
    const whole = fc.integer({ min: 1, max: 99 })
    const spaces: fc.Arbitrary<Space> = fc.oneof(
      whole.map(discrete),
      fc.array(whole, { minLength: 1, maxLength: 5 }).map(multiDiscrete),
      boxes,
    )
    const words: Record<string, number> = { Infinity: INFINITY, '-Infinity': -INFINITY }
    fc.assert(
      fc.property(spaces, (space) => {
        const read = JSON.parse(spaceToJson(space), (_, value) =>
          typeof value === 'string' ? (words[value] ?? value) : value,
        )
        expect(read).toEqual(space)
      }),
    )
  })
})

describe('a dict of spaces', () => {
  test('is a box that says where each part is, choices one-hot', () => {
    const inner = dict({ room: discrete(3), speed: box({ low: [-1, -8], high: [1, 8] }) })
    const space = dict({ left: inner, lamps: multiDiscrete([2, 2]) })
    expect(space.low).toEqual([0, 0, 0, -1, -8, 0, 0, 0, 0])
    expect(space.high).toEqual([1, 1, 1, 1, 8, 1, 1, 1, 1])
    expect(space.parts!.map(({ name, from, width }) => [name, from, width])).toEqual([
      ['left.room', 0, 3],
      ['left.speed', 3, 2],
      ['lamps', 5, 4],
    ])
    expect(JSON.parse(spaceToJson(space)).parts[2]).toEqual({
      ...{ name: 'lamps', from: 5, width: 4 },
      space: { kind: 'multi-discrete', sizes: [2, 2] },
    })
  })

  test('keeps the order in which its parts are listed, also where names are numbers', () => {
    const { parts } = sideBySide([
      ['10', discrete(2)],
      ['9', discrete(3)],
    ])
    expect(parts!.map(({ name, from }) => [name, from])).toEqual([
      ['10', 0],
      ['9', 2],
    ])
  })

  test('may have as many elements as a picture', () => {
    const space = dict({ picture: box({ low: 0, high: 1, shape: [400, 500] }), room: discrete(2) })
    expect([spaceWidth(space), space.parts![1]!.from]).toEqual([200002, 200000])
  })

  test('is refused without parts, of bytes, with a part for critics alone, and with a name twice', () => {
    expect(() => dict({})).toThrow('spaces of dict: got {}, expected one or more spaces by name')
    const bytes = box({ low: 0, high: 255, shape: [4], type: 'u8' })
    expect(() => dict({ screen: bytes })).toThrow('dict screen: got a box of bytes, expected a box of f32, or choices')
    const split = box({ low: 0, high: 1, shape: [4], criticOnly: 1 })
    expect(() => dict({ all: split })).toThrow(
      'dict all: got a box with a part for critics alone, expected a box of f32',
    )
    expect(() => dict({ a: dict({ b: discrete(2) }), 'a.b': discrete(3) })).toThrow(
      'spaces of dict: got two parts named a.b, expected a name for each',
    )
  })
})
