/** Log-probabilities of our transformers for `LogprobValidator`: packed, decoded, and differentiated. */
import { checkCount, checkGiven, InputError } from '../../base/errors.ts'
import { Random } from '../../base/random.ts'
import { column } from '../../components/column.ts'
import { bestKernelBuild, spansOf } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { decoderPlan, TransformerDecoder } from '../../language/transformer/decoder.ts'
import type { LoraModel } from '../../language/transformer/lora.ts'
import { takeColumns } from '../../language/transformer/memory.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import { PackedTransformer, packedPlan } from '../../language/transformer/packed.ts'
import { checkWeights } from '../../policies/weights.ts'
import type { LogprobModel } from '../text/evaluate/logprob-validator.ts'

/** Maximum tokens of a sequence, unless more are asked for: enough to validate. */
const CONTEXT = 64
const ROWS = 128

/** A transformer with its weights, and its adapter's if there is one. */
export interface ValidatedTransformer {
  readonly model: TransformerModel
  readonly weights: Float32Array
  readonly adapter?: { readonly lora: LoraModel; readonly weights: Float32Array } | null
}

/**
 * A transformer for `LogprobValidator`, over copies of its weights. `nextLogprobs` decodes with a cache of keys and
 * values; with tolerance 0 the validator requires the bits of the packed pass. Sequences have at most `longest` tokens.
 * @throws InputError for weights that are of another length or not finite; later for a sequence longer than `context`.
 */
export function transformerLogprobs(
  given: ValidatedTransformer,
  build: KernelBuild = bestKernelBuild(),
  longest = CONTEXT,
): LogprobModel {
  checkCount('longest of transformerLogprobs', longest)
  checkGiven('model of transformerLogprobs', given, ['model', 'weights'])
  const { model, weights, adapter = null } = given
  checkWeights(model, weights)
  const context = Math.min(model.shape.contextLength, longest)
  const most = Math.max(ROWS, context)
  const { vocabularySize } = model.shape
  // Dropout differs between passes, but finite differences need one function.
  const lora = adapter === null ? null : { ...adapter.lora, settings: { ...adapter.lora.settings, dropout: 0 } }
  const ofVocabulary = () => column('f32', vocabularySize)
  const plan = {
    weights: column('f32', model.numParameters),
    adapter: column('f32', lora?.numParameters ?? 0),
    gradient: column('f32', (lora ?? model).numParameters),
    packed: packedPlan(model, most, context, lora),
    decoder: decoderPlan(model, 1, context, lora),
    next: {
      logprob: ofVocabulary(),
      entropy: ofVocabulary(),
      max: ofVocabulary(),
      sum: ofVocabulary(),
      weighted: ofVocabulary(),
      logit: ofVocabulary(),
    },
  }
  const { columns, kernels } = takeColumns(plan, build)
  columns.weights.set(weights)
  if (adapter !== null) columns.adapter.set(adapter.weights)
  const random = new Random(0)
  const adapted = lora === null ? null : { lora, weights: columns.adapter, random }
  const packed = new PackedTransformer(model, columns.weights, columns.packed, kernels, adapted)
  const decoder = new TransformerDecoder(model, columns.weights, columns.decoder, kernels, random, adapted)
  const views = packed.view(columns.gradient)

  /** Packs as many sequences as fit, calls `use` with their number of rows, and repeats with the remaining ones. */
  const inParts = (sequences: readonly (readonly number[])[], use: (rows: number, lengths: number[]) => void): void => {
    for (const [i, { length }] of sequences.entries()) {
      if (length >= 1 && length <= context) continue
      throw new InputError(`sequence ${i} of transformerLogprobs`, `${length} tokens`, `1 to ${context}`)
    }
    for (let from = 0, to = 0; from < sequences.length; from = to) {
      let rows = 0
      while (to < sequences.length && rows + sequences[to]!.length - 1 <= most) rows += sequences[to++]!.length - 1
      const part = sequences.slice(from, to)
      const offsets = [0]
      for (const { length } of part) offsets.push(offsets.at(-1)! + length)
      const lengths = part.map(({ length }) => length - 1)
      use(packed.pack(part.flat(), spansOf(offsets), 0, part.length), lengths)
    }
  }
  const logprobs = (sequences: readonly (readonly number[])[]): number[][] => {
    const all: number[][] = []
    inParts(sequences, (rows, lengths) => {
      const { logprob } = packed.evaluate(rows)
      let at = 0
      for (const length of lengths) {
        all.push(Array.from(logprob.subarray(at, at + length)))
        at += length
      }
    })
    return all
  }
  const nextLogprobs = (prefix: readonly number[]): number[] => {
    const { slot, forward, logits } = columns.decoder
    prefix.forEach((token, position) => {
      slot[0] = 0
      forward.token[0] = token
      forward.position[0] = position
      decoder.advance(1, {}, false)
    })
    const { logprob, entropy, max, sum, weighted, logit } = columns.next
    logit.set(logits)
    max.fill(forward.max[0]!)
    sum.fill(forward.sum[0]!)
    weighted.fill(forward.weighted[0]!)
    kernels.evaluateVocabulary(logprob, entropy, max, sum, weighted, logit, vocabularySize)
    return Array.from(logprob)
  }
  const gradient = {
    weights: lora === null ? columns.weights : columns.adapter,
    of: (sequences: readonly (readonly number[])[]): Float32Array => {
      columns.gradient.fill(0)
      inParts(sequences, (rows) => {
        packed.differentiate(
          rows,
          (_, { dLogprob, dEntropy, dValue }, count) => {
            dLogprob.fill(1, 0, count)
            dEntropy.fill(0, 0, count)
            dValue.fill(0)
          },
          views,
        )
      })
      return columns.gradient.slice()
    },
  }
  const norm = model.parameters.find(({ name }) => name === 'model.norm.weight')!
  /** Logits are linear in the weights of the last norm, which are restored afterwards. */
  const whileScaled = <T>(factor: number, use: () => T): T => {
    const weight = columns.weights.subarray(norm.offset, norm.offset + norm.shape[0]!)
    const before = weight.slice()
    try {
      for (let i = 0; i < weight.length; i++) weight[i] = weight[i]! * factor
      return use()
    } finally {
      weight.set(before)
    }
  }
  return {
    vocabularySize,
    context,
    logprobs,
    nextLogprobs,
    gradient,
    scaled: (factor) => ({
      vocabularySize,
      context,
      logprobs: (sequences) => whileScaled(factor, () => logprobs(sequences)),
      nextLogprobs: (prefix) => whileScaled(factor, () => nextLogprobs(prefix)),
    }),
  }
}
