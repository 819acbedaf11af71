/**
 * TensorBoard's event files: records (a length and bytes, each with a checksum) of protocol buffers (tensorflow/core/util/event.proto,
 * tensorflow/core/framework/summary.proto, tensorboard/plugins/hparams/api.proto).
 */
import {
  bytesField,
  doubleField,
  doublesField,
  type Field,
  floatField,
  messageOf,
  numberField,
} from '../../base/files/protobuf.ts'
import { maskedCrc32c } from './crc32c.ts'
import type { Distribution, LoggedEnd } from './logger.ts'

const BUCKETS = 30
const DT_FLOAT = 1
const DT_STRING = 7
const DATA_CLASS_TENSOR = 2
const SESSION_START = 1

/** A message as a record: the length, its checksum, the bytes, their checksum. */
export function record(fields: readonly Field[]): Uint8Array {
  const bytes = messageOf(fields)
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(bytes.length))
  return Buffer.concat([length, checksum(length), bytes, checksum(bytes)])
}

function checksum(bytes: Uint8Array): Uint8Array {
  const crc = Buffer.alloc(4)
  crc.writeUInt32LE(maskedCrc32c(bytes))
  return crc
}

/** An event at a time (ms since 1970) and a step; `what` is one of the messages below. */
export function event(time: number, step: number, what: Field): Uint8Array {
  return record([doubleField(1, time / 1000), numberField(2, step), what])
}

/** The version, which begins every file. */
export function version(): Field {
  return bytesField(3, 'brain.Event:2')
}

/** Marks the start of a resumed training: later steps in earlier files are void. */
export function sessionStart(): Field {
  return bytesField(7, [numberField(1, SESSION_START)])
}

export function summary(values: readonly Field[]): Field {
  return bytesField(5, values)
}

/** A number, as a 32-bit float. */
export function scalar(tag: string, value: number): Field {
  return bytesField(1, [bytesField(1, tag), floatField(2, value)])
}

/** A histogram with buckets of equal width. */
export function histogram(tag: string, { values, counts }: Distribution): Field {
  const weights = values.map((_, i) => counts?.[i] ?? 1)
  // Not Math.min(...values): there may be more values than a call can take.
  const [min, max] = values.reduce(
    ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  )
  const count = min === max ? 1 : BUCKETS
  const width = (max - min) / count
  const buckets = new Float64Array(count)
  const sums = { count: 0, sum: 0, squares: 0 }
  for (const [i, value] of values.entries()) {
    const bucket = width === 0 ? 0 : Math.min(count - 1, Math.floor((value - min) / width))
    const weight = weights[i]!
    buckets[bucket] = buckets[bucket]! + weight
    sums.count += weight
    sums.sum += weight * value
    sums.squares += weight * value ** 2
  }
  const limits = Float64Array.from(buckets, (_, i) => (i === count - 1 ? max : min + (i + 1) * width))
  return bytesField(1, [
    bytesField(1, tag),
    bytesField(5, [
      ...[min, max, sums.count, sums.sum, sums.squares].map((value, i) => doubleField(i + 1, value)),
      doublesField(6, limits),
      doublesField(7, buckets),
    ]),
  ])
}

/** A text, which TensorBoard shows as Markdown. */
export function text(tag: string, words: string): Field {
  return tensorValue(tag, [numberField(1, DT_STRING), bytesField(2, []), bytesField(8, words)], 'text')
}

/** The settings of a training, for the table of hyperparameters. */
export function settingsBegin(settings: Readonly<Record<string, unknown>>, time: number): Field {
  const pairs = Object.entries(settings).flatMap(([key, value]) => {
    const field =
      typeof value === 'number'
        ? doubleField(2, value)
        : typeof value === 'boolean'
          ? numberField(4, Number(value))
          : bytesField(3, String(value))
    return [bytesField(1, [bytesField(1, key), bytesField(2, [field])])]
  })
  return hyperparameters('_hparams_/session_start_info', bytesField(3, [...pairs, doubleField(5, time / 1000)]))
}

/** The end of a training, for the same table. */
export function settingsEnd(end: LoggedEnd, time: number): Field {
  const status = { complete: 1, failed: 2, interrupted: 3 }[end]
  const info = bytesField(4, [numberField(1, status), doubleField(2, time / 1000)])
  return hyperparameters('_hparams_/session_end_info', info)
}

function hyperparameters(tag: string, content: Field): Field {
  const none = [numberField(1, DT_FLOAT), bytesField(2, [bytesField(2, [numberField(1, 1)])]), floatField(5, 0)]
  return tensorValue(tag, none, 'hparams', content)
}

function tensorValue(tag: string, tensor: readonly Field[], plugin: string, content: Field = []): Field {
  const data = [bytesField(1, plugin), ...(content.length === 0 ? [] : [bytesField(2, [content])])]
  return bytesField(1, [
    bytesField(1, tag),
    bytesField(8, tensor),
    bytesField(9, [bytesField(1, data), ...(plugin === 'text' ? [numberField(4, DATA_CLASS_TENSOR)] : [])]),
  ])
}
