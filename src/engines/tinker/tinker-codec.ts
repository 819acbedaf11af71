/**
 * Tinker's passes and samples as protocol buffers, for services that do not accept JSON there. Field numbers are from SDK 0.38. Callers
 * see the same objects as with JSON.
 */
import {
  bytesField,
  doubleField,
  type Field,
  mapFields,
  messageOf,
  numberField,
  ProtoReader,
  varint,
} from '../../base/files/protobuf.ts'

/** Media type of protocol-buffer bodies. */
export const PROTOBUF = 'application/x-protobuf'

export interface EncodedRequest {
  /** The path: a forward pass is a `forward_backward` with a flag. */
  readonly path: string
  readonly bytes: Uint8Array
}

/** Numbers of a request or answer; `dtype` is float32 or int64. */
export interface Tensor {
  readonly data: ArrayLike<number>
  readonly dtype: string
  readonly shape: readonly number[]
  /** A sparse tensor: where each row's values begin, then their total number; and the column of each value. */
  readonly sparse_crow_indices?: readonly number[] | null
  readonly sparse_col_indices?: readonly number[] | null
}

export interface PassInput {
  readonly data: readonly {
    readonly model_input: { readonly chunks: readonly { readonly type?: string; readonly tokens: readonly number[] }[] }
    readonly loss_fn_inputs: Readonly<Record<string, Tensor>>
  }[]
  readonly loss_fn: string
  readonly loss_fn_config?: Readonly<Record<string, number | string>>
}

const DType = { float32: 1, int64: 2, int32: 3, bfloat16: 4 } as const

/** Stop reasons by number. */
const STOP_REASONS = ['stop', 'length']

/** Encodes a request; null for requests that are always JSON. */
export function encodeRequest(path: string, body: object): EncodedRequest | null {
  if (path !== 'forward' && path !== 'forward_backward') return null
  const { model_id, seq_id, ...inputs } = body as { model_id: string; seq_id?: number } & Record<string, unknown>
  const { data, loss_fn, loss_fn_config = {} } = inputs[`${path}_input`] as PassInput
  const numbers = Object.fromEntries(Object.entries(loss_fn_config).filter(([, value]) => typeof value === 'number'))
  const bytes = messageOf([
    textField(1, model_id),
    wholeField(2, seq_id ?? 0),
    ...data.map(({ model_input, loss_fn_inputs }) =>
      bytesField(3, [
        ...model_input.chunks.map(({ tokens }) =>
          bytesField(1, [bytesField(1, [bytesField(1, bytesOf(Int32Array.from(tokens)))])]),
        ),
        ...mapFields(2, loss_fn_inputs, (tensor) => bytesField(2, tensorFields(tensor))),
      ]),
    ),
    textField(4, loss_fn),
    // Older services read only numbers; current ones read the second map.
    ...mapFields(5, numbers as Record<string, number>, (value) => doubleField(2, value)),
    wholeField(6, path === 'forward' ? 1 : 0),
    ...mapFields(7, loss_fn_config, (value) =>
      bytesField(2, [typeof value === 'number' ? doubleField(1, value) : bytesField(2, value)]),
    ),
  ])
  return { path: 'forward_backward', bytes }
}

/** A text field, omitted if empty. */
function textField(number: number, value: string): Field {
  return value === '' ? [] : bytesField(number, value)
}

/** A whole-number field, omitted if 0. */
function wholeField(number: number, value: number): Field {
  return value === 0 ? [] : numberField(number, value)
}

/** Returns the decoder of this request's result; null for results that are always JSON. */
export function answerReader(path: string): ((bytes: Uint8Array) => Record<string, unknown>) | null {
  if (path === 'forward' || path === 'forward_backward') return readPass
  return path === 'asample' ? readSampled : null
}

function readPass(bytes: Uint8Array): Record<string, unknown> {
  const message = new ProtoReader(bytes)
  return {
    loss_fn_output_type: message.text(1),
    loss_fn_outputs: message.messages(2).flatMap(readRecord),
    metrics: Object.fromEntries(message.entries(3).map(([name, entry]) => [name, entry.number(2)])),
  }
}

/** Splits a record into datums, by the byte offsets of each field. */
function readRecord(record: ProtoReader): Record<string, Tensor>[] {
  const datums: Record<string, Tensor>[] = []
  for (const [name, entry] of record.entries(2)) {
    const field = new ProtoReader(entry.bytes(2))
    const values = field.bytes(1)
    const offsets = Array.from(new BigInt64Array(aligned(field.bytes(2), 8)), Number)
    if (offsets.length !== record.number(3) + 1) {
      throw new Error(`got ${offsets.length} offsets of ${name}, expected one more than its ${record.number(3)} datums`)
    }
    for (const [i, to] of offsets.slice(1).entries()) {
      const from = offsets[i]!
      if (!(from >= 0 && from <= to && to <= values.length)) {
        throw new Error(`got ${name} from byte ${from} to ${to}, expected a range within its ${values.length} bytes`)
      }
      const data = readNumbers(values.subarray(from, to), field.number(3))
      const dtype = field.number(3) === DType.int64 ? 'int64' : 'float32'
      datums[i] = { ...datums[i], [name]: { data, dtype, shape: [data.length] } }
    }
  }
  return datums
}

function readSampled(bytes: Uint8Array): Record<string, unknown> {
  const message = new ProtoReader(bytes)
  const sequences = message.messages(1).map((sequence) => ({
    stop_reason: STOP_REASONS[sequence.number(1)] ?? sequence.number(1),
    tokens: readNumbers(sequence.bytes(2), DType.int32),
    logprobs: sequence.has(3) ? readNumbers(sequence.bytes(3), DType.float32) : null,
  }))
  return { sequences, prompt_cache_hit_tokens: message.number(4), type: 'sample' }
}

/** Decodes a pass that was posted in protocol buffers, on the side of the service. @throws Error for other bytes. */
export function readPassRequest(bytes: Uint8Array): { readonly path: string; readonly body: Record<string, unknown> } {
  const message = new ProtoReader(bytes)
  const path = message.number(6) === 1 ? 'forward' : 'forward_backward'
  const config = message
    .entries(5)
    .map(([name, entry]): [string, number | string] => [name, entry.number(2)])
    .concat(
      message.entries(7).map(([name, entry]) => {
        const value = new ProtoReader(entry.bytes(2))
        return [name, value.has(2) ? value.text(2) : value.number(1)]
      }),
    )
  const input: PassInput = {
    data: message.messages(3).map((datum) => ({
      model_input: { chunks: datum.messages(1).map(readChunk) },
      loss_fn_inputs: Object.fromEntries(
        datum.entries(2).map(([name, entry]) => [name, readTensor(new ProtoReader(entry.bytes(2)))]),
      ),
    })),
    loss_fn: message.text(4),
    ...(config.length === 0 ? {} : { loss_fn_config: Object.fromEntries(config) }),
  }
  return { path, body: { [`${path}_input`]: input, model_id: message.text(1), seq_id: message.number(2) } }
}

function readChunk(chunk: ProtoReader): { type: string; tokens: number[] } {
  if (!chunk.has(1)) return { type: chunk.has(2) ? 'image' : 'unknown', tokens: [] }
  return { type: 'encoded_text', tokens: readNumbers(new ProtoReader(chunk.bytes(1)).bytes(1), DType.int32) }
}

function readTensor(tensor: ProtoReader): Tensor {
  const type = tensor.number(3)
  const dtype = type === DType.int64 || type === DType.int32 ? 'int64' : 'float32'
  const shape = tensor.wholes(4)
  if (!tensor.has(2)) return { data: readNumbers(tensor.bytes(1), type), dtype, shape }
  const sparse = new ProtoReader(tensor.bytes(2))
  return {
    ...{ data: readNumbers(sparse.bytes(1), type), dtype, shape },
    sparse_crow_indices: readNumbers(sparse.bytes(2), DType.int64),
    sparse_col_indices: readNumbers(sparse.bytes(3), DType.int64),
  }
}

/** Encodes the answer of a future in protocol buffers; null for answers that are always JSON. */
export function encodeAnswer(answer: Readonly<Record<string, unknown>>): Uint8Array | null {
  if (Array.isArray(answer.loss_fn_outputs)) return encodePass(answer)
  return Array.isArray(answer.sequences) ? encodeSampled(answer) : null
}

type PassOutput = Readonly<Record<string, Tensor>>

function encodePass(answer: Readonly<Record<string, unknown>>): Uint8Array {
  return messageOf([
    textField(1, answer.loss_fn_output_type as string),
    ...recordsOf(answer.loss_fn_outputs as readonly PassOutput[]).map((outputs) => {
      const columns = Object.keys(outputs[0]!).map((name) => [name, outputs.map((output) => output[name]!)] as const)
      return bytesField(2, [...mapFields(2, Object.fromEntries(columns), columnOf), numberField(3, outputs.length)])
    }),
    ...mapFields(3, answer.metrics as Readonly<Record<string, number>>, (value) => doubleField(2, value)),
  ])
}

/** Outputs in turn, in parts whose tensors have as many numbers per token. */
function recordsOf(outputs: readonly PassOutput[]): PassOutput[][] {
  const records: PassOutput[][] = []
  let last = ''
  for (const output of outputs) {
    const each = Object.values(output)
      .map(({ shape }) => shape.slice(1).join())
      .join(';')
    if (records.length === 0 || each !== last) records.push([])
    records.at(-1)!.push(output)
    last = each
  }
  return records
}

function columnOf(parts: readonly Tensor[]): Field {
  const ends = [0n]
  for (const { data } of parts) ends.push(ends.at(-1)! + BigInt(4 * data.length))
  const values = Float32Array.from(parts.flatMap(({ data }) => Array.from(data)))
  const trailing = parts[0]!.shape.slice(1)
  return bytesField(2, [
    bytesField(1, bytesOf(values)),
    bytesField(2, bytesOf(BigInt64Array.from(ends))),
    numberField(3, DType.float32),
    ...(trailing.length === 0 ? [] : [bytesField(4, Buffer.concat(trailing.map(varint)))]),
  ])
}

function encodeSampled(answer: Readonly<Record<string, unknown>>): Uint8Array {
  const sequences = answer.sequences as readonly {
    readonly stop_reason: string
    readonly tokens: readonly number[]
    readonly logprobs: readonly number[]
    readonly topk_logprobs?: readonly (readonly (readonly [number, number])[])[]
  }[]
  const prompt = answer.prompt_logprobs as readonly (number | null)[] | undefined
  const promptTop = answer.topk_prompt_logprobs as readonly ((readonly [number, number])[] | null)[] | undefined
  return messageOf([
    ...sequences.map(({ stop_reason, tokens, logprobs, topk_logprobs: top }) =>
      bytesField(1, [
        wholeField(1, STOP_REASONS.indexOf(stop_reason)),
        bytesField(2, bytesOf(Int32Array.from(tokens))),
        bytesField(3, bytesOf(Float32Array.from(logprobs))),
        ...(top === undefined ? [] : [bytesField(4, encodeTop(top))]),
      ]),
    ),
    ...(prompt === undefined
      ? []
      : [bytesField(2, bytesOf(Float32Array.from(prompt, (value) => value ?? Number.NaN)))]),
    ...(promptTop === undefined ? [] : [bytesField(3, encodeTop(promptTop.map((row) => row ?? [])))]),
  ])
}

/** The most probable tokens of each position. Empty cells have id 0 and −99999. */
function encodeTop(top: readonly (readonly (readonly [number, number])[])[]): Field[] {
  const width = Math.max(0, ...top.map(({ length }) => length))
  const cells = top.flatMap((row) => Array.from({ length: width }, (_, k) => row[k] ?? ([0, -99999] as const)))
  return [
    bytesField(1, bytesOf(Int32Array.from(cells, ([id]) => id))),
    bytesField(2, bytesOf(Float32Array.from(cells, ([, logprob]) => logprob))),
    numberField(3, width),
    numberField(4, top.length),
  ]
}

function tensorFields({ data, dtype, shape }: Tensor): Field[] {
  const numbers =
    dtype === 'int64' ? BigInt64Array.from(Array.from(data), (value) => BigInt(value)) : Float32Array.from(data)
  return [
    bytesField(1, bytesOf(numbers)),
    numberField(3, dtype === 'int64' ? DType.int64 : DType.float32),
    ...(shape.length === 0 ? [] : [bytesField(4, Buffer.concat(shape.map(varint)))]),
  ]
}

/** @throws Error for an unknown type and for a partial number at the end. */
function readNumbers(bytes: Uint8Array, type: number): number[] {
  if (type === DType.float32) return Array.from(new Float32Array(aligned(bytes, 4)))
  if (type === DType.int32) return Array.from(new Int32Array(aligned(bytes, 4)))
  if (type === DType.int64) return Array.from(new BigInt64Array(aligned(bytes, 8)), Number)
  if (type !== DType.bfloat16) throw new Error(`got numbers of type ${type}, expected a type from 1 to 4`)
  // bfloat16 is the upper half of a 32-bit float.
  const halves = new Uint16Array(aligned(bytes, 2))
  return Array.from(new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer))
}

/** A copy, since typed-array views require aligned offsets. */
function aligned(bytes: Uint8Array, size: number): ArrayBuffer {
  if (bytes.length % size !== 0) throw new Error(`got ${bytes.length} bytes, expected a multiple of ${size}`)
  return Uint8Array.from(bytes).buffer
}

function bytesOf(numbers: ArrayBufferView): Uint8Array {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)
}
