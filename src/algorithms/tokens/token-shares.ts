/**
 * What processes send to each other that compute a gradient over tokens together: the batch with its prepared loss, and the results of a
 * share's micro-batches.
 */
import { packNested } from '../../components/nested.ts'
import type { NamedColumns } from '../shared-gradient.ts'
import { type DifferentiateWork, SUMS } from './token-thread.ts'

/** The part of the work that another process needs, without outputs. */
export interface SentWork extends Pick<DifferentiateWork, 'temperature' | 'step' | 'loss' | 'totals'> {
  readonly parts: readonly number[]
}

/** The columns of all of an update's minibatches. */
export interface SentRows extends Pick<DifferentiateWork, 'given'> {
  readonly batch: Omit<DifferentiateWork['batch'], 'parts'>
  readonly prepared: Pick<DifferentiateWork['update']['prepared'], (typeof preparedInputs)[number]>
}

const preparedInputs = ['counted', 'tokenAdvantage', 'weight', 'returns'] as const

/** The rows and the minibatch of a work, as columns. Tokens after the batch's last one are left out. */
export function sentColumns(work: DifferentiateWork): Readonly<Record<'rows' | 'minibatch', NamedColumns>> {
  const { batch, given, update, temperature, step, loss, totals } = work
  const { parts, spans, token, candidates } = batch
  const [numTokens, numRows] = [spans.end.reduce((most, end) => Math.max(most, end), 0), spans.end.length]
  const tokens = <C extends ArrayLike<number>>(values: C): C => cut(values, numTokens)
  const { oldLogprob, referenceLogprob, oldValue, wholeTokens, compared } = given
  const rows: SentRows = {
    batch: { spans, token: tokens(token), candidates },
    prepared: Object.fromEntries(preparedInputs.map((name) => [name, tokens(update.prepared[name])])) as never,
    given: {
      oldLogprob: tokens(oldLogprob),
      referenceLogprob: referenceLogprob && tokens(referenceLogprob),
      oldValue: oldValue && tokens(oldValue),
      wholeTokens: wholeTokens && cut(wholeTokens, numRows),
      ...(compared && {
        compared: {
          ...compared,
          ...Object.fromEntries(
            (['unit', 'isGood', 'reference', 'margin'] as const).map((name) => [name, cut(compared[name], numRows)]),
          ),
        },
      }),
    },
  }
  const minibatch: SentWork = { parts, temperature, step, loss, totals }
  return { rows: packNested(rows), minibatch: packNested(minibatch) }
}

function cut<C extends ArrayLike<number>>(values: C, length: number): C {
  return (ArrayBuffer.isView(values) ? (values as unknown as Int32Array).subarray(0, length) : values) as C
}

/** Empty columns for the sums and the forward passes of micro-batches. */
export function emptyResults({ batch: { parts, spans } }: DifferentiateWork, list: readonly number[]) {
  let numTokens = 0
  for (const part of list) {
    for (let i = parts[part]!; i < parts[part + 1]!; i++) numTokens += spans.end[i]! - spans.begin[i]!
  }
  return {
    sums: new Float64Array(SUMS * list.length),
    logprob: new Float32Array(numTokens),
    entropy: new Float32Array(numTokens),
  }
}

export type PartResults = ReturnType<typeof emptyResults>

/** Copies the results of micro-batches from the update's columns, one after another; or into them. */
export function copyResults(
  { batch: { parts, spans }, update }: DifferentiateWork,
  list: readonly number[],
  { sums, logprob, entropy }: PartResults,
  isInto: boolean,
): void {
  const move = (
    whole: Float32Array | Float64Array,
    from: number,
    part: Float32Array | Float64Array,
    at: number,
    length: number,
  ) => {
    if (isInto) whole.set(part.subarray(at, at + length), from)
    else part.set(whole.subarray(from, from + length), at)
  }
  let at = 0
  for (const [k, part] of list.entries()) {
    move(update.sums, part * SUMS, sums, k * SUMS, SUMS)
    for (let i = parts[part]!; i < parts[part + 1]!; i++) {
      const [begin, length] = [spans.begin[i]!, spans.end[i]! - spans.begin[i]!]
      move(update.logprob, begin, logprob, at, length)
      move(update.entropy, begin, entropy, at, length)
      at += length
    }
  }
}
