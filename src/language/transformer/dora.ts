/**
 * Weight-decomposed adapters (DoRA, Liu et al. 2024): the magnitude m of each row of an adapted projection is trained apart from its
 * direction,
 *
 *     y = m / ‖W + s B A‖ · (W x + s B A x) + bias
 *
 * with the norms of rows, which count as constants in the gradient, as in the paper (section 4.3) and PEFT. Dropout is of A's
 * input alone, where PEFT also drops that of a part of W x.
 */
import type { Random } from '../../base/random.ts'
import type { Columns } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { forwardPlan } from './forward-plan.ts'
import { type LoraModel, MAGNITUDE } from './lora.ts'
import { type LayerWeights, mapParameters, type Projection, sizeOf, viewParameters } from './parameters.ts'
import { type BaseWeights, nameQuantized, widenMatrix } from './quantized.ts'

/** Starting weights of an adapter: as `LoraModel.initialize`, and magnitudes that are the norms of the model's rows. */
export function startAdapter(
  lora: LoraModel,
  weights: Float32Array,
  random: Random,
  key: number,
  base: BaseWeights,
): void {
  lora.initialize(weights, random, key)
  if (lora.settings.magnitude !== true) return
  const named = rowsOf(lora, base)
  for (const { name, offset, shape } of lora.parameters) {
    if (!name.endsWith(MAGNITUDE)) continue
    const rows = named(name.replace(MAGNITUDE, '.weight'))
    const width = rows.length / shape[0]!
    for (let row = 0; row < sizeOf({ shape }); row++) weights[offset + row] = normOf(rows, row * width, width)
  }
}

/** The model's projections by name, in f32. */
function rowsOf({ base: model }: LoraModel, base: BaseWeights): (name: string) => Float32Array {
  if (base instanceof Float32Array) {
    const views = mapParameters(model.parameters, viewParameters(model.parameters, base))
    return (name) => views.get(name)!
  }
  const { matrices } = nameQuantized(model, base)
  return (name) => {
    const parameter = model.parameters.find((each) => each.name === name)!
    const rows = new Float32Array(sizeOf(parameter))
    widenMatrix(rows, matrices.get(name)!, parameter.shape)
    return rows
  }
}

function normOf(x: Float32Array, from: number, length: number): number {
  let sum = 0
  for (let i = from; i < from + length; i++) sum += x[i]! * x[i]!
  return Math.sqrt(sum)
}

interface Forward {
  readonly kernels: Kernels
  readonly columns: Pick<
    Columns<ReturnType<typeof forwardPlan>>,
    'none' | 'scratch' | 'dequantized' | 'inverseNorm' | 'normedWeights'
  >
  weightOf(projection: Projection): Float32Array
}

interface Part {
  readonly projection: Projection
  readonly unbiased: Projection
  readonly inverseNorm: Float32Array
  /** A and B of which `inverseNorm` is. */
  readonly a: Float32Array
  readonly b: Float32Array
}

/** The magnitudes of an adapter's projections in a forward pass. */
export class Magnitudes {
  readonly #forward: Forward
  readonly #scale: number
  readonly #parts = new Map<number, Part>()

  constructor(forward: Forward, scale: number, layers: readonly LayerWeights[]) {
    this.#forward = forward
    this.#scale = scale
    const { inverseNorm, normedWeights } = forward.columns
    normedWeights.fill(Number.NaN)
    let [row, at] = [0, 0]
    const take = (length: number) => {
      at += length
      return normedWeights.subarray(at - length, at)
    }
    for (const projection of layers.flatMap((each) => [
      each.query,
      each.key,
      each.value,
      each.output,
      each.gate,
      each.up,
      each.down,
    ])) {
      const { magnitude, numOutputs, place, a, b } = projection
      if (magnitude.length === 0) continue
      const norms = inverseNorm.subarray(row, row + numOutputs)
      row += numOutputs
      const unbiased = { ...projection, bias: forward.columns.none }
      this.#parts.set(place, { projection, unbiased, inverseNorm: norms, a: take(a.length), b: take(b.length) })
    }
  }

  /** The projection without its bias, which comes after the magnitudes. */
  unbiased({ place }: Projection): Projection {
    return this.#parts.get(place)!.unbiased
  }

  /** Finds the norms again of projections whose A or B has changed. */
  refresh(): void {
    for (const { projection, inverseNorm, a, b } of this.#parts.values()) {
      if (isSame(a, projection.a) && isSame(b, projection.b)) continue
      a.set(projection.a)
      b.set(projection.b)
      this.#findNorms(inverseNorm, projection)
    }
  }

  #findNorms(inverseNorm: Float32Array, projection: Projection): void {
    const { kernels, columns } = this.#forward
    const { none, scratch, dequantized } = columns
    const { numOutputs, numInputs, a, b } = projection
    const length = numOutputs * numInputs
    const weight = this.#forward.weightOf(projection)
    if (weight !== dequantized) dequantized.set(weight.subarray(0, length))
    kernels.scaleElements(dequantized, 1 / this.#scale, length)
    const rank = a.length / numInputs
    kernels.matmul(dequantized, b, a, none, scratch, numOutputs, numInputs, rank, false, false, true)
    for (let row = 0; row < numOutputs; row++) {
      inverseNorm[row] = 1 / (this.#scale * normOf(dequantized, row * numInputs, numInputs))
    }
  }

  /** Turns y (count × outputs) = W x + s B A x into the projection's output. */
  apply(y: Float32Array, { place, numOutputs, magnitude, bias }: Projection, count: number): void {
    const { inverseNorm } = this.#parts.get(place)!
    const hasBias = bias.length > 0
    for (let row = 0; row < count; row++) {
      for (let o = 0, i = row * numOutputs; o < numOutputs; o++, i++) {
        const scaled = Math.fround(Math.fround(magnitude[o]! * inverseNorm[o]!) * y[i]!)
        y[i] = hasBias ? scaled + bias[o]! : scaled
      }
    }
  }

  /** Turns dy into the gradient by W x + s B A x, which is `y`, and adds the gradient by the magnitudes to `into`. */
  backward(
    into: Float32Array,
    dy: Float32Array,
    y: Float32Array,
    { place, numOutputs, magnitude }: Projection,
    count: number,
  ): void {
    const { inverseNorm } = this.#parts.get(place)!
    for (let o = 0; o < numOutputs; o++) {
      let sum = 0
      for (let row = 0, i = o; row < count; row++, i += numOutputs) {
        sum += dy[i]! * y[i]!
        dy[i] = dy[i]! * Math.fround(magnitude[o]! * inverseNorm[o]!)
      }
      into[o] = into[o]! + sum * inverseNorm[o]!
    }
  }
}

function isSame(a: Float32Array, b: Float32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}
