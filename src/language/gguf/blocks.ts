/** How a GGUF file's tensors hold their elements: in f32, f16, bf16, or in blocks of few bits with a scale (llama.cpp, `ggml-common.h`). */
import { widenBf16, widenF16 } from '../../base/half.ts'

interface BlockType {
  readonly name: string
  /** Elements of a block, and its bytes. */
  readonly elements: number
  readonly bytes: number
  /** The elements of whole blocks, in f32, with llama.cpp's roundings. */
  read(bytes: Uint8Array): Float32Array
}

const { fround } = Math

/** The number in f16 that each block has at its byte `at`. */
function halves(bytes: Uint8Array, blockBytes: number, at: number): Float32Array {
  const count = bytes.length / blockBytes
  const bits = Uint16Array.from({ length: count }, (_, block) => {
    const from = block * blockBytes + at
    return bytes[from]! | (bytes[from + 1]! << 8)
  })
  return widenF16(bits)
}

/** A copy, since the elements of a file are not at multiples of their size. */
const aligned = (bytes: Uint8Array): ArrayBuffer => bytes.slice().buffer

function readQ8(bytes: Uint8Array): Float32Array {
  const scales = halves(bytes, 34, 0)
  const out = new Float32Array(scales.length * 32)
  scales.forEach((scale, block) => {
    for (let i = 0; i < 32; i++) out[block * 32 + i] = scale * ((bytes[block * 34 + 2 + i]! << 24) >> 24)
  })
  return out
}

function readQ4(bytes: Uint8Array): Float32Array {
  const scales = halves(bytes, 18, 0)
  const out = new Float32Array(scales.length * 32)
  scales.forEach((scale, block) => {
    for (let i = 0; i < 16; i++) {
      const pair = bytes[block * 18 + 2 + i]!
      out[block * 32 + i] = scale * ((pair & 15) - 8)
      out[block * 32 + 16 + i] = scale * ((pair >> 4) - 8)
    }
  })
  return out
}

/** Eight parts of 32 elements, each with a scale and a minimum of 6 bits, in 12 bytes. */
function readQ4K(bytes: Uint8Array): Float32Array {
  const [scales, minima] = [halves(bytes, 144, 0), halves(bytes, 144, 2)]
  const out = new Float32Array(scales.length * 256)
  for (let block = 0; block < scales.length; block++) {
    const at = block * 144 + 4
    for (let part = 0; part < 8; part++) {
      const [low, high, top] = [bytes[at + part]!, bytes[at + part + 4]!, bytes[at + part - 4]!]
      const scale = part < 4 ? low & 63 : (high & 15) | ((top >> 6) << 4)
      const minimum = part < 4 ? high & 63 : (high >> 4) | ((low >> 6) << 4)
      const by = fround(scales[block]! * scale)
      const less = fround(minima[block]! * minimum)
      const from = at + 12 + (part >> 1) * 32
      for (let i = 0; i < 32; i++) {
        const value = part % 2 === 0 ? bytes[from + i]! & 15 : bytes[from + i]! >> 4
        out[block * 256 + part * 32 + i] = fround(by * value) - less
      }
    }
  }
  return out
}

/** Sixteen parts of 16 elements with a scale of 8 bits; the lower 4 bits of elements first, then the upper 2. */
function readQ6K(bytes: Uint8Array): Float32Array {
  const scales = halves(bytes, 210, 208)
  const out = new Float32Array(scales.length * 256)
  for (let block = 0; block < scales.length; block++) {
    const at = block * 210
    for (let i = 0; i < 256; i++) {
      const [half, quarter, place] = [i >> 7, (i >> 5) & 3, i & 31]
      const low = bytes[at + half * 64 + (quarter & 1) * 32 + place]!
      const high = bytes[at + 128 + half * 32 + place]!
      const value = ((quarter < 2 ? low & 15 : low >> 4) | (((high >> (2 * quarter)) & 3) << 4)) - 32
      const scale = (bytes[at + 192 + (i >> 4)]! << 24) >> 24
      out[block * 256 + i] = fround(scales[block]! * scale) * value
    }
  }
  return out
}

/** By the format's numbers. */
export const BLOCK_TYPES: Readonly<Record<number, BlockType>> = {
  0: { name: 'F32', elements: 1, bytes: 4, read: (bytes) => new Float32Array(aligned(bytes)) },
  1: { name: 'F16', elements: 1, bytes: 2, read: (bytes) => widenF16(new Uint16Array(aligned(bytes))) },
  2: { name: 'Q4_0', elements: 32, bytes: 18, read: readQ4 },
  8: { name: 'Q8_0', elements: 32, bytes: 34, read: readQ8 },
  12: { name: 'Q4_K', elements: 256, bytes: 144, read: readQ4K },
  14: { name: 'Q6_K', elements: 256, bytes: 210, read: readQ6K },
  30: { name: 'BF16', elements: 1, bytes: 2, read: (bytes) => widenBf16(new Uint16Array(aligned(bytes))) },
}
