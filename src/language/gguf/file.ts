/** GGUF files of versions 2 and 3 (github.com/ggml-org/ggml, `docs/gguf.md`): metadata, and tensors that are read a few rows at a time. */
import { InputError, show } from '../../base/errors.ts'
import { openPieces, type Pieces } from '../../base/files/disk.ts'
import { BLOCK_TYPES } from './blocks.ts'

/** A value of the metadata. Numbers of 64 bits must be below 2⁵³. */
export type GgufValue = number | boolean | string | readonly GgufValue[]

export interface GgufTensor {
  readonly name: string
  /** Rows first, as in safetensors. */
  readonly shape: readonly number[]
  /** The format's number of its type. */
  readonly kind: number
  /** Its first byte in the file. */
  readonly start: number
}

export interface Gguf {
  readonly path: string
  readonly metadata: ReadonlyMap<string, GgufValue>
  readonly tensors: ReadonlyMap<string, GgufTensor>
}

const MAGIC = 0x46554747 // GGUF
const [TEXT, LIST] = [8, 9]
/** Bytes of the numbers, by the format's type. */
const NUMBER_BYTES: Readonly<Record<number, number>> = {
  ...{ 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 },
}
const WINDOW = 2 ** 20
const MAX_SIDES = 4
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true }) // Vocabularies have tokens that begin with a byte order mark.

/** The shortest decimal number that is this one in f32: 1e-5 for 9.999999747378752e-6, as configurations have it. */
function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const rounded = Number(value.toPrecision(digits))
    if (Math.fround(rounded) === value) return rounded
  }
  return value
}

class Head {
  readonly #path: string
  readonly #file: Pieces
  #window = new DataView(new ArrayBuffer(0))
  #windowStart = 0
  at = 0

  constructor(path: string, file: Pieces) {
    this.#path = path
    this.#file = file
  }

  wrong(got: string, expected: string): InputError {
    return new InputError(`${this.#path}, byte ${this.at}`, got, expected)
  }

  /** The place of the next bytes in a view, after which the next begin. */
  #take(bytes: number): [DataView, number] {
    if (!(bytes <= this.#file.size - this.at)) throw this.wrong(`${bytes} bytes more`, 'as many as the file has')
    const from = this.at - this.#windowStart
    if (from + bytes > this.#window.byteLength) {
      const taken = new Uint8Array(Math.min(Math.max(bytes, WINDOW), this.#file.size - this.at))
      this.#file.read(taken, this.at)
      this.#window = new DataView(taken.buffer)
      this.#windowStart = this.at
    }
    const place = this.at - this.#windowStart
    this.at += bytes
    return [this.#window, place]
  }

  u32(): number {
    const [view, at] = this.#take(4)
    return view.getUint32(at, true)
  }

  /** A number of 64 bits, for sizes. */
  size(): number {
    return this.number(10)
  }

  text(): string {
    const [view, at] = this.#take(this.size())
    const length = this.at - this.#windowStart - at
    return UTF8.decode(new Uint8Array(view.buffer, at, length))
  }

  number(type: number): number {
    const [view, at] = this.#take(NUMBER_BYTES[type]!)
    switch (type) {
      case 0:
      case 7:
        return view.getUint8(at)
      case 1:
        return view.getInt8(at)
      case 2:
        return view.getUint16(at, true)
      case 3:
        return view.getInt16(at, true)
      case 4:
        return view.getUint32(at, true)
      case 5:
        return view.getInt32(at, true)
      case 6:
        return shortest(view.getFloat32(at, true))
      case 12:
        return view.getFloat64(at, true)
    }
    const value = Number(type === 10 ? view.getBigUint64(at, true) : view.getBigInt64(at, true))
    if (!Number.isSafeInteger(value)) throw this.wrong(String(value), 'a number below 2⁵³')
    return value
  }

  value(type: number, depth = 0): GgufValue {
    if (type === 7) return this.number(type) !== 0
    if (NUMBER_BYTES[type] !== undefined) return this.number(type)
    if (type === TEXT) return this.text()
    if (type !== LIST || depth > 1) throw this.wrong(`a value of type ${type}`, 'one of a type from 0 to 12')
    const of = this.u32()
    const length = this.size()
    const least = of === TEXT ? 8 : of === LIST ? 12 : (NUMBER_BYTES[of] ?? 1)
    if (!(length * least <= this.#file.size - this.at)) {
      throw this.wrong(`a list of ${length} values`, 'as many as the file has bytes for')
    }
    return Array.from({ length }, () => this.value(of, depth + 1))
  }

  tensor(): GgufTensor {
    const name = this.text()
    const numSides = this.u32()
    if (numSides < 1 || numSides > MAX_SIDES) throw this.wrong(`${name} of ${numSides} sides`, `1 to ${MAX_SIDES}`)
    const shape = Array.from({ length: numSides }, () => this.size()).reverse()
    const kind = this.u32()
    return { name, shape, kind, start: this.size() }
  }
}

/** Reads the head of a file. @throws InputError for a file that is missing, damaged, of another format or version. */
export function readGguf(path: string): Gguf {
  return withFile(path, (file) => {
    const head = new Head(path, file)
    if (file.size < 24 || head.u32() !== MAGIC) throw new InputError(path, 'another format', 'a GGUF file')
    const version = head.u32()
    if (version !== 2 && version !== 3) throw new InputError(`${path}, version`, show(version), '2 or 3')
    const [numTensors, numValues] = [head.size(), head.size()]
    const metadata = new Map<string, GgufValue>()
    for (let i = 0; i < numValues; i++) {
      const key = head.text()
      metadata.set(key, head.value(head.u32()))
    }
    const places: GgufTensor[] = []
    for (let i = 0; i < numTensors; i++) places.push(head.tensor())
    const alignment = metadata.get('general.alignment') ?? 32
    if (!(Number.isSafeInteger(alignment) && (alignment as number) >= 1)) {
      throw new InputError(`${path}, general.alignment`, show(alignment), 'a whole number ≥ 1')
    }
    const data = Math.ceil(head.at / (alignment as number)) * (alignment as number)
    const tensors = new Map(places.map((tensor) => [tensor.name, { ...tensor, start: data + tensor.start }]))
    for (const tensor of tensors.values()) checkPlace(path, tensor, file.size)
    return { path, metadata, tensors }
  })
}

/** Refuses a type that is not known, rows that are no whole blocks, and a place beyond the file. */
function checkPlace(path: string, { name, shape, kind, start }: GgufTensor, size: number): void {
  const type = BLOCK_TYPES[kind]
  if (type === undefined) {
    const known = Object.values(BLOCK_TYPES).map((each) => each.name)
    throw new InputError(`${path}, ${name}`, `type ${kind} of GGUF's list`, `one of ${known.join(', ')}`)
  }
  const rowBytes = (shape.at(-1)! / type.elements) * type.bytes
  const numRows = shape.slice(0, -1).reduce((product, side) => product * side, 1)
  if (Number.isInteger(rowBytes) && start + rowBytes * numRows <= size) return
  throw new InputError(`${path}, ${name}`, `${type.name} of shape ${show(shape)}`, 'whole blocks inside the file')
}

/** Opens the file for `action`. @throws InputError if it cannot be opened or read, or ends too early. */
export function withFile<T>(path: string, action: (file: Pieces) => T): T {
  const attempt = <R>(reading: () => R): R => {
    try {
      return reading()
    } catch (cause) {
      throw new InputError(path, (cause as Error).message, 'a GGUF file', { cause })
    }
  }
  const file = attempt(() => openPieces(path))
  try {
    return action({ ...file, read: (into, from) => attempt(() => file.read(into, from)) })
  } finally {
    file.close()
  }
}

/** Rows of a tensor in f32. All sides but the last count as rows. */
export function readRows(file: Pieces, { shape, kind, start }: GgufTensor, from: number, to: number): Float32Array {
  const { elements, bytes, read } = BLOCK_TYPES[kind]!
  const rowBytes = (shape.at(-1)! / elements) * bytes
  const taken = new Uint8Array((to - from) * rowBytes)
  file.read(taken, start + from * rowBytes)
  return read(taken)
}
