/**
 * Log-probabilities, entropies and gradients of packed sequences. A sequence attends only to itself. Its rows are its
 * tokens but the last; each row's target is the next token.
 *
 * Logits are computed for 512 vocabulary tokens at a time. The running sums are updated every 64 tokens, so the chunk
 * size does not change bits.
 */
import { InputError } from '../../base/errors.ts'
import type { TokenSpans, TurnChanges } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Evaluated, Parameter, ParameterViews } from '../../policies/policy.ts'
import { addElements, copyElements } from './elements.ts'
import { Forward } from './forward.ts'
import type { LoraAdapter } from './lora.ts'
import { balanceLoads, clearRouted, mixBackward } from './mixture.ts'
import type { TransformerModel, WeightBits } from './model.ts'
import type { PackedColumns } from './packed-plan.ts'
import {
  mapParameters,
  type Norm,
  nameParameters,
  type Projection,
  type TransformerWeights,
  VOCABULARY_CHUNK,
  viewParameters,
} from './parameters.ts'
import { type BaseWeights, bitsOf } from './quantized.ts'
import { checkCandidates, inverseOf, maskWords } from './sampling.ts'
import type { RowTargets } from './several-targets.ts'
import { SOLE } from './stages.ts'

export { type PackedColumns, packedPlan } from './packed-plan.ts'

/** A transformer's outputs for packed rows, one number each, in nats. The value is empty without a critic. */
export interface TokensEvaluated extends Evaluated {
  /** The part of a differentiated pass in the loss that balances experts. */
  readonly balance?: Float64Array
}

export interface TokenDerivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
  readonly dValue: Float32Array
}

export type TokenLossOf = (evaluated: TokensEvaluated, derivatives: TokenDerivatives, count: number) => void

/** Recorded candidate sets: ascending ids, token after token. Empty: chosen from all, or not by the model. */
export interface TokenCandidates {
  /** Index of each sequence's first id. */
  readonly begin: ArrayLike<number>
  /** Size of each token's candidate set, at the token's index; 0 or less: none. */
  readonly length: ArrayLike<number>
  readonly ids: Int32Array
  /** The masks of tokens that have no ids here; null or absent: none. */
  readonly masks?: TokenMasks | null
  /** The tokens whose logits were changed; null or absent: none. */
  readonly changes?: TokenChanges | null
}

/** Which tokens were drawn from changed logits. */
export interface TokenChanges {
  /** The row of `turns` of each token, at the token's position; -1: none. */
  readonly index: Int32Array
  /** Where the answer of such a token begins. */
  readonly answer: Int32Array
  readonly turns: TurnChanges
}

/** The masks from which tokens were chosen: one bit per token of the vocabulary, 1 if it was allowed. */
export interface TokenMasks {
  /** The index of each token's mask, at the token's position; -1: none. */
  readonly index: Int32Array
  /** The masks, `maskWords` words each. */
  readonly words: Int32Array
}

/** Evaluates and differentiates packed sequences, in one thread. */
export class PackedTransformer {
  readonly #columns: PackedColumns
  readonly #forward: Forward
  readonly #bits: WeightBits
  /** Rows of the whole batch that is differentiated; 0: those of the pass. */
  batchRows = 0
  readonly #gradients = new WeakMap<ParameterViews, TransformerWeights>()
  /** The ids of the packed rows' candidate sets; null if no row has one. */
  #candidateIds: Int32Array | null = null
  #masks: Int32Array | null = null
  #changes: TurnChanges | null = null
  #tokens: ArrayLike<number> = []
  #targets: RowTargets | null = null

  /** An adapter freezes the model's weights, and gradients are the adapter's. Quantized weights need one. */
  constructor(
    model: TransformerModel,
    weights: BaseWeights,
    columns: PackedColumns,
    kernels: Kernels,
    adapter: LoraAdapter | null = null,
  ) {
    this.#columns = columns
    this.#forward = new Forward(model, weights, columns.forward, kernels, adapter)
    this.#bits = bitsOf(model, weights)
    columns.ones.fill(1)
  }

  /** The trained parameters: the model's, or the adapter's. */
  get #trained(): readonly Parameter[] {
    return (this.#forward.adapter?.lora ?? this.#forward.model).parameters
  }

  /** Views of a column of the trained parameters' size, for `differentiate`. */
  view(column: Float32Array): ParameterViews {
    return viewParameters(this.#trained, column)
  }

  /**
   * Packs sequences `from` to `to` of a ragged list (sequence s is tokens[begin[s]] to tokens[end[s] − 1]). Returns the
   * number of rows, one fewer per sequence than its tokens. `candidates` covers all `tokens` and must stay unchanged
   * until the rows were evaluated and differentiated.
   * @throws InputError for a token outside the vocabulary or its own candidate set, a candidate set that is not
   * ascending, and more rows or a longer sequence than planned.
   */
  pack(
    tokens: ArrayLike<number>,
    spans: TokenSpans,
    from: number,
    to: number,
    candidates: TokenCandidates | null = null,
  ): number {
    const { target, candidateBegin, candidateEnd, mask, changed, forward } = this.#columns
    this.#candidateIds = candidates?.ids ?? null
    this.#masks = candidates?.masks?.words ?? null
    const changes = candidates?.changes ?? null
    this.#changes = changes?.turns ?? null
    this.#tokens = tokens
    this.#targets = null
    const { token, position, firstKey, sequence } = forward
    const { vocabularySize } = this.#forward.model.shape
    let row = 0
    for (let s = from; s < to; s++) {
      const begin = row
      const start = spans.begin[s]!
      const end = spans.end[s]!
      let at = candidates === null ? 0 : candidates.begin[s]! + Math.max(0, candidates.length[start]!)
      for (let i = start; i < end; i++) {
        this.#forward.check(tokens[i]!, i - start)
        if (i === end - 1) continue
        if (row === token.length) {
          throw new InputError('packed sequences', `more than ${row} rows`, 'as many as the columns were planned for')
        }
        token[row] = tokens[i]!
        target[row] = tokens[i + 1]!
        if (candidates !== null) {
          candidateBegin[row] = at
          at += Math.max(0, candidates.length[i + 1]!)
          candidateEnd[row] = at
          mask[row] = candidates.length[i + 1]! > 0 ? -1 : (candidates.masks?.index[i + 1] ?? -1)
          changed.change[row] = changes?.index[i + 1] ?? -1
          changed.first[row] = start
          changed.answer[row] = changes?.answer[i + 1] ?? 0
          changed.end[row] = i + 1
          checkCandidates(i + 1, tokens[i + 1]!, candidates.ids, candidateBegin[row]!, at, vocabularySize)
        }
        position[row] = i - start
        firstKey[row] = begin
        sequence[row] = s
        row++
      }
    }
    return row
  }

  /**
   * Gives the packed rows these targets in place of the next token, until rows are packed again. They are of the whole vocabulary at
   * temperature 1.
   */
  retarget(targets: RowTargets, count: number): void {
    this.#targets = targets
    this.#columns.target.fill(-1, 0, count)
  }

  /**
   * The probabilities of chunk `chunk` of the vocabulary (count × tokens) for the evaluated rows, at temperature 1. Valid until the next
   * call; the rows cannot be differentiated after it.
   */
  probabilities(chunk: number, count: number): Float32Array {
    const { kernels, columns } = this.#forward
    const { max, sum, entropy } = columns
    const { logits, target, dLogprob, dEntropy } = this.#columns
    const first = chunk * VOCABULARY_CHUNK
    const tokens = this.#chunkLogits(chunk, 1, count)
    // The gradient of −log p by logits, without a target, is p.
    dLogprob.fill(-1, 0, count)
    dEntropy.fill(0, 0, count)
    target.fill(-1, 0, count)
    kernels.vocabularyBackward(logits, dLogprob, dEntropy, entropy, max, sum, target, 1, count, first, tokens)
    return logits
  }

  /** Log-probability and entropy of each row's target, within its candidate set: bit for bit the decoder's record. */
  evaluate(count: number, temperature = 1): TokensEvaluated {
    this.#forward.setDropout(null)
    return this.#evaluate(count, temperature)
  }

  #evaluate(count: number, temperature: number): TokensEvaluated {
    const inverse = inverseOf(temperature)
    const { kernels, weights, columns } = this.#forward
    const { max, sum, weighted, targetLogit, logprob, entropy } = columns
    const { logits, target } = this.#columns
    clearRouted(this.#forward, count)
    this.#forward.run(count)
    for (let chunk = 0; chunk < weights.head.length; chunk++) {
      const first = chunk * VOCABULARY_CHUNK
      const tokens = this.#chunkLogits(chunk, inverse, count)
      kernels.sumVocabulary(max, sum, weighted, targetLogit, logits, target, inverse, count, first, tokens)
      this.#targets?.take(logits, first, tokens)
    }
    kernels.evaluateVocabulary(logprob, entropy, max, sum, weighted, targetLogit, count)
    this.#targets?.evaluate(max, sum, logprob)
    if (this.#forward.model.hasValueHead) {
      const { value, hidden, scratch } = columns
      const { valueHead, valueBias } = weights
      kernels.matmul(value, hidden, valueHead, valueBias, scratch, count, 1, valueHead.length, false, true, false)
    }
    return columns
  }

  /**
   * Evaluates the packed rows, calls `lossOf` once, and adds the loss's gradient to `gradient`. `step` is the
   * optimizer's and keys an adapter's dropout: the dropped inputs are a function of the step, the sequence's index in
   * the packed list, and the token's index in the sequence. `turns` are those of threads that share the gradient.
   * @throws InputError for quantized weights without an adapter.
   */
  differentiate(
    count: number,
    lossOf: TokenLossOf,
    gradient: ParameterViews,
    temperature = 1,
    step = 0,
    turns = SOLE,
  ): void {
    if (this.#bits < 32 && this.#forward.adapter === null) {
      throw new InputError('weights', `a model in ${this.#bits} bits`, 'an adapter to train, or weights in f32')
    }
    this.#forward.setDropout(step)
    const evaluated = this.#evaluate(count, temperature)
    balanceLoads(this.#forward, count, this.batchRows || count)
    lossOf(evaluated, this.#columns, count)
    this.#targets?.sumDerivatives(this.#columns.dLogprob)
    const into = this.#name(gradient)
    turns.begin(0)
    this.#backwardHead(into, count, 1 / temperature)
    turns.end(0)
    const { model } = this.#forward
    const { numLayers } = model.shape
    for (let index = numLayers - 1; index >= 0; index--) {
      // The last layer's activations are still there.
      if (model.recomputesActivations && index < numLayers - 1) this.#forward.recompute(index, count)
      turns.begin(numLayers - index)
      this.#backwardLayer(index, into, count)
      turns.end(numLayers - index)
    }
    turns.begin(numLayers + 1)
    const embedding = into.embedding.weight
    if (embedding.length > 0) this.#backwardEmbedding(into, turns.embedding ?? embedding, count)
    turns.end(numLayers + 1)
  }

  #backwardEmbedding(into: TransformerWeights, embedding: Float32Array, count: number): void {
    const { model, kernels, columns } = this.#forward
    const { width, vocabularySize, contextLength } = model.shape
    const { dx } = this.#columns
    if (into.positions.length > 0) {
      kernels.addToSegments(into.positions, dx, columns.position, count, width, contextLength)
    }
    this.#forward.scaleEmbedding(dx, count * width)
    kernels.addToSegments(embedding, dx, columns.token, count, width, vocabularySize)
  }

  #name(gradient: ParameterViews): TransformerWeights {
    let named = this.#gradients.get(gradient)
    if (named === undefined) {
      const views = mapParameters(this.#trained, gradient)
      named = nameParameters(this.#forward.model.shape, views, this.#forward.columns.none, this.#columns.frozen)
      this.#gradients.set(gradient, named)
    }
    return named
  }

  /** Computes the logits of one chunk of the vocabulary, masked by candidate sets. Returns its number of tokens. */
  #chunkLogits(chunk: number, inverse: number, count: number): number {
    const { model, columns, kernels, weights } = this.#forward
    const { logits, capped, candidateBegin, candidateEnd, mask, changed, wasAbove } = this.#columns
    const { vocabularySize, logitCap } = model.shape
    const first = chunk * VOCABULARY_CHUNK
    const tokens = weights.head[chunk]!.numOutputs
    this.#forward.multiply(logits, columns.hidden, weights.head[chunk]!, count)
    if (logitCap > 0) {
      kernels.capElements(logits, logitCap, count * tokens)
      copyElements(capped, logits, count * tokens)
    }
    const changes = this.#changes
    if (changes !== null)
      kernels.changeVocabulary(logits, wasAbove, this.#tokens, changed, changes, count, first, tokens, false)
    const ids = this.#candidateIds
    if (ids !== null)
      kernels.restrictVocabulary(logits, ids, candidateBegin, candidateEnd, inverse, count, first, tokens)
    const masks = this.#masks
    if (masks !== null)
      kernels.maskVocabulary(logits, masks, mask, inverse, count, first, tokens, maskWords(vocabularySize))
    return tokens
  }

  /** Backpropagates dLogprob and dEntropy to the output head, the last norm, and `dx`. */
  #backwardHead(into: TransformerWeights, count: number, inverse: number): void {
    const { kernels, weights, columns, model } = this.#forward
    const { width, logitCap } = model.shape
    const { capped } = this.#columns
    const { none, scratch, hidden, top, topInverseRms, entropy, max, sum } = columns
    const { logits, dLogprob, dEntropy, dValue, target, dNormed, dx, changed, wasAbove } = this.#columns
    const changes = this.#changes
    for (let chunk = 0; chunk < weights.head.length; chunk++) {
      const head = weights.head[chunk]!
      const first = chunk * VOCABULARY_CHUNK
      // With one chunk, its logits are still there.
      const tokens = weights.head.length > 1 ? this.#chunkLogits(chunk, inverse, count) : head.numOutputs
      kernels.vocabularyBackward(logits, dLogprob, dEntropy, entropy, max, sum, target, inverse, count, first, tokens)
      this.#targets?.addDerivatives(logits, first, tokens, dLogprob)
      if (changes !== null)
        kernels.changeVocabulary(logits, wasAbove, this.#tokens, changed, changes, count, first, tokens, true)
      if (logitCap > 0) kernels.capBackward(logits, capped, logitCap, count * tokens)
      const dBias = into.head[chunk]?.bias ?? none
      if (dBias.length > 0) {
        kernels.matmul(dBias, this.#columns.ones, logits, none, scratch, 1, tokens, count, false, false, true)
      }
      const dHead = into.head[chunk]?.weight
      if (dHead) kernels.matmul(dHead, logits, hidden, none, scratch, tokens, width, count, true, false, true)
      const whole = this.#forward.weightOf(head)
      kernels.matmul(dNormed, logits, whole, none, scratch, count, width, tokens, false, false, chunk > 0)
    }
    if (model.hasValueHead) {
      this.#backwardWeights(into.valueHead, dValue, hidden, count, 1, width, into.valueBias)
      kernels.matmul(dNormed, dValue, weights.valueHead, none, scratch, count, width, 1, false, false, true)
    }
    this.#forward.scaleLogits(dNormed, count * width)
    this.#forward.normalizeBackward(dx, into.norm, dNormed, top, weights.norm, topInverseRms, count, width, false)
  }

  /** Turns `dx` from the gradient of the layer's output into that of its input. */
  #backwardLayer(index: number, gradient: TransformerWeights, count: number): void {
    const forward = this.#forward
    const { kernels, columns, model } = forward
    const { shape } = model
    const { numHeads, numKeyHeads, headWidth, feedForwardWidth, queryKeyNorm, gated, parallel } = shape
    const { activated, scores } = columns
    const { dNormed, dQuery, dKey, dAttentionValue: dValue, dAttended } = this.#columns
    const layer = forward.layers[index]!
    const weights = forward.weights.layers[index]!
    const into = gradient.layers[index]!
    const keyWidth = numKeyHeads * headWidth

    const { gate, up, middle, middleInverseRms } = layer
    const dFed = this.#backwardBranch(layer.rawFed, layer.fedInverseRms, weights.fedNorm, into.fedNorm, count)
    if (weights.mixture !== null) {
      const fed = forward.normMiddle(layer, index, count)
      mixBackward(forward, this.#columns, layer, weights.mixture, into.mixture!, dNormed, dFed, fed, count)
    } else {
      forward.activate(activated, gate, up, count * feedForwardWidth)
      this.#backwardProjection(activated, into.down, dFed, activated, weights.down, count, false)
      forward.activateBackward(gate, up, activated, count * feedForwardWidth)
      const fed = forward.normMiddle(layer, index, count)
      if (gated) this.#backwardProjection(dNormed, into.gate, gate, fed, weights.gate, count, false)
      this.#backwardProjection(dNormed, into.up, up, fed, weights.up, count, gated)
    }
    const { feedForwardNorm, inputNorm } = weights
    if (!parallel) this.#backwardNorm(into.feedForwardNorm, middle, feedForwardNorm, middleInverseRms, count)

    const { attendedNorm } = weights
    const { rawAttended, attendedInverseRms } = layer
    const dJoined = this.#backwardBranch(rawAttended, attendedInverseRms, attendedNorm, into.attendedNorm, count)
    this.#backwardProjection(dAttended, into.output, dJoined, layer.attended, weights.output, count, false)
    dKey.fill(0, 0, count * keyWidth)
    dValue.fill(0, 0, count * keyWidth)
    const [first, position] = forward.keysOf(index)
    const attend = shape.attentionCap > 0 ? kernels.cappedBackward : kernels.attentionBackward
    attend(dQuery, dKey, dValue, dAttended, layer, scores, first, position, shape, count)
    forward.scaleQuery(dQuery, count * numHeads * headWidth)
    forward.turn(index, dQuery, dKey, count, true)
    if (queryKeyNorm) {
      const { rawQuery, rawKey, queryInverseRms, keyInverseRms } = layer
      const { queryNorm, keyNorm } = weights
      const [queryParts, keyParts] = queryKeyNorm === 'head' ? [numHeads, numKeyHeads] : [1, 1]
      const queryWidth = (numHeads * headWidth) / queryParts
      const back = forward.normalizeBackward
      back(dQuery, into.queryNorm, dQuery, rawQuery, queryNorm, queryInverseRms, count * queryParts, queryWidth, false)
      back(dKey, into.keyNorm, dKey, rawKey, keyNorm, keyInverseRms, count * keyParts, keyWidth / keyParts, false)
    }
    const input = forward.normInput(layer, index, count)
    this.#backwardProjection(dNormed, into.query, dQuery, input, weights.query, count, parallel)
    this.#backwardProjection(dNormed, into.key, dKey, input, weights.key, count, true)
    this.#backwardProjection(dNormed, into.value, dValue, input, weights.value, count, true)
    this.#backwardNorm(into.inputNorm, layer.x, inputNorm, layer.inputInverseRms, count)
  }

  /** The gradient by the output of a projection that is added to the residual stream: `dx`, or its gradient through a scale and a norm. */
  #backwardBranch(raw: Float32Array, inverseRms: Float32Array, norm: Norm, into: Norm, count: number): Float32Array {
    const { dx } = this.#columns
    const { model, columns } = this.#forward
    const { width, normsAfter } = model.shape
    const { branch } = columns
    if (branch.length === 0) return dx
    copyElements(branch, dx, count * width)
    this.#forward.scaleResidual(branch, count * width)
    if (normsAfter) {
      this.#forward.normalizeBackward(branch, into, branch, raw, norm, inverseRms, count, width, false)
    }
    return branch
  }

  /** Adds the gradient `dNormed`, through the norm before attention or a feed-forward layer, to `dx`. */
  #backwardNorm(into: Norm, x: Float32Array, norm: Norm, inverseRms: Float32Array, count: number): void {
    const { dx, dNormed } = this.#columns
    const { width, normsBefore } = this.#forward.model.shape
    if (normsBefore) this.#forward.normalizeBackward(dx, into, dNormed, x, norm, inverseRms, count, width, true)
    else addElements(dx, dNormed, count * width)
  }

  /** Backpropagates dy through a projection, to trained weights in `into`, and to dx (set or added), maybe x itself. */
  #backwardProjection(
    dx: Float32Array,
    into: Projection,
    dy: Float32Array,
    x: Float32Array,
    projection: Projection,
    count: number,
    accumulate: boolean,
  ): void {
    const forward = this.#forward
    const { kernels, columns } = forward
    const { none, scratch } = columns
    const { dLow } = this.#columns
    const { numOutputs, numInputs, place, a, b } = projection
    const rank = a.length / numInputs
    if (projection.magnitude.length > 0) forward.backwardMagnitude(into, dy, x, projection, count)
    if (into.weight.length > 0) this.#backwardWeights(into.weight, dy, x, count, numOutputs, numInputs, into.bias)
    if (rank > 0) {
      const { low, left } = forward.projectLow(x, projection, count)
      kernels.matmul(into.b, dy, low, none, scratch, numOutputs, rank, count, true, false, true)
      kernels.matmul(dLow, dy, b, none, scratch, count, rank, numOutputs, false, false, false)
      forward.scaleLow(dLow, count * rank)
      kernels.matmul(into.a, dLow, left, none, scratch, rank, numInputs, count, true, false, true)
    }
    forward.backwardInput(dx, dy, projection, count, accumulate)
    if (rank > 0) {
      const through = forward.hasDropout ? columns.dropped : dx
      kernels.matmul(through, dLow, a, none, scratch, count, numInputs, rank, false, false, !forward.hasDropout)
      if (forward.hasDropout) forward.drop(through, place, count, numInputs, dx, true)
    }
  }

  /** Adds dyᵀ · x to dWeight, and dy's column sums to dBias if the model has it. */
  #backwardWeights(
    dWeight: Float32Array,
    dy: Float32Array,
    x: Float32Array,
    count: number,
    numOutputs: number,
    numInputs: number,
    dBias?: Float32Array,
  ): void {
    const { kernels, columns } = this.#forward
    const { none, scratch } = columns
    kernels.matmul(dWeight, dy, x, none, scratch, numOutputs, numInputs, count, true, false, true)
    if (dBias === undefined || dBias.length === 0) return
    kernels.matmul(dBias, this.#columns.ones, dy, none, scratch, 1, numOutputs, count, false, false, true)
  }
}
