/** Held to what Tinker's SDK 0.38 writes and reads (`tests/golden/record_tinker_protobuf.py`). */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { ProtoReader, ProtoWriter } from '../../src/engines/tinker/protobuf.ts'
import { answerReader, encodeRequest } from '../../src/engines/tinker/tinker-codec.ts'

const golden = JSON.parse(readFileSync(new URL('../golden/tinker-protobuf.json', import.meta.url), 'utf8'))
const bytesOf = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'))

describe('passes and samples in protocol buffers', () => {
  test.each(golden.requests as { path: string; body: object; bytes: string }[])(
    'a $path has the bytes of the SDK',
    ({ path, body, bytes }) => {
      const { path: where, bytes: own } = encodeRequest(path, body)!
      expect(where).toBe('forward_backward')
      expect(Buffer.from(own).toString('hex')).toBe(Buffer.from(bytesOf(bytes)).toString('hex'))
    },
  )

  test('what a pass says is read as the SDK reads it', () => {
    for (const { bytes, outputs, metrics } of golden.passes) {
      const answer = answerReader('forward')!(bytesOf(bytes)) as {
        loss_fn_outputs: Record<string, { data: number[] }>[]
        metrics: object
      }
      const read = answer.loss_fn_outputs.map((each) =>
        Object.fromEntries(Object.entries(each).map(([name, { data }]) => [name, data])),
      )
      expect(read).toEqual(outputs)
      expect(answer.metrics).toEqual(metrics)
    }
  })

  test('what was sampled is read as the SDK reads it', () => {
    for (const { bytes, sequences, hits } of golden.samples) {
      expect(answerReader('asample')!(bytesOf(bytes))).toMatchObject({ sequences, prompt_cache_hit_tokens: hits })
    }
  })

  test('other requests and their answers are JSON', () => {
    for (const path of ['optim_step', 'save_weights', 'create_model']) {
      expect(encodeRequest(path, {})).toBeNull()
      expect(answerReader(path)).toBeNull()
    }
  })

  test('bytes that are cut off, and numbers that are none, are errors', () => {
    const whole = bytesOf(golden.passes[0].bytes)
    const read = answerReader('forward')!
    for (let length = 1; length < whole.length; length++) {
      // Where a field ends there is a message, which has less in it.
      const cut = () => JSON.stringify(read(whole.subarray(0, length)))
      const told = JSON.stringify(read(whole))
      try {
        expect(cut()).not.toBe(told)
      } catch (error) {
        expect((error as Error).message).toMatch(/got .* expected/)
      }
    }
    const record = (data: number, type: number, offsets: readonly number[]) =>
      new ProtoWriter()
        .message(2, (each) =>
          each
            .map(2, { logprobs: 0 }, (entry) =>
              entry.message(2, (field) =>
                field
                  .bytes(1, new Uint8Array(data))
                  .bytes(2, new Uint8Array(BigInt64Array.from(offsets, BigInt).buffer))
                  .integer(3, type),
              ),
            )
            .integer(3, 1),
        )
        .finish()
    expect(read(record(8, 1, [0, 8]))).toMatchObject({ loss_fn_outputs: [{ logprobs: { data: [0, 0] } }] })
    expect(() => read(record(8, 9, [0, 8]))).toThrow('type 9')
    expect(() => read(record(7, 1, [0, 7]))).toThrow('got 7 bytes, expected numbers of 4')
    expect(() => read(record(8, 1, [0, 4, 8]))).toThrow('got 3 offsets of logprobs')
  })
})

test('whole numbers of any size, fields in any order and unknown ones are read', () => {
  const message = new ProtoWriter()
    .integer(9, 2 ** 52 + 3)
    .text(3, 'é')
    .integers(4, [0, 1, 127, 128, 16_384])
    .double(2, -0.5)
  const read = new ProtoReader(message.finish())
  expect([read.number(9), read.text(3), read.number(2), read.has(1), read.number(1)]).toEqual([
    2 ** 52 + 3,
    'é',
    -0.5,
    false,
    0,
  ])
  expect([...read.bytes(4)]).toEqual([0, 1, 127, 0x80, 1, 0x80, 0x80, 1])
  expect(() => new ProtoWriter().integer(1, -1)).toThrow(RangeError)
})
