/**
 * Reads TensorBoard's event files independently of our writer, by the documentation of TFRecord and protocol buffers.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A field of a message: a number, or bytes. */
type Value = number | bigint | Uint8Array

/** A step's values in an event file. */
export interface ReadEvent {
  readonly time: number
  readonly step: number
  readonly version?: string
  readonly isSessionStart: boolean
  readonly scalars: Record<string, number>
  readonly texts: Record<string, string>
  readonly histograms: Record<
    string,
    { min: number; max: number; num: number; sum: number; squares: number; limits: number[]; counts: number[] }
  >
  readonly hyperparameters: Record<string, unknown>
}

/** CRC-32C, bit by bit. */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (const byte of bytes) {
    for (let bit = 0; bit < 8; bit++) {
      const isOdd = ((crc ^ (byte >> bit)) & 1) === 1
      crc = isOdd ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
    }
  }
  return (crc ^ 0xffffffff) >>> 0
}

function unmask(masked: number): number {
  const rotated = (masked - 0xa282ead8) >>> 0
  return ((rotated >>> 17) | (rotated << 15)) >>> 0
}

/** The records of a file. Throws for a wrong checksum, or remaining bytes. */
export function records(bytes: Buffer): Buffer[] {
  const found: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at))
    const data = bytes.subarray(at + 12, at + 12 + length)
    const sums = [bytes.readUInt32LE(at + 8), bytes.readUInt32LE(at + 12 + length)].map(unmask)
    if (sums[0] !== crc32c(bytes.subarray(at, at + 8)) || sums[1] !== crc32c(data)) throw new Error(`checksum at ${at}`)
    found.push(data)
    at += 16 + length
  }
  return found
}

function fields(bytes: Uint8Array): [number, Value][] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let at = 0
  const varint = (): bigint => {
    let [value, shift] = [0n, 0n]
    for (;;) {
      const byte = buffer[at++]!
      value |= BigInt(byte & 0x7f) << shift
      shift += 7n
      if (byte < 0x80) return value
    }
  }
  const found: [number, Value][] = []
  while (at < buffer.length) {
    const key = Number(varint())
    const kind = key & 7
    let value: Value
    if (kind === 0) value = varint()
    else if (kind === 1) {
      value = buffer.readDoubleLE(at)
      at += 8
    } else if (kind === 5) {
      value = buffer.readFloatLE(at)
      at += 4
    } else {
      const length = Number(varint())
      value = buffer.subarray(at, at + length)
      at += length
    }
    found.push([key >> 3, value])
  }
  return found
}

const all = (message: Value | undefined, number: number): Value[] =>
  message === undefined
    ? []
    : fields(message as Uint8Array).flatMap(([found, value]) => (found === number ? [value] : []))
const one = (message: Value | undefined, ...path: number[]): Value | undefined =>
  path.reduce<Value | undefined>((found, number) => all(found, number)[0], message)
const words = (value: Value | undefined): string => Buffer.from((value ?? new Uint8Array()) as Uint8Array).toString()

function doubles(value: Value | undefined): number[] {
  const bytes = Buffer.from(value as Uint8Array)
  return Array.from({ length: bytes.length / 8 }, (_, i) => bytes.readDoubleLE(8 * i))
}

function settingOf(value: Value | undefined): unknown {
  const [[kind, content] = [0, 0]] = fields(value as Uint8Array)
  return kind === 2 ? content : kind === 4 ? content === 1n : words(content)
}

/** The events of a file. */
export function readEvents(path: string): ReadEvent[] {
  return records(readFileSync(path)).map((event) => {
    const read = { scalars: {}, texts: {}, histograms: {}, hyperparameters: {} } as unknown as ReadEvent
    for (const value of all(one(event, 5), 1)) {
      const tag = words(one(value, 1))
      const [scalar, histogram, plugin] = [one(value, 2), one(value, 5), words(one(value, 9, 1, 1))]
      if (scalar !== undefined) read.scalars[tag] = scalar as number
      if (histogram !== undefined) {
        const [min, max, num, sum, squares] = [1, 2, 3, 4, 5].map((number) => one(histogram, number) as number)
        const lists = { limits: doubles(one(histogram, 6)), counts: doubles(one(histogram, 7)) }
        read.histograms[tag] = { ...{ min: min!, max: max!, num: num!, sum: sum!, squares: squares! }, ...lists }
      }
      if (plugin === 'text') read.texts[tag] = words(one(value, 8, 8))
      if (plugin === 'hparams') {
        for (const pair of all(one(value, 9, 1, 2, 3), 1))
          read.hyperparameters[words(one(pair, 1))] = settingOf(one(pair, 2))
        const status = one(value, 9, 1, 2, 4, 1)
        if (status !== undefined) read.hyperparameters.status = Number(status)
      }
    }
    const version = one(event, 3)
    return {
      ...read,
      time: one(event, 1) as number,
      step: Number(one(event, 2) ?? 0),
      isSessionStart: one(event, 7, 1) === 1n,
      ...(version === undefined ? {} : { version: words(version) }),
    }
  })
}

/** The event files of a folder, in TensorBoard's order. */
export function eventFiles(folder: string): string[] {
  return readdirSync(folder)
    .sort()
    .map((name) => join(folder, name))
}
