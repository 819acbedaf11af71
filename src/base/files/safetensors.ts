/**
 * The safetensors format (Hugging Face, `safetensors/README.md`, "Format"): an 8-byte little-endian header length, a
 * JSON header padded with spaces to 8 bytes, then the tensors' bytes without gaps or overlaps. Checked against Python's
 * package both ways.
 *
 * An invalid header is an error before any tensor is used. Reading it takes time and memory proportional to its length,
 * so it needs no thread of its own.
 */
import { checkGiven, InputError, show } from '../errors.ts'
import { narrowBf16, narrowF16, widenBf16, widenF16 } from '../half.ts'
import { openPieces, type Pieces, readWhole, writeWhole } from './files.ts'
import { brokenSeal, checkSeal, hasTrace, SEAL_KEY, sealOf, sealText } from './seal.ts'

const ELEMENT_BYTES = {
  ...{ F64: 8, I64: 8, U64: 8 },
  ...{ F32: 4, I32: 4, U32: 4 },
  ...{ F16: 2, BF16: 2, I16: 2, U16: 2 },
  ...{ I8: 1, U8: 1, BOOL: 1 },
} as const

/** An element type, by the format's name for it. */
export type TensorType = keyof typeof ELEMENT_BYTES

/** A named array of a safetensors file. */
export interface Tensor {
  readonly name: string
  readonly type: TensorType
  /** Sides, the slowest first; empty for a single number. */
  readonly shape: readonly number[]
  /** The elements, little-endian, row-major. */
  readonly bytes: Uint8Array
}

/** The tensors and metadata of a safetensors file. */
export interface Safetensors {
  /** By name, in the order of their bytes. */
  readonly tensors: ReadonlyMap<string, Tensor>
  readonly metadata: Readonly<Record<string, string>>
}

/** Elements of a tensor. F16 and BF16 as f32, which is exact; BOOL as 0 and 1. */
export type TensorValues =
  | Float64Array
  | Float32Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array

/** Where a tensor lies in a file, in bytes from the file's first. */
export interface TensorPlace extends Omit<Tensor, 'bytes'> {
  readonly start: number
  readonly end: number
}

/** A file whose tensors are read one by one, or in parts. */
export interface OpenSafetensors {
  readonly tensors: ReadonlyMap<string, TensorPlace>
  /** A tensor's bytes `from` to `to`. @throws InputError if the file cannot be read. */
  read(place: TensorPlace, from?: number, to?: number): Uint8Array<ArrayBuffer>
  close(): void
}

/** The array of each type; F16 and BF16 as bits. */
const ARRAYS = {
  F64: Float64Array,
  I64: BigInt64Array,
  U64: BigUint64Array,
  F32: Float32Array,
  I32: Int32Array,
  U32: Uint32Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  I16: Int16Array,
  U16: Uint16Array,
  I8: Int8Array,
  U8: Uint8Array,
  BOOL: Uint8Array,
} as const

const METADATA = '__metadata__'
/** The limit of Python's reader. A wrong length is found before parsing. */
const HEADER_BYTES_MAX = 100_000_000
/** A tensor's shortest entry has 51 bytes and three brackets. A header of brackets only would fill the memory. */
const BYTES_PER_BRACKET = 16
/** Four per tensor, so a quarter of a million tensors. A 100 MB header could have twenty million, at some µs each. */
const KEYS_MAX = 1_000_000

/**
 * A tensor of these elements. By default `shape` has one side and `type` is the array's. A Float32Array may also become
 * F16 or BF16 (rounded to nearest, ties to even), a Uint8Array of 0 and 1 BOOL.
 *
 * @throws InputError if shape or type do not fit the elements, or F16 or BF16 cannot hold a finite one.
 * @example tensorOf('weight', Float32Array.of(1, 2, 3, 4), [2, 2], 'BF16')
 */
export function tensorOf(
  name: string,
  values: TensorValues,
  shape: readonly number[] = lengthOf(name, values),
  type: TensorType = typeOf(name, values),
): Tensor {
  if (!isListOfSizes(shape) || sizeOf(shape) !== values.length) {
    const expected = 'as many as the shape has'
    throw new InputError(`tensor ${name}`, `${values.length} elements of shape ${show(shape)}`, expected)
  }
  if (values instanceof Float32Array && (type === 'F16' || type === 'BF16')) {
    const [narrow, infinite] = type === 'F16' ? [narrowF16(values), 0x7c00] : [narrowBf16(values), 0x7f80]
    const lost = narrow.findIndex((bits, i) => (bits & 0x7fff) === infinite && Number.isFinite(values[i]))
    if (lost >= 0) {
      throw new InputError(`tensor ${name}`, `${values[lost]} in element ${lost}`, `a number that ${type} can hold`)
    }
    return { name, type, shape: [...shape], bytes: bytesOf(narrow) }
  }
  if (type === 'BOOL' && values instanceof Uint8Array) {
    const other = values.findIndex((value) => value > 1)
    if (other >= 0) throw new InputError(`tensor ${name}`, `${values[other]} in element ${other}`, '0 or 1')
  } else if (type !== typeOf(name, values)) {
    throw new InputError(`tensor ${name}`, `a ${values.constructor.name} for ${show(type)}`, typeOf(name, values))
  }
  return { name, type, shape: [...shape], bytes: bytesOf(values) }
}

/** A tensor's elements: a view of its bytes if aligned, otherwise a copy. */
export function tensorValues(tensor: Tensor): TensorValues {
  checkGiven('tensor', tensor, ['type', 'bytes'])
  const { type, bytes } = tensor
  const length = bytes.byteLength / ELEMENT_BYTES[type]
  const { buffer, byteOffset } = byteOffsetFits(bytes, ELEMENT_BYTES[type]) ? bytes : bytes.slice()
  const values = new ARRAYS[type](buffer as ArrayBuffer, byteOffset, length)
  if (type === 'F16') return widenF16(values as Uint16Array)
  return type === 'BF16' ? widenBf16(values as Uint16Array) : values
}

/** Reads a safetensors file or its bytes, as views. @throws InputError if unreadable, cut short or invalid. */
export async function readSafetensors(from: string | Uint8Array): Promise<Safetensors> {
  return from instanceof Uint8Array
    ? decodeSafetensors('safetensors', from)
    : decodeSafetensors(from, await readWhole(from, 'a readable safetensors file'))
}

/**
 * Writes a safetensors file atomically. Its metadata include a checksum (`colonnade.sha256`), which reading verifies.
 * @throws InputError for two tensors of one name, metadata that are not texts, or a path that cannot be written.
 * @example await writeSafetensors('w.safetensors', [tensorOf('weight', weight, [64, 2])], { made: 'today' })
 */
export async function writeSafetensors(
  path: string,
  tensors: Iterable<Tensor>,
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  checkGiven('path of writeSafetensors', path, 'a text')
  checkGiven('tensors of writeSafetensors', tensors, [])
  const list = [...tensors]
  const sealed = (checksum?: string) => encodeSafetensors(list, { ...metadata, [SEAL_KEY]: sealText(checksum) })
  await writeWhole(path, sealed(await sealOf(sealed()))) // The same bytes twice, except for the checksum.
}

/** A file's chunks, large element types first for alignment. @throws InputError for repeated names, or bad metadata. */
export function encodeSafetensors(
  tensors: readonly Tensor[],
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array[] {
  const header: Record<string, unknown> = Object.create(null) // A tensor's name may be __proto__.
  if (Object.keys(metadata).length > 0) header[METADATA] = metadata
  for (const [key, value] of Object.entries(metadata)) {
    if (typeof value !== 'string') throw new InputError(`safetensors metadata ${key}`, show(value), 'a text')
  }
  const placed = tensors.toSorted((a, b) => ELEMENT_BYTES[b.type] - ELEMENT_BYTES[a.type])
  let end = 0
  for (const { name, type, shape, bytes } of placed) {
    if (name === METADATA || Object.hasOwn(header, name)) {
      throw new InputError('safetensors', `two tensors ${show(name)}`, `distinct names, none of them ${METADATA}`)
    }
    header[name] = { dtype: type, shape, data_offsets: [end, end + bytes.byteLength] }
    end += bytes.byteLength
  }
  const json = new TextEncoder().encode(JSON.stringify(header))
  const head = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20)
  new DataView(head.buffer).setBigUint64(0, BigInt(head.length - 8), true)
  head.set(json, 8)
  return [head, ...placed.map(({ bytes }) => bytes)]
}

/**
 * The tensors of a file, by name, as views of its bytes. `subject` names the file in errors.
 * @throws InputError if the file is cut short, has unclaimed bytes or a wrong checksum; if the header is too long, not
 * a JSON object, or repeats a name; or if a type is unknown, or offsets overlap, leave a gap, or do not fit type and
 * shape.
 */
export function decodeSafetensors(subject: string, file: Uint8Array): Safetensors {
  const head = file.subarray(0, headBytes(subject, file, file.byteLength))
  const { places, metadata } = decodeHead(subject, head, file.byteLength, [file.subarray(head.byteLength)])
  const tensors = new Map<string, Tensor>()
  for (const [name, { type, shape, start, end }] of places) {
    tensors.set(name, { name, type, shape, bytes: file.subarray(start, end) })
  }
  return { tensors, metadata }
}

/** Bytes of a piece of a file whose checksum is verified. */
const PIECE_BYTES = 2 ** 23

/**
 * Opens a file of any size; its checksum, if it has one, is verified piece by piece, unless it was before (`isVerified`).
 * @throws InputError as `decodeSafetensors` does, and for a file that cannot be read.
 */
export function openSafetensors(path: string, isVerified = false): OpenSafetensors {
  let file: Pieces | undefined
  const attempt = <T>(action: () => T): T => {
    try {
      return action()
    } catch (cause) {
      file?.close()
      if (cause instanceof InputError) throw cause
      throw new InputError(path, (cause as Error).message, 'a readable safetensors file', { cause })
    }
  }
  file = attempt(() => openPieces(path))
  const { size } = file
  const take = (from: number, to: number) => {
    const bytes = new Uint8Array(to - from)
    file.read(bytes, from)
    return bytes
  }
  return attempt(() => {
    const head = take(0, headBytes(path, take(0, Math.min(8, size)), size))
    const { places } = decodeHead(path, head, size, isVerified ? null : piecesOf(file, head.byteLength))
    return {
      tensors: places,
      read: ({ start, end }, from = 0, to = end - start) => attempt(() => take(start + from, start + to)),
      close: file.close,
    }
  })
}

/** A file's bytes from `from` on, in pieces that are valid until the next. */
function* piecesOf(file: Pieces, from: number): Generator<Uint8Array> {
  const buffer = new Uint8Array(Math.min(PIECE_BYTES, file.size - from))
  for (let at = from; at < file.size; at += buffer.length) {
    const piece = buffer.subarray(0, Math.min(buffer.length, file.size - at))
    file.read(piece, at)
    yield piece
  }
}

/** Decodes a file's head, and verifies its checksum. `rest` are the bytes after the head; null: it was verified before. */
function decodeHead(subject: string, head: Uint8Array, fileBytes: number, rest: Iterable<Uint8Array> | null) {
  const header = parseHeader(subject, head)
  const dataBytes = fileBytes - head.byteLength
  const entries = (header[METADATA] ?? {}) as Record<string, string>
  const isSealed = rest === null || checkSeal(subject, head, rest)
  if (!isSealed && hasTrace(Object.entries(entries))) throw brokenSeal(subject)
  const { [SEAL_KEY]: _, ...metadata } = entries
  const wrong = (got: string, expected: string) => new InputError(subject, got, expected)
  const found: TensorPlace[] = []
  for (const [name, entry] of Object.entries(header)) {
    if (name === METADATA) continue
    if (!isObject(entry)) throw wrong(`tensor ${name} that is ${show(entry)}`, 'its dtype, shape and data_offsets')
    const { dtype, shape, data_offsets: offsets } = entry
    if (typeof dtype !== 'string' || !Object.hasOwn(ELEMENT_BYTES, dtype)) {
      throw wrong(`tensor ${name} of type ${dtype}`, `one of ${Object.keys(ELEMENT_BYTES).join(', ')}`)
    }
    const type = dtype as TensorType
    if (!isListOfSizes(shape)) throw wrong(`tensor ${name} of shape ${show(shape)}`, 'a list of whole numbers ≥ 0')
    if (!isListOfSizes(offsets) || offsets.length !== 2) {
      throw wrong(`tensor ${name} with data_offsets ${show(offsets)}`, 'two whole numbers ≥ 0')
    }
    const [start, end] = offsets as [number, number]
    const bytes = sizeOf(shape) * ELEMENT_BYTES[type]
    if (end - start !== bytes) {
      throw wrong(`tensor ${name} at bytes ${start}–${end}`, `${bytes} bytes for ${type} of shape ${show(shape)}`)
    }
    if (end > dataBytes) {
      throw wrong(`tensor ${name} at bytes ${start}–${end}`, `an end within the file's ${dataBytes} bytes of data`)
    }
    found.push({ name, type, shape, start, end })
  }
  found.sort((a, b) => a.start - b.start || a.end - b.end)
  let next = 0
  for (const { name, start, end } of found) {
    if (start !== next) {
      const flaw = start < next ? 'overlaps the one before' : 'leaves a gap'
      throw wrong(`tensor ${name} at bytes ${start}–${end}, which ${flaw}`, `a start at ${next}`)
    }
    next = end
  }
  if (next !== dataBytes) throw wrong(`${dataBytes} bytes of data`, `the ${next} bytes of its tensors`)
  const places = found.map(({ start, end, ...rest }): [string, TensorPlace] => [
    rest.name,
    { ...rest, start: head.byteLength + start, end: head.byteLength + end },
  ])
  return { places: new Map(places), metadata }
}

function notSafetensors(subject: string, got: string, cause?: unknown): InputError {
  return new InputError(subject, got, 'a safetensors file', { cause })
}

/** Bytes of a file before its tensors, from its first 8. */
function headBytes(subject: string, first: Uint8Array, fileBytes: number): number {
  if (fileBytes < 8) throw notSafetensors(subject, `${fileBytes} bytes`)
  const stated = new DataView(first.buffer, first.byteOffset).getBigUint64(0, true)
  if (stated > HEADER_BYTES_MAX) {
    throw notSafetensors(subject, `a header of ${stated} bytes, above the ${HEADER_BYTES_MAX} allowed`)
  }
  const length = Number(stated)
  if (length > fileBytes - 8) throw notSafetensors(subject, `a header of ${length} bytes in a file of ${fileBytes}`)
  return 8 + length
}

/** The header as an object whose metadata are texts. */
function parseHeader(subject: string, head: Uint8Array): Record<string, unknown> {
  const wrong = (got: string, cause?: unknown) => notSafetensors(subject, got, cause)
  const length = head.byteLength - 8
  const { brackets, keys } = countParts(head.subarray(8))
  if (brackets > 8 + length / BYTES_PER_BRACKET) throw wrong(`a header with ${brackets} brackets in ${length} bytes`)
  if (keys > KEYS_MAX) throw wrong(`a header with ${keys} keys, above the ${KEYS_MAX} allowed`)
  let header: unknown
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(head.slice(8)) // TextDecoder does not take shared memory.
    header = JSON.parse(text)
  } catch (cause) {
    throw wrong(`a header that is not JSON (${(cause as Error).message})`, cause)
  }
  if (!isObject(header) || !text.startsWith('{')) throw wrong(`a header that is ${show(header)}`)
  const twice = repeatedKey(text)
  if (twice !== undefined) throw wrong(`a header with two entries ${show(twice)}`)
  const metadata = header[METADATA] ?? {}
  if (!isObject(metadata) || Object.values(metadata).some((value) => typeof value !== 'string')) {
    throw wrong(`metadata ${show(metadata)} that are not texts by name`)
  }
  return header
}

/** The number of opening brackets and of keys in JSON, outside its strings. */
function countParts(json: Uint8Array): { readonly brackets: number; readonly keys: number } {
  const [quote, backslash, list, object, colon] = [0x22, 0x5c, 0x5b, 0x7b, 0x3a]
  let brackets = 0
  let keys = 0
  let isString = false
  for (let at = 0; at < json.length; at++) {
    const byte = json[at]!
    if (byte === quote) isString = !isString
    else if (isString) at += byte === backslash ? 1 : 0
    else if (byte === list || byte === object) brackets++
    else if (byte === colon) keys++
  }
  return { brackets, keys }
}

/** The first key that an object of this valid JSON repeats; JSON.parse would keep the last value silently. */
function repeatedKey(json: string): string | undefined {
  const open: Set<string>[] = []
  for (let at = 0; at < json.length; at++) {
    if (json[at] === '{') open.push(new Set())
    else if (json[at] === '}') open.pop()
    else if (json[at] === '"') {
      const start = at++
      while (json[at] !== '"') at += json[at] === '\\' ? 2 : 1
      let after = at + 1
      while (' \t\n\r'.includes(json[after]!)) after++
      if (json[after] !== ':') continue // A value.
      const key = JSON.parse(json.slice(start, at + 1)) as string
      if (open.at(-1)!.has(key)) return key
      open.at(-1)!.add(key)
    }
  }
  return undefined
}

function lengthOf(name: string, values: TensorValues): readonly number[] {
  checkGiven(`tensor ${name}`, values, 'a list')
  return [values.length]
}

function typeOf(name: string, values: TensorValues): TensorType {
  const type = (Object.keys(ARRAYS) as TensorType[]).find(
    (candidate) => !['F16', 'BF16', 'BOOL'].includes(candidate) && values instanceof ARRAYS[candidate],
  )
  if (type === undefined) throw new InputError(`tensor ${name}`, show(values), 'a typed array')
  return type
}

function byteOffsetFits({ byteOffset }: Uint8Array, elementBytes: number): boolean {
  return byteOffset % elementBytes === 0
}

function bytesOf({ buffer, byteOffset, byteLength }: TensorValues): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, side) => product * side, 1)
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isListOfSizes(list: unknown): list is number[] {
  return Array.isArray(list) && list.every((side) => Number.isSafeInteger(side) && side >= 0)
}
