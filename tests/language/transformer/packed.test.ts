import { describe, expect, test } from 'vitest'
import { Random } from '../../../src/base/random.ts'
import { listColumns } from '../../../src/components/arena.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import type { KernelBuild } from '../../../src/kernels/kernels.ts'
import { lora } from '../../../src/language/transformer/lora.ts'
import { type TransformerModel, transformer } from '../../../src/language/transformer/model.ts'
import { packedPlan, type TokenCandidates } from '../../../src/language/transformer/packed.ts'
import { Numbers } from '../../kernels/calls.ts'
import { builds, decoder, golden, isChosen, kinds, packed, smoothFamilies } from './golden.ts'

/** A loss that weighs each token's logprob and entropy by numbers of its own. */
const weights = { logprob: new Numbers(1).floats(64), entropy: new Numbers(2).floats(64) }

function loss(
  { logprob, entropy }: { logprob: Float32Array; entropy: Float32Array },
  from: number,
  count: number,
): number {
  let sum = 0
  for (let i = 0; i < count; i++)
    sum += weights.logprob[from + i]! * logprob[i]! + weights.entropy[from + i]! * entropy[i]!
  return sum
}

/** The gradient of that loss by sequences `from` to `to`, whose first row has the loss's weights of row `row`. */
function gradientOf(
  { network, gradient }: ReturnType<typeof packed>,
  tokens: ArrayLike<number>,
  offsets: readonly number[],
  from: number,
  to: number,
  row: number,
  candidates?: TokenCandidates,
): void {
  const count = network.pack(tokens, spansOf(offsets), from, to, candidates)
  network.differentiate(
    count,
    (_, { dLogprob, dEntropy }) => {
      dLogprob.set(weights.logprob.subarray(row, row + count))
      dEntropy.set(weights.entropy.subarray(row, row + count))
    },
    network.view(gradient),
    0.8,
  )
}

describe('packed sequences', () => {
  test.each(builds)('a sequence among others says what it says alone, bit for bit (%s)', async (build) => {
    const { model, weights, tokens, offsets } = await golden('qwen3')
    const { network } = packed(model, weights, build)
    const together = network.evaluate(network.pack(tokens, spansOf(offsets), 0, 3))
    const [logprob, entropy] = [together.logprob.slice(), together.entropy.slice()]
    const alone = network.evaluate(network.pack(tokens, spansOf(offsets), 2, 3))
    expect(alone.logprob.slice(0, 29)).toEqual(logprob.slice(8, 37))
    expect(alone.entropy.slice(0, 29)).toEqual(entropy.slice(8, 37))
    // In another order they stand in other rows.
    const turned = [...tokens.slice(10, 40), ...tokens.slice(1, 10)]
    const other = network.evaluate(network.pack(turned, spansOf([0, 30, 39]), 0, 2))
    expect(other.logprob.slice(29, 37)).toEqual(logprob.slice(0, 8))
  })

  test('gradients of sequences add up to the gradient of the batch', async () => {
    const { model, weights, tokens, offsets } = await golden('qwen2')
    const [whole, parts] = [packed(model, weights, 'plain'), packed(model, weights, 'plain')]
    gradientOf(whole, tokens, offsets, 0, 3, 0)
    gradientOf(parts, tokens, offsets, 1, 2, 0)
    gradientOf(parts, tokens, offsets, 2, 3, 8)
    whole.gradient.forEach((value, i) => {
      expect(Math.abs(parts.gradient[i]! - value)).toBeLessThan(1e-5 * Math.max(1, Math.abs(value)))
    })
  })

  // Of every family, logits.test.ts compares the gradient with that of transformers.
  test.each(smoothFamilies.filter(isChosen))(
    'the gradient by each parameter is that of finite differences (%s)',
    async (family) => {
      const { model, weights, tokens, offsets } = await golden(family)
      const work = packed(model, weights, 'plain')
      const { network, gradient } = work
      gradientOf(work, tokens, offsets, 0, 3, 0)
      const count = network.pack(tokens, spansOf(offsets), 0, 3)
      const numbers = new Numbers(7)
      for (const { name, offset, shape } of model.parameters) {
        // Along a random direction: one number for each parameter tensor, of which every element has its part.
        const length = shape.reduce((product, side) => product * side, 1)
        const direction = numbers.floats(length)
        const at = (step: number): number => {
          for (let i = 0; i < length; i++) work.weights[offset + i] = weights[offset + i]! + step * direction[i]!
          return loss(network.evaluate(count, 0.8), 0, count)
        }
        const step = 2e-3
        // Without the term in step².
        const slope = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
        at(0)
        const wanted = direction.reduce((sum, value, i) => sum + value * gradient[offset + i]!, 0)
        expect(Math.abs(slope - wanted), `${name}: ${slope}, ${wanted}`).toBeLessThan(
          0.01 * Math.max(1, Math.abs(wanted)),
        )
      }
    },
  )

  test.each(builds)('the gradient is that of finite differences where the vocabulary is in chunks (%s)', (build) => {
    const model = transformer({
      ...{ model_type: 'qwen3', vocab_size: 1030, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 },
      ...{ num_key_value_heads: 1, head_dim: 6, intermediate_size: 12, max_position_embeddings: 32 },
      ...{ rms_norm_eps: 1e-6, rope_theta: 1e4, tie_word_embeddings: true },
    })
    const weights = new Numbers(5).floats(model.numParameters)
    const tokens = new Numbers(6).wholes(20, 0, 1029).fill(1029, 18)
    // Every third token was chosen from all, the others from thirty each, in the first chunk, the others or all of them.
    const picks = new Numbers(8)
    const ids = [...tokens].map((token, i) => {
      const [low, high] = [[], [0, 500], [500, 1029], [0, 1029]][i % 3 === 0 ? 0 : 1 + (i % 4 === 3 ? 2 : i % 2)]!
      if (low === undefined) return []
      return [...new Set([token, ...picks.wholes(30, low, high!)])].sort((a, b) => a - b)
    })
    const length = ids.map((some) => some.length)
    const sets = { begin: [0], length, ids: Int32Array.from(ids.flat()) }
    // Every token but the third of each three follows a penalty of repetition, and others.
    const changes = {
      index: Int32Array.from(tokens, (_, i) => (i % 3 === 2 ? -1 : 0)),
      answer: Int32Array.from(tokens, () => 9),
      turns: {
        ...{ repetition: Float32Array.of(1.7), frequency: Float32Array.of(0.4), presence: Float32Array.of(0.2) },
        ...{ biasBegin: Int32Array.of(0), biasEnd: Int32Array.of(2), biasId: Int32Array.of(3, 1029) },
        bias: Float32Array.of(1, -1),
      },
    }
    const none = { begin: [0], length: new Int32Array(20), ids: new Int32Array(0) }
    for (const candidates of [undefined, sets, { ...none, changes }, { ...sets, changes }]) {
      const work = packed(model, weights, build)
      const { network, gradient } = work
      gradientOf(work, tokens, [0, 20], 0, 1, 0, candidates)
      const count = network.pack(tokens, spansOf([0, 20]), 0, 1, candidates)
      const direction = new Numbers(9).floats(model.numParameters)
      const at = (step: number): number => {
        for (let i = 0; i < weights.length; i++) work.weights[i] = weights[i]! + step * direction[i]!
        return loss(network.evaluate(count, 0.8), 0, count)
      }
      const slope = (at(1e-3) - at(-1e-3)) / 2e-3
      const wanted = direction.reduce((sum, value, i) => sum + value * gradient[i]!, 0)
      expect(Math.abs(slope - wanted), `${slope}, ${wanted}`).toBeLessThan(0.01 * Math.abs(wanted))
    }
  })

  test.each(builds.slice(1))('the compiled gradient is the plain one (%s)', async (build) => {
    const { model, weights, tokens, offsets } = await golden('llama')
    const [plain, compiled] = [packed(model, weights, 'plain'), packed(model, weights, build)]
    for (const work of [plain, compiled]) gradientOf(work, tokens, offsets, 0, 3, 0)
    plain.gradient.forEach((value, i) => {
      expect(Math.abs(compiled.gradient[i]! - value)).toBeLessThan(1e-4 * Math.max(1, Math.abs(value)))
    })
  })

  test('a second gradient is added to the first', async () => {
    const { model, weights, tokens, offsets } = await golden('llama')
    const work = packed(model, weights, 'simd')
    gradientOf(work, tokens, offsets, 0, 3, 0)
    const once = work.gradient.slice()
    gradientOf(work, tokens, offsets, 0, 3, 0)
    work.gradient.forEach((value, i) => {
      expect(Math.abs(value - 2 * once[i]!)).toBeLessThan(1e-5 * Math.max(1, Math.abs(value)))
    })
  })

  test('logits of the whole vocabulary for all rows are never planned', async () => {
    const { model } = await golden('llama')
    const large = transformer({ ...model.config, vocab_size: 100_000 })
    const [few, many] = [model, large].map((each) => {
      return listColumns(packedPlan(each, 1000, 64)).reduce((sum, { bytes }) => sum + bytes, 0)
    })
    expect(many! - few!).toBeLessThan(5 * 1000 * 512)
  })

  test('what does not fit is refused', async () => {
    const { model, weights, tokens } = await golden('llama')
    const { network } = packed(model, weights, 'plain', 20, 16)
    expect(() => network.pack([1, 61], spansOf([0, 2]), 0, 1)).toThrow(
      'token: got 61, expected a whole number from 0 to 60',
    )
    expect(() => network.pack(tokens, spansOf([0, 17]), 0, 1)).toThrow(
      'got a token at position 16, expected 16 tokens at most',
    )
    expect(() => network.pack(tokens, spansOf([0, 16, 24]), 0, 2)).toThrow('packed sequences: got more than 20 rows')
    expect(network.pack(tokens, spansOf([0, 1, 1, 3]), 0, 3)).toBe(1)
    const supported =
      (...ids: number[]) =>
      () =>
        network.pack([1, 5], spansOf([0, 2]), 0, 1, { begin: [0], length: [0, ids.length], ids: Int32Array.from(ids) })
    expect(supported(3, 5, 60)).not.toThrow()
    expect(supported(3, 6)).toThrow('candidate set of token 1: got [3,6], expected some, with 5 among them')
    expect(supported(5, 3)).toThrow(
      'candidate set of token 1: got [5,3], expected ids of the vocabulary, in rising order',
    )
    expect(supported(5, 61)).toThrow('candidate set of token 1: got [5,61], expected ids of the vocabulary')
    expect(() =>
      network.pack([1, 5], spansOf([0, 2]), 0, 1, { begin: [0], length: [0, 3], ids: Int32Array.of(5) }),
    ).toThrow('candidate set of token 1: got ids 0 to 3, expected a part of the 1 there are')
  })
})

describe('a value head', () => {
  const config = {
    model_type: 'llama',
    vocab_size: 11,
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 16,
    max_position_embeddings: 16,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
  }
  const tokens = [3, 1, 4, 1, 5, 9, 2, 6]

  test('begins at 0, and has the gradient that finite differences give, of its own weights and of the model', () => {
    const model = transformer(config, { valueHead: true })
    const first = new Float32Array(model.numParameters)
    model.initialize(first, new Random(5), 0)
    const fresh = packed(model, first, 'plain')
    expect(fresh.network.evaluate(fresh.network.pack(tokens, spansOf([0, 8]), 0, 1)).value.slice(0, 7)).toEqual(
      new Float32Array(7),
    )

    const weights = first.map((weight, i) => weight + (i >= first.length - 9 ? 0.3 - 0.05 * (first.length - i) : 0))
    const slope = Float32Array.from({ length: 7 }, (_, i) => 1 - 0.3 * i)
    const lossOf = (changed: Float32Array): number => {
      const { network } = packed(model, changed, 'plain')
      const { value } = network.evaluate(network.pack(tokens, spansOf([0, 8]), 0, 1))
      return slope.reduce((sum, weight, i) => sum + weight * value[i]!, 0)
    }
    const { network, gradient } = packed(model, weights, 'plain')
    network.differentiate(
      network.pack(tokens, spansOf([0, 8]), 0, 1),
      (_, { dLogprob, dEntropy, dValue }) => {
        dLogprob.fill(0)
        dEntropy.fill(0)
        dValue.set(slope)
      },
      network.view(gradient),
    )
    for (const i of [
      8,
      40,
      100,
      200,
      300,
      weights.length - 20,
      ...Array.from({ length: 9 }, (_, k) => weights.length - 9 + k),
    ]) {
      const [up, down] = [1e-3, -1e-3].map((by) => lossOf(weights.map((weight, k) => weight + (k === i ? by : 0))))
      expect(Math.abs(gradient[i]! - (up! - down!) / 2e-3)).toBeLessThan(2e-3 + 0.01 * Math.abs(gradient[i]!))
    }
    expect(Math.max(...gradient.slice(0, -9).map(Math.abs))).toBeGreaterThan(0.05)
  })
})

describe('checkpointing', () => {
  /** The gradient of the loss over all sequences. */
  function outcome(model: TransformerModel, given: Float32Array, build: KernelBuild, data: Recorded, more: Ways = {}) {
    const { rank = 0, dropout = 0, bits = 32 } = more
    const adapter = rank === 0 ? null : lora(model, { rank, alpha: 2 * rank, dropout })
    const own = adapter && { model: adapter, weights: new Numbers(3).floats(adapter.numParameters) }
    const work = packed(model, given, build, 64, 40, own ?? undefined, bits)
    gradientOf(work, data.tokens, data.offsets, 0, data.offsets.length - 1, 0)
    return Array.from(work.gradient)
  }
  interface Ways {
    readonly rank?: number
    readonly dropout?: number
    readonly bits?: 32 | 8 | 4
  }
  interface Recorded {
    readonly tokens: ArrayLike<number>
    readonly offsets: readonly number[]
  }

  test.each(kinds)('leaves the gradients of each family as they are (%s)', async (family) => {
    const { model, weights: given, ...data } = await golden(family)
    for (const build of builds) {
      const again = { ...model, recomputesActivations: true }
      expect(outcome(again, given, build, data)).toEqual(outcome(model, given, build, data))
    }
  })

  test('leaves the gradients of 100 random models and batches as they are', () => {
    const numbers = new Numbers(11)
    for (let run = 0; run < 100; run++) {
      const config = {
        ...{ model_type: 'qwen3', vocab_size: 32, hidden_size: 8 * numbers.whole(1, 3), num_attention_heads: 2 },
        ...{ num_hidden_layers: numbers.whole(1, 5), num_key_value_heads: numbers.whole(1, 2), head_dim: 8 },
        ...{ intermediate_size: 24, max_position_embeddings: 40, rms_norm_eps: 1e-5, rope_theta: 1e4 },
      }
      const more = { rank: numbers.whole(0, 2), dropout: 0.2, bits: ([32, 8, 4] as const)[numbers.whole(0, 2)]! }
      if (more.rank === 0) more.bits = 32
      const offsets = [0]
      while (offsets.length < 4) offsets.push(offsets.at(-1)! + numbers.whole(2, 20))
      const data = { offsets, tokens: Array.from({ length: 60 }, () => numbers.whole(0, 31)) }
      const build = builds[run % builds.length]!
      const [whole, less] = [false, true].map((checkpointing) => {
        const model = transformer(config, { checkpointing })
        const given = new Float32Array(model.numParameters)
        model.initialize(given, new Random(run), 0)
        return outcome(model, given, build, data, more)
      })
      expect(less, `run ${run}`).toEqual(whole)
      expect(whole!.some((value) => value !== 0)).toBe(true)
    }
  })

  test('keeps one layer, and the inputs of the others: 135M parameters at 2,048 tokens in an eighth of the bytes', () => {
    const config = {
      ...{ model_type: 'llama', vocab_size: 49_152, hidden_size: 576, num_hidden_layers: 30, num_attention_heads: 9 },
      ...{ num_key_value_heads: 3, intermediate_size: 1536, max_position_embeddings: 2048, rms_norm_eps: 1e-5 },
      ...{ rope_theta: 1e5, tie_word_embeddings: true },
    }
    const [whole, less] = [false, true].map((checkpointing) => {
      const columns = listColumns(packedPlan(transformer(config, { checkpointing }), 2047, 2048))
      const activations = columns.filter(({ name }) => /^forward\.(layers|inputs)\./.test(name))
      return activations.reduce((sum, { bytes }) => sum + bytes, 0)
    })
    const layer = 4 * 2047 * (576 * 4 + 192 * 2 + 1536 * 2 + 9 + 2) // x, query, attended, middle; key, value; gate, up; the rest.
    expect(whole).toBe(30 * layer)
    expect(less).toBe(layer + 29 * 4 * 2047 * 576)
    expect(whole! / less!).toBeGreaterThan(7.7)
  })
})

describe('keys and values in bf16', () => {
  test.each(kinds)('move log-probabilities by little, and not by nothing (%s)', async (family) => {
    const { model, weights: given, tokens, offsets } = await golden(family)
    const [whole, rounded] = ([32, 16] as const).map((cacheBits) => {
      const { network } = packed({ ...model, cacheBits }, given, 'plain')
      return Array.from(network.evaluate(network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)).logprob)
    })
    const apart = whole!.map((value, i) => Math.abs(value - rounded![i]!))
    expect(Math.max(...apart)).toBeGreaterThan(0)
    expect(Math.max(...apart)).toBeLessThan(0.2)
  })

  test('leave what a decoder records equal to what is evaluated, bit for bit, in 100 random models and answers', () => {
    const numbers = new Numbers(13)
    for (let run = 0; run < 100; run++) {
      const window = run % 3 === 0 ? { sliding_window: 5, model_type: 'mistral' } : { model_type: 'qwen3' }
      const config = {
        ...{ ...window, vocab_size: 40, hidden_size: 16, num_attention_heads: 4, num_hidden_layers: 2 },
        ...{ num_key_value_heads: numbers.whole(1, 2) * 2, head_dim: 2 * numbers.whole(2, 9), intermediate_size: 24 },
        ...{ max_position_embeddings: 40, rms_norm_eps: 1e-5, rope_theta: 1e4, initializer_range: 0.3 },
      }
      const capped = { attentionCap: run % 5 === 0 ? 5 : 0 }
      const bits = ([32, 16, 8, 4] as const)[Math.floor(run / 3) % 4]!
      const embeddingBits = bits > 8 ? bits : ([32, 8, 4] as const)[Math.floor(run / 12) % 3]!
      const made = transformer(config, { cacheBits: 16, checkpointing: run % 2 === 0, embeddingBits })
      const model = { ...made, shape: { ...made.shape, ...capped } }
      const given = new Float32Array(model.numParameters)
      model.initialize(given, new Random(run), 0)
      const build = builds[run % builds.length]!
      const lanes = 3
      const network = decoder(model, given, build, lanes, 40, undefined, bits)
      const { token, position, logprob } = network.columns.forward
      const { slot, lane, episode, draw, chosen } = network.columns
      const prompts = Array.from({ length: lanes }, () =>
        Array.from({ length: numbers.whole(1, 9) }, () => numbers.whole(0, 39)),
      )
      const recorded = prompts.map((): number[] => [])
      prompts.forEach((prompt, n) => {
        network.feed(n, prompt.slice(0, -1))
      })
      network.flush()
      for (let step = 0; step < 8; step++) {
        for (let n = 0; n < lanes; n++) {
          slot[n] = n
          lane[n] = n
          episode[n] = run
          draw[n] = step
          token[n] = prompts[n]!.at(-1)!
          position[n] = prompts[n]!.length - 1
        }
        network.advance(lanes, { temperature: 0.9 }, true)
        for (let n = 0; n < lanes; n++) {
          prompts[n]!.push(chosen[n]!)
          recorded[n]!.push(logprob[n]!)
        }
      }
      const other = packed(model, given, build, 64, 40, undefined, bits).network
      const offsets = [0]
      for (const { length } of prompts) offsets.push(offsets.at(-1)! + length)
      const said = other.evaluate(other.pack(prompts.flat(), spansOf(offsets), 0, lanes), 0.9).logprob
      for (let n = 0; n < lanes; n++) {
        const end = offsets[n + 1]! - (n + 1)
        expect(Array.from(said.subarray(end - 8, end)), `run ${run}, lane ${n}`).toEqual(recorded[n])
      }
    }
  })
})
