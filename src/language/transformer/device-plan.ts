/** Which transformers have shaders (device-steps.ts), and the columns of their activations on a device. */
import { InputError } from '../../base/errors.ts'
import { RowField } from '../../kernels/webgpu/attention.ts'
import { PARTS_LENGTH } from '../../kernels/webgpu/product.ts'
import { deviceColumn } from '../../kernels/webgpu/step.ts'
import type { LoraModel } from './lora.ts'
import type { TransformerModel } from './model.ts'

/** Elements of the column of logits at most, and the fewest of the vocabulary's tokens that it has a row's logits of. */
const [LOGITS, MIN_CHUNK] = [2 ** 26, 64]

/** @throws InputError for a part of the model that has no shader, by its name; for quantized weights; and for an optimizer other than adam. */
export function checkDeviceLearning(
  model: TransformerModel,
  lora: LoraModel | null,
  isQuantized: boolean,
  optimizer: string,
): void {
  checkDeviceModel(model, lora)
  if (optimizer !== 'adam') throw new InputError('optimizer', `${optimizer}, and languageModel.device=webgpu`, 'adam')
  if (!isQuantized) return
  throw new InputError('languageModel.quantize', 'fewer bits than 32, and device=webgpu', '32, or device=none')
}

function checkDeviceModel(model: TransformerModel, lora: LoraModel | null): void {
  const { shape, quantizesActivations, cacheBits, parameters } = model
  const parts: readonly (readonly [string, boolean])[] = [
    ['experts', shape.experts !== null],
    ['LayerNorm', shape.norm !== 'rms'],
    ['no norms before its layers', !shape.normsBefore],
    ['norms after its layers', shape.normsAfter],
    ['attention beside the feed-forward layer', shape.parallel],
    ['a feed-forward layer without a gate', !shape.gated],
    [`the activation ${shape.activation}`, shape.activation !== 'silu'],
    ['queries and keys that are normed whole', shape.queryKeyNorm === 'whole'],
    ['scaled queries', shape.queryScale !== 1],
    ['capped scores', shape.attentionCap !== 0],
    ['capped logits', shape.logitCap !== 0],
    ['scaled embeddings', shape.embeddingScale !== 1],
    ['scaled outputs of layers', shape.residualScale !== 1],
    ['scaled logits', shape.logitScale !== 1],
    ['a bias of the head', shape.headBias],
    ['a bias after attention', shape.outputBias],
    ['biases of feed-forward layers', shape.feedForwardBias],
    ['learned positions', shape.rotaryWidth === 0],
    ['another rotation in windows', shape.windowRope !== null],
    ['quantizeActivations', quantizesActivations],
    [`cacheBits=${cacheBits}`, cacheBits !== 32],
    ['frozen parameters (trainable=)', parameters.some((each) => each.isFrozen === true)],
    ['loraDropout', (lora?.settings.dropout ?? 0) !== 0],
    ['loraMagnitude', lora?.settings.magnitude === true],
  ]
  const refused = parts.find(([, isThere]) => isThere)
  if (refused === undefined) return
  const got = `webgpu, and a model with ${refused[0]}, for which there is no shader`
  throw new InputError('languageModel.device', got, 'a model like Llama, Qwen2, Qwen3 or Mistral, or none')
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
  const most = Math.max(qkv, 2 * feedForwardWidth, width, MIN_CHUNK)
  return { all: numLayers * layer + shared + logits + (hasValueHead ? 1 : 0), most }
}

/** Columns of the activations, of at most `maxLength` elements; several pairs of weights can use them in turn. */
export function activationColumns(model: TransformerModel, rank: number, blockRows: number, maxLength: number) {
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, numLayers, queryKeyNorm, vocabularySize } =
    model.shape
  const each = (name: string, elements: number) => deviceColumn(name, blockRows * elements)
  const qkv = (numHeads + 2 * numKeyHeads) * headWidth
  const raw = queryKeyNorm === null ? 0 : (numHeads + numKeyHeads) * headWidth
  const chunk = Math.min(
    vocabularySize,
    Math.max(MIN_CHUNK, Math.floor(Math.min(LOGITS, maxLength) / blockRows / 64) * 64),
  )
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
