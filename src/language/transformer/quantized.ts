/**
 * A frozen model in 16, 8 or 4 bits. 16 bits are bf16, for all matrices. In 8 and 4 bits the projections of its layers
 * are integers: 8 bits with one scale per row, 4 bits with one per 32 values of a row. So are the embedding and the
 * output head in the model's `embeddingBits`; else they stay f32, as does the rest. The model can be evaluated, decoded,
 * and trained with an adapter on top (as in QLoRA, Dettmers et al. 2023, with integers instead of NF4). Weights become
 * f32 only while they are used. In a model that `quantizesActivations`, inputs become 8-bit too; gradients then pass
 * through f32 weights as if inputs had not been rounded.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { type Tensor, type TensorType, tensorValues } from '../../base/files/safetensors.ts'
import { narrowBf16, widenBf16 } from '../../base/half.ts'
import type { Random } from '../../base/random.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import {
  bytesIn4Bits,
  dequantizeRows,
  dequantizeRows4,
  LARGEST_4_BITS,
  quantizeRows,
  quantizeRows4,
} from '../../kernels/bind.ts'
import type { Parameter } from '../../policies/policy.ts'
import { checkWeights } from '../../policies/weights.ts'
import type { TransformerModel, WeightBits } from './model.ts'
import { EMBEDDING, HEAD, PROJECTIONS, type QuantizedMatrix, sizeOf, viewParameters } from './parameters.ts'

/** Bits of the weights of a model that is not in f32. */
type FewBits = Exclude<WeightBits, 32>

interface Quantized extends Parameter {
  readonly bits: FewBits
}

/** Bytes of a matrix's values, and the number of its separate scales. */
function sizesOf({ shape, bits }: Quantized): { bytes: number; scales: number } {
  const [numOutputs, numInputs] = shape as [number, number]
  if (bits === 4) return { bytes: bytesIn4Bits(numOutputs, numInputs), scales: 0 }
  return { bytes: (numOutputs * numInputs * bits) / 8, scales: bits === 8 ? numOutputs : 0 }
}

/** Splits a model's parameters into those that stay f32 (with places in their own block) and those quantized. */
function divide(model: TransformerModel, bits: FewBits): { kept: Parameter[]; quantized: Quantized[] } {
  const endings = Object.keys(PROJECTIONS).map((name) => `.${name}.weight`)
  const kept: Parameter[] = []
  const quantized: Quantized[] = []
  let offset = 0
  for (const parameter of model.parameters) {
    const { name } = parameter
    const own = endings.some((ending) => name.endsWith(ending)) ? bits : isEmbedding(name) ? model.embeddingBits : 32
    if (own !== 32) {
      quantized.push({ ...parameter, bits: own })
      continue
    }
    kept.push({ ...parameter, offset })
    offset += sizeOf(parameter)
  }
  return { kept, quantized }
}

const isEmbedding = (name: string): boolean => name === EMBEDDING || name === HEAD

const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0)

/**
 * The columns of quantized weights: 2 bytes per weight in bf16, 1 in 8 bits, 18 for each 32 in 4 bits, 4 per other.
 * @throws InputError for a model of which only the projections, or only the embedding and the head, are in bf16.
 */
export function quantizedPlan(model: TransformerModel, bits: FewBits) {
  const { embeddingBits } = model
  if ((bits === 16) !== (embeddingBits === 16)) {
    const expected = bits === 16 ? '16' : '32, 8 or 4'
    throw new InputError('embeddingBits of transformer', `${embeddingBits}, for projections in ${bits} bits`, expected)
  }
  const { kept, quantized } = divide(model, bits)
  const sizes = quantized.map(sizesOf)
  return {
    kept: saved(column('f32', sum(kept.map(sizeOf)))),
    values: saved(column('u8', sum(sizes.map(({ bytes }) => bytes)))),
    scale: saved(column('f32', sum(sizes.map(({ scales }) => scales)))),
  } satisfies Plan
}

/** A model's weights in 16, 8 or 4 bits. */
export type QuantizedColumns = Columns<ReturnType<typeof quantizedPlan>>

/** A model's weights: f32, or frozen in fewer bits. */
export type BaseWeights = Float32Array | QuantizedColumns

export function bitsOf(model: TransformerModel, weights: BaseWeights): WeightBits {
  return weights instanceof Float32Array ? 32 : quantizedBits(model, weights)
}

/** Projections in 8 bits have scales of their own; those in 4 contain theirs. With bf16 the embedding is in bf16 too. */
function quantizedBits(model: TransformerModel, { scale }: QuantizedColumns): FewBits {
  if (model.embeddingBits === 16) return 16
  const rows = model.parameters.map(({ name, shape }) => (isEmbedding(name) ? shape[0]! : 0))
  return scale.length > (model.embeddingBits === 8 ? sum(rows) : 0) ? 8 : 4
}

/** Sets a new model's starting weights, quantized if needed. */
export function startWeights(weights: BaseWeights, model: TransformerModel, random: Random, key: number): void {
  const whole = weights instanceof Float32Array ? weights : new Float32Array(model.numParameters)
  model.initialize(whole, random, key)
  if (!(weights instanceof Float32Array)) quantizeTransformer(weights, model, whole)
}

/** Sets weights from f32, quantized if needed. @throws InputError for another length, or non-finite numbers. */
export function setWeights(weights: BaseWeights, model: TransformerModel, whole: Float32Array): void {
  if (weights instanceof Float32Array) {
    checkWeights(model, whole)
    weights.set(whole)
  } else quantizeTransformer(weights, model, whole)
}

/** Takes rows of a parameter in f32, from row `firstRow` on. */
export type TakeRows = (parameter: Parameter, values: Float32Array, firstRow: number) => void

/** The largest f32 that does not become infinite in bf16. */
const LARGEST_BEFORE_BF16 = 2 ** 128 - 2 ** 119 - 2 ** 104

function checkSize(name: string, values: Float32Array, largest: number): void {
  const tooLarge = values.find((weight) => Math.abs(weight) > largest)
  if (tooLarge !== undefined)
    throw new InputError('weights', `${tooLarge} in ${name}`, `at most ±${largest}, or 8 bits`)
}

/** Rows that 4 bits keep together: rows are taken from a multiple of it on. */
export const ROWS_TOGETHER = 16

/**
 * Fills a model's weights row by row: quantizes the rows of projections as `quantizeTransformer` does, and copies the others.
 * @throws InputError for weights that are in 4 bits above 8 times f16's largest number, or infinite in bf16.
 */
export function rowTaker(model: TransformerModel, weights: BaseWeights): TakeRows {
  if (weights instanceof Float32Array) {
    return ({ offset, shape }, values, firstRow) =>
      weights.set(values, offset + (firstRow * sizeOf({ shape })) / shape[0]!)
  }
  const { kept, matrices } = nameQuantized(model, weights)
  return ({ name, shape }, values, firstRow) => {
    const matrix = matrices.get(name)
    if (matrix === undefined) {
      kept.get(name)!.set(values, (firstRow * sizeOf({ shape })) / shape[0]!)
      return
    }
    const numInputs = shape[1]!
    const numRows = values.length / numInputs
    if (matrix.bits === 16) {
      checkSize(name, values, LARGEST_BEFORE_BF16)
      matrix.values.set(narrowBf16(values), firstRow * numInputs)
      return
    }
    if (matrix.bits === 8) {
      const scale = matrix.scale.subarray(firstRow)
      quantizeRows(matrix.values.subarray(firstRow * numInputs), scale, values, numRows, numInputs)
      return
    }
    checkSize(name, values, LARGEST_4_BITS)
    quantizeRows4(matrix.values.subarray(bytesIn4Bits(firstRow, numInputs)), values, numRows, numInputs)
  }
}

/**
 * Fills the columns from a model's weights. bf16 rounds to the nearest. In 8 bits each weight moves by at most 1/254 of its row's
 * largest; in 4 bits by at most 1/8 of the largest of its 32, or half of that if it has the largest's sign.
 * @throws InputError for weights that are of another length, not finite, in 4 bits above 8 times f16's largest
 * number, or infinite in bf16.
 */
export function quantizeTransformer(columns: QuantizedColumns, model: TransformerModel, weights: Float32Array): void {
  checkWeights(model, weights)
  const take = rowTaker(model, columns)
  for (const parameter of model.parameters) {
    const { offset } = parameter
    take(parameter, weights.subarray(offset, offset + sizeOf(parameter)), 0)
  }
}

/** The weights in f32, as the model computes with them. `quantizeTransformer` maps them back to the same columns. */
export function wholeWeights(model: TransformerModel, weights: BaseWeights): Float32Array {
  checkGiven('model of wholeWeights', model, ['config', 'parameters'])
  checkGiven('weights of wholeWeights', weights, [])
  if (weights instanceof Float32Array) return weights
  const whole = new Float32Array(model.numParameters)
  const { kept, matrices } = nameQuantized(model, weights)
  for (const { name, offset, shape } of model.parameters) {
    const into = whole.subarray(offset, offset + sizeOf({ shape }))
    const matrix = matrices.get(name)
    if (matrix === undefined) into.set(kept.get(name)!)
    else widenMatrix(into, matrix, shape)
  }
  return whole
}

/** Writes a matrix of this shape in f32, into memory of any kind. */
export function widenMatrix(into: Float32Array, matrix: QuantizedMatrix, shape: readonly number[]): void {
  const [numOutputs, numInputs] = shape as [number, number]
  if (matrix.bits === 16) into.set(widenBf16(matrix.values))
  else if (matrix.bits === 8) dequantizeRows(into, matrix.values, matrix.scale, numOutputs, numInputs)
  else dequantizeRows4(into, matrix.values, numOutputs, numInputs)
}

/** A model's weights in f32 from its quantized columns' tensors, named with `prefix`; `subject` is their file. */
export function quantizedWeightsOf(
  subject: string,
  tensors: ReadonlyMap<string, Tensor>,
  model: TransformerModel,
  prefix: string,
  bits: FewBits,
): Float32Array {
  const plan = quantizedPlan(model, bits)
  const take = (name: keyof typeof plan, type: TensorType) => {
    const tensor = tensors.get(prefix + name)
    const { rows } = plan[name]
    if (tensor?.type === type && tensor.shape.length === 1 && tensor.shape[0] === rows) return tensorValues(tensor)
    const got = tensor ? `${name}: ${tensor.type} of shape ${show(tensor.shape)}` : `no ${name}`
    throw new InputError(subject, got, `${name}: ${type} of shape [${rows}]`)
  }
  const [kept, scale] = [take('kept', 'F32') as Float32Array, take('scale', 'F32') as Float32Array]
  return wholeWeights(model, { kept, values: take('values', 'U8') as Uint8Array, scale })
}

/** The columns' content, by parameter name. */
export function nameQuantized(
  model: TransformerModel,
  columns: QuantizedColumns,
): { kept: Map<string, Float32Array>; matrices: Map<string, QuantizedMatrix> } {
  const { kept, quantized } = divide(model, quantizedBits(model, columns))
  const views = viewParameters(kept, columns.kept)
  const matrices = new Map<string, QuantizedMatrix>()
  let [byte, row] = [0, 0]
  for (const parameter of quantized) {
    const { bits, name } = parameter
    const { bytes, scales } = sizesOf(parameter)
    const values = columns.values.subarray(byte, byte + bytes)
    if (bits === 16) matrices.set(name, { bits, values: new Uint16Array(values.buffer, values.byteOffset, bytes / 2) })
    else if (bits === 8) matrices.set(name, { bits, values, scale: columns.scale.subarray(row, row + scales) })
    else matrices.set(name, { bits, values })
    byte += bytes
    row += scales
  }
  return { kept: new Map(kept.map(({ name }, index) => [name, views[index]!])), matrices }
}
