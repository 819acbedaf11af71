/** The columns of the engine that decodes in this process, and those of them in which one thread decodes. */
import { type Columns, column, type Plan } from '../../components/column.ts'
import { type DecoderColumns, decoderPlan, decoderShare } from '../../language/transformer/decoder.ts'
import type { EngineShape } from '../engine-shape.ts'

/** The columns of a local engine for so many threads. */
export function localEnginePlan({ model, adapter, weightBits, numSlots, context, threads }: EngineShape) {
  const shareSlots = Math.max(2 * SHARE_SLOTS, Math.ceil(numSlots / threads))
  return {
    turns: {
      /** 1 where the slot has a turn. */
      active: column('u8', numSlots),
      /** Ids that stand. */
      length: column('i32', numSlots),
      /** Ids whose keys and values are in the cache. */
      cached: column('i32', numSlots),
      /** What keys a turn's random numbers, and the number of tokens before its ids. */
      group: column('i32', numSlots),
      member: column('i32', numSlots),
      tokensBefore: column('i32', numSlots),
      /** 1 where the turn draws its tokens in a way of its own, by the columns below; 0 where it draws as the engine was made. */
      ownDrawing: column('u8', numSlots),
      temperature: column('f64', numSlots),
      topK: column('i32', numSlots),
      topP: column('f64', numSlots),
      minP: column('f64', numSlots),
      /** 1 where it draws by chance, 0 where it takes the most probable token. */
      explore: column('u8', numSlots),
    },
    decoder: decoderPlan(model, numSlots, context, adapter, weightBits),
    /** Of each thread but the first, which can take all slots if need be. */
    decoders: Object.fromEntries(
      Array.from({ length: threads - 1 }, (_, i) => [
        i + 1,
        decoderShare(model, shareSlots, context, adapter, weightBits),
      ]),
    ),
  } satisfies Plan
}

export type LocalColumns = Columns<ReturnType<typeof localEnginePlan>>

/** The columns in which a thread decodes: its own, and those that all share. */
export interface DecodingColumns {
  readonly turns: LocalColumns['turns']
  /** slots × context. */
  readonly ids: Int32Array
  readonly decoder: DecoderColumns
}

/** Slots that a thread decodes, at least, where it shares them with others. */
export const SHARE_SLOTS = 4
