/** What a service of Tinker's protocol does with protocol buffers: the other side of `src/engines/tinker/tinker-codec.ts`. */
import { ProtoReader, ProtoWriter } from '../../src/engines/tinker/protobuf.ts'

// biome-ignore lint/suspicious/noExplicitAny: what travels is looked at where it is used.
type Json = any

export const PROTOBUF = 'application/x-protobuf'

const floats = (bytes: Uint8Array) => Array.from(new Float32Array(Uint8Array.from(bytes).buffer))
const integers = (bytes: Uint8Array) => Array.from(new Int32Array(Uint8Array.from(bytes).buffer))
const longs = (bytes: Uint8Array) => Array.from(new BigInt64Array(Uint8Array.from(bytes).buffer), Number)
const bytesOf = (numbers: ArrayBufferView<ArrayBuffer>) => new Uint8Array(numbers.buffer)

/** A pass, as JSON says it, and where that is posted. */
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

/** The bytes of what a future answers; null where that is JSON in any case. */
export function writeAnswer(answer: Json): Uint8Array | null {
  const message = new ProtoWriter()
  if (Array.isArray(answer.loss_fn_outputs)) {
    const outputs = answer.loss_fn_outputs as Record<string, { data: number[] }>[]
    message.text(1, answer.loss_fn_output_type)
    message.message(2, (record) => {
      const fields = Object.fromEntries(Object.keys(outputs[0] ?? {}).map((name) => [name, name]))
      record.map(2, fields, (entry, name) => {
        const parts = outputs.map((output) => output[name]!.data)
        const ends = [0]
        for (const { length } of parts) ends.push(ends.at(-1)! + 4 * length)
        entry.message(2, (tensor) =>
          tensor
            .bytes(1, bytesOf(Float32Array.from(parts.flat())))
            .bytes(2, bytesOf(BigInt64Array.from(ends, BigInt)))
            .integer(3, 1),
        )
      })
      record.integer(3, outputs.length)
    })
    message.map(3, answer.metrics as Record<string, number>, (entry, value) => entry.double(2, value))
  } else if (Array.isArray(answer.sequences)) {
    for (const { tokens, logprobs, stop_reason } of answer.sequences) {
      message.message(1, (sequence) =>
        sequence
          .integer(1, stop_reason === 'stop' ? 0 : 1)
          .bytes(2, bytesOf(Int32Array.from(tokens as number[])))
          .bytes(3, bytesOf(Float32Array.from(logprobs as number[]))),
      )
    }
  } else return null
  return message.finish()
}
