/**
 * The wire format of protocol buffers (protobuf.dev, "Encoding"), for ONNX, TensorBoard's files and Tinker's protocol.
 * A message is a list of fields. A field is its number and kind in a varint, then a varint, a 32- or 64-bit number, or
 * a length and its bytes. Writers also write fields that are 0 or empty; the caller leaves them out.
 */
import { joined } from '../bytes.ts'

/** The bytes of zero or more fields in pieces, which `messageOf` joins. */
export type Field = readonly Uint8Array[]

export function messageOf(fields: readonly Field[]): Uint8Array {
  return joined(fields.flat())
}

const VARINT = 0
const DOUBLE = 1
const BYTES = 2
const FLOAT = 5

/** A field with an integer ≥ 0, or −1, which takes ten bytes like every negative number. */
export function numberField(number: number, value: number): Field {
  return [varint((number << 3) | VARINT), varint(value)]
}

/** A field with a text, bytes, or a message as the bytes of its fields. */
export function bytesField(number: number, value: string | Uint8Array | readonly Field[]): Field {
  const parts =
    typeof value === 'string' ? [new TextEncoder().encode(value)] : value instanceof Uint8Array ? [value] : value.flat()
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return [varint((number << 3) | BYTES), varint(length), ...parts]
}

/** A field with a 64-bit float. */
export function doubleField(number: number, value: number): Field {
  const bytes = new Uint8Array(8)
  new DataView(bytes.buffer).setFloat64(0, value, true)
  return [varint((number << 3) | DOUBLE), bytes]
}

/** A field with a 32-bit float. */
export function floatField(number: number, value: number): Field {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setFloat32(0, value, true)
  return [varint((number << 3) | FLOAT), bytes]
}

/** A field with a list of 64-bit floats. */
export function doublesField(number: number, values: Float64Array): Field {
  const bytes = new Uint8Array(8 * values.length)
  const view = new DataView(bytes.buffer)
  for (const [i, value] of values.entries()) view.setFloat64(8 * i, value, true)
  return bytesField(number, bytes)
}

/** The fields of a map: an entry per key, sorted, so that equal maps have equal bytes. Field 2 has the value. */
export function mapFields<T>(
  number: number,
  values: Readonly<Record<string, T>>,
  valueField: (value: T) => Field,
): Field[] {
  const keys = Object.keys(values).sort()
  return keys.map((key) => bytesField(number, [bytesField(1, key), valueField(values[key]!)]))
}

/** An integer as in `numberField`: seven bits per byte, lowest first, the eighth if more follow. @throws RangeError */
export function varint(value: number): Uint8Array {
  if (value === -1) return Uint8Array.of(...Array(9).fill(0xff), 1)
  if (!(Number.isSafeInteger(value) && value >= 0)) throw new RangeError(`got ${value}, expected a whole number ≥ 0`)
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) + 0x80)
  return Uint8Array.of(...bytes, rest)
}

/** The fields of a message by number, each with all its values in order. */
export class ProtoReader {
  readonly #fields = new Map<number, (number | Uint8Array)[]>()

  /** @throws Error for bytes that are not a message. */
  constructor(bytes: Uint8Array) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    let at = 0
    const take = (length: number) => {
      if (length < 0) throw new Error(`got ${length} bytes at ${at}, expected a message`)
      if (at + length > bytes.length) throw new Error(`got ${bytes.length} bytes, expected ${at + length} of a message`)
      at += length
      return at - length
    }
    const takeWhole = () => {
      const whole = wholeAt(bytes, at)
      at = whole.end
      return whole.value
    }
    while (at < bytes.length) {
      const key = takeWhole()
      const [field, wire] = [Math.floor(key / 8), key % 8]
      let value: number | Uint8Array
      if (wire === VARINT) value = takeWhole()
      else if (wire === DOUBLE) value = view.getFloat64(take(8), true)
      else if (wire === FLOAT) value = view.getFloat32(take(4), true)
      else if (wire === BYTES) {
        const length = takeWhole()
        const from = take(length)
        value = bytes.subarray(from, from + length)
      } else throw new Error(`got a field of kind ${wire}, expected a message`)
      const all = this.#fields.get(field)
      if (all === undefined) this.#fields.set(field, [value])
      else all.push(value)
    }
  }

  has(field: number): boolean {
    return this.#fields.has(field)
  }

  /** A number; 0 if absent. Integers are signed; those beyond ±2^53 are rounded. @throws Error for bytes. */
  number(field: number): number {
    const value = this.#fields.get(field)?.at(-1) ?? 0
    if (typeof value !== 'number') throw new Error(`got ${value.length} bytes in field ${field}, expected a number`)
    return value
  }

  /** Bytes; none if absent. @throws Error for a number. */
  bytes(field: number): Uint8Array {
    return bytesIn(field, this.#fields.get(field)?.at(-1) ?? new Uint8Array(0))
  }

  text(field: number): string {
    return new TextDecoder().decode(this.bytes(field))
  }

  /** A list of messages; empty if absent. @throws Error for numbers, and for bytes that are not a message. */
  messages(field: number): ProtoReader[] {
    return (this.#fields.get(field) ?? []).map((value) => new ProtoReader(bytesIn(field, value)))
  }

  /** A packed list of integers. */
  wholes(field: number): number[] {
    const bytes = this.bytes(field)
    const values: number[] = []
    for (let at = 0; at < bytes.length; ) {
      const { value, end } = wholeAt(bytes, at)
      values.push(value)
      at = end
    }
    return values
  }

  /** A map: each key with its entry, whose field 2 has the value. */
  entries(field: number): [string, ProtoReader][] {
    return this.messages(field).map((entry) => [entry.text(1), entry])
  }
}

function wholeAt(bytes: Uint8Array, from: number): { value: number; end: number } {
  let value = 0n
  for (let [at, bits] = [from, 0n]; ; at++, bits += 7n) {
    const byte = bytes[at]
    if (byte === undefined) throw new Error(`got ${bytes.length} bytes, expected ${at + 1} of a message`)
    value |= BigInt(byte & 0x7f) << bits
    if (byte < 0x80) return { value: Number(BigInt.asIntN(64, value)), end: at + 1 }
    if (bits === 63n) throw new Error(`got a number of more than ten bytes at ${at + 1}, expected a message`)
  }
}

function bytesIn(field: number, value: number | Uint8Array): Uint8Array {
  if (typeof value === 'number') throw new Error(`got the number ${value} in field ${field}, expected bytes`)
  return value
}
