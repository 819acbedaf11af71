import { describe, expect, test } from 'vitest'
import type { Tensor } from '../../../src/base/files/safetensors.ts'
import { listColumns } from '../../../src/components/arena.ts'
import { LARGEST_4_BITS, spansOf } from '../../../src/kernels/bind.ts'
import { lora } from '../../../src/language/transformer/lora.ts'
import { transformer, type WeightBits } from '../../../src/language/transformer/model.ts'
import {
  quantizedPlan,
  quantizedWeightsOf,
  quantizeTransformer,
  wholeWeights,
} from '../../../src/language/transformer/quantized.ts'
import { inOwnMemory } from '../../../src/training/text/learn/token-update.ts'
import { Numbers } from '../../kernels/calls.ts'
import { cases as allCases, builds, decoder, kinds, packed, smoothFamilies, golden as wholeModel } from './golden.ts'

test('weights in 8 bits take a quarter of the bytes, and in 4 bits half of those and a scale in 16 bits for 32', () => {
  const model = transformer({
    ...{ model_type: 'llama', vocab_size: 64, hidden_size: 128, num_hidden_layers: 4, num_attention_heads: 4 },
    ...{ intermediate_size: 352, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 1e4 },
    tie_word_embeddings: true,
  })
  const bytes = (bits: 8 | 4) => listColumns(quantizedPlan(model, bits)).reduce((sum, each) => sum + each.bytes, 0)
  const projections = 4 * (4 * 128 * 128 + 3 * 128 * 352)
  const rows = 4 * (5 * 128 + 2 * 352)
  const others = 4 * (model.numParameters - projections)
  expect(bytes(8)).toBe(projections + 4 * rows + others)
  expect(bytes(8) / (4 * model.numParameters)).toBeLessThan(0.27)
  expect(bytes(4)).toBe(projections / 2 + projections / 16 + others)
  expect(bytes(4) / bytes(8)).toBeLessThan(0.59)
})

test('an embedding and an untied head in 8 or 4 bits take as many of theirs, and all matrices in bf16 half', () => {
  const config = {
    ...{ model_type: 'llama', vocab_size: 640, hidden_size: 128, num_hidden_layers: 1, num_attention_heads: 4 },
    ...{ intermediate_size: 352, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 1e4 },
  }
  const bytes = (bits: 16 | 8 | 4, embeddingBits: WeightBits) => {
    const model = transformer({ ...config, tie_word_embeddings: false }, { embeddingBits })
    return listColumns(quantizedPlan(model, bits)).reduce((sum, each) => sum + each.bytes, 0)
  }
  const both = 2 * 640 * 128
  expect(bytes(8, 32) - bytes(8, 8)).toBe(3 * both - 4 * 2 * 640)
  expect(bytes(4, 32) - bytes(4, 4)).toBe(4 * both - (both * 9) / 16)
  const { numParameters } = transformer({ ...config, tie_word_embeddings: false })
  expect(bytes(16, 16)).toBe(2 * (numParameters + 3 * 128))
})

/** How far logits may be from those of the whole weights: all of them relative to their size, and one of them. */
const FAR = { 16: 0.02, 8: 0.03, 4: 0.4 }
const FARTHEST = { 16: 0.1, 8: 0.5, 4: 5 }

/** Where the embedding is rounded, too: an untied head, a tied one with a cap, and one with a bias. */
const CHOSEN = ['llama', 'gemma2', 'phi']
/** Bits of projections, and of the embedding and the head. */
const WAYS = [
  ...([
    [8, 32],
    [4, 32],
    [16, 16],
  ] as const),
  ...([
    [8, 8],
    [4, 8],
    [4, 4],
  ] as const),
] as const

describe.each(WAYS)('a model in %d bits, its embedding in %d', (bits, embeddingBits) => {
  const golden = async (family: string) => {
    const whole = await wholeModel(family)
    return { ...whole, model: { ...whole.model, embeddingBits } }
  }
  const isTried = (family: string) => embeddingBits === 32 || CHOSEN.includes(family)
  const cases = allCases.filter(([family]) => isTried(family))

  test.each(cases)('makes logits near those of the whole weights (%s, %s)', async (family, build) => {
    const { model, weights, tokens, offsets, logits } = await golden(family)
    const { vocabularySize } = model.shape
    const network = decoder(model, weights, build, 4, 40, undefined, bits)
    const { token, position } = network.columns.forward
    let [squares, wholeSquares, farthest] = [0, 0, 0]
    for (let s = 0; s + 1 < offsets.length; s++) {
      for (let i = offsets[s]!; i < offsets[s + 1]!; i++) {
        token[0] = tokens[i]!
        position[0] = i - offsets[s]!
        network.advance(1, {}, false)
        for (let j = 0; j < vocabularySize; j++) {
          const wanted = logits[i * vocabularySize + j]!
          const apart = network.columns.logits[j]! - wanted
          squares += apart ** 2
          wholeSquares += wanted ** 2
          farthest = Math.max(farthest, Math.abs(apart))
        }
      }
    }
    // Weights are rounded to one part in 254 of their row's largest: logits move by about a hundredth of their size. In 4 bits it is
    // one part in 16 of the largest of 32: about a third, in models as narrow as these.
    expect(Math.sqrt(squares / wholeSquares)).toBeLessThan(FAR[bits])
    expect(farthest).toBeLessThan(FARTHEST[bits])
    expect(farthest).toBeGreaterThan(1e-3)
  })

  test.each(cases)(
    'says the same in sampling and evaluation, with an adapter on top, bit for bit (%s, %s)',
    async (family, build) => {
      const { model, weights } = await golden(family)
      const adapter = lora(model, { rank: 3 })
      const adapted = { model: adapter, weights: new Numbers(3).floats(adapter.numParameters, -0.3, 0.3) }
      const network = decoder(model, weights, build, 2, 40, adapted, bits)
      const { columns } = network
      const tokens = [7]
      const recorded: number[] = []
      for (let i = 0; i < 15; i++) {
        columns.forward.token[0] = tokens.at(-1)!
        columns.forward.position[0] = i
        network.advance(1, {}, true)
        tokens.push(columns.chosen[0]!)
        recorded.push(columns.forward.logprob[0]!)
      }
      const work = packed(model, weights, build, 64, 40, adapted, bits)
      const { logprob } = work.network.evaluate(work.network.pack([1, 2, 3, ...tokens], spansOf([0, 3, 19]), 0, 2))
      expect([...logprob.slice(2, 17)]).toEqual(recorded)
    },
  )

  test.each(builds)('says the same in both with more tokens than are evaluated at once (%s)', (build) => {
    const config = {
      ...{ model_type: 'llama', vocab_size: 1100, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4 },
      ...{ intermediate_size: 48, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 1e4 },
    }
    const model = transformer({ ...config, tie_word_embeddings: false }, { embeddingBits })
    const weights = new Numbers(2).floats(model.numParameters, -0.5, 0.5)
    const network = decoder(model, weights, build, 12, 40, undefined, bits)
    const { forward, chosen, slot, lane, draw } = network.columns
    const texts = Array.from({ length: 12 }, (_, lane) => [7 + lane])
    const recorded: number[][] = texts.map(() => [])
    for (let i = 0; i < 5; i++) {
      texts.forEach((text, row) => {
        forward.token[row] = text.at(-1)!
        forward.position[row] = i
        slot[row] = row
        lane[row] = row
        draw[row] = i
      })
      network.advance(12, {}, true)
      texts.forEach((text, row) => {
        recorded[row]!.push(forward.logprob[row]!)
        text.push(chosen[row]!)
      })
    }
    expect(texts.some((text) => text.some((token) => token >= 1024))).toBe(true)
    const work = packed(model, weights, build, 64, 40, undefined, bits)
    const spans = spansOf(Array.from({ length: 13 }, (_, s) => 6 * s))
    const { logprob } = work.network.evaluate(work.network.pack(texts.flat(), spans, 0, 12))
    expect([...logprob.subarray(0, 60)]).toEqual(recorded.flat())
  })

  test.runIf(bits < 16).each(builds)(
    'says the same in both where inputs are in 8 bits too, near what it said (%s)',
    async (build) => {
      const { model: plain, weights, tokens, offsets, logits } = await golden('qwen2')
      const model = { ...plain, quantizesActivations: true }
      const adapter = lora(model, { rank: 3 })
      const adapted = { model: adapter, weights: new Numbers(3).floats(adapter.numParameters, -0.3, 0.3) }
      const count = offsets[1]!
      const said = (network: ReturnType<typeof decoder>) =>
        Array.from({ length: count }, (_, i) => {
          network.columns.forward.token[0] = tokens[i]!
          network.columns.forward.position[0] = i
          network.advance(1, {}, false)
          return network.columns.logits.slice(0, plain.shape.vocabularySize)
        })
      const [whole, rounded] = [plain, model].map((each) => said(decoder(each, weights, build, 4, 40, undefined, bits)))
      expect(rounded).not.toEqual(whole)
      const wanted = logits.subarray(0, count * plain.shape.vocabularySize)
      const squares = rounded!.flatMap((row) => [...row]).map((logit, i) => (logit - wanted[i]!) ** 2)
      const size = wanted.reduce((sum, logit) => sum + logit ** 2, 0)
      expect(Math.sqrt(squares.reduce((sum, square) => sum + square) / size)).toBeLessThan(FAR[bits])

      const network = decoder(model, weights, build, 2, 40, adapted, bits)
      const { forward, chosen } = network.columns
      const [spoken, recorded]: [number[], number[]] = [[7], []]
      for (let i = 0; i < 15; i++) {
        forward.token[0] = spoken.at(-1)!
        forward.position[0] = i
        network.advance(1, {}, true)
        spoken.push(chosen[0]!)
        recorded.push(forward.logprob[0]!)
      }
      const work = packed(model, weights, build, 64, 40, adapted, bits)
      const { logprob } = work.network.evaluate(work.network.pack([1, 2, 3, ...spoken], spansOf([0, 3, 19]), 0, 2))
      expect([...logprob.slice(2, 17)]).toEqual(recorded)
    },
  )

  test.each(smoothFamilies.filter(isTried))(
    'passes gradients on to the adapter, as finite differences say (%s)',
    async (family) => {
      const { model, weights, tokens, offsets } = await golden(family)
      const adapter = lora(model, { rank: 3 })
      const adapted = { model: adapter, weights: new Numbers(3).floats(adapter.numParameters, -0.3, 0.3) }
      const work = packed(model, weights, 'plain', 64, 40, adapted, bits)
      const { network, gradient } = work
      const count = network.pack(tokens, spansOf(offsets), 0, 3)
      const byLogprob = new Numbers(1).floats(count)
      network.differentiate(
        count,
        (_, { dLogprob, dEntropy }) => {
          dLogprob.set(byLogprob)
          dEntropy.fill(0)
        },
        network.view(gradient),
      )
      const direction = new Numbers(7).floats(adapter.numParameters)
      const at = (far: number): number => {
        work.adapter.set(adapted.weights.map((weight, i) => weight + far * direction[i]!))
        const { logprob } = network.evaluate(count)
        return byLogprob.reduce((sum, by, i) => sum + by * logprob[i]!, 0)
      }
      const far = 5e-4
      const slope = (8 * (at(far) - at(-far)) - (at(2 * far) - at(-2 * far))) / (12 * far)
      const wanted = direction.reduce((sum, value, i) => sum + value * gradient[i]!, 0)
      expect(Math.abs(slope - wanted), `${slope}, ${wanted}`).toBeLessThan(0.01 * Math.max(1, Math.abs(wanted)))
    },
  )

  test.each(kinds.filter(isTried))(
    'stands for whole weights, of which the same bytes are made again (%s)',
    async (family) => {
      const { model, weights } = await golden(family)
      const first = inOwnMemory(quantizedPlan(model, bits))
      const again = inOwnMemory(quantizedPlan(model, bits))
      quantizeTransformer(first, model, weights)
      const whole = wholeWeights(model, first)
      expect(whole).not.toEqual(weights)
      quantizeTransformer(again, model, whole)
      expect(again).toEqual(first)
      const bytes = (column: Float32Array | Uint8Array) => new Uint8Array(column.buffer)
      const tensors = new Map<string, Tensor>([
        ['q.kept', { name: 'q.kept', type: 'F32', shape: [first.kept.length], bytes: bytes(first.kept) }],
        ['q.values', { name: 'q.values', type: 'U8', shape: [first.values.length], bytes: bytes(first.values) }],
        ['q.scale', { name: 'q.scale', type: 'F32', shape: [first.scale.length], bytes: bytes(first.scale) }],
      ])
      expect(quantizedWeightsOf('file', tensors, model, 'q.', bits)).toEqual(whole)
      const other = bits === 8 ? 4 : 8
      expect(() => quantizedWeightsOf('file', tensors, model, 'q.', other)).toThrow(
        bits === 16
          ? /^embeddingBits of transformer: got 16, for projections in 8 bits/
          : /^file: got .*, expected (scale|values)/,
      )
      tensors.delete('q.scale')
      expect(() => quantizedWeightsOf('file', tensors, model, 'q.', bits)).toThrow('got no scale')
    },
  )

  test('is not trained itself', async () => {
    const { model, weights, tokens, offsets } = await golden('llama')
    const { network, gradient } = packed(model, weights, 'plain', 64, 40, undefined, bits)
    const count = network.pack(tokens, spansOf(offsets), 0, 3)
    expect(() => network.differentiate(count, () => {}, network.view(gradient))).toThrow(
      `weights: got a model in ${bits} bits, expected an adapter to train, or weights in f32`,
    )
  })

  test('of weights that are not finite, or of another model, is not made', async () => {
    const { model, weights } = await golden('llama')
    expect(() => packed(model, weights.with(5, Number.NaN), 'plain', 64, 40, undefined, bits)).toThrow(
      'got NaN in element 5',
    )
  })
})

test('4 bits hold no weights larger than eight times what f16 holds', async () => {
  const { model, weights } = await wholeModel('llama')
  const { offset } = model.parameters.find(({ name }) => name === 'model.layers.1.mlp.down_proj.weight')!
  const made = (weight: number) => packed(model, weights.with(offset + 3, weight), 'plain', 64, 40, undefined, 4)
  expect(() => made(-LARGEST_4_BITS)).not.toThrow()
  expect(() => made(-LARGEST_4_BITS - 1)).toThrow(
    'weights: got -524033 in model.layers.1.mlp.down_proj.weight, expected at most ±524032, or 8 bits',
  )
})

test('bf16 holds no weights that it would round to infinity', async () => {
  const { model: given, weights } = await wholeModel('llama')
  const model = { ...given, embeddingBits: 16 as const }
  const { offset } = model.parameters.find(({ name }) => name === 'model.embed_tokens.weight')!
  const made = (weight: number) => packed(model, weights.with(offset, weight), 'plain', 64, 40, undefined, 16)
  const largest = Math.fround(2 ** 128 - 2 ** 119 - 2 ** 104)
  expect(() => made(largest)).not.toThrow()
  expect(() => made(-(2 ** 128 - 2 ** 119))).toThrow(
    /^weights: got -3.396\d*e\+38 in model.embed_tokens.weight, expected at most ±3.39\d*e\+38, or 8 bits$/,
  )
})

test('bf16 is for all matrices or for none', () => {
  const config = { model_type: 'llama', vocab_size: 64, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4 }
  const sizes = { intermediate_size: 48, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 1e4 }
  const planned = (bits: 16 | 8, embeddingBits: WeightBits) => () =>
    quantizedPlan(transformer({ ...config, ...sizes }, { embeddingBits }), bits)
  expect(planned(16, 32)).toThrow('embeddingBits of transformer: got 32, for projections in 16 bits, expected 16')
  expect(planned(8, 16)).toThrow('embeddingBits of transformer: got 16, for projections in 8 bits, expected 32, 8 or 4')
})
