/**
 * The forward pass over rows. Each row is a token at a position of a sequence. Keys and values lie in separate columns
 * (the pass's own, or a cache), so one pass serves packed sequences, prompts, and single tokens of many lanes. No
 * kernel mixes rows, so a token gets the same bits in all three: log-probabilities recorded while sampling equal those
 * of a later evaluation bit for bit.
 */
import { assert } from '../../base/errors.ts'
import { Stream } from '../../base/random.ts'
import type { Columns } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { Magnitudes } from './dora.ts'
import { addElements, checkToken, contextOf, copyElements } from './elements.ts'
import type { forwardPlan } from './forward-plan.ts'
import type { LoraAdapter } from './lora.ts'
import { gather, multiply, restore } from './matrices.ts'
import { addRouted, mixForward } from './mixture.ts'
import type { TransformerModel } from './model.ts'
import {
  type Dense,
  type Matrix,
  mapParameters,
  type Norm,
  nameParameters,
  type Projection,
  type TransformerWeights,
  viewParameters,
} from './parameters.ts'
import { type BaseWeights, nameQuantized } from './quantized.ts'
import { fillAngles } from './rope.ts'

export type ForwardColumns = Columns<ReturnType<typeof forwardPlan>>
export type LayerColumns = ForwardColumns['layers'][string]

/** The cache of one layer's keys and values: (cache row) × (numKeyHeads · headWidth), in f32, or in bf16, two in a word. */
export interface KeyValueCache {
  readonly key: Float32Array | Uint32Array
  readonly value: Float32Array | Uint32Array
}

/** Normalizes `count` rows of x, each `width` wide. `inverseRms` is left for the backward pass. */
type Normalize = (
  y: Float32Array,
  inverseRms: Float32Array,
  x: Float32Array,
  norm: Norm,
  count: number,
  width: number,
) => void

/** Gradients of `Normalize`: writes dx or adds to it, and adds the gradients of weight and bias. */
type NormalizeBackward = (
  dx: Float32Array,
  into: Norm,
  dy: Float32Array,
  x: Float32Array,
  norm: Norm,
  inverseRms: Float32Array,
  count: number,
  width: number,
  accumulate: boolean,
) => void

/** Multiplies the first `length` elements by a number, unless it is 1. */
type Scale = (x: Float32Array, length: number) => void

/** A transformer's forward pass, in one thread. */
export class Forward {
  readonly model: TransformerModel
  readonly columns: ForwardColumns
  readonly kernels: Kernels
  readonly weights: TransformerWeights
  readonly layers: readonly LayerColumns[]
  readonly adapter: LoraAdapter | null
  readonly magnitudes: Magnitudes | null
  readonly normalize: Normalize
  readonly normalizeBackward: NormalizeBackward
  /** Multiplies elements by a factor in the model's shape. */
  readonly scaleQuery: Scale
  readonly scaleEmbedding: Scale
  readonly scaleLogits: Scale
  /** Sets y = x + residualScale · branch. */
  readonly join: (y: Float32Array, x: Float32Array, branch: Float32Array, length: number) => void
  readonly scaleResidual: Scale
  /** Multiplies the first `length` elements of `low` by the adapter's scale. */
  readonly scaleLow: (low: Float32Array, length: number) => void
  /** The key of the pass's dropout; null without dropout. */
  #dropoutKey: readonly [number, number] | null = null
  /** The tokens as row indices of the embedding. */
  readonly #tokenRows: Uint32Array
  readonly #positionRows: Uint32Array
  /** Number of tokens that layers with a window see; 0 without such layers. */
  readonly #window: number

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
    const [layer] = Object.values(columns.layers) as [LayerColumns]
    const inputs = Object.values(columns.inputs)
    this.layers = [...Object.values(columns.layers), ...inputs.map((x) => ({ ...layer, x }))]
    // Functions capture the fractions: read from an object, each would be boxed at each kernel call.
    const { normEpsilon, normOffset, norm, residualScale } = model.shape
    const scaling = (by: number): Scale => (by === 1 ? () => {} : (x, length) => kernels.scaleElements(x, by, length))
    this.scaleQuery = scaling(model.shape.queryScale)
    this.scaleEmbedding = scaling(model.shape.embeddingScale)
    this.scaleLogits = scaling(model.shape.logitScale)
    this.scaleResidual = scaling(residualScale)
    this.join = (y, x, branch, length) => {
      for (let i = 0; i < length; i++) y[i] = x[i]! + Math.fround(residualScale * branch[i]!)
    }
    const { shifted } = columns
    const shift = (weight: Float32Array, width: number): Float32Array => {
      if (normOffset === 0) return weight
      for (let i = 0; i < width; i++) shifted[i] = normOffset + weight[i]!
      return shifted
    }
    if (norm === 'layer') {
      this.normalize = (y, _, x, { weight, bias }, count, width) =>
        kernels.layerNormForward(y, x, weight, bias, normEpsilon, count, width)
      this.normalizeBackward = (dx, into, dy, x, { weight }, _, count, width, accumulate) =>
        kernels.layerNormBackward(dx, into.weight, into.bias, dy, x, weight, normEpsilon, count, width, accumulate)
    } else {
      this.normalize = (y, inverseRms, x, { weight }, count, width) =>
        kernels.rmsNormForward(y, inverseRms, x, shift(weight, width), normEpsilon, count, width)
      this.normalizeBackward = (dx, into, dy, x, { weight }, inverseRms, count, width, accumulate) =>
        kernels.rmsNormBackward(dx, into.weight, dy, x, shift(weight, width), inverseRms, count, width, accumulate)
    }
    const scale = adapter?.lora.scale ?? 1
    this.magnitudes =
      adapter?.lora.settings.magnitude === true ? new Magnitudes(this, scale, this.weights.layers) : null
    this.scaleLow = (low, length) => kernels.scaleElements(low, scale, length)
    const { token, position, each } = columns
    for (let i = 0; i < each.length; i++) each[i] = i
    this.#tokenRows = new Uint32Array(token.buffer, token.byteOffset, token.length)
    this.#positionRows = new Uint32Array(position.buffer, position.byteOffset, position.length)
    const { rotaryWidth, rope, windowRope, contextLength } = model.shape
    if (rotaryWidth > 0) fillAngles(columns.cosine, columns.sine, rotaryWidth, rope, contextLength)
    if (windowRope) fillAngles(columns.windowCosine, columns.windowSine, rotaryWidth, windowRope, contextLength)
    this.#window = Math.max(...model.shape.windows)
  }

  /** Positions that the columns were planned for. */
  get context(): number {
    return contextOf(this.columns, this.model.shape)
  }

  /**
   * Runs rows 0 … count of `token`, `position` and `firstKey` through all layers and writes `hidden`, the input of the
   * output head. With `caches`, one per layer, each row's key and value are first written to `cacheRow` of the layer's
   * cache, and attention reads the cache.
   */
  run(count: number, caches?: readonly KeyValueCache[], cacheRow?: Int32Array): void {
    const { columns, kernels, model, layers } = this
    this.magnitudes?.refresh()
    const { numLayers, width } = model.shape
    const { top, topInverseRms, hidden, normed } = columns
    gather(kernels, layers[0]!.x, this.weights.embedding, this.#tokenRows, count)
    this.scaleEmbedding(layers[0]!.x, count * width)
    const { positions } = this.weights
    if (positions.length > 0) {
      kernels.gatherRows(normed, positions, this.#positionRows, 0, count, width)
      addElements(layers[0]!.x, normed, count * width)
    }
    if (this.#window > 0) this.#limitKeys(count)
    for (let index = 0; index < numLayers; index++) {
      const layer = layers[index] ?? layers[0]!
      const next = index === numLayers - 1 ? top : (layers[index + 1] ?? layers[0]!).x
      this.#runLayer(index, layer, next, count, caches?.[index], cacheRow)
    }
    this.normalize(hidden, topInverseRms, top, this.weights.norm, count, width)
    this.scaleLogits(hidden, count * width)
  }

  /** Finds the windows of rows 0 … count. */
  #limitKeys(count: number): void {
    const { position, firstKey, windowFirst, windowPosition } = this.columns
    for (let row = 0; row < count; row++) {
      const before = Math.max(0, position[row]! - this.#window + 1)
      windowFirst[row] = firstKey[row]! + before
      windowPosition[row] = position[row]! - before
    }
  }

  /** Computes the activations of a layer again from its input, which the last pass has left; not the layer's output. */
  recompute(index: number, count: number): void {
    this.#runLayer(index, this.layers[index]!, null, count, undefined, undefined)
  }

  #runLayer(
    index: number,
    layer: LayerColumns,
    next: Float32Array | null,
    count: number,
    cache: KeyValueCache | undefined,
    cacheRow: Int32Array | undefined,
  ): void {
    const { kernels, columns } = this
    const weights = this.weights.layers[index]!
    const { shape } = this.model
    const { numHeads, numKeyHeads, headWidth, queryKeyNorm, parallel } = shape
    const { activated } = columns
    const keyWidth = numKeyHeads * headWidth

    const input = this.normInput(layer, index, count)
    const { query, key, value, rawQuery, rawKey } = layer
    this.project(queryKeyNorm ? rawQuery : query, input, weights.query, count)
    this.project(queryKeyNorm ? rawKey : key, input, weights.key, count)
    this.project(value, input, weights.value, count)
    if (queryKeyNorm) {
      const { queryInverseRms, keyInverseRms } = layer
      const [queryParts, keyParts] = queryKeyNorm === 'head' ? [numHeads, numKeyHeads] : [1, 1]
      const queryWidth = (numHeads * headWidth) / queryParts
      this.normalize(query, queryInverseRms, rawQuery, weights.queryNorm, count * queryParts, queryWidth)
      this.normalize(key, keyInverseRms, rawKey, weights.keyNorm, count * keyParts, keyWidth / keyParts)
    }
    this.turn(index, query, key, count, false)
    this.scaleQuery(query, count * numHeads * headWidth)
    if (this.model.cacheBits === 16) {
      kernels.roundToHalves(key, count * keyWidth)
      kernels.roundToHalves(value, count * keyWidth)
    }
    this.#attend(index, layer, count, cache, cacheRow)
    const { middle, rawAttended, attendedInverseRms, rawFed, fedInverseRms } = layer
    const { attendedNorm, fedNorm } = weights
    this.#add(middle, layer.x, layer.attended, weights.output, attendedNorm, rawAttended, attendedInverseRms, count)

    const fed = parallel ? input : this.normMiddle(layer, index, count)
    const { gate, up } = layer
    if (weights.mixture !== null) {
      mixForward(this, layer, weights.mixture, shape.normsAfter ? rawFed : columns.branch, fed, count)
      if (next !== null) addRouted(this, layer, count)
      this.#join(next, middle, fedNorm, rawFed, fedInverseRms, count)
      return
    }
    if (shape.gated) this.project(gate, fed, weights.gate, count)
    this.project(up, fed, weights.up, count)
    this.activate(activated, gate, up, count * shape.feedForwardWidth)
    this.#add(next, middle, activated, weights.down, fedNorm, rawFed, fedInverseRms, count)
  }

  /** Places keys and values in the cache, if there is one, and sets `attended`. */
  #attend(
    index: number,
    { attended, logSum, query, key, value }: LayerColumns,
    count: number,
    cache: KeyValueCache | undefined,
    cacheRow: Int32Array | undefined,
  ): void {
    const { kernels } = this
    const { shape } = this.model
    const { scores, widened } = this.columns
    const { numKeyHeads, headWidth, attentionCap } = shape
    const [first, position] = this.keysOf(index)
    if (cache === undefined || cacheRow === undefined) {
      const attend = attentionCap > 0 ? kernels.cappedForward : kernels.attentionForward
      attend(attended, logSum, query, key, value, scores, first, position, shape, count)
      return
    }
    const [keys, values] = [cache.key, cache.value]
    if (keys instanceof Float32Array && values instanceof Float32Array) {
      kernels.placeRows(keys, key, cacheRow, count, numKeyHeads * headWidth)
      kernels.placeRows(values, value, cacheRow, count, numKeyHeads * headWidth)
      const attend = attentionCap > 0 ? kernels.cappedForward : kernels.attentionForward
      attend(attended, logSum, query, keys, values, scores, first, position, shape, count)
    } else if (keys instanceof Uint32Array && values instanceof Uint32Array) {
      kernels.placeHalves(keys, key, cacheRow, count, numKeyHeads, headWidth)
      kernels.placeHalves(values, value, cacheRow, count, numKeyHeads, headWidth)
      const attend = attentionCap > 0 ? kernels.cappedOfHalves : kernels.attentionOfHalves
      attend(attended, logSum, query, keys, values, scores, widened, first, position, shape, count)
    }
  }

  /** The input of a layer's attention: normed, or the layer's own. */
  normInput(layer: LayerColumns, index: number, count: number): Float32Array {
    const { normsBefore, width } = this.model.shape
    if (!normsBefore) return layer.x
    const { normed } = this.columns
    this.normalize(normed, layer.inputInverseRms, layer.x, this.weights.layers[index]!.inputNorm, count, width)
    return normed
  }

  /** The input of a layer's feed-forward layer. */
  normMiddle(layer: LayerColumns, index: number, count: number): Float32Array {
    const { normsBefore, parallel, width } = this.model.shape
    if (parallel) return this.normInput(layer, index, count)
    if (!normsBefore) return layer.middle
    const { normed } = this.columns
    const { feedForwardNorm } = this.weights.layers[index]!
    this.normalize(normed, layer.middleInverseRms, layer.middle, feedForwardNorm, count, width)
    return normed
  }

  /** Rotates queries and keys, or their gradients back. */
  turn(index: number, query: Float32Array, key: Float32Array, count: number, inverse: boolean): void {
    const { turned, numHeads, numKeyHeads, headWidth, rotaryWidth, turnsNeighbors, windows, windowRope } =
      this.model.shape
    if (!turned[index] || rotaryWidth === 0) return
    const { position, cosine, sine, windowCosine, windowSine } = this.columns
    const { kernels } = this
    const isOther = windowRope !== null && windows[index]! > 0
    const [cos, sin] = isOther ? [windowCosine, windowSine] : [cosine, sine]
    if (rotaryWidth === headWidth && !turnsNeighbors) {
      kernels.rope(query, cos, sin, position, count, numHeads, headWidth, inverse)
      kernels.rope(key, cos, sin, position, count, numKeyHeads, headWidth, inverse)
      return
    }
    const sizes = [headWidth, rotaryWidth, turnsNeighbors, inverse] as const
    kernels.ropePart(query, cos, sin, position, count, numHeads, ...sizes)
    kernels.ropePart(key, cos, sin, position, count, numKeyHeads, ...sizes)
  }

  /** Each row's first key in a layer, and how many follow. */
  keysOf(index: number): readonly [Int32Array, Int32Array] {
    const { firstKey, position, windowFirst, windowPosition } = this.columns
    return this.model.shape.windows[index]! > 0 ? [windowFirst, windowPosition] : [firstKey, position]
  }

  /** The activation of a feed-forward layer. */
  activate(y: Float32Array, gate: Float32Array, up: Float32Array, length: number): void {
    const { gated, activation } = this.model.shape
    if (gated && activation === 'silu') this.kernels.swigluForward(y, gate, up, length)
    else this.kernels.activationForward(y, gate, up, activation, length)
  }

  /** Turns `gate` and `up` into the gradients by them, from dy. */
  activateBackward(gate: Float32Array, up: Float32Array, dy: Float32Array, length: number): void {
    const { gated, activation } = this.model.shape
    if (gated && activation === 'silu') this.kernels.swigluBackward(gate, up, dy, length)
    else this.kernels.activationBackward(gate, up, dy, activation, length)
  }

  /** Sets y = x + W · input, with the norm and the scale that follow W. Without y, what the backward pass reads of it. */
  #add(
    y: Float32Array | null,
    x: Float32Array,
    input: Float32Array,
    projection: Projection,
    norm: Norm,
    raw: Float32Array,
    inverseRms: Float32Array,
    count: number,
  ): void {
    const { width, normsAfter } = this.model.shape
    const { branch } = this.columns
    if (y === null && !normsAfter) return
    if (y !== null && branch.length === 0) {
      copyElements(y, x, count * width)
      this.project(y, input, projection, count, true)
      return
    }
    this.project(normsAfter ? raw : branch, input, projection, count)
    this.#join(y, x, norm, raw, inverseRms, count)
  }

  /** Finishes `#add`: the output is in `raw`, or in `branch` if there is no norm. */
  #join(
    y: Float32Array | null,
    x: Float32Array,
    norm: Norm,
    raw: Float32Array,
    inverseRms: Float32Array,
    count: number,
  ): void {
    const { width, normsAfter } = this.model.shape
    const { branch } = this.columns
    if (normsAfter) this.normalize(branch, inverseRms, raw, norm, count, width)
    if (y !== null) this.join(y, x, branch, count * width)
  }

  /** Sets y (count × outputs) = x · Wᵀ + bias, or adds that to y. */
  multiply(y: Float32Array, x: Float32Array, layer: Dense, count: number, accumulate = false): void {
    multiply(this.kernels, this.columns, this.model.quantizesActivations, y, x, layer, count, accumulate)
  }

  /** The same, plus what an adapter adds. */
  project(y: Float32Array, x: Float32Array, projection: Projection, count: number, accumulate = false): void {
    if (projection.magnitude.length === 0) {
      this.#addLow(y, x, projection, count, accumulate)
      return
    }
    assert(!accumulate, 'a projection with magnitudes is added')
    this.#addLow(y, x, this.magnitudes!.unbiased(projection), count, false)
    this.magnitudes!.apply(y, projection, count)
  }

  /** Turns dy into the gradient by a projection's output before the magnitudes, and adds that by the magnitudes to `into`. */
  backwardMagnitude(into: Projection, dy: Float32Array, x: Float32Array, projection: Projection, count: number): void {
    const { unscaled } = this.columns
    this.#addLow(unscaled, x, this.magnitudes!.unbiased(projection), count, false)
    this.magnitudes!.backward(into.magnitude, dy, unscaled, projection, count)
  }

  #addLow(y: Float32Array, x: Float32Array, projection: Projection, count: number, accumulate: boolean): void {
    const { kernels } = this
    const { none, scratch } = this.columns
    const { numOutputs, b } = projection
    this.multiply(y, x, projection, count, accumulate)
    if (b.length === 0) return
    const { low } = this.projectLow(x, projection, count)
    kernels.matmul(y, low, b, none, scratch, count, numOutputs, b.length / numOutputs, false, true, true)
  }

  /** Sets dx = dy · W of a projection, without what an adapter adds, or adds it to dx. */
  backwardInput(dx: Float32Array, dy: Float32Array, projection: Projection, count: number, accumulate: boolean): void {
    const { none, scratch } = this.columns
    const { numOutputs, numInputs } = projection
    const weight = this.weightOf(projection)
    this.kernels.matmul(dx, dy, weight, none, scratch, count, numInputs, numOutputs, false, false, accumulate)
  }

  /** A matrix in f32. Valid until the next product if it is kept in fewer bits. */
  weightOf(matrix: Matrix): Float32Array {
    return restore(this.kernels, this.columns.dequantized, matrix)
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
    checkToken(this.model.shape, this.context, token, position)
  }
}
