/** Held to what Tinker's SDK 0.38 writes and reads (`tests/golden/record_tinker_protobuf.py`). */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { bytesField, mapFields, messageOf, numberField } from '../../src/base/files/protobuf.ts'
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

  test('zeros, empty texts and empty shapes are left out, empty numbers and the zeros of settings are not', () => {
    const [x, y] = [
      { data: [], dtype: 'float32', shape: [0] },
      { data: [0], dtype: 'int64', shape: [] },
    ]
    const input = {
      data: [{ model_input: { chunks: [] }, loss_fn_inputs: { x, y } }],
      ...{ loss_fn: '', loss_fn_config: { a: 0 } },
    }
    const { bytes } = encodeRequest('forward_backward', { forward_backward_input: input, model_id: '', seq_id: 0 })!
    // As the SDK writes it: x, y, the setting for servers of before, and that for those of today.
    expect(Buffer.from(bytes).toString('hex')).toBe(
      [
        ...['1a21', '120c0a017812070a001801220100', '12110a0179120c0a0800000000000000001802'],
        ...['2a0c0a0161110000000000000000', '3a0e0a01611209090000000000000000'],
      ].join(''),
    )
    const nothing = { forward_backward_input: { data: [], loss_fn: '' }, model_id: '' }
    expect(encodeRequest('forward_backward', nothing)!.bytes).toHaveLength(0)
  })

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
    const record = (data: number, type: number, offsets: readonly number[]) => {
      const places = new Uint8Array(BigInt64Array.from(offsets, BigInt).buffer)
      const tensor = [bytesField(1, new Uint8Array(data)), bytesField(2, places), numberField(3, type)]
      const columns = mapFields(2, { logprobs: tensor }, (fields) => bytesField(2, fields))
      return messageOf([bytesField(2, [...columns, numberField(3, 1)])])
    }
    expect(read(record(8, 1, [0, 8]))).toMatchObject({ loss_fn_outputs: [{ logprobs: { data: [0, 0] } }] })
    expect(() => read(record(8, 9, [0, 8]))).toThrow('type 9')
    expect(() => read(record(7, 1, [0, 7]))).toThrow('got 7 bytes, expected a multiple of 4')
    expect(() => read(record(8, 1, [0, 4, 8]))).toThrow('got 3 offsets of logprobs')
    for (const [from, to] of [
      [0, 12],
      [-4, 8],
      [8, 4],
    ] as const) {
      const message = `got logprobs from byte ${from} to ${to}, expected a range within its 8 bytes`
      expect(() => read(record(8, 1, [from, to]))).toThrow(message)
    }
    // A count without numbers takes no memory.
    expect(read(messageOf([bytesField(2, [numberField(3, 2 ** 40)])]))).toMatchObject({ loss_fn_outputs: [] })
  })
})
