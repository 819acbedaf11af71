/** Animated GIF files of pictures (GIF89a; Welch, "A Technique for High-Performance Data Compression", 1984). */
import { checkGiven, InputError } from '../base/errors.ts'
import { type Picture, pictureColors } from './picture.ts'

/** The palette has 16 colors: 4 bits per pixel. */
const BITS = 4
const CODES_MAX = 4096

/**
 * Encodes pictures as an animated GIF that repeats forever, with `delayMs` milliseconds per picture (in steps of 10). A field has
 * `fieldPixels` pixels per side; default: at most 16, chosen for a picture of about 480 pixels.
 * @throws InputError for an empty list, and for pictures of different sizes.
 */
export function encodeGif(
  pictures: readonly Picture[],
  { delayMs = 100, fieldPixels }: { delayMs?: number; fieldPixels?: number } = {},
): Uint8Array {
  checkGiven('pictures of encodeGif', pictures, 'a list')
  const [first] = pictures
  if (first === undefined) throw new InputError('pictures', 'none', 'at least one')
  const { rows, columns } = first
  const wrong = pictures.find((picture) => picture.rows !== rows || picture.columns !== columns)
  if (wrong !== undefined) {
    throw new InputError('pictures', `${wrong.rows} × ${wrong.columns} fields`, `${rows} × ${columns}, like the first`)
  }
  const size = fieldPixels ?? Math.min(16, Math.max(1, Math.floor(480 / Math.max(rows, columns))))
  const [width, height] = [columns * size, rows * size]
  const bytes: number[] = []
  const word = (value: number) => bytes.push(value & 255, value >> 8)
  const text = (value: string) => bytes.push(...Buffer.from(value, 'latin1'))
  text('GIF89a')
  word(width)
  word(height)
  bytes.push(0x80 | ((BITS - 1) << 4) | (BITS - 1), 0, 0)
  for (const color of pictureColors) bytes.push(...color)
  bytes.push(0x21, 0xff, 11)
  text('NETSCAPE2.0')
  bytes.push(3, 1, 0, 0, 0) // Repeat forever.
  for (const { fields } of pictures) {
    bytes.push(0x21, 0xf9, 4, 0)
    word(Math.round(delayMs / 10))
    bytes.push(0, 0, 0x2c, 0, 0, 0, 0)
    word(width)
    word(height)
    bytes.push(0, BITS)
    const pixels = new Uint8Array(width * height)
    for (let y = 0; y < height; y++) {
      const row = Math.floor(y / size) * columns
      for (let x = 0; x < width; x++) pixels[y * width + x] = fields[row + Math.floor(x / size)]!
    }
    const packed = compress(pixels)
    for (let from = 0; from < packed.length; from += 255) {
      const block = packed.slice(from, from + 255)
      bytes.push(block.length, ...block)
    }
    bytes.push(0)
  }
  bytes.push(0x3b)
  return Uint8Array.from(bytes)
}

/** Encodes the pixels in codes of growing width, packed from the lowest bit. */
function compress(pixels: Uint8Array): number[] {
  const clear = 1 << BITS
  const packed: number[] = []
  let held = 0
  let numHeld = 0
  let width = BITS + 1
  /** The code of a known code followed by a pixel, at `code * 16 + pixel`; 0 if there is none. */
  const longer = new Uint16Array(CODES_MAX << BITS)
  let next = clear + 2
  const put = (code: number) => {
    held |= code << numHeld
    numHeld += width
    for (; numHeld >= 8; numHeld -= 8, held >>= 8) packed.push(held & 255)
    if (next === 1 << width && next < CODES_MAX) width++ // A decoder is one code behind.
  }
  put(clear)
  let code = pixels[0]!
  for (let i = 1; i < pixels.length; i++) {
    const pixel = pixels[i]!
    const place = (code << BITS) | pixel
    if (longer[place] !== 0) {
      code = longer[place]!
      continue
    }
    put(code)
    if (next < CODES_MAX) longer[place] = next++
    else {
      put(clear)
      longer.fill(0)
      next = clear + 2
      width = BITS + 1
    }
    code = pixel
  }
  put(code)
  put(clear + 1)
  if (numHeld > 0) packed.push(held & 255)
  return packed
}
