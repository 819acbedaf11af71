/**
 * The forward pass over rows. Each row is a token at a position of a sequence. Keys and values lie in separate columns
 * (the pass's own, or a cache), so one pass serves packed sequences, prompts, and single tokens of many lanes. No
 * kernel mixes rows, so a token gets the same bits in all three: log-probabilities recorded while sampling equal those
 * of a later evaluation bit for bit.
 */
import { assert, InputError, show } from '../../base/errors.ts'
import { Stream } from '../../base/random.ts'
import type { Columns } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { RopeScaling, TransformerShape } from './config.ts'
import type { forwardPlan } from './forward-plan.ts'
import type { LoraAdapter } from './lora.ts'
import type { TransformerModel } from './model.ts'
import {
  mapParameters,
  nameParameters,
  type Projection,
  type TransformerWeights,
  viewParameters,
} from './parameters.ts'
import { type BaseWeights, nameQuantized } from './quantized.ts'

export type ForwardColumns = Columns<ReturnType<typeof forwardPlan>>
export type LayerColumns = ForwardColumns['layers'][string]

/** The cache of one layer's keys and values: (cache row) × (numKeyHeads · headWidth). */
export interface KeyValueCache {
  readonly key: Float32Array
  readonly value: Float32Array
}

/** Normalizes rows with the model's epsilon. */
type Normalize = (
  y: Float32Array,
  inverseRms: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  count: number,
  width: number,
) => void

/** A transformer's forward pass, in one thread. */
export class Forward {
  readonly model: TransformerModel
  readonly columns: ForwardColumns
  readonly kernels: Kernels
  readonly weights: TransformerWeights
  readonly layers: readonly LayerColumns[]
  readonly adapter: LoraAdapter | null
  /** Writes y and the inverse RMS of the given number of rows of x, each `width` wide. */
  readonly normalize: Normalize
  /** Multiplies the first `length` elements of `low` by the adapter's scale. */
  readonly scaleLow: (low: Float32Array, length: number) => void
  /** The key of the pass's dropout; null without dropout. */
  #dropoutKey: readonly [number, number] | null = null
  /** The tokens as row indices of the embedding. */
  readonly #tokenRows: Uint32Array

  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: ForwardColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null,
  ) {
    assert(adapter === null || adapter.lora.base === model, 'an adapter of another model')
    this.model = model
    this.columns = columns
    this.kernels = kernels
    this.adapter = adapter
    const { kept: views, matrices } =
      weights instanceof Float32Array
        ? { kept: mapParameters(model.parameters, viewParameters(model.parameters, weights)), matrices: undefined }
        : nameQuantized(model, weights)
    if (adapter) {
      const { parameters } = adapter.lora
      for (const [name, view] of mapParameters(parameters, viewParameters(parameters, adapter.weights))) {
        views.set(name, view)
      }
    }
    this.weights = nameParameters(model.shape, views, columns.none, columns.none, matrices)
    this.layers = Object.values(columns.layers)
    // Functions capture the fractions: read from an object, each would be boxed at each kernel call.
    const { normEpsilon } = model.shape
    this.normalize = (y, inverseRms, x, weight, count, width) =>
      kernels.rmsNormForward(y, inverseRms, x, weight, normEpsilon, count, width)
    const scale = adapter?.lora.scale ?? 1
    this.scaleLow = (low, length) => kernels.scaleElements(low, scale, length)
    const { token } = columns
    this.#tokenRows = new Uint32Array(token.buffer, token.byteOffset, token.length)
    fillAngles(columns.cosine, columns.sine, model.shape)
  }

  /**
   * Runs rows 0 … count of `token`, `position` and `firstKey` through all layers and writes `hidden`, the input of the
   * output head. With `caches`, one per layer, each row's key and value are first written to `cacheRow` of the layer's
   * cache, and attention reads the cache.
   */
  run(count: number, caches?: readonly KeyValueCache[], cacheRow?: Int32Array): void {
    const { columns, kernels, model, layers } = this
    const { numLayers, width } = model.shape
    const { top, topInverseRms, hidden } = columns
    kernels.gatherRows(layers[0]!.x, this.weights.embedding, this.#tokenRows, 0, count, width)
    for (let index = 0; index < numLayers; index++) {
      const layer = layers[index] ?? layers[0]!
      const next = index === numLayers - 1 ? top : (layers[index + 1] ?? layers[0]!).x
      this.#runLayer(index, layer, next, count, caches?.[index], cacheRow)
    }
    this.normalize(hidden, topInverseRms, top, this.weights.norm, count, width)
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
    const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, queryKeyNorm, turned } = this.model.shape
    const { normed, activated, cosine, sine, position, scores, firstKey } = columns
    const keyWidth = numKeyHeads * headWidth

    this.normalize(normed, layer.inputInverseRms, layer.x, weights.inputNorm, count, width)
    const { query, key, value, rawQuery, rawKey } = layer
    this.project(queryKeyNorm ? rawQuery : query, normed, weights.query, count)
    this.project(queryKeyNorm ? rawKey : key, normed, weights.key, count)
    this.project(value, normed, weights.value, count)
    if (queryKeyNorm) {
      const { queryInverseRms, keyInverseRms } = layer
      const queryRows = count * numHeads
      const keyRows = count * numKeyHeads
      this.normalize(query, queryInverseRms, rawQuery, weights.queryNorm, queryRows, headWidth)
      this.normalize(key, keyInverseRms, rawKey, weights.keyNorm, keyRows, headWidth)
    }
    if (turned[index]) {
      kernels.rope(query, cosine, sine, position, count, numHeads, headWidth, false)
      kernels.rope(key, cosine, sine, position, count, numKeyHeads, headWidth, false)
    }
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
      this.model.shape,
      count,
    )
    copyElements(layer.middle, layer.x, count * width)
    this.project(layer.middle, layer.attended, weights.output, count, true)

    const { gate, up, middle, middleInverseRms } = layer
    this.normalize(normed, middleInverseRms, middle, weights.feedForwardNorm, count, width)
    this.project(gate, normed, weights.gate, count)
    this.project(up, normed, weights.up, count)
    kernels.swigluForward(activated, gate, up, count * feedForwardWidth)
    copyElements(next, middle, count * width)
    this.project(next, activated, weights.down, count, true)
  }

  /** Sets y (count × outputs) = x · Wᵀ + bias plus what an adapter adds, or adds that to y. */
  project(y: Float32Array, x: Float32Array, projection: Projection, count: number, accumulate = false): void {
    const { kernels } = this
    const { none, scratch, dequantized, input, inputScale } = this.columns
    const { numOutputs, numInputs, bias, b, weight, quantized } = projection
    if (quantized === null) {
      kernels.matmul(y, x, weight, bias, scratch, count, numOutputs, numInputs, false, true, accumulate)
    } else {
      const { bits, values, scale } = quantized
      const sizes = [count, numOutputs, numInputs] as const
      if (this.model.quantizesActivations) {
        kernels.quantizeInputs(input, inputScale, x, count, numInputs)
        if (bits === 8) kernels.matmulIntegers(y, input, inputScale, values, scale, bias, ...sizes, accumulate)
        else kernels.matmulIntegers4(y, input, inputScale, values, bias, ...sizes, accumulate)
      } else if (bits === 8) {
        kernels.matmulQuantized(y, x, values, scale, bias, dequantized, scratch, ...sizes, accumulate)
      } else kernels.matmulQuantized4(y, x, values, bias, dequantized, scratch, ...sizes, accumulate)
    }
    if (b.length === 0) return
    const { low } = this.projectLow(x, projection, count)
    kernels.matmul(y, low, b, none, scratch, count, numOutputs, b.length / numOutputs, false, true, true)
  }

  /** A projection's weights in f32. Valid until the next call if they are kept in fewer bits. */
  weightOf({ weight, quantized, numOutputs, numInputs }: Projection): Float32Array {
    if (quantized === null) return weight
    const { dequantized } = this.columns
    const { bits, values, scale } = quantized
    if (bits === 8) this.kernels.dequantizeRows(dequantized, values, scale, numOutputs, numInputs)
    else this.kernels.dequantizeRows4(dequantized, values, numOutputs, numInputs)
    return dequantized
  }

  /** Sets `low` (count × rank) = scale · dropout(x) · Aᵀ and returns dropout(x). */
  projectLow(
    x: Float32Array,
    { numInputs, a, place }: Projection,
    count: number,
  ): { low: Float32Array; left: Float32Array } {
    const { none, scratch, low } = this.columns
    const left = this.drop(x, place, count, numInputs, x, false)
    const rank = a.length / numInputs
    this.kernels.matmul(low, left, a, none, scratch, count, rank, numInputs, false, true, false)
    this.scaleLow(low, count * rank)
    return { low, left }
  }

  /** Returns dropout(x), in a column of its own or added to `into`. Without dropout it returns x itself. */
  drop(
    x: Float32Array,
    place: number,
    count: number,
    width: number,
    into: Float32Array,
    accumulate: boolean,
  ): Float32Array {
    if (this.#dropoutKey === null) return x
    const { dropped, words, sequence, position } = this.columns
    const [key0, key1] = this.#dropoutKey
    const { dropout } = this.adapter!.lora.settings
    const out = accumulate ? into : dropped
    this.kernels.dropElements(out, x, words, sequence, position, dropout, place, key0, key1, count, width, accumulate)
    return out
  }

  /** Whether this pass has dropout. */
  get hasDropout(): boolean {
    return this.#dropoutKey !== null
  }

  /** Sets the dropout of the next passes: for an optimizer step, or none. */
  setDropout(step: number | null): void {
    this.#dropoutKey = null
    if (step === null || this.adapter === null || this.adapter.lora.settings.dropout === 0) return
    const { random } = this.adapter
    random.draw(Stream.dropout, Math.floor(step / 2 ** 32), step, 0)
    this.#dropoutKey = [random.words[0]!, random.words[1]!]
  }

  /** Refuses a token outside the vocabulary and a position beyond the context. */
  check(token: number, position: number): void {
    const { vocabularySize } = this.model.shape
    if (!(Number.isInteger(token) && token >= 0 && token < vocabularySize)) {
      const expected = `a whole number from 0 to ${vocabularySize - 1}, the vocabulary's last`
      throw new InputError('token', show(token), expected)
    }
    const context = this.columns.cosine.length / (this.model.shape.headWidth / 2)
    if (!(position >= 0 && position < context))
      throw new InputError('sequence', `a token at position ${position}`, `${context} tokens at most`)
  }
}

/**
 * Fills cosines and sines of position · θ^(−2k / headWidth), scaled. Frequencies and angles are rounded to f32 where
 * `transformers` rounds them: at position 30,000 another rounding moves an angle by some thousandths from the model's
 * training.
 */
function fillAngles(
  cosine: Float32Array,
  sine: Float32Array,
  { headWidth, ropeTheta, ropeScaling }: TransformerShape,
): void {
  const half = headWidth / 2
  const logTheta = Math.log(ropeTheta)
  for (let k = 0; k < half; k++) {
    const unscaled = Math.fround(1 / Math.fround(Math.exp(Math.fround(k / half) * logTheta)))
    const frequency = ropeScaling === null ? unscaled : scaledFrequency(unscaled, ropeScaling)
    for (let position = 0; position * half < cosine.length; position++) {
      const angle = Math.fround(position * frequency)
      cosine[position * half + k] = Math.cos(angle)
      sine[position * half + k] = Math.sin(angle)
    }
  }
}

/** Scales a frequency: `linear` divides it; `llama3` (Llama 3.1) divides long wavelengths and keeps short ones. */
function scaledFrequency(frequency: number, scaling: RopeScaling): number {
  const { fround } = Math
  const divided = fround(frequency / scaling.factor)
  if (scaling.kind === 'linear') return divided
  const { low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: positions } = scaling
  // PyTorch divides a number by a tensor as the number times the rounded reciprocal.
  const wavelength = fround(fround(2 * Math.PI) * fround(1 / frequency))
  if (wavelength > positions / low) return divided
  if (wavelength < positions / high) return frequency
  const smooth = fround(fround(fround(positions * fround(1 / wavelength)) - low) / fround(high - low))
  const scaled = fround(fround(fround(1 - smooth) * frequency) / scaling.factor)
  return fround(scaled + fround(smooth * frequency))
}

/** Copies element by element: `set` would allocate a view for each layer of each pass. */
function copyElements(to: Float32Array, from: Float32Array, count: number): void {
  for (let i = 0; i < count; i++) to[i] = from[i]!
}
