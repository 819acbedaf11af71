/**
 * Low-rank adapters (LoRA, Hu et al. 2021). The model's weights are frozen, and (alpha / rank) · B A x is added to the
 * chosen projections. A, B and the value head, if there is one, are trained; they lie in one flat block, by PEFT's
 * names and shapes. With magnitudes the length of each row is trained apart from its direction (`dora.ts`). Sampling and training compute the same products, so both give a token the same bits. `mergeLora`
 * adds the products to the weights for other software.
 */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { type Random, Stream } from '../../base/random.ts'
import type { Parameter } from '../../policies/policy.ts'
import { checkWeights } from '../../policies/weights.ts'
import type { TransformerModel } from './model.ts'
import { PROJECTIONS, type ProjectionName, projectionSides, projectionsOf, sizeOf, VALUE_HEAD } from './parameters.ts'

/** The settings of an adapter. */
export interface LoraSettings {
  /** Rows of A and columns of B. */
  readonly rank: number
  /** The products are scaled by alpha / rank. */
  readonly alpha: number
  /** The fraction of a projection's inputs that A does not see while gradients are computed; default 0. */
  readonly dropout: number
  /** The adapted projections. */
  readonly targets: readonly ProjectionName[]
  /** The adapted layers, from 0 and ascending; default all. */
  readonly layers?: readonly number[]
  /** Scales the products by alpha / √rank instead (rsLoRA, arXiv 2312.03732), so that high ranks learn as fast as low ones. */
  readonly rankStabilized?: boolean
  /** Trains the magnitude of each row of an adapted projection apart from its direction (DoRA, arXiv 2402.09353). */
  readonly magnitude?: boolean
}

/** The end of the names of magnitudes, as in PEFT's files. */
export const MAGNITUDE = '.lora_magnitude_vector'

/** An adapter before it has memory. */
export interface LoraModel {
  readonly base: TransformerModel
  readonly settings: LoraSettings
  /** alpha / rank, or alpha / √rank. */
  readonly scale: number
  /** Number of trained weights: A and B of each adapted projection, and the value head. */
  readonly numParameters: number
  readonly parameters: readonly Parameter[]
  /** Starting weights, keyed by the seed and `key`: A uniform in ±1 / √inputs, as in PEFT; others 0. `startAdapter` sets magnitudes. */
  initialize(weights: Float32Array, random: Random, key: number): void
}

export interface LoraAdapter {
  readonly lora: LoraModel
  readonly weights: Float32Array
  /** Keys the dropout. */
  readonly random: Random
}

/**
 * Makes an adapter for a model. Defaults: every projection, no dropout, alpha = 2 · rank.
 * @throws InputError for a rank that is not a whole number from 1 to the smaller side of a target, an alpha that is not
 * above 0, a dropout outside [0, 1), targets that are empty, unknown or repeated, and layers that are not some of the
 * model's in ascending order.
 * @example lora(model, { rank: 8, targets: ['q_proj', 'v_proj'] })
 */
export function lora(base: TransformerModel, given: Partial<LoraSettings> & { readonly rank: number }): LoraModel {
  checkGiven('base of lora', base, ['config', 'parameters'])
  checkGiven('options of lora', given, ['rank'])
  const { rank, alpha = 2 * rank, dropout = 0, targets, layers, rankStabilized = false, magnitude = false } = given
  const all = projectionsOf(base.shape)
  const chosen = targets ?? all
  for (const target of chosen) if (!all.includes(target)) throw unknownWord('targets', String(target), all)
  if (chosen.length === 0 || new Set(chosen).size < chosen.length) {
    throw new InputError('targets', show(chosen), `some of ${all.join(', ')}, each of them once`)
  }
  const rankMax = Math.min(...chosen.flatMap((name) => projectionSides(base.shape, name)))
  if (!(Number.isSafeInteger(rank) && rank >= 1 && rank <= rankMax)) {
    throw new InputError('rank', show(rank), `a whole number from 1 to ${rankMax}, the smallest side of a target`)
  }
  if (!(alpha > 0 && alpha < Infinity)) throw new InputError('alpha', show(alpha), 'a number above 0')
  if (!(dropout >= 0 && dropout < 1)) throw new InputError('dropout', show(dropout), 'a number from 0 to below 1')
  const { numLayers } = base.shape
  const isAscending = layers?.every((layer, i) => Number.isInteger(layer) && layer > (layers[i - 1] ?? -1))
  if (layers !== undefined && !(isAscending && layers.length > 0 && layers.at(-1)! < numLayers)) {
    throw new InputError('layers', show(layers), `some of 0 to ${numLayers - 1}, in ascending order`)
  }

  const ordered = all.filter((name) => chosen.includes(name))
  const parameters = listParameters(
    base,
    rank,
    ordered,
    layers ?? Array.from({ length: numLayers }, (_, index) => index),
    magnitude,
  )
  const last = parameters.at(-1)!
  return {
    base,
    settings: {
      ...{ rank, alpha, dropout, targets: ordered },
      ...(layers !== undefined && { layers }),
      ...(rankStabilized && { rankStabilized }),
      ...(magnitude && { magnitude }),
    },
    scale: alpha / (rankStabilized ? Math.sqrt(rank) : rank),
    numParameters: last.offset + sizeOf(last),
    parameters,
    initialize(weights, random, key) {
      weights.fill(0)
      parameters.forEach((parameter, index) => {
        if (!parameter.name.endsWith('.lora_A.weight')) return
        const bound = 1 / Math.sqrt(parameter.shape[1]!)
        for (let i = 0; i < sizeOf(parameter); i++) {
          if (i % 4 === 0) random.draw(Stream.initialize, key, index, i / 4)
          weights[parameter.offset + i] = random.uniform(i % 4, -bound, bound)
        }
      })
    },
  }
}

function listParameters(
  base: TransformerModel,
  rank: number,
  targets: readonly ProjectionName[],
  layers: readonly number[],
  hasMagnitude: boolean,
): Parameter[] {
  const parameters: Parameter[] = []
  let offset = 0
  const add = (name: string, ...shape: number[]): void => {
    parameters.push({ name, offset, shape })
    offset += sizeOf({ shape })
  }
  for (const index of layers) {
    for (const target of targets) {
      const [numOutputs, numInputs] = projectionSides(base.shape, target)
      const module = `model.layers.${index}.${PROJECTIONS[target]}`
      add(`${module}.lora_A.weight`, rank, numInputs)
      add(`${module}.lora_B.weight`, numOutputs, rank)
      if (hasMagnitude) add(`${module}${MAGNITUDE}`, numOutputs)
    }
  }
  if (base.hasValueHead) {
    add(VALUE_HEAD.weight, 1, base.shape.width)
    add(VALUE_HEAD.bias, 1)
  }
  return parameters
}

/**
 * Adds scale · B A to the adapted weights, gives their rows the adapter's magnitudes if it has them, and copies the trained value head, if there is one. Sums are in f64 and
 * rounded once.
 * @throws InputError for weights that are of another length or not finite.
 */
export function mergeLora(weights: Float32Array, model: LoraModel, adapter: Float32Array): void {
  checkGiven('weights of mergeLora', weights, 'a list')
  checkGiven('model of mergeLora', model, ['base', 'settings', 'scale', 'numParameters'])
  checkGiven('adapter of mergeLora', adapter, 'a list')
  addProducts(weights, model, adapter, model.scale)
}

/**
 * Subtracts what `mergeLora` added. The weights differ from the original by a rounding or two: 2⁻²³ of the largest
 * number in the sum. A value head stays.
 * @throws InputError as `mergeLora` does, and for an adapter with magnitudes, whose merged rows do not tell the norms of before.
 */
export function unmergeLora(weights: Float32Array, model: LoraModel, adapter: Float32Array): void {
  checkGiven('weights of unmergeLora', weights, 'a list')
  checkGiven('model of unmergeLora', model, ['base', 'settings', 'scale', 'numParameters'])
  checkGiven('adapter of unmergeLora', adapter, 'a list')
  if (model.settings.magnitude === true)
    throw new InputError(
      'model of unmergeLora',
      'an adapter with magnitudes',
      "the model's weights from before the merge",
    )
  addProducts(weights, model, adapter, -model.scale)
}

function addProducts(weights: Float32Array, model: LoraModel, adapter: Float32Array, scale: number): void {
  const { base, parameters } = model
  checkWeights(base, weights)
  checkWeights(model, adapter)
  const places = new Map(base.parameters.map((parameter) => [parameter.name, parameter.offset]))
  parameters.forEach((parameter, index) => {
    const view = adapter.subarray(parameter.offset, parameter.offset + sizeOf(parameter))
    const place = places.get(parameter.name)
    // The value head has the same name in both.
    if (place !== undefined) weights.set(view, place)
    if (!parameter.name.endsWith('.lora_A.weight')) return
    const into = places.get(parameter.name.replace('lora_A.', ''))!
    const b = adapter.subarray(parameters[index + 1]!.offset)
    const [rank, numInputs] = parameter.shape as [number, number]
    const [numOutputs] = parameters[index + 1]!.shape as [number]
    const magnitude = model.settings.magnitude === true ? adapter.subarray(parameters[index + 2]!.offset) : null
    const whole = new Float64Array(numInputs)
    for (let row = 0; row < numOutputs; row++) {
      const at = into + row * numInputs
      let squares = 0
      for (let k = 0; k < numInputs; k++) {
        let sum = 0
        for (let r = 0; r < rank; r++) sum += b[row * rank + r]! * view[r * numInputs + k]!
        whole[k] = weights[at + k]! + scale * sum
        squares += whole[k]! * whole[k]!
      }
      const gain = magnitude === null ? 1 : magnitude[row]! / Math.sqrt(squares)
      for (let k = 0; k < numInputs; k++) weights[at + k] = gain * whole[k]!
    }
  })
}
