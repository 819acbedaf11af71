import { describe, expect, test } from 'vitest'
import { Random } from '../../../src/base/random.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import { transformer } from '../../../src/language/transformer/model.ts'
import type { Sampling } from '../../../src/language/transformer/sampling.ts'
import { builds, cases, decoder, golden, packed } from './golden.ts'

/** A model whose vocabulary takes three chunks; weights far from the start, so that distributions are not flat. */
function wide() {
  const model = transformer({
    model_type: 'llama',
    vocab_size: 1100,
    hidden_size: 12,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 20,
    max_position_embeddings: 32,
    rms_norm_eps: 1e-5,
    rope_theta: 1e4,
    initializer_range: 0.5,
  })
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(8), 0)
  return { model, weights }
}

type Network = ReturnType<typeof decoder>

/** Generates in the given slots from prompts, each lane as many tokens as it is told, and all that was written of them. */
function generate(
  network: Network,
  prompts: readonly (readonly number[])[],
  slots: readonly number[],
  lengths: number[],
  sampling: Partial<Sampling> = { temperature: 0.8 },
) {
  const { columns } = network
  const { token, position, logprob, entropy } = columns.forward
  const lanes = prompts.map((prompt, lane) => {
    network.feed(slots[lane]!, prompt.slice(0, -1))
    network.flush()
    return {
      lane,
      slot: slots[lane]!,
      tokens: [...prompt],
      prompt: prompt.length,
      said: [] as number[][],
      sets: [] as number[][],
    }
  })
  for (;;) {
    const open = lanes.filter(({ tokens, prompt, lane }) => tokens.length - prompt < lengths[lane]!)
    if (open.length === 0) return lanes
    open.forEach(({ lane, slot, tokens }, row) => {
      columns.slot[row] = slot
      columns.lane[row] = 100 + lane
      columns.episode[row] = 3
      token[row] = tokens.at(-1)!
      columns.draw[row] = position[row] = tokens.length - 1
    })
    network.advance(open.length, sampling, true)
    open.forEach(({ tokens, said, sets }, row) => {
      const { candidates, candidateOffset } = columns
      sets.push([...candidates.subarray(candidateOffset[row], candidateOffset[row + 1])])
      tokens.push(columns.chosen[row]!)
      said.push([logprob[row]!, entropy[row]!])
    })
  }
}

/** A list of lists as Arrow has it. */
function ragged(lists: readonly (readonly number[])[]) {
  const offsets = [0]
  for (const list of lists) offsets.push(offsets.at(-1)! + list.length)
  return { offsets, ids: Int32Array.from(lists.flat()) }
}

const restrictions = [
  { temperature: 1.3, topK: 5 },
  { temperature: 1.3, topP: 0.8 },
  { temperature: 0.7, minP: 0.1 },
  { temperature: 1.3, topK: 40, topP: 0.9, minP: 0.02 },
]

const prompts = [[3, 1, 4, 1, 5, 9, 2, 6], [5], [3, 5, 8], [9, 7]]
const lengths = [12, 20, 7, 16]

describe('decoding', () => {
  test.each(cases)(
    'what was recorded of sampled tokens is what evaluating them gives, bit for bit (%s, %s)',
    async (family, build) => {
      const { model, weights } = await golden(family)
      const lanes = generate(decoder(model, weights, build), prompts, [2, 0, 3, 1], lengths)
      const { network } = packed(model, weights, build, 100)
      const tokens = lanes.flatMap((lane) => lane.tokens)
      const offsets = [0]
      for (const lane of lanes) offsets.push(offsets.at(-1)! + lane.tokens.length)
      const { logprob, entropy } = network.evaluate(network.pack(tokens, spansOf(offsets), 0, 4), 0.8)
      lanes.forEach(({ said, prompt }, lane) => {
        const begin = offsets[lane]! - lane + prompt - 1
        expect(said.map((_, i) => [logprob[begin + i], entropy[begin + i]])).toEqual(said)
      })
      expect(Math.min(...lanes.map(({ said }) => said.length))).toBe(7)
    },
  )

  test.each(builds)('and so it is where the vocabulary is evaluated in chunks (%s)', (build) => {
    const { model, weights } = wide()
    const [lane] = generate(decoder(model, weights, build, 1), [[3, 1099]], [0], [20])
    const { network } = packed(model, weights, build)
    const { logprob, entropy } = network.evaluate(network.pack(lane!.tokens, spansOf([0, 22]), 0, 1), 0.8)
    expect(lane!.said.map((_, i) => [logprob[1 + i], entropy[1 + i]])).toEqual(lane!.said)
    expect(lane!.tokens.some((token) => token > 512)).toBe(true)
  })

  test.each(restrictions.flatMap((sampling) => builds.map((build) => [sampling, build] as const)))(
    'tokens are trained under the very distribution that they were sampled from: $0, bit for bit (%s)',
    (sampling, build) => {
      const { model, weights } = wide()
      const some = prompts.map((prompt) => [...prompt, 1000])
      const lanes = generate(decoder(model, weights, build), some, [2, 0, 3, 1], lengths, sampling)
      const tokens = lanes.flatMap((lane) => lane.tokens)
      const drawnFrom = lanes.map((lane) => [...lane.tokens.slice(0, lane.prompt).map(() => []), ...lane.sets])
      const candidates = {
        begin: ragged(drawnFrom.map((lane) => lane.flat())).offsets,
        length: drawnFrom.flat().map((ids) => ids.length),
        ids: Int32Array.from(drawnFrom.flat(2)),
      }
      const { offsets } = ragged(lanes.map((lane) => lane.tokens))
      const { network } = packed(model, weights, build, 100)
      const { temperature } = sampling
      const { logprob, entropy } = network.evaluate(
        network.pack(tokens, spansOf(offsets), 0, 4, candidates),
        temperature,
      )
      const [open, openEntropy] = [logprob, entropy].map((column) => column.slice())
      network.evaluate(network.pack(tokens, spansOf(offsets), 0, 4), temperature)
      lanes.forEach(({ said, prompt }, lane) => {
        const begin = offsets[lane]! - lane + prompt - 1
        expect(said.map((_, i) => [open![begin + i], openEntropy![begin + i]])).toEqual(said)
        // Without the candidate sets it is another distribution; before the first sampled token it is the same.
        for (const [i, [restricted]] of said.entries()) expect(logprob[begin + i]).toBeLessThan(restricted!)
        const first = offsets[lane]! - lane
        expect(open!.slice(first, begin)).toEqual(logprob.slice(first, begin))
      })
    },
  )

  test.each(builds)('a lane among others says what it says alone, in whatever slot (%s)', async (build) => {
    const { model, weights } = await golden('qwen2')
    for (const sampling of [{ temperature: 0.8 }, { temperature: 1.3, topK: 9, topP: 0.8 }]) {
      const together = generate(decoder(model, weights, build), prompts, [2, 0, 3, 1], lengths, sampling)
      const network = decoder(model, weights, build, 2)
      for (const [lane, { tokens, said, sets }] of together.entries()) {
        const asked = lengths.map((length, other) => (other === lane ? length : 0))
        const alone = generate(network, prompts, [1, 1, 1, 1].with(lane, 0), asked, sampling)[lane]!
        expect(alone.tokens).toEqual(tokens)
        expect(alone.said).toEqual(said)
        expect(alone.sets).toEqual(sets)
      }
    }
  })

  test.each(builds)('a prompt in one pass leaves the cache that it leaves token by token (%s)', async (build) => {
    const { model, weights, tokens } = await golden('llama')
    const prompt = Array.from({ length: 150 }, (_, i) => tokens[i % tokens.length]!) // Longer than what is fed at once.
    const [whole, stepwise, inParts] = [160, 2, 1].map((slots) => decoder(model, weights, build, slots, 160)) as [
      Network,
      Network,
      Network,
    ]
    whole.feed(0, prompt)
    whole.flush()
    for (const [i, token] of prompt.entries()) {
      stepwise.feed(0, [token], i)
      stepwise.flush()
    }
    inParts.feed(0, prompt)
    inParts.flush()
    const length = prompt.length * model.shape.numKeyHeads * model.shape.headWidth
    for (const [layer, { key, value }] of Object.entries(whole.columns.cache)) {
      for (const other of [stepwise, inParts]) {
        expect(other.columns.cache[layer]!.key.slice(0, length)).toEqual(key.slice(0, length))
        expect(other.columns.cache[layer]!.value.slice(0, length)).toEqual(value.slice(0, length))
      }
    }
    expect(whole.columns.cache[1]!.value.slice(0, length).every((x) => x !== 0)).toBe(true)
  })

  test('prompts that are fed together leave the caches that each leaves alone, and a copy is the same', async () => {
    const { model, weights, tokens } = await golden('llama')
    const [together, apart] = [decoder(model, weights, 'simd', 5), decoder(model, weights, 'simd', 5)]
    for (let slot = 0; slot < 4; slot++) {
      const prompt = Array.from({ length: 36 + slot }, (_, i) => tokens[(i * (slot + 1)) % tokens.length]!)
      together.feed(slot, prompt) // The four are more than what is fed at once.
      apart.feed(slot, prompt)
      apart.flush()
    }
    together.flush()
    for (const network of [together, apart]) network.copyCache(4, 2, 3, 38)
    const caches = ({ columns }: Network) => Object.values(columns.cache)
    expect(caches(together)).toEqual(caches(apart))
    const keyWidth = model.shape.numKeyHeads * model.shape.headWidth
    const rows = (column: Float32Array | Uint32Array, slot: number, from: number, to: number) =>
      Array.from(column.subarray((slot * 40 + from) * keyWidth, (slot * 40 + to) * keyWidth))
    for (const { key, value } of caches(together)) {
      for (const column of [key, value]) {
        expect(rows(column, 4, 3, 38)).toEqual(rows(column, 2, 3, 38))
        expect(rows(column, 4, 3, 38).every((x) => x !== 0)).toBe(true)
        expect([...rows(column, 4, 0, 3), ...rows(column, 4, 38, 40)].every((x) => x === 0)).toBe(true)
      }
    }
  })

  test('a slot that was used before tells the next sequence nothing', async () => {
    const { model, weights } = await golden('qwen3')
    const fresh = generate(decoder(model, weights, 'simd', 1), [[7, 8]], [0], [9])
    const network = decoder(model, weights, 'simd', 1)
    network.feed(0, new Array(40).fill(11))
    network.flush()
    expect(generate(network, [[7, 8]], [0], [9])).toEqual(fresh)
  })

  test.each(builds)('samples follow the distribution at their temperature (%s)', async (build) => {
    const { model, weights } = await golden('smollm')
    const network = decoder(model, weights, build, 500)
    const { columns } = network
    columns.lane.forEach((_, row) => {
      columns.slot[row] = row
      columns.lane[row] = row
      columns.forward.token[row] = 9
    })
    const counts = new Float64Array(model.shape.vocabularySize)
    const temperature = 0.6
    for (let episode = 0; episode < 8; episode++) {
      columns.episode.fill(episode)
      network.advance(500, { temperature }, true)
      for (const token of columns.chosen) counts[token]!++
    }
    const z = [...columns.logits.slice(0, counts.length)].map((logit) => logit / temperature)
    const total = z.reduce((sum, x) => sum + Math.exp(x), 0)
    const entropy = z.reduce((sum, x) => sum - (Math.exp(x) / total) * (x - Math.log(total)), 0)
    expect(columns.forward.entropy[0]).toBeCloseTo(entropy, 4)
    z.forEach((x, token) => {
      const p = Math.exp(x) / total
      // Five deviations of a binomial count.
      expect(Math.abs(counts[token]! - 4000 * p), `token ${token}`).toBeLessThan(5 * Math.sqrt(4000 * p) + 1)
    })
    network.advance(1, { temperature }, false)
    expect(columns.chosen[0]).toBe(z.indexOf(Math.max(...z)))
    expect(columns.forward.logprob[0]).toBeCloseTo(Math.max(...z) - Math.log(total), 4)
  })

  test.each(restrictions)(
    'samples within a candidate set are as frequent as its renormalized distribution says: $0',
    (sampling) => {
      const { model, weights } = wide()
      const network = decoder(model, weights, 'simd', 500)
      const { columns } = network
      columns.lane.forEach((_, row) => {
        columns.slot[row] = row
        columns.lane[row] = row
        columns.forward.token[row] = 9
      })
      network.advance(1, {}, false)
      const z = [...columns.logits.slice(0, 1100)].map((logit) => logit / sampling.temperature)
      const counts = new Float64Array(1100)
      const numSamples = 8 * 500
      for (let episode = 0; episode < 8; episode++) {
        columns.episode.fill(episode)
        network.advance(500, sampling, true)
        for (const token of columns.chosen) counts[token]!++
      }
      const candidates = [...columns.candidates.subarray(0, columns.candidateOffset[1])]
      const total = candidates.reduce((sum, id) => sum + Math.exp(z[id]!), 0)
      const logp = candidates.map((id) => z[id]! - Math.log(total))
      const entropy = logp.reduce((sum, x) => sum - Math.exp(x) * x, 0)
      expect(columns.forward.entropy[0]).toBeCloseTo(entropy, 4)
      expect(columns.forward.logprob[0]).toBeCloseTo(logp[candidates.indexOf(columns.chosen[0]!)]!, 4)
      expect(candidates.reduce((sum, id) => sum + counts[id]!, 0)).toBe(numSamples)
      const chiSquare = candidates.reduce((sum, id, i) => {
        const expected = numSamples * Math.exp(logp[i]!)
        return sum + (counts[id]! - expected) ** 2 / expected
      }, 0)
      // Mean and deviation of chi-square with so many degrees of freedom: five deviations.
      const freedom = candidates.length - 1
      expect(chiSquare).toBeLessThan(freedom + 5 * Math.sqrt(2 * freedom))
      network.advance(1, sampling, false)
      expect(columns.chosen[0]).toBe(z.indexOf(Math.max(...z)))
      // Without a filter no candidate set is left behind.
      network.advance(500, { temperature: 1, topK: 1100 }, true)
      expect(columns.candidateOffset.every((offset) => offset === 0)).toBe(true)
    },
  )

  test('what cannot be decoded is refused', async () => {
    const { model, weights } = await golden('llama')
    const network = decoder(model, weights, 'plain', 2)
    expect(() => network.feed(0, [61])).toThrow('token: got 61, expected a whole number from 0 to 60')
    expect(() => network.feed(0, [1.5])).toThrow('token: got 1.5')
    expect(() => network.feed(2, [1])).toThrow('slot: got 2, expected a whole number from 0 to 1')
    expect(() => network.feed(0, new Array(41).fill(1))).toThrow(
      'sequence: got a token at position 40, expected 40 tokens',
    )
    for (const [sampling, message] of [
      [{ temperature: 0 }, 'temperature: got 0, expected a number above 0'],
      [{ topK: -1 }, 'topK: got -1, expected a whole number ≥ 1, or 0 for all tokens'],
      [{ topK: 2.5 }, 'topK: got 2.5'],
      [{ topP: 0 }, 'topP: got 0, expected a number above 0 and at most 1'],
      [{ topP: 1.1 }, 'topP: got 1.1'],
      [{ minP: Number.NaN }, 'minP: got NaN, expected a number from 0 to 1'],
    ] as const) {
      expect(() => network.advance(1, sampling, true)).toThrow(message)
    }
  })
})
