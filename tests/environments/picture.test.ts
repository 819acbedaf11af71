import { describe, expect, test } from 'vitest'
import { box, discrete } from '../../src/base/space.ts'
import { encodeGif } from '../../src/environments/gif.ts'
import { gridPicture, isGrid, type Picture, pictureColors } from '../../src/environments/picture.ts'

/** Reads an animated GIF, as the standard says it is read: pixels of each frame, and the delays in milliseconds. */
function decodeGif(file: Uint8Array) {
  const word = (at: number) => file[at]! + 256 * file[at + 1]!
  expect(Buffer.from(file.subarray(0, 6)).toString()).toBe('GIF89a')
  const [width, height] = [word(6), word(8)]
  const numColors = 2 << (file[10]! & 7)
  const palette = Array.from({ length: numColors }, (_, i) => [...file.subarray(13 + 3 * i, 16 + 3 * i)])
  const [frames, delays]: [number[][], number[]] = [[], []]
  const blocks = (at: number): [number[], number] => {
    const bytes: number[] = []
    while (file[at] !== 0) {
      bytes.push(...file.subarray(at + 1, at + 1 + file[at]!))
      at += 1 + file[at]!
    }
    return [bytes, at + 1]
  }
  let at = 13 + 3 * numColors
  while (file[at] !== 0x3b) {
    if (file[at] === 0x21) {
      if (file[at + 1] === 0xf9) delays.push(10 * word(at + 4))
      at = blocks(at + 2)[1]
      continue
    }
    expect([file[at], word(at + 5), word(at + 7)]).toEqual([0x2c, width, height])
    const [bytes, next] = blocks(at + 11)
    frames.push(unpack(bytes, file[at + 10]!))
    at = next
  }
  expect(at).toBe(file.length - 1)
  return { width, height, palette, frames, delays }
}

function unpack(bytes: readonly number[], bits: number): number[] {
  const bitAt = (place: number) => (bytes[place >> 3]! >> (place & 7)) & 1
  const pixels: number[] = []
  let [place, width] = [0, bits + 1]
  let known: number[][] = []
  let before: number[] | null = null
  for (;;) {
    let code = 0
    for (let k = 0; k < width; k++) code |= bitAt(place + k) << k
    place += width
    if (code === (1 << bits) + 1) return pixels
    if (code === 1 << bits) {
      known = Array.from({ length: (1 << bits) + 2 }, (_, i) => [i])
      width = bits + 1
      before = null
      continue
    }
    const run: number[] = known[code] ?? [...before!, before![0]!]
    if (before !== null && known.length < 4096) known.push([...before, run[0]!])
    pixels.push(...run)
    before = run
    if (known.length === 1 << width && width < 12) width++
  }
}

/** A picture whose fields repeat little, so that many codes are made. */
function noise(rows: number, columns: number, seed: number): Picture {
  let word = seed
  const fields = Uint8Array.from({ length: rows * columns }, () => {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0
    return word >>> 28
  })
  return { rows, columns, fields }
}

describe('a GIF', () => {
  test.each([
    [1, 1, 1],
    [3, 5, 4],
    [10, 10, 16],
    [120, 130, 1], // More than 4,096 codes.
  ])('of %d × %d fields, %d pixels each, is read back pixel by pixel', (rows, columns, fieldPixels) => {
    const pictures = [1, 2, 3].map((seed) => noise(rows, columns, seed))
    const { width, height, palette, frames, delays } = decodeGif(encodeGif(pictures, { fieldPixels, delayMs: 70 }))
    expect([width, height]).toEqual([columns * fieldPixels, rows * fieldPixels])
    expect(palette).toEqual(pictureColors)
    expect(delays).toEqual([70, 70, 70])
    for (const [i, { fields }] of pictures.entries()) {
      const wanted = Array.from({ length: width * height }, (_, at) => {
        const [x, y] = [at % width, Math.floor(at / width)].map((value) => Math.floor(value / fieldPixels))
        return fields[y! * columns + x!]
      })
      expect(frames[i]).toEqual(wanted)
    }
  })

  test('of pictures that differ in size, or of none, is refused', () => {
    const pictures = [noise(2, 3, 1), noise(3, 2, 1)]
    expect(() => encodeGif(pictures)).toThrow('pictures: got 3 × 2 fields, expected 2 × 3, like the first')
    expect(() => encodeGif([])).toThrow('pictures: got none, expected at least one')
  })
})

describe('a picture of a grid', () => {
  const space = box({ low: 0, high: 1, shape: [2, 2, 3] })

  test('has of each field the first channel that is set', () => {
    const { rows, columns, fields } = gridPicture(space, Float32Array.of(1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1))
    expect([rows, columns]).toEqual([2, 2])
    expect([...fields]).toEqual([1, 0, 2, 3])
  })

  test('leaves out a channel that is set everywhere', () => {
    expect([...gridPicture(space, Float32Array.of(1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1)).fields]).toEqual([1, 0, 2, 0])
  })

  test('is refused where observations are none, or not of the space', () => {
    const flat = box({ low: 0, high: 1, shape: [4] })
    expect(() => gridPicture(flat, new Float32Array(4))).toThrow(/observationSpace: got .+, expected a grid/)
    expect(() => gridPicture(discrete(3), new Float32Array(3))).toThrow(/observationSpace: got .+, expected a grid/)
    expect(() => gridPicture(space, new Float32Array(11))).toThrow('got 11 numbers, expected 12')
  })
})

test('a grid that can be drawn has rows, columns and at most 15 channels', () => {
  expect(isGrid(box({ low: 0, high: 1, shape: [4, 5, 15] }))).toBe(true)
  for (const space of [
    box({ low: 0, high: 1, shape: [4, 5, 16] }),
    box({ low: 0, high: 1, shape: [4, 5] }),
    discrete(4),
  ]) {
    expect(isGrid(space)).toBe(false)
    expect(() => gridPicture(space, new Float32Array(20))).toThrow(/expected a grid/)
  }
})
