/**
 * The safetensors format (Hugging Face): an 8-byte little-endian header length, a JSON header padded with spaces to 8
 * bytes, then the tensors' bytes. Readable from Python by `safetensors.numpy.load_file`.
 */
import { type ColumnType, elementBytes } from '../components/column.ts'
import { InputError, show } from '../errors.ts'

/** A named array: `bytes` is little-endian, row-major. */
export interface Tensor {
  readonly name: string
  readonly type: ColumnType
  readonly shape: readonly number[]
  readonly bytes: Uint8Array
}

const DTYPES: Readonly<Record<ColumnType, string>> = { f32: 'F32', f64: 'F64', i32: 'I32', u32: 'U32', u8: 'U8' }

/** The chunks of a file with these tensors; their bytes are not copied. */
export function encodeSafetensors(tensors: readonly Tensor[]): Uint8Array[] {
  const header: Record<string, unknown> = {}
  let end = 0
  for (const { name, type, shape, bytes } of tensors) {
    header[name] = { dtype: DTYPES[type], shape, data_offsets: [end, end + bytes.byteLength] }
    end += bytes.byteLength
  }
  let json = JSON.stringify(header)
  json = json.padEnd(Math.ceil(json.length / 8) * 8)
  const head = new Uint8Array(8 + Buffer.byteLength(json))
  new DataView(head.buffer).setBigUint64(0, BigInt(head.length - 8), true)
  head.set(Buffer.from(json), 8)
  return [head, ...tensors.map(({ bytes }) => bytes)]
}

/**
 * The tensors of a file, by name, as views of its bytes.
 * @throws InputError where the header is not JSON, a type is unknown, or offsets and shapes do not fit the file.
 */
export function decodeSafetensors(subject: string, file: Uint8Array): Map<string, Tensor> {
  const wrong = (got: string, expected: string) => new InputError(subject, got, expected)
  if (file.byteLength < 8) throw wrong(`${file.byteLength} bytes`, 'a safetensors file')
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true))
  if (length > file.byteLength - 8) {
    throw wrong(`a header of ${length} bytes in a file of ${file.byteLength}`, 'a whole file')
  }
  const data = file.subarray(8 + length)
  let header: unknown
  try {
    header = JSON.parse(Buffer.from(file.buffer, file.byteOffset + 8, length).toString())
  } catch (cause) {
    throw new InputError(subject, `a header that is not JSON (${(cause as Error).message})`, 'a safetensors file', {
      cause,
    })
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header)) {
    throw wrong(`a header that is ${show(header)}`, 'an object of tensors')
  }
  const tensors = new Map<string, Tensor>()
  let next = 0
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const { dtype, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>
    const type = (Object.keys(DTYPES) as ColumnType[]).find((candidate) => DTYPES[candidate] === dtype)
    if (type === undefined) throw wrong(`tensor ${name} of type ${dtype}`, `one of ${Object.values(DTYPES).join(', ')}`)
    if (!isListOfSizes(shape)) throw wrong(`tensor ${name} of shape ${show(shape)}`, 'a list of whole numbers ≥ 0')
    if (!Array.isArray(offsets)) throw wrong(`tensor ${name} with offsets ${show(offsets)}`, 'two byte offsets')
    const [start, end] = offsets
    const size = shape.reduce((product, side) => product * side, 1) * elementBytes[type]
    if (end - start !== size || !(end <= data.byteLength)) {
      throw wrong(`tensor ${name} at bytes ${start}–${end}`, `${size} bytes within the file's ${file.byteLength}`)
    }
    if (start !== next)
      throw wrong(`tensor ${name} at bytes ${start}–${end}`, `to begin at ${next}, where the one before ends`)
    next = end
    tensors.set(name, { name, type, shape, bytes: data.subarray(start, end) })
  }
  if (next !== data.byteLength) throw wrong(`${data.byteLength} bytes of data`, `the ${next} bytes of its tensors`)
  return tensors
}

function isListOfSizes(shape: unknown): shape is number[] {
  return Array.isArray(shape) && shape.every((side) => Number.isSafeInteger(side) && side >= 0)
}
