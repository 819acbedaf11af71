/** Tensors as a family's files hold them: with other names, several in one, or transposed. */
import { InputError, show } from '../../base/errors.ts'
import { type OpenSafetensors, type Tensor, type TensorPlace, tensorValues } from '../../base/files/safetensors.ts'
import type { Parameter } from '../../policies/policy.ts'
import { checkTensor, refuseNonFinite, refuseOthers } from '../../policies/weights.ts'
import type { Layout } from './families.ts'
import type { TransformerModel } from './model.ts'
import { sizeOf } from './parameters.ts'
import { ROWS_TOGETHER, type TakeRows } from './quantized.ts'

/** A tensor of a file, and the parameters in it, in their order. */
interface Stored {
  readonly name: string
  readonly parts: readonly Parameter[]
  readonly transposed: boolean
}

/** The name of the file's tensor that has a parameter. */
export function storedName({ fused = {}, names = [] }: Layout, name: string): string {
  let stored = name
  for (const [whole, parts] of Object.entries(fused)) {
    for (const part of parts) stored = stored.replace(`.${part}.`, `.${whole}.`)
  }
  for (const [ours, theirs] of names) {
    if (stored.includes(ours)) stored = stored.replace(ours, theirs)
  }
  return stored
}

/** Whether files hold the parameters with our names and arrangement. */
function isPlain({ fused, names, transposed }: Layout): boolean {
  return fused === undefined && names === undefined && transposed === undefined
}

function storedOf({ layout }: TransformerModel['shape'], parameters: readonly Parameter[]): Stored[] {
  const stored = new Map<string, Parameter[]>()
  for (const parameter of parameters) {
    const name = storedName(layout, parameter.name)
    stored.set(name, [...(stored.get(name) ?? []), parameter])
  }
  return [...stored].map(([name, parts]) => {
    const [{ name: own, shape }] = parts as [Parameter]
    return {
      name,
      parts,
      transposed: layout.transposed === true && own.startsWith('model.layers.') && shape.length === 2,
    }
  })
}

function shapeOf({ parts, transposed }: Stored): number[] {
  const rows = parts.reduce((sum, { shape }) => sum + shape[0]!, 0)
  const others = parts[0]!.shape.slice(1)
  return transposed ? [...others, rows] : [rows, ...others]
}

/** A model's tensors as its family's files have them. */
export function toStored({ shape }: TransformerModel, tensors: readonly Tensor[]): Tensor[] {
  if (isPlain(shape.layout)) return [...tensors]
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]))
  const parameters = tensors.map(({ name, shape: sides }) => ({ name, shape: sides, offset: 0 }))
  return storedOf(shape, parameters).map((stored) => {
    const { name, parts, transposed } = stored
    const pieces = parts.map((part) => byName.get(part.name)!)
    const [{ type }] = pieces as [Tensor]
    const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.bytes.byteLength, 0))
    let at = 0
    for (const piece of pieces) {
      bytes.set(piece.bytes, at)
      at += piece.bytes.byteLength
    }
    const [rows, columns] = transposed ? shapeOf(stored).toReversed() : [1, 1]
    return { name, type, shape: shapeOf(stored), bytes: transposed ? transpose(bytes, rows!, columns!) : bytes }
  })
}

/**
 * A file's tensors by our names. Those of other names stay, for the reader to refuse.
 * @throws InputError for a tensor that is missing or of another shape.
 */
export function fromStored(
  { shape }: TransformerModel,
  path: string,
  tensors: ReadonlyMap<string, Tensor>,
  parameters: readonly Parameter[],
): Map<string, Tensor> {
  const out = new Map(tensors)
  if (isPlain(shape.layout)) return out
  for (const stored of storedOf(shape, parameters)) {
    const { name, parts, transposed } = stored
    const tensor = tensors.get(name)
    const expected = shapeOf(stored)
    if (tensor === undefined || show(tensor.shape) !== show(expected)) {
      const got = tensor ? `${name} of shape ${show(tensor.shape)}` : `no ${name}`
      throw new InputError(path, got, `${name} of shape ${show(expected)}`)
    }
    out.delete(name)
    const bytes = transposed ? transpose(tensor.bytes, expected[0]!, expected[1]!) : tensor.bytes
    const elementBytes = bytes.byteLength / sizeOf({ shape: expected })
    let at = 0
    for (const part of parts) {
      const end = at + sizeOf(part) * elementBytes
      out.set(part.name, { name: part.name, type: tensor.type, shape: part.shape, bytes: bytes.subarray(at, end) })
      at = end
    }
  }
  return out
}

/** A tensor of a file, and the parameters in it. */
export interface Read extends Stored {
  readonly place: TensorPlace
}

/**
 * Finds the tensors of these parameters in a file.
 * @throws InputError for a tensor that is missing, unknown, or of another shape or type.
 */
export function findReads(
  { shape }: TransformerModel,
  path: string,
  places: ReadonlyMap<string, TensorPlace>,
  parameters: readonly Parameter[],
): Read[] {
  const stored = storedOf(shape, parameters)
  const reads = stored.map((each) => {
    const place = places.get(each.name)
    checkTensor(path, each.name, place, shapeOf(each))
    return { ...each, place }
  })
  refuseOthers(path, places.keys(), new Set(stored.map(({ name }) => name)))
  return reads
}

/** Elements of a tensor that are read at once: 8 MiB of f32. */
const PIECE = 2 ** 21

/** Parts of a tensor's rows that are read at once: the first row of each, and the one after its last. */
export function* partsOfRows(numRows: number, width: number): Generator<[from: number, to: number]> {
  const rows = Math.max(ROWS_TOGETHER, Math.floor(PIECE / width / ROWS_TOGETHER) * ROWS_TOGETHER)
  for (let row = 0; row < numRows; row += rows) yield [row, Math.min(numRows, row + rows)]
}

/** A file's tensor as f32, a few rows at a time, with the number of the first. */
export function* rowsOf(
  file: OpenSafetensors,
  place: TensorPlace,
): Generator<[values: Float32Array, firstRow: number]> {
  const [numRows = 1] = place.shape
  const rowBytes = (place.end - place.start) / numRows
  for (const [from, to] of partsOfRows(numRows, sizeOf(place) / numRows)) {
    const bytes = file.read(place, from * rowBytes, to * rowBytes)
    yield [tensorValues({ ...place, bytes }) as Float32Array, from]
  }
}

/** Reads the parameters of a file's tensors. @throws InputError for numbers that are not finite. */
export function readParameters(
  model: TransformerModel,
  path: string,
  file: OpenSafetensors,
  reads: readonly Read[],
  take: TakeRows,
): void {
  for (const { name, parts, transposed, place } of reads) {
    const [first] = parts as [Parameter]
    if (parts.length === 1 && !transposed) {
      const width = sizeOf(first) / first.shape[0]!
      for (const [values, row] of rowsOf(file, place)) {
        refuseNonFinite(path, first.name, values, row * width)
        take(first, values, row)
      }
      continue
    }
    const tensor: Tensor = { ...place, name, bytes: file.read(place) }
    const tensors = fromStored(model, path, new Map([[name, tensor]]), parts)
    for (const part of parts) {
      const values = tensorValues(tensors.get(part.name)!) as Float32Array
      refuseNonFinite(path, part.name, values)
      take(part, values, 0)
    }
  }
}

/** rows × columns elements, turned into columns × rows. */
function transpose(bytes: Uint8Array, rows: number, columns: number): Uint8Array {
  const size = bytes.byteLength / (rows * columns)
  const out = new Uint8Array(bytes.byteLength)
  if (size !== 2 && size !== 4) return bytes // Of a type that the reader refuses.
  const Elements = size === 2 ? Uint16Array : Uint32Array
  const { buffer, byteOffset } = bytes.byteOffset % size === 0 ? bytes : bytes.slice()
  const from = new Elements(buffer as ArrayBuffer, byteOffset, rows * columns)
  const to = new Elements(out.buffer)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) to[column * rows + row] = from[row * columns + column]!
  }
  return out
}
