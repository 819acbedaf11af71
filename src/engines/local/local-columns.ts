/** The columns of the local engine: shared columns and each thread's decoder. */
import { type Columns, column, type Plan } from '../../components/column.ts'
import { type DecoderColumns, decoderPlan, decoderShare } from '../../language/transformer/decoder.ts'
import { maskWords } from '../../language/transformer/sampling.ts'
import type { EngineShape } from '../engine-shape.ts'

export function localEnginePlan({ model, adapter, weightBits, numSlots, context, threads }: EngineShape) {
  const shareSlots = Math.max(2 * SHARE_SLOTS, Math.ceil(numSlots / threads))
  return {
    turns: {
      /** 1 if the slot has a turn. */
      active: column('u8', numSlots),
      length: column('i32', numSlots),
      /** Number of ids whose keys and values are in the cache. */
      cached: column('i32', numSlots),
      /** The key of the turn's random numbers: group, member and number of tokens before the ids. */
      group: column('i32', numSlots),
      member: column('i32', numSlots),
      tokensBefore: column('i32', numSlots),
      /** 1 if the turn has its own sampling, in the columns below; 0 for the engine's default. */
      ownDrawing: column('u8', numSlots),
      temperature: column('f64', numSlots),
      topK: column('i32', numSlots),
      topP: column('f64', numSlots),
      minP: column('f64', numSlots),
      /** 1 to sample, 0 to choose the most probable token. */
      explore: column('u8', numSlots),
      /** 1 if only the tokens of the slot's mask may come next. A mask has one bit per token of the vocabulary. */
      masked: column('u8', numSlots),
      mask: column('i32', numSlots, maskWords(model.shape.vocabularySize)),
      /** Length of the prompt, where the answer begins. */
      answer: column('i32', numSlots),
      /** 1 if the slot's logits are changed, by its row of `changes`. Biases of slot n begin at n · MOST_BIASES. */
      changed: column('u8', numSlots),
      changes: {
        ...{
          repetition: column('f32', numSlots),
          frequency: column('f32', numSlots),
          presence: column('f32', numSlots),
        },
        ...{ biasBegin: column('i32', numSlots), biasEnd: column('i32', numSlots) },
        ...{ biasId: column('i32', numSlots, MOST_BIASES), bias: column('f32', numSlots, MOST_BIASES) },
      },
    },
    decoder: decoderPlan(model, numSlots, context, adapter, weightBits),
    /** Decoders of the other threads. The first thread's decoder has room for all slots. */
    decoders: Object.fromEntries(
      Array.from({ length: threads - 1 }, (_, i) => [
        i + 1,
        decoderShare(model, shareSlots, context, adapter, weightBits),
      ]),
    ),
  } satisfies Plan
}

/** Maximum number of biases of a turn. */
export const MOST_BIASES = 1024

export type LocalColumns = Columns<ReturnType<typeof localEnginePlan>>

/** The columns in which a thread decodes: its own decoder and the shared columns. */
export interface DecodingColumns {
  readonly turns: LocalColumns['turns']
  readonly ids: Int32Array
  readonly decoder: DecoderColumns
}

/** Minimum number of slots per thread. */
export const SHARE_SLOTS = 4
