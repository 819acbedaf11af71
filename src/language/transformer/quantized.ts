/**
 * A frozen model in 8 or 4 bits: the projections of its layers are whole numbers, of 8 bits with a scale a row and of 4 with one for
 * each 32 of a row, everything else stays f32. It can be
 * evaluated, decoded and trained by an adapter on top (QLoRA's way, Dettmers et al. 2023, with whole numbers for its NF4). A
 * projection's weights are made f32 again for the moment in which they are used; or, in a model that `quantizesActivations`, its
 * inputs become bytes too, and only gradients pass through weights in f32, as if nothing of the inputs had been rounded.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { type Tensor, type TensorType, tensorValues } from '../../base/files/safetensors.ts'
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
import type { WeightBits } from './forward-plan.ts'
import type { TransformerModel } from './model.ts'
import { PROJECTIONS, type QuantizedMatrix, sizeOf, viewParameters } from './parameters.ts'

/** Bytes of a projection's values, and its scales beside them. */
function sizesOf({ shape }: Parameter, bits: 8 | 4): { bytes: number; scales: number } {
  const [numOutputs, numInputs] = shape as [number, number]
  if (bits === 8) return { bytes: numOutputs * numInputs, scales: numOutputs }
  return { bytes: bytesIn4Bits(numOutputs, numInputs), scales: 0 }
}

/** The parameters of a model that stay as they are, with their places in their own block, and those that become whole numbers. */
function divide(model: TransformerModel): { kept: Parameter[]; quantized: Parameter[] } {
  const endings = Object.values(PROJECTIONS).map((module) => `.${module}.weight`)
  const isProjection = ({ name }: Parameter) => endings.some((ending) => name.endsWith(ending))
  let offset = 0
  const kept = model.parameters
    .filter((parameter) => !isProjection(parameter))
    .map((parameter) => {
      const placed = { ...parameter, offset }
      offset += sizeOf(parameter)
      return placed
    })
  return { kept, quantized: model.parameters.filter(isProjection) }
}

/**
 * The columns of a model's weights in 8 or 4 bits: a byte for each weight of a projection, or 18 for each 32 of them; four bytes for
 * each other.
 */
export function quantizedPlan(model: TransformerModel, bits: 8 | 4) {
  const { kept, quantized } = divide(model)
  const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0)
  const sizes = quantized.map((parameter) => sizesOf(parameter, bits))
  return {
    kept: saved(column('f32', sum(kept.map(sizeOf)))),
    values: saved(column('u8', sum(sizes.map(({ bytes }) => bytes)))),
    scale: saved(column('f32', sum(sizes.map(({ scales }) => scales)))),
  } satisfies Plan
}

/** A model's weights in 8 or 4 bits. */
export type QuantizedColumns = Columns<ReturnType<typeof quantizedPlan>>

/** A model's weights: whole, or frozen in 8 or 4 bits. */
export type BaseWeights = Float32Array | QuantizedColumns

/** Bits that a weight of a projection is kept in. */
export function bitsOf(weights: BaseWeights): WeightBits {
  return weights instanceof Float32Array ? 32 : quantizedBits(weights)
}

/** Of 4 bits, scales lie among the values. */
const quantizedBits = ({ scale }: QuantizedColumns): 8 | 4 => (scale.length > 0 ? 8 : 4)

/**
 * Sets weights from whole ones, in 8 or 4 bits by `quantizeTransformer`.
 * @throws InputError for weights of another length, or that are not finite.
 */
export function setWeights(weights: BaseWeights, model: TransformerModel, whole: Float32Array): void {
  if (weights instanceof Float32Array) {
    checkWeights(model, whole)
    weights.set(whole)
  } else quantizeTransformer(weights, model, whole)
}

/**
 * Fills the columns from a model's weights: each weight of a projection is moved by at most a 254th of its row's largest; in 4 bits
 * by at most an eighth of the largest of its 32, half of that where it has the largest's sign.
 * @throws InputError for weights of another length, that are not finite, or in 4 bits larger than f16's largest times 8.
 */
export function quantizeTransformer(columns: QuantizedColumns, model: TransformerModel, weights: Float32Array): void {
  checkWeights(model, weights)
  const places = new Map(model.parameters.map(({ name, offset }) => [name, offset]))
  const { kept, matrices } = nameQuantized(model, columns)
  for (const [name, view] of kept) view.set(weights.subarray(places.get(name)!, places.get(name)! + view.length))
  for (const [name, { bits, numOutputs, numInputs, values, scale }] of matrices) {
    const from = weights.subarray(places.get(name)!, places.get(name)! + numOutputs * numInputs)
    if (bits === 8) quantizeRows(values, scale, from, numOutputs, numInputs)
    else {
      const tooLarge = from.find((weight) => Math.abs(weight) > LARGEST_4_BITS)
      if (tooLarge !== undefined) {
        throw new InputError('weights', `${tooLarge} in ${name}`, `at most ±${LARGEST_4_BITS}, or quantize=8`)
      }
      quantizeRows4(values, from, numOutputs, numInputs)
    }
  }
}

/**
 * The weights that a model computes with: themselves where they are whole, else what the columns stand for, of which
 * `quantizeTransformer` makes the same columns again.
 */
export function wholeWeights(model: TransformerModel, weights: BaseWeights): Float32Array {
  checkGiven('model of wholeWeights', model, ['config', 'parameters'])
  checkGiven('weights of wholeWeights', weights, [])
  if (weights instanceof Float32Array) return weights
  const whole = new Float32Array(model.numParameters)
  const places = new Map(model.parameters.map(({ name, offset }) => [name, offset]))
  const { kept, matrices } = nameQuantized(model, weights)
  for (const [name, view] of kept) whole.set(view, places.get(name)!)
  for (const [name, { bits, numOutputs, numInputs, values, scale }] of matrices) {
    const into = whole.subarray(places.get(name)!, places.get(name)! + numOutputs * numInputs)
    if (bits === 8) dequantizeRows(into, values, scale, numOutputs, numInputs)
    else dequantizeRows4(into, values, numOutputs, numInputs)
  }
  return whole
}

/**
 * The whole weights of a model from the tensors of its columns in 8 or 4 bits, called by `prefix` and a column's name; `subject`
 * names their file in errors.
 */
export function quantizedWeightsOf(
  subject: string,
  tensors: ReadonlyMap<string, Tensor>,
  model: TransformerModel,
  prefix: string,
  bits: 8 | 4,
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

/** What the columns hold, by the names of the model's parameters. */
export function nameQuantized(
  model: TransformerModel,
  columns: QuantizedColumns,
): { kept: Map<string, Float32Array>; matrices: Map<string, QuantizedMatrix> } {
  const { kept, quantized } = divide(model)
  const views = viewParameters(kept, columns.kept)
  const bits = quantizedBits(columns)
  const matrices = new Map<string, QuantizedMatrix>()
  let [byte, row] = [0, 0]
  for (const parameter of quantized) {
    const [numOutputs, numInputs] = parameter.shape as [number, number]
    const { bytes, scales } = sizesOf(parameter, bits)
    const values = columns.values.subarray(byte, byte + bytes)
    matrices.set(parameter.name, {
      bits,
      numOutputs,
      numInputs,
      values,
      scale: columns.scale.subarray(row, row + scales),
    })
    byte += bytes
    row += scales
  }
  return { kept: new Map(kept.map(({ name }, index) => [name, views[index]!])), matrices }
}
