import { describe, expect, test } from 'vitest'
import { readSafetensors, tensorValues } from '../../../src/base/files/safetensors.ts'
import { Random } from '../../../src/base/random.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import { startAdapter } from '../../../src/language/transformer/dora.ts'
import { lora, mergeLora, unmergeLora } from '../../../src/language/transformer/lora.ts'
import { loadLora, loadLoraWeights, saveLora } from '../../../src/language/transformer/lora-folder.ts'
import { takeColumns } from '../../../src/language/transformer/memory.ts'
import { quantizedPlan, setWeights } from '../../../src/language/transformer/quantized.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { builds, decoder, golden, packed } from './golden.ts'

// Recorded by tests/golden/record_parts.py, which says how.
const folder = new URL('../../golden/parts', import.meta.url).pathname
const { tensors } = await readSafetensors(`${folder}/dora.safetensors`)
const take = (name: string) => tensorValues(tensors.get(name)!) as Float32Array

async function theirs() {
  const base = await golden('qwen2')
  return { ...base, adapter: await loadLora(`${folder}/dora`, base.model) }
}

type Said = ReturnType<typeof packed>['network']

/** Log-probabilities of the packed tokens, and the rows' number. */
function said(network: Said, tokens: Int32Array, offsets: readonly number[]): number[] {
  const count = network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)
  return [...network.evaluate(count).logprob.slice(0, count)]
}

/** Log-probabilities of each next token, from recorded logits. */
function recorded(logits: Float32Array, tokens: Int32Array, offsets: readonly number[], vocabulary: number): number[] {
  const list: number[] = []
  for (let s = 0; s + 1 < offsets.length; s++) {
    for (let t = offsets[s]!; t + 1 < offsets[s + 1]!; t++) {
      const row = logits.subarray(t * vocabulary, (t + 1) * vocabulary)
      list.push(row[tokens[t + 1]!]! - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0)))
    }
  }
  return list
}

const farthest = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0)

describe('an adapter with magnitudes (DoRA)', () => {
  test.each(builds)('of PEFT has its log-probabilities and its gradient (%s)', async (build) => {
    const { model, weights, tokens, offsets, dLogprob, dEntropy, adapter } = await theirs()
    expect(adapter.model.settings.magnitude).toBe(true)
    const { network, gradient } = packed(model, weights, build, 64, 40, adapter)
    const expected = recorded(take('logits'), tokens, offsets, model.shape.vocabularySize)
    expect(farthest(said(network, tokens, offsets), expected)).toBeLessThan(1e-5)
    const count = network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)
    network.differentiate(
      count,
      (_, derivatives) => {
        derivatives.dLogprob.set(dLogprob)
        derivatives.dEntropy.set(dEntropy)
      },
      network.view(gradient.fill(0)),
    )
    for (const { name, offset, shape } of adapter.model.parameters) {
      const file = `gradient.base_model.model.${name}${name.endsWith('.weight') ? '' : '.weight'}`
      const length = shape.reduce((product, side) => product * side, 1)
      expect(take(file).length, name).toBe(length)
      const apart = farthest(take(file), gradient.subarray(offset, offset + length))
      expect(apart / Math.max(...take(file).map(Math.abs)), name).toBeLessThan(1e-4)
    }
  })

  test.each(builds)('sees weights that change, and decodes the bits that it evaluates (%s)', async (build) => {
    const { model, weights, tokens, offsets, adapter } = await theirs()
    const work = packed(model, weights, build, 64, 40, adapter)
    const before = said(work.network, tokens, offsets)
    const changed = adapter.weights.map((value, i) => (i % 5 === 0 ? 1.5 * value : value))
    work.adapter.set(changed)
    const after = said(work.network, tokens, offsets)
    expect(farthest(before, after)).toBeGreaterThan(0.01)
    const other = { ...adapter, weights: changed }
    expect(said(packed(model, weights, build, 64, 40, other).network, tokens, offsets)).toEqual(after)
    const last = tokens.subarray(offsets.at(-2), offsets.at(-1))
    const decoded: number[] = []
    decoder(model, weights, build, 4, 40, other).score(1, last, (_, logprob) => decoded.push(logprob))
    expect(decoded).toEqual(after.slice(-decoded.length))
  })

  test.each([32, 16, 8, 4] as const)('begins as the model is, in %d bits', async (bits) => {
    const { model: given, weights, tokens, offsets } = await golden('qwen2')
    const model = { ...given, embeddingBits: bits === 16 ? (16 as const) : (32 as const) }
    const fresh = lora(model, { rank: 3, magnitude: true })
    const base = bits === 32 ? weights : takeColumns(quantizedPlan(model, bits)).columns
    setWeights(base as never, model, weights)
    const start = new Float32Array(fresh.numParameters)
    startAdapter(fresh, start, new Random(4), 0, base as never)
    const kept = { model: fresh, weights: start }
    const ours = said(packed(model, weights, 'simd', 64, 40, kept, bits).network, tokens, offsets)
    const plain = { model: lora(model, { rank: 3 }), weights: new Float32Array(lora(model, { rank: 3 }).numParameters) }
    const models = said(packed(model, weights, 'simd', 64, 40, plain, bits).network, tokens, offsets)
    expect(farthest(ours, models)).toBeLessThan(2e-5)
  })

  test('has its products in merged weights, and is written and read', async () => {
    const { model, weights, tokens, offsets, adapter } = await theirs()
    const merged = weights.slice()
    mergeLora(merged, adapter.model, adapter.weights)
    const ours = said(packed(model, weights, 'simd', 64, 40, adapter).network, tokens, offsets)
    expect(farthest(said(packed(model, merged, 'simd').network, tokens, offsets), ours)).toBeLessThan(1e-4)
    expect(farthest(said(packed(model, weights, 'simd').network, tokens, offsets), ours)).toBeGreaterThan(0.1)
    const written = await temporaryFolder()
    await saveLora(written, adapter.model, adapter.weights)
    const read = await loadLora(written, model)
    expect([read.model.settings, read.weights]).toEqual([adapter.model.settings, adapter.weights])
    await expect(loadLoraWeights(written, lora(model, { rank: 3, alpha: 5 }))).rejects.toThrow(
      /with magnitudes, expected/,
    )
  })

  test('cannot be taken out of merged weights', async () => {
    const { model, weights, adapter } = await theirs()
    expect(lora(model, { rank: 2, dropout: 0.1, magnitude: true }).settings.dropout).toBe(0.1)
    expect(() => unmergeLora(weights, adapter.model, adapter.weights)).toThrow(
      "model of unmergeLora: got an adapter with magnitudes, expected the model's weights from before the merge",
    )
  })
})
