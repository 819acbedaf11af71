/**
 * The forward pass over rows, each a token at a position of a sequence. Keys and values lie in columns of their own, the
 * pass's or a cache, so one pass serves packed sequences, a prompt and a single token of many lanes alike; and as no kernel
 * looks at the rows beside one, all of them give a token the same bits.
 */
import type { Columns } from '../../components/column.ts'
import { InputError, show } from '../../errors.ts'
import type { Kernels } from '../../kernels/bind.ts'
import {
  type forwardPlan,
  nameParameters,
  type TransformerModel,
  type TransformerWeights,
  viewParameters,
} from './model.ts'

/** A forward pass's columns. */
export type ForwardColumns = Columns<ReturnType<typeof forwardPlan>>
/** One layer's columns. */
export type LayerColumns = ForwardColumns['layers'][string]

/** Where a layer's keys and values go: (cache row) × (numKeyHeads · headWidth). */
export interface KeyValueCache {
  readonly key: Float32Array
  readonly value: Float32Array
}

/** A forward pass at work, in one thread. */
export class Forward {
  readonly model: TransformerModel
  readonly columns: ForwardColumns
  readonly kernels: Kernels
  readonly weights: TransformerWeights
  readonly layers: readonly LayerColumns[]
  /** The tokens as the rows of the embedding that they are. */
  readonly #tokenRows: Uint32Array

  constructor(model: TransformerModel, weights: Float32Array, columns: ForwardColumns, kernels: Kernels) {
    this.model = model
    this.columns = columns
    this.kernels = kernels
    this.weights = nameParameters(model, viewParameters(model, weights), columns.none)
    this.layers = Object.values(columns.layers)
    const { token } = columns
    this.#tokenRows = new Uint32Array(token.buffer, token.byteOffset, token.length)
    fillAngles(columns.cosine, columns.sine, model.shape.headWidth / 2, model.shape.ropeTheta)
  }

  /**
   * Runs rows 0 … count of `token`, `position` and `firstKey` through all layers: `hidden` is what their logits are made of.
   * With `caches`, one a layer, each row's key and value go to `cacheRow` of its layer's cache first, and attention reads
   * there.
   */
  run(count: number, caches?: readonly KeyValueCache[], cacheRow?: Int32Array): void {
    const { columns, kernels, model, layers } = this
    const { numLayers, width, normEpsilon } = model.shape
    const { top, topInverseRms, hidden } = columns
    kernels.gatherRows(layers[0]!.x, this.weights.embedding, this.#tokenRows, 0, count, width)
    for (let index = 0; index < numLayers; index++) {
      const layer = layers[index] ?? layers[0]!
      const next = index === numLayers - 1 ? top : (layers[index + 1] ?? layers[0]!).x
      this.#runLayer(index, layer, next, count, caches?.[index], cacheRow)
    }
    kernels.rmsNormForward(hidden, topInverseRms, top, this.weights.norm, normEpsilon, count, width)
  }

  #runLayer(
    index: number,
    layer: LayerColumns,
    next: Float32Array,
    count: number,
    cache: KeyValueCache | undefined,
    cacheRow: Int32Array | undefined,
  ): void {
    const { kernels, columns } = this
    const weights = this.weights.layers[index]!
    const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, normEpsilon, queryKeyNorm } = this.model.shape
    const { normed, activated, cosine, sine, position, scores, firstKey, none } = columns
    const queryWidth = numHeads * headWidth
    const keyWidth = numKeyHeads * headWidth

    kernels.rmsNormForward(normed, layer.inputInverseRms, layer.x, weights.inputNorm, normEpsilon, count, width)
    const { query, key, value, rawQuery, rawKey } = layer
    this.project(queryKeyNorm ? rawQuery : query, normed, weights.query, weights.queryBias, count, queryWidth, width)
    this.project(queryKeyNorm ? rawKey : key, normed, weights.key, weights.keyBias, count, keyWidth, width)
    this.project(value, normed, weights.value, weights.valueBias, count, keyWidth, width)
    if (queryKeyNorm) {
      const { queryInverseRms, keyInverseRms } = layer
      const [queryRows, keyRows] = [count * numHeads, count * numKeyHeads]
      kernels.rmsNormForward(query, queryInverseRms, rawQuery, weights.queryNorm, normEpsilon, queryRows, headWidth)
      kernels.rmsNormForward(key, keyInverseRms, rawKey, weights.keyNorm, normEpsilon, keyRows, headWidth)
    }
    kernels.rope(query, cosine, sine, position, count, numHeads, headWidth, false)
    kernels.rope(key, cosine, sine, position, count, numKeyHeads, headWidth, false)
    if (cache && cacheRow) {
      kernels.placeRows(cache.key, key, cacheRow, count, keyWidth)
      kernels.placeRows(cache.value, value, cacheRow, count, keyWidth)
    }
    kernels.attentionForward(
      layer.attended,
      layer.logSum,
      query,
      cache?.key ?? key,
      cache?.value ?? value,
      scores,
      firstKey,
      position,
      count,
      numHeads,
      numKeyHeads,
      headWidth,
    )
    layer.middle.set(layer.x.subarray(0, count * width))
    this.project(layer.middle, layer.attended, weights.output, none, count, width, queryWidth, true)

    const { gate, up, middle, middleInverseRms } = layer
    kernels.rmsNormForward(normed, middleInverseRms, middle, weights.feedForwardNorm, normEpsilon, count, width)
    this.project(gate, normed, weights.gate, none, count, feedForwardWidth, width)
    this.project(up, normed, weights.up, none, count, feedForwardWidth, width)
    kernels.swigluForward(activated, gate, up, count * feedForwardWidth)
    next.set(middle.subarray(0, count * width))
    this.project(next, activated, weights.down, none, count, width, feedForwardWidth, true)
  }

  /** y (count × numOutputs) = x · Wᵀ + bias, or added to y. */
  project(
    y: Float32Array,
    x: Float32Array,
    weight: Float32Array,
    bias: Float32Array,
    count: number,
    numOutputs: number,
    numInputs: number,
    accumulate = false,
  ): void {
    const { scratch } = this.columns
    this.kernels.matmul(y, x, weight, bias, scratch, count, numOutputs, numInputs, false, true, accumulate)
  }

  /** Refuses a token that the vocabulary does not have, and a position beyond the context. */
  check(token: number, position: number): void {
    const { vocabularySize } = this.model.shape
    if (!(Number.isInteger(token) && token >= 0 && token < vocabularySize)) {
      throw new InputError(
        'token',
        show(token),
        `a whole number from 0 to ${vocabularySize - 1}, the vocabulary's last`,
      )
    }
    const context = this.columns.cosine.length / (this.model.shape.headWidth / 2)
    if (!(position >= 0 && position < context))
      throw new InputError('sequence', `a token at position ${position}`, `${context} tokens at most`)
  }
}

/**
 * Cosines and sines of position · θ^(−2k / headWidth). Frequencies and angles are rounded to f32 where `transformers` rounds
 * them: at position 30,000 another rounding is an angle some thousandths away from those that a model was trained with.
 */
function fillAngles(cosine: Float32Array, sine: Float32Array, half: number, theta: number): void {
  const logTheta = Math.log(theta)
  for (let k = 0; k < half; k++) {
    const frequency = Math.fround(1 / Math.fround(Math.exp(Math.fround(k / half) * logTheta)))
    for (let position = 0; position * half < cosine.length; position++) {
      const angle = Math.fround(position * frequency)
      cosine[position * half + k] = Math.cos(angle)
      sine[position * half + k] = Math.sin(angle)
    }
  }
}
