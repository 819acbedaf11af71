/** The service's side of Tinker's protocol buffers, opposite to `src/engines/tinker/tinker-codec.ts`. */
import {
  bytesField,
  doubleField,
  mapFields,
  messageOf,
  numberField,
  ProtoReader,
} from '../../src/base/files/protobuf.ts'

// biome-ignore lint/suspicious/noExplicitAny: what travels is looked at where it is used.
type Json = any

export const PROTOBUF = 'application/x-protobuf'

const floats = (bytes: Uint8Array) => Array.from(new Float32Array(Uint8Array.from(bytes).buffer))
const integers = (bytes: Uint8Array) => Array.from(new Int32Array(Uint8Array.from(bytes).buffer))
const longs = (bytes: Uint8Array) => Array.from(new BigInt64Array(Uint8Array.from(bytes).buffer), Number)
const bytesOf = (numbers: ArrayBufferView<ArrayBuffer>) => new Uint8Array(numbers.buffer)

/** A pass as JSON, and its path. */
export function readPass(bytes: Uint8Array): { path: string; body: Json } {
  const message = new ProtoReader(bytes)
  const data = message.messages(3).map((datum) => ({
    model_input: {
      chunks: datum.messages(1).map((chunk) => ({
        type: 'encoded_text',
        tokens: integers(chunk.messages(1)[0]!.bytes(1)),
      })),
    },
    loss_fn_inputs: Object.fromEntries(
      datum.entries(2).map(([name, entry]) => {
        const [tensor] = entry.messages(2)
        const isLong = tensor!.number(3) === 2
        const data = isLong ? longs(tensor!.bytes(1)) : floats(tensor!.bytes(1))
        return [name, { data, dtype: isLong ? 'int64' : 'float32', shape: [...tensor!.bytes(4)] }]
      }),
    ),
  }))
  const config = message.entries(7).map(([name, entry]) => {
    const [value] = entry.messages(2)
    return [name, value!.has(2) ? value!.text(2) : value!.number(1)]
  })
  const path = message.number(6) === 1 ? 'forward' : 'forward_backward'
  const input = {
    ...{ data, loss_fn: message.text(4) },
    ...(config.length === 0 ? {} : { loss_fn_config: Object.fromEntries(config) }),
  }
  return { path, body: { [`${path}_input`]: input, model_id: message.text(1), seq_id: message.number(2) } }
}

/** The bytes of a future's answer; null if it is always JSON. */
export function writeAnswer(answer: Json): Uint8Array | null {
  if (Array.isArray(answer.loss_fn_outputs)) {
    const outputs = answer.loss_fn_outputs as Record<string, { data: number[] }>[]
    const columns = Object.fromEntries(
      Object.keys(outputs[0] ?? {}).map((name) => [name, outputs.map((output) => output[name]!.data)]),
    )
    return messageOf([
      bytesField(1, answer.loss_fn_output_type),
      bytesField(2, [
        ...mapFields(2, columns, (parts) => {
          const ends = [0]
          for (const { length } of parts) ends.push(ends.at(-1)! + 4 * length)
          const values = bytesOf(Float32Array.from(parts.flat()))
          return bytesField(2, [
            bytesField(1, values),
            bytesField(2, bytesOf(BigInt64Array.from(ends, BigInt))),
            numberField(3, 1),
          ])
        }),
        numberField(3, outputs.length),
      ]),
      ...mapFields(3, answer.metrics as Record<string, number>, (value) => doubleField(2, value)),
    ])
  }
  if (!Array.isArray(answer.sequences)) return null
  return messageOf(
    answer.sequences.map(({ tokens, logprobs, stop_reason }: Json) =>
      bytesField(1, [
        numberField(1, stop_reason === 'stop' ? 0 : 1),
        bytesField(2, bytesOf(Int32Array.from(tokens as number[]))),
        bytesField(3, bytesOf(Float32Array.from(logprobs as number[]))),
      ]),
    ),
  )
}
