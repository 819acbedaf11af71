import { describe, expect, test } from 'vitest'
import { spansOf } from '../../../src/kernels/bind.ts'
import { cases, decoder, families, golden, packed } from './golden.ts'

/** The largest distance of an element from what is wanted; NaN where one is. */
function farthest(got: ArrayLike<number>, wanted: Float32Array): number {
  return wanted.reduce((most, value, i) => Math.max(most, Math.abs(got[i]! - value)), 0)
}

describe('what transformers computes', () => {
  test.each(cases)('the logits of %s agree within 1e-4 (%s)', async (family, build) => {
    const { model, weights, tokens, offsets, logits } = await golden(family)
    const { vocabularySize } = model.shape
    const network = decoder(model, weights, build)
    const { token, position } = network.columns.forward
    for (let s = 0; s + 1 < offsets.length; s++) {
      for (let i = offsets[s]!; i < offsets[s + 1]!; i++) {
        token[0] = tokens[i]!
        position[0] = i - offsets[s]!
        network.advance(1, {}, false)
        const wanted = logits.subarray(i * vocabularySize, (i + 1) * vocabularySize)
        expect(farthest(network.columns.logits, wanted), `token ${i}`).toBeLessThan(1e-4)
      }
    }
  })

  test.each(families)("RoPE's angles agree within 2e-6, at far positions too (%s)", async (family) => {
    const { model, weights, positions, cosine, sine } = await golden(family)
    if (positions === null || cosine === null || sine === null) {
      expect(['gpt2', 'gemma3']).toContain(family)
      return
    }
    const { forward } = decoder(model, weights, 'plain', 1, 30_001).columns
    const half = model.shape.rotaryWidth / 2
    positions.forEach((position, row) => {
      for (let k = 0; k < half; k++) {
        const apart = Math.abs(forward.cosine[position * half + k]! - cosine[row * half + k]!)
        expect(apart + Math.abs(forward.sine[position * half + k]! - sine[row * half + k]!)).toBeLessThan(2e-6)
      }
    })
  })

  test.each(cases)('the gradient of %s by every parameter agrees (%s)', async (family, build) => {
    const { model, weights, tokens, offsets, dLogprob, dEntropy, gradient } = await golden(family)
    const { network, gradient: column } = packed(model, weights, build)
    const views = network.view(column)
    const count = network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)
    expect(count).toBe(dLogprob.length)
    network.differentiate(
      count,
      (_, derivatives) => {
        derivatives.dLogprob.set(dLogprob)
        derivatives.dEntropy.set(dEntropy)
      },
      views,
    )
    model.parameters.forEach(({ name }, index) => {
      const wanted = gradient(name)
      const scale = Math.max(...wanted.map(Math.abs))
      expect(farthest(views[index]!, wanted), name).toBeLessThan(1e-4 * Math.max(1, scale))
    })
  })
})
