/** Which transformers have shaders (device-steps.ts), and the columns of their activations on a device. */
import { InputError } from '../../base/errors.ts'
import { RowField } from '../../kernels/webgpu/attention.ts'
import { PARTS_LENGTH } from '../../kernels/webgpu/product.ts'
import { deviceColumn } from '../../kernels/webgpu/step.ts'
import type { LoraModel } from './lora.ts'
import type { TransformerModel } from './model.ts'

/** The largest column of logits, in elements. */
const LOGITS = 2 ** 26

/** @throws InputError for a part of the model that has no shader, by its name in the shape. */
export function checkDeviceModel(model: TransformerModel, lora: LoraModel | null): void {
  const { shape, quantizesActivations, cacheBits, parameters } = model
  const parts: readonly (readonly [string, unknown, unknown])[] = [
    ['experts', shape.experts === null, true],
    ['norm', shape.norm, 'rms'],
    ['normsBefore', shape.normsBefore, true],
    ['normsAfter', shape.normsAfter, false],
    ['parallel', shape.parallel, false],
    ['gated', shape.gated, true],
    ['activation', shape.activation, 'silu'],
    ['queryKeyNorm whole', shape.queryKeyNorm === 'whole', false],
    ['queryScale', shape.queryScale, 1],
    ['attentionCap', shape.attentionCap, 0],
    ['logitCap', shape.logitCap, 0],
    ['embeddingScale', shape.embeddingScale, 1],
    ['residualScale', shape.residualScale, 1],
    ['logitScale', shape.logitScale, 1],
    ['headBias', shape.headBias, false],
    ['outputBias', shape.outputBias, false],
    ['feedForwardBias', shape.feedForwardBias, false],
    ['learned positions', shape.rotaryWidth > 0, true],
    ['another rotation in windows', shape.windowRope === null, true],
    ['quantizeActivations', quantizesActivations, false],
    ['cacheBits', cacheBits, 32],
    ['frozen parameters', parameters.some((each) => each.isFrozen === true), false],
    ['loraDropout', lora?.settings.dropout ?? 0, 0],
  ]
  const missing = parts.find(([, has, expected]) => has !== expected)
  if (missing === undefined) return
  const got = `a model whose ${missing[0]} has no shader (${String(missing[1])})`
  throw new InputError(
    'device webgpu',
    got,
    'one like Llama, Qwen2, Qwen3 or Mistral with weights in f32, or device none',
  )
}

/** Numbers per row in the columns of a pass: how wide they are all together, and the widest. */
export function deviceRowWidth({ shape, hasValueHead }: TransformerModel): {
  readonly all: number
  readonly most: number
} {
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, numLayers, queryKeyNorm } = shape
  const qkv = (numHeads + 2 * numKeyHeads) * headWidth
  const raw = queryKeyNorm === null ? 0 : (numHeads + numKeyHeads) * headWidth
  const layer = 2 * width + qkv + raw + numHeads * (headWidth + 2) + 2 * feedForwardWidth
  const shared = 5 * width + qkv + numHeads * headWidth + 2 * feedForwardWidth + RowField.length + 12
  const logits = Math.min(shape.vocabularySize, 2 ** 14)
  const most = Math.max(qkv, 2 * feedForwardWidth, width)
  return { all: numLayers * layer + shared + logits + (hasValueHead ? 1 : 0), most }
}

/** Columns of the activations, which several pairs of weights can use in turn. */
export function activationColumns(model: TransformerModel, rank: number, blockRows: number) {
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, numLayers, queryKeyNorm, vocabularySize } =
    model.shape
  const each = (name: string, elements: number) => deviceColumn(name, blockRows * elements)
  const qkv = (numHeads + 2 * numKeyHeads) * headWidth
  const raw = queryKeyNorm === null ? 0 : (numHeads + numKeyHeads) * headWidth
  const chunk = Math.min(vocabularySize, Math.max(64, Math.floor(LOGITS / blockRows / 64) * 64))
  return {
    layers: Array.from({ length: numLayers }, () => ({
      x: each('x', width),
      raw: each('queries and keys before their norm', raw),
      qkv: each('queries, keys and values', qkv),
      attended: each('attended', numHeads * headWidth),
      stats: each('sums of attention', numHeads * 2),
      middle: each('middle', width),
      fed: each('gate and up', 2 * feedForwardWidth),
    })),
    top: each('top', width),
    hidden: each('hidden', width),
    normed: each('normed', width),
    inverse: each('factors of norms', Math.max(numHeads, 1)),
    activated: each('activated', feedForwardWidth),
    dx: each('gradient by the stream', width),
    dNormed: each('gradient by normed', width),
    dActivated: each('gradient by activated', feedForwardWidth),
    dAttended: each('gradient by attended', numHeads * headWidth),
    dqkv: each('gradient by queries, keys and values', qkv),
    low: each('low', rank),
    dLow: each('gradient by low', rank),
    logits: each('logits', chunk),
    running: each('running sums', 4),
    scratch: deviceColumn('parts', PARTS_LENGTH),
    chunk,
  }
}
