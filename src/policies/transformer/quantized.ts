/**
 * A frozen model in 8 bits: the projections of its layers are bytes with a scale a row, everything else stays f32. It can be
 * evaluated, decoded and trained by an adapter on top (QLoRA's way, Dettmers et al. 2023, with whole numbers for its NF4). A
 * projection's weights are made f32 again for the moment in which they are used; or, in a model that `quantizesActivations`, its
 * inputs become bytes too, and only gradients pass through weights in f32, as if nothing of the inputs had been rounded.
 */
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import { InputError, show } from '../../errors.ts'
import { dequantizeRows, quantizeRows } from '../../kernels/bind.ts'
import { type Tensor, type TensorType, tensorValues } from '../../safetensors.ts'
import type { Parameter } from '../policy.ts'
import { checkWeights } from '../weights.ts'
import { sizeOf, type TransformerModel } from './model.ts'
import { PROJECTIONS, viewParameters } from './parameters.ts'

/** A projection's weights in 8 bits. */
export interface QuantizedMatrix {
  /** numOutputs × numInputs, in two's complement. */
  readonly values: Uint8Array
  /** What each output's values are multiplied by. */
  readonly scale: Float32Array
}

/** The parameters of a model that stay as they are, and those that become bytes, each with their places in their own block. */
function divide(model: TransformerModel): { kept: Parameter[]; quantized: Parameter[] } {
  const endings = Object.values(PROJECTIONS).map((module) => `.${module}.weight`)
  const place = (parameters: readonly Parameter[]): Parameter[] => {
    let offset = 0
    return parameters.map((parameter) => {
      const placed = { ...parameter, offset }
      offset += sizeOf(parameter)
      return placed
    })
  }
  const isProjection = ({ name }: Parameter) => endings.some((ending) => name.endsWith(ending))
  return {
    kept: place(model.parameters.filter((parameter) => !isProjection(parameter))),
    quantized: place(model.parameters.filter(isProjection)),
  }
}

/** The columns of a model's weights in 8 bits: a byte for each weight of a projection, four for each other. */
export function quantizedPlan(model: TransformerModel) {
  const { kept, quantized } = divide(model)
  const count = (parameters: readonly Parameter[]) => parameters.reduce((sum, parameter) => sum + sizeOf(parameter), 0)
  return {
    kept: saved(column('f32', count(kept))),
    values: saved(column('u8', count(quantized))),
    scale: saved(
      column(
        'f32',
        quantized.reduce((sum, { shape }) => sum + shape[0]!, 0),
      ),
    ),
  } satisfies Plan
}

/** A model's weights in 8 bits. */
export type QuantizedColumns = Columns<ReturnType<typeof quantizedPlan>>

/** A model's weights: whole, or frozen in 8 bits. */
export type BaseWeights = Float32Array | QuantizedColumns

/**
 * Sets weights from whole ones, in 8 bits by `quantizeTransformer`.
 * @throws InputError for weights of another length, or that are not finite.
 */
export function setWeights(weights: BaseWeights, model: TransformerModel, whole: Float32Array): void {
  if (weights instanceof Float32Array) {
    checkWeights(model, whole)
    weights.set(whole)
  } else quantizeTransformer(weights, model, whole)
}

/**
 * Fills the columns from a model's weights: each weight of a projection is moved by at most a 254th of its row's largest.
 * @throws InputError for weights of another length, or that are not finite.
 */
export function quantizeTransformer(columns: QuantizedColumns, model: TransformerModel, weights: Float32Array): void {
  checkWeights(model, weights)
  const places = new Map(model.parameters.map(({ name, offset }) => [name, offset]))
  const { kept, matrices } = nameQuantized(model, columns)
  for (const [name, view] of kept) view.set(weights.subarray(places.get(name)!, places.get(name)! + view.length))
  for (const [name, { values, scale }] of matrices) {
    const from = weights.subarray(places.get(name)!, places.get(name)! + values.length)
    quantizeRows(values, scale, from, scale.length, values.length / scale.length)
  }
}

/**
 * The weights that a model computes with: themselves where they are whole, else what the columns stand for, of which
 * `quantizeTransformer` makes the same columns again.
 */
export function wholeWeights(model: TransformerModel, weights: BaseWeights): Float32Array {
  if (weights instanceof Float32Array) return weights
  const whole = new Float32Array(model.numParameters)
  const places = new Map(model.parameters.map(({ name, offset }) => [name, offset]))
  const { kept, matrices } = nameQuantized(model, weights)
  for (const [name, view] of kept) whole.set(view, places.get(name)!)
  for (const [name, { values, scale }] of matrices) {
    const into = whole.subarray(places.get(name)!, places.get(name)! + values.length)
    dequantizeRows(into, values, scale, scale.length, values.length / scale.length)
  }
  return whole
}

/**
 * The whole weights of a model from the tensors of its columns in 8 bits, called by `prefix` and a column's name; `subject`
 * names their file in errors.
 */
export function quantizedWeightsOf(
  subject: string,
  tensors: ReadonlyMap<string, Tensor>,
  model: TransformerModel,
  prefix: string,
): Float32Array {
  const plan = quantizedPlan(model)
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
  let row = 0
  const matrices = new Map<string, QuantizedMatrix>()
  for (const parameter of quantized) {
    const { name, offset, shape } = parameter
    const scale = columns.scale.subarray(row, row + shape[0]!)
    matrices.set(name, { values: columns.values.subarray(offset, offset + sizeOf(parameter)), scale })
    row += shape[0]!
  }
  return { kept: new Map(kept.map(({ name }, index) => [name, views[index]!])), matrices }
}
