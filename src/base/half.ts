/**
 * Sixteen-bit floats, as bits in a Uint16Array: IEEE 754's binary16 (f16: 5 bits of exponent, 10 of fraction) and
 * bfloat16 (bf16: the upper half of an f32). Widening to f32 is exact; narrowing rounds to the nearest, ties to even.
 * Too large numbers become infinite; NaN stays NaN.
 */

/** Converts bf16 to f32. */
export function widenBf16(bits: Uint16Array): Float32Array<ArrayBuffer> {
  const wide = new Uint32Array(bits.length)
  for (let i = 0; i < bits.length; i++) wide[i] = bits[i]! << 16
  return new Float32Array(wide.buffer)
}

/** Rounds f32 to bf16. */
export function narrowBf16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const wide = bitsOf(values)
  const bits = new Uint16Array(values.length)
  for (let i = 0; i < bits.length; i++) {
    const x = wide[i]!
    const isNotANumber = (x & 0x7fffffff) > 0x7f800000
    bits[i] = isNotANumber ? (x >>> 16) | 0x40 : (x + 0x7fff + ((x >>> 16) & 1)) >>> 16
  }
  return bits
}

/** Converts f16 to f32. */
export function widenF16(bits: Uint16Array): Float32Array<ArrayBuffer> {
  const wide = new Uint32Array(bits.length)
  const values = new Float32Array(wide.buffer)
  for (let i = 0; i < bits.length; i++) {
    const sign = (bits[i]! & 0x8000) << 16
    const exponent = (bits[i]! >>> 10) & 0x1f
    const fraction = bits[i]! & 0x3ff
    if (exponent === 0) values[i] = (sign < 0 ? -1 : 1) * fraction * 2 ** -24
    else wide[i] = sign | ((exponent === 31 ? 255 : exponent + 112) << 23) | (fraction << 13)
  }
  return values
}

/** Rounds f32 to f16. */
export function narrowF16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const wide = bitsOf(values)
  const bits = new Uint16Array(values.length)
  for (let i = 0; i < bits.length; i++) {
    const sign = (wide[i]! >>> 16) & 0x8000
    bits[i] = sign | narrowSize(wide[i]! & 0x7fffffff, Math.abs(values[i]!))
  }
  return bits
}

/** The f16 of a number ≥ 0 from its f32 bits and its value. */
function narrowSize(x: number, value: number): number {
  if (x > 0x7f800000) return 0x7e00 // NaN.
  if (value >= 65536) return 0x7c00 // Numbers that round up to 65536 carry into the exponent of infinity below.
  if (value >= 2 ** -14) {
    const rebased = x - (112 << 23) // The bias of the exponent is 127 in f32 and 15 in f16.
    return (rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13
  }
  const scaled = value * 2 ** 24 // Subnormal: multiples of 2⁻²⁴.
  const below = Math.floor(scaled)
  const rest = scaled - below
  return below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0)
}

function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length)
}
