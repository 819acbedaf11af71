import { describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../../src/algorithms/losses/losses.ts'
import { packBatch } from '../../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../../src/algorithms/tokens/token-learner.ts'
import { readSafetensors, tensorValues } from '../../../src/base/files/safetensors.ts'
import { column } from '../../../src/components/column.ts'
import { PolicySum, spansOf } from '../../../src/kernels/bind.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { takeColumns } from '../../../src/language/transformer/memory.ts'
import type { TransformerModel } from '../../../src/language/transformer/model.ts'
import { fromStored } from '../../../src/language/transformer/storage.ts'
import { updateOf } from '../../support/updates.ts'
import { builds, golden, goldenFolder, packed } from './golden.ts'

// Recorded by tests/golden/record_parts.py, which says how.
const { tensors } = await readSafetensors(new URL('../../golden/parts/balance.safetensors', import.meta.url).pathname)

/** The recorded gradients of the loss that balances experts. Parameters that are not recorded have none. */
async function theirs(family: string, model: TransformerModel) {
  const { tensors: all } = await readSafetensors(`${goldenFolder(family)}/expected.safetensors`)
  const named = [...all].flatMap(([key, tensor]) => {
    if (!key.startsWith('gradient.')) return []
    const found = tensors.get(`${family}.${key}`) ?? { ...tensor, bytes: new Uint8Array(tensor.bytes.length) }
    return [[key.slice('gradient.'.length), found] as const]
  })
  const gradients = fromStored(model, family, new Map(named), model.parameters)
  return {
    loss: (tensorValues(tensors.get(`${family}.loss`)!) as Float32Array)[0]!,
    gradient: (name: string) => tensorValues(gradients.get(name)!) as Float32Array,
  }
}

async function balanced(family: string, routerLoss: number, more: Partial<TransformerModel> = {}) {
  const recorded = await golden(family)
  return { ...recorded, model: { ...recorded.model, routerLoss, ...more } }
}

type Balanced = Awaited<ReturnType<typeof balanced>>

/** The gradient by the loss that balances experts alone, and the loss. */
function differentiate({ model, weights, tokens, offsets }: Balanced, build: (typeof builds)[number]) {
  const { network, gradient } = packed(model, weights, build)
  const count = network.pack(tokens, spansOf(offsets), 0, offsets.length - 1)
  let loss = Number.NaN
  network.differentiate(
    count,
    ({ balance }, { dLogprob, dEntropy }) => {
      loss = balance![0]!
      dLogprob.fill(0)
      dEntropy.fill(0)
    },
    network.view(gradient.fill(0)),
  )
  return { loss, gradient }
}

describe('the loss that balances experts', () => {
  const cases = ['mixtral', 'qwen2-moe'].flatMap((family) => builds.map((build) => [family, build] as const))

  test.each(cases)('has the value and the gradient of transformers (%s, %s)', async (family, build) => {
    const given = await balanced(family, 0.5)
    const { loss, gradient } = differentiate(given, build)
    const recorded = await theirs(family, given.model)
    expect(Math.abs(2 * loss - recorded.loss)).toBeLessThan(1e-5)
    let largest = 0
    for (const { name, offset, shape } of given.model.parameters) {
      const expected = recorded.gradient(name)
      expect(expected.length, name).toBe(shape.reduce((product, side) => product * side, 1))
      largest = Math.max(largest, ...expected.map(Math.abs))
      const apart = expected.reduce((most, value, i) => Math.max(most, Math.abs(value - 2 * gradient[offset + i]!)), 0)
      expect(apart, name).toBeLessThan(1e-4 * Math.max(...expected.map(Math.abs)) + 1e-7)
    }
    expect(largest).toBeGreaterThan(0.01)
  })

  test('has the same bits where activations are computed again, and none without a weight', async () => {
    const build = builds.at(-1)!
    const kept = differentiate(await balanced('qwen2-moe', 0.5), build)
    expect(differentiate(await balanced('qwen2-moe', 0.5, { recomputesActivations: true }), build)).toEqual(kept)
    const none = differentiate(await balanced('qwen2-moe', 0), build)
    expect(none.loss).toBe(0)
    expect(none.gradient.every((value) => value === 0)).toBe(true)
  })

  test('is part of the loss of a batch, however it is divided', async () => {
    const { model, weights, tokens, offsets: all } = await balanced('mixtral', 0.5)
    const offsets = all.slice(1) // The first sequence has no row.
    const learn = (routerLoss: number, rows: number) => {
      const shaped = { ...model, routerLoss }
      const sgd = { optimizer: 'sgd', momentum: 0, weightDecay: 0 } as const
      const plan = {
        weights: column('f32', model.numParameters),
        learner: tokenLearnerPlan(shaped, rows, 40, sgd, false),
      }
      const { columns, kernels } = takeColumns(plan)
      columns.weights.set(weights)
      const learner = new TokenLearner(shaped, columns.weights, columns.learner, kernels)
      const lossMask = new Uint8Array(tokens.length).fill(1)
      const batch = packBatch({ ...spansOf(offsets), token: tokens, lossMask }, rows)
      const update = updateOf(batch)
      const loss = describeLoss('sft')
      const totals = prepareLoss(loss, { spans: batch.spans, lossMask: update.learned }, update.prepared, kernels)
      const none = new Float32Array(0)
      const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
      const sums = alone(learner.differentiate(batch, loss, totals, given, update, 1))
      return { loss: sums.policy[PolicySum.loss]!, gradient: learner.trained.gradient, parts: batch.parts.length - 1 }
    }
    const [whole, cut, without] = [learn(0.5, 64), learn(0.5, 29), learn(0, 64)]
    expect([whole.parts, cut.parts]).toEqual([1, 2])
    expect(cut.loss).toBeCloseTo(whole.loss, 6)
    const most = Math.max(...whole.gradient.map(Math.abs))
    const apart = whole.gradient.reduce((far, value, i) => Math.max(far, Math.abs(value - cut.gradient[i]!)), 0)
    expect(apart).toBeLessThan(1e-5 * most)
    expect(2 * (whole.loss - without.loss)).toBeCloseTo((await theirs('mixtral', model)).loss, 5)
  })

  test('is refused for a model without experts', async () => {
    const environment = { id: 'text/none', numExamples: 1, maxTokens: 4, alphabet: 'ab' } as never
    await expect(languageModel({ routerLoss: 0.1 }).open(environment)).rejects.toThrow(
      'languageModel.routerLoss: got 0.1, of a model without experts, expected 0, or a model with experts',
    )
  })
})
