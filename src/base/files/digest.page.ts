/** The body of `digest.ts` in a page: SHA-256 as in FIPS 180-4, section 6.2. */
import type * as node from './digest.ts'

/** The first 32 bits of the fractional parts of cube roots, and of square roots, of the first primes (sections 4.2.2, 5.3.3). */
const [ROUNDS, START] = constants()

function constants(): [Uint32Array, Uint32Array] {
  const primes: number[] = []
  for (let n = 2; primes.length < 64; n++) if (primes.every((prime) => n % prime !== 0)) primes.push(n)
  const bits = (root: number) => Math.floor((root - Math.floor(root)) * 2 ** 32)
  return [
    Uint32Array.from(primes, (n) => bits(Math.cbrt(n))),
    Uint32Array.from(primes.slice(0, 8), (n) => bits(Math.sqrt(n))),
  ]
}

const BLOCK = 64

export const sha256: typeof node.sha256 = () => {
  const state = START.slice()
  const words = new Uint32Array(64)
  const block = new Uint8Array(BLOCK)
  const view = new DataView(block.buffer)
  let filled = 0
  let length = 0

  const compress = (): void => {
    for (let i = 0; i < 16; i++) words[i] = view.getUint32(4 * i)
    for (let i = 16; i < 64; i++) {
      const [a, b] = [words[i - 15]!, words[i - 2]!]
      const s0 = turned(a, 7) ^ turned(a, 18) ^ (a >>> 3)
      const s1 = turned(b, 17) ^ turned(b, 19) ^ (b >>> 10)
      words[i] = words[i - 16]! + s0 + words[i - 7]! + s1
    }
    let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number]
    for (let i = 0; i < 64; i++) {
      const chosen = (e & f) ^ (~e & g)
      const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + chosen + ROUNDS[i]! + words[i]!) | 0
      const most = (a & b) ^ (a & c) ^ (b & c)
      const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + most) | 0
      h = g
      g = f
      f = e
      e = (d + one) | 0
      d = c
      c = b
      b = a
      a = (one + two) | 0
    }
    for (const [i, value] of [a, b, c, d, e, f, g, h].entries()) state[i] = state[i]! + value
  }

  const add = (bytes: Uint8Array): void => {
    for (let at = 0; at < bytes.byteLength; ) {
      const count = Math.min(BLOCK - filled, bytes.byteLength - at)
      block.set(bytes.subarray(at, at + count), filled)
      at += count
      filled += count
      if (filled < BLOCK) return
      compress()
      filled = 0
    }
  }

  const digest: node.Digest = {
    update(piece) {
      const bytes = typeof piece === 'string' ? new TextEncoder().encode(piece) : piece
      length += bytes.byteLength
      add(bytes)
      return digest
    },
    hex() {
      const end = new Uint8Array(BLOCK - ((filled + 8) % BLOCK) + 8)
      end[0] = 0x80
      new DataView(end.buffer).setBigUint64(end.byteLength - 8, BigInt(length) * 8n)
      add(end)
      return [...state].map((word) => word.toString(16).padStart(8, '0')).join('')
    },
  }
  return digest
}

function turned(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits))
}
