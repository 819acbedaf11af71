/**
 * The wire format of protocol buffers (protobuf.dev, "Encoding"), as far as ONNX, TensorBoard's files and Tinker's protocol need it: a
 * message is a list of fields, a field its number and kind in a varint, and then a varint, a number of 32 or 64 bits, or a length and
 * so many bytes. Fields are written where they are 0 or empty, too; a writer leaves out what it must not write.
 */

/** The bytes of one field, of several, or of none, in pieces, which `messageOf` puts together. */
export type Field = readonly Uint8Array[]

/** A message's bytes. */
export function messageOf(fields: readonly Field[]): Uint8Array {
  return Buffer.concat(fields.flat())
}

const VARINT = 0
const DOUBLE = 1
const BYTES = 2
const FLOAT = 5

/** A field with a whole number ≥ 0, or −1, which takes ten bytes as every negative number does. */
export function numberField(number: number, value: number): Field {
  return [varint((number << 3) | VARINT), varint(value)]
}

/** A field with a text or bytes, or with a message, which is the bytes of its fields. */
export function bytesField(number: number, value: string | Uint8Array | readonly Field[]): Field {
  const parts = typeof value === 'string' ? [Buffer.from(value)] : value instanceof Uint8Array ? [value] : value.flat()
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return [varint((number << 3) | BYTES), varint(length), ...parts]
}

/** A field with a number of 64 bits. */
export function doubleField(number: number, value: number): Field {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return [varint((number << 3) | DOUBLE), bytes]
}

/** A field with a number of 32 bits. */
export function floatField(number: number, value: number): Field {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(value)
  return [varint((number << 3) | FLOAT), bytes]
}

/** A field with a list of numbers of 64 bits. */
export function doublesField(number: number, values: Float64Array): Field {
  const bytes = Buffer.alloc(8 * values.length)
  for (const [i, value] of values.entries()) bytes.writeDoubleLE(value, 8 * i)
  return bytesField(number, bytes)
}

/** The fields of a map: an entry for each key, in the order of the keys, so that equal maps have equal bytes. The value is field 2 of its entry. */
export function mapFields<T>(
  number: number,
  values: Readonly<Record<string, T>>,
  valueField: (value: T) => Field,
): Field[] {
  const keys = Object.keys(values).sort()
  return keys.map((key) => bytesField(number, [bytesField(1, key), valueField(values[key]!)]))
}

/**
 * A whole number, as `numberField` has it: seven bits a byte, the lowest first; the eighth says that more follow.
 * @throws RangeError for another number.
 */
export function varint(value: number): Uint8Array {
  if (value === -1) return Uint8Array.of(...Array(9).fill(0xff), 1)
  if (!(Number.isSafeInteger(value) && value >= 0)) throw new RangeError(`got ${value}, expected a whole number ≥ 0`)
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) + 0x80)
  return Uint8Array.of(...bytes, rest)
}

/** The fields of a message by their numbers: each with all of its values, in their order. */
export class ProtoReader {
  readonly #fields = new Map<number, (number | Uint8Array)[]>()

  /** @throws Error for bytes that are no message. */
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
      let value = 0n
      for (let bits = 0n; ; bits += 7n) {
        const byte = bytes[take(1)]!
        value |= BigInt(byte & 0x7f) << bits
        if (byte < 0x80) return Number(BigInt.asIntN(64, value))
        if (bits === 63n) throw new Error(`got a number of more than ten bytes at ${at}, expected a message`)
      }
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

  /** A number, 0 where it was not written. Whole numbers have a sign; those beyond ±2^53 are rounded. @throws Error for bytes. */
  number(field: number): number {
    const value = this.#fields.get(field)?.at(-1) ?? 0
    if (typeof value !== 'number') throw new Error(`got ${value.length} bytes in field ${field}, expected a number`)
    return value
  }

  /** Bytes, none where they were not written. @throws Error for a number. */
  bytes(field: number): Uint8Array {
    return bytesIn(field, this.#fields.get(field)?.at(-1) ?? new Uint8Array(0))
  }

  text(field: number): string {
    return new TextDecoder().decode(this.bytes(field))
  }

  /** Messages of a list, none where it is empty. @throws Error for numbers, and for bytes that are no message. */
  messages(field: number): ProtoReader[] {
    return (this.#fields.get(field) ?? []).map((value) => new ProtoReader(bytesIn(field, value)))
  }

  /** A map: of each key its entry, whose field 2 has the value. */
  entries(field: number): [string, ProtoReader][] {
    return this.messages(field).map((entry) => [entry.text(1), entry])
  }
}

function bytesIn(field: number, value: number | Uint8Array): Uint8Array {
  if (typeof value === 'number') throw new Error(`got the number ${value} in field ${field}, expected bytes`)
  return value
}
