/**
 * The safetensors format (Hugging Face): an 8-byte little-endian header length, a JSON header padded with spaces to 8
 * bytes, then the tensors' bytes. Readable from Python by `safetensors.numpy.load_file`.
 */
import { type ColumnType, elementBytes } from '../components/column.ts'
import { InputError } from '../errors.ts'

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
  if (length > file.byteLength - 8)
    throw wrong(`a header of ${length} bytes in a file of ${file.byteLength}`, 'a whole file')
  let header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>
  try {
    header = JSON.parse(Buffer.from(file.buffer, file.byteOffset + 8, length).toString())
  } catch (cause) {
    throw new InputError(subject, `a header that is not JSON (${(cause as Error).message})`, 'a safetensors file', {
      cause,
    })
  }
  const tensors = new Map<string, Tensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const type = (Object.keys(DTYPES) as ColumnType[]).find((candidate) => DTYPES[candidate] === entry.dtype)
    if (type === undefined)
      throw wrong(`tensor ${name} of type ${entry.dtype}`, `one of ${Object.values(DTYPES).join(', ')}`)
    const [start, end] = entry.data_offsets
    const size = entry.shape.reduce((product, side) => product * side, 1) * elementBytes[type]
    if (!(start >= 0 && end - start === size && end <= file.byteLength - 8 - length)) {
      throw wrong(`tensor ${name} at bytes ${start}–${end}`, `${size} bytes within the file's ${file.byteLength}`)
    }
    tensors.set(name, { name, type, shape: entry.shape, bytes: file.subarray(8 + length + start, 8 + length + end) })
  }
  return tensors
}
