/**
 * The wire format of protocol buffers (protobuf.dev, "Encoding"), as far as ONNX and TensorBoard's files need it: a message is a list
 * of fields, a field its number and kind in a varint, and then a varint, a number of 32 or 64 bits, or a length and so many bytes.
 */

/** Bytes of one field, or of several. */
export type Field = Uint8Array

const VARINT = 0
const DOUBLE = 1
const BYTES = 2
const FLOAT = 5

/** A field with a whole number ≥ 0, or −1, which takes ten bytes as every negative number does. */
export function numberField(number: number, value: number): Field {
  return Buffer.concat([varint((number << 3) | VARINT), varint(value)])
}

/** A field with a text or bytes, or with a message, which is the bytes of its fields. */
export function bytesField(number: number, value: string | Uint8Array | readonly Field[]): Field {
  const bytes =
    typeof value === 'string' ? Buffer.from(value) : value instanceof Uint8Array ? value : Buffer.concat(value)
  return Buffer.concat([varint((number << 3) | BYTES), varint(bytes.length), bytes])
}

/** A field with a number of 64 bits. */
export function doubleField(number: number, value: number): Field {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return Buffer.concat([varint((number << 3) | DOUBLE), bytes])
}

/** A field with a number of 32 bits. */
export function floatField(number: number, value: number): Field {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(value)
  return Buffer.concat([varint((number << 3) | FLOAT), bytes])
}

/** A field with a list of numbers of 64 bits. */
export function doublesField(number: number, values: Float64Array): Field {
  const bytes = Buffer.alloc(8 * values.length)
  for (const [i, value] of values.entries()) bytes.writeDoubleLE(value, 8 * i)
  return bytesField(number, bytes)
}

/** Seven bits a byte, the lowest first; the eighth says that more follow. */
function varint(value: number): Uint8Array {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80)
  return Uint8Array.of(...bytes, Number(rest))
}
