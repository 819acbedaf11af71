/**
 * Protocol buffers (proto3) as bytes, for the few messages that services have in them: fields are written by their numbers, and read
 * back by them. Numbers that are 0, empty lists and false are not written, as the format has it.
 */

/** How the value of a field lies in the bytes. */
const Wire = { varint: 0, fixed64: 1, length: 2, fixed32: 5 } as const

/** Writes one message. Fields are written in the order of the calls. */
export class ProtoWriter {
  readonly #bytes: number[] = []
  readonly #parts: Uint8Array[] = []

  /** A whole number ≥ 0, of any of the types of whole numbers, or of an enumeration. */
  integer(field: number, value: number): this {
    if (value === 0) return this
    this.#key(field, Wire.varint)
    this.#varint(value)
    return this
  }

  /** Whole numbers ≥ 0, packed. */
  integers(field: number, values: readonly number[]): this {
    if (values.length === 0) return this
    const packed = new ProtoWriter()
    for (const value of values) packed.#varint(value)
    return this.bytes(field, packed.finish())
  }

  boolean(field: number, value: boolean): this {
    return this.integer(field, value ? 1 : 0)
  }

  /** A double. Written where it is 0 too, as entries of maps and choices among fields are. */
  double(field: number, value: number): this {
    this.#key(field, Wire.fixed64)
    this.#append(new Uint8Array(Float64Array.of(value).buffer))
    return this
  }

  text(field: number, value: string): this {
    return value === '' ? this : this.bytes(field, new TextEncoder().encode(value))
  }

  /** Bytes, or a message that is finished. Written where it is empty too. */
  bytes(field: number, value: Uint8Array): this {
    this.#key(field, Wire.length)
    this.#varint(value.length)
    this.#append(value)
    return this
  }

  message(field: number, write: (message: ProtoWriter) => void): this {
    const inner = new ProtoWriter()
    write(inner)
    return this.bytes(field, inner.finish())
  }

  /** A map: an entry for each key, in the order of the keys, so that equal maps have equal bytes. */
  map<T>(field: number, values: Readonly<Record<string, T>>, write: (entry: ProtoWriter, value: T) => void): this {
    for (const key of Object.keys(values).sort()) {
      this.message(field, (entry) => {
        entry.bytes(1, new TextEncoder().encode(key))
        write(entry, values[key]!)
      })
    }
    return this
  }

  finish(): Uint8Array {
    this.#flush()
    const whole = new Uint8Array(this.#parts.reduce((sum, part) => sum + part.length, 0))
    let at = 0
    for (const part of this.#parts) {
      whole.set(part, at)
      at += part.length
    }
    return whole
  }

  #key(field: number, wire: number): void {
    this.#varint(field * 8 + wire)
  }

  #varint(value: number): void {
    if (!(Number.isSafeInteger(value) && value >= 0)) throw new RangeError(`got ${value}, expected a whole number ≥ 0`)
    for (; value >= 0x80; value = Math.floor(value / 0x80)) this.#bytes.push((value % 0x80) + 0x80)
    this.#bytes.push(value)
  }

  #append(part: Uint8Array): void {
    this.#flush()
    this.#parts.push(part)
  }

  #flush(): void {
    if (this.#bytes.length > 0) this.#parts.push(Uint8Array.from(this.#bytes.splice(0)))
  }
}

/** The fields of a message by their numbers: each with all of its values, in their order. */
export class ProtoReader {
  readonly #fields = new Map<number, (number | Uint8Array)[]>()

  /** @throws Error for bytes that are no message. */
  constructor(bytes: Uint8Array) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    let at = 0
    const take = (length: number) => {
      if (at + length > bytes.length) throw new Error(`got ${bytes.length} bytes, expected ${at + length} of a message`)
      at += length
      return at - length
    }
    const varint = () => {
      let value = 0
      for (let scale = 1; ; scale *= 0x80) {
        const byte = bytes[take(1)]!
        value += (byte & 0x7f) * scale
        if (byte < 0x80) return value
        if (scale >= 2 ** 63) throw new Error(`got a number of more than ten bytes at ${at}, expected a message`)
      }
    }
    while (at < bytes.length) {
      const key = varint()
      const [field, wire] = [Math.floor(key / 8), key % 8]
      let value: number | Uint8Array
      if (wire === Wire.varint) value = varint()
      else if (wire === Wire.fixed64) value = view.getFloat64(take(8), true)
      else if (wire === Wire.fixed32) value = view.getFloat32(take(4), true)
      else if (wire === Wire.length) {
        const length = varint()
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

  /** A number, 0 where it was not written. */
  number(field: number): number {
    return (this.#fields.get(field)?.at(-1) ?? 0) as number
  }

  /** Bytes, none where they were not written. */
  bytes(field: number): Uint8Array {
    return (this.#fields.get(field)?.at(-1) ?? new Uint8Array(0)) as Uint8Array
  }

  text(field: number): string {
    return new TextDecoder().decode(this.bytes(field))
  }

  /** Messages of a list, none where it is empty. */
  messages(field: number): ProtoReader[] {
    return (this.#fields.get(field) ?? []).map((bytes) => new ProtoReader(bytes as Uint8Array))
  }

  /** A map: of each key its entry, whose field 2 has the value. */
  entries(field: number): [string, ProtoReader][] {
    return this.messages(field).map((entry) => [entry.text(1), entry])
  }
}
