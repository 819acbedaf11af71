/** The contract of training backends (`src/training/backends/backend.ts`) as tests. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import type { OptimizerSettings } from '../../src/algorithms/optimizers/optimizer.ts'
import { markLearned, minibatchOf, packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { tokenUpdatePlan } from '../../src/algorithms/tokens/token-thread.ts'
import { InputError } from '../../src/base/errors.ts'
import { PolicySum, spansOf } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import {
  differentiate,
  differentiateBy,
  type PreparedBatchLoss,
  type TrainingBackend,
} from '../../src/training/backends/backend.ts'
import { inOwnMemory } from '../../src/training/text/learn/token-update.ts'
import { temporaryFolder } from './temporary.ts'

/** A backend whose model knows 8 tokens, and has no critic. */
export interface BackendUnderTest {
  readonly backend: TrainingBackend
  readonly kernels: Kernels
}

/** Gradient descent with momentum. */
const optimizer: OptimizerSettings = {
  ...{ optimizer: 'sgd', momentum: 0.5, weightDecay: 0 },
  ...{ beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
}

const offsets = [0, 4, 9, 12, 18]
const sampled = {
  ...spansOf(Int32Array.from(offsets)),
  token: [1, 2, 3, 4, 5, 6, 7, 0, 1, 3, 3, 2, 6, 5, 4, 1, 0, 2],
  lossMask: [0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1],
}
/** In micro-batches of at most 8 rows, two of them with two sequences. */
const batch = packBatch(sampled, 8)
const numTokens = sampled.token.length
const isFirst = (t: number) => offsets.includes(t)
const newUpdate = () => inOwnMemory(tokenUpdatePlan({ rows: 4, tokens: numTokens }, false))

/** Cross-entropy of the batch's learned tokens. */
function crossEntropy(kernels: Kernels): PreparedBatchLoss {
  const loss = describeLoss('sft')
  const update = newUpdate()
  markLearned(update.learned, batch)
  const none = new Float32Array(0)
  const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
  const whole = { spans: batch.spans, lossMask: update.learned }
  return { loss, totals: prepareLoss(loss, whole, update.prepared, kernels), given, update }
}

/** Clipped ratios to another policy's probabilities, with rewards in two groups. */
function clipped(kernels: Kernels, settings: Parameters<typeof describeLoss>[2] = {}): PreparedBatchLoss {
  const loss = describeLoss('grpo', 'paper', { klCoef: 0, ...settings })
  const update = newUpdate()
  markLearned(update.learned, batch)
  const oldLogprob = Float32Array.from(sampled.token, (token, t) => -1.5 - ((token * 7 + t) % 5) / 6)
  const inOrder = <T>(values: readonly T[]) => batch.order.map((i) => values[i]!)
  const [reward, group] = [Float64Array.from(inOrder([1, 3, 2, 7])), Int32Array.from(inOrder([0, 0, 1, 1]))]
  const known = new Uint8Array(4).fill(1)
  const behaviorLogprob = oldLogprob.map((logprob, t) => logprob - ((t * 5) % 7) / 9)
  const whole = { spans: batch.spans, lossMask: update.learned, reward, group, known, oldLogprob, behaviorLogprob }
  const given = { oldLogprob, referenceLogprob: null, oldValue: new Float32Array(0), wholeTokens: null }
  return { loss, totals: prepareLoss(loss, whole, update.prepared, kernels), given, update }
}

const options = { temperature: 1, step: 0 }
const unbounded = Number.POSITIVE_INFINITY

/** The backend without support for loss descriptors. */
function withoutDescriptors({ forwardBackward: _, ...backend }: TrainingBackend): TrainingBackend {
  return backend
}

/** Tests a backend against the contract. `make` makes a started one. */
export function backendSuite(name: string, make: () => Promise<BackendUnderTest>): void {
  describe(`the backend ${name}`, () => {
    const evaluate = async ({ backend }: BackendUnderTest, whose: 'policy' | 'reference', temperature = 1) => {
      const said = newUpdate()
      await backend.forward(batch, whose, temperature, said)
      return said
    }
    const logprobsOf = async (made: BackendUnderTest, whose: 'policy' | 'reference' = 'policy') => [
      ...(await evaluate(made, whose)).logprob,
    ]
    const step = async ({ backend, kernels }: BackendUnderTest, rate: number) => {
      const sums = await differentiate(backend, kernels, batch, crossEntropy(kernels), options)
      return { sums, norm: await backend.optimStep(optimizer, rate, unbounded) }
    }

    test('says the log-probability of each token but the first ones, and its entropy', async () => {
      const made = await make()
      const { logprob, entropy, value } = await evaluate(made, 'policy')
      expect([logprob.length, entropy.length]).toEqual([numTokens, numTokens])
      expect(value.length).toBe(0)
      for (let t = 0; t < numTokens; t++) {
        if (isFirst(t)) expect([logprob[t], entropy[t]]).toEqual([0, 0])
        else expect([logprob[t]! < 0, entropy[t]! > 0, entropy[t]! <= Math.log(8) + 1e-6]).toEqual([true, true, true])
      }
      const cold = await evaluate(made, 'policy', 0.25)
      expect(cold.entropy.reduce((a, b) => a + b)).toBeLessThan(entropy.reduce((a, b) => a + b) - 0.1)
    })

    test('changes the loss by a small step as its gradient says', async () => {
      const made = await make()
      const rate = 1e-3
      const first = await step(made, rate)
      const second = await differentiate(made.backend, made.kernels, batch, crossEntropy(made.kernels), options)
      const change = second.policy[PolicySum.loss]! - first.sums.policy[PolicySum.loss]!
      expect(first.norm).toBeGreaterThan(0.01)
      expect(change / (-rate * first.norm ** 2)).toBeGreaterThan(0.9)
      expect(change / (-rate * first.norm ** 2)).toBeLessThan(1.1)
    })

    test('sums a loss as the log-probabilities that it says come to', async () => {
      const made = await make()
      const { kernels, backend } = made
      const before = await logprobsOf(made)
      const learned = before.filter((_, t) => sampled.lossMask[t] === 1 && !isFirst(t))
      const { policy } = await differentiate(backend, kernels, batch, crossEntropy(kernels), options)
      expect(policy[PolicySum.tokens]).toBe(learned.length)
      expect(policy[PolicySum.loss]).toBeCloseTo(-learned.reduce((a, b) => a + b) / learned.length, 5)
    })

    test.each([
      ['cross-entropy', crossEntropy],
      ['clipped ratios', clipped],
      [
        'weights of a correction',
        (kernels: Kernels) => clipped(kernels, { correction: 'token-truncate', correctionHigh: 1.3 }),
      ],
    ])('steps by the derivatives of a loss as by its descriptor: %s', async (_, lossOf) => {
      const [one, other] = [await make(), await make()]
      const sums = await differentiate(one.backend, one.kernels, batch, lossOf(one.kernels), options)
      const byDerivatives = withoutDescriptors(other.backend)
      const derived = await differentiate(byDerivatives, other.kernels, batch, lossOf(other.kernels), options)
      for (const [i, value] of sums.policy.entries()) expect(derived.policy[i]).toBeCloseTo(value, 5)
      const norms = [one, other].map((each) => each.backend.optimStep(optimizer, 0.1, unbounded))
      const [norm, same] = await Promise.all(norms)
      expect(norm).toBeGreaterThan(0)
      expect(same! / norm!).toBeCloseTo(1, 4)
      const [logprobs, others] = await Promise.all([logprobsOf(one), logprobsOf(other)])
      for (const [t, value] of logprobs.entries()) expect(others[t]).toBeCloseTo(value, 4)
    })

    test('differentiates a minibatch alone, by derivatives as by the descriptor', async () => {
      const [one, other] = [await make(), await make()]
      const part = minibatchOf(
        packBatch(sampled, 8, [
          [0, 2],
          [1, 3],
        ]),
        1,
      )
      const norms: number[] = []
      for (const { backend, kernels } of [one, { ...other, backend: withoutDescriptors(other.backend) }]) {
        const { policy } = await differentiate(backend, kernels, part, crossEntropy(kernels), options)
        expect(policy[PolicySum.tokens]).toBe(6)
        norms.push(await backend.optimStep(optimizer, 0.1, unbounded))
      }
      expect(norms[1]! / norms[0]!).toBeCloseTo(1, 4)
    })

    test('takes a loss of one’s own, which sees all tokens at once, by its derivatives', async () => {
      const made = await make()
      const before = await logprobsOf(made)
      let seen: number[] = []
      const lossOf = (evaluated: { logprob: Float32Array }, { dLogprob }: { dLogprob: Float32Array }) => {
        seen = [...evaluated.logprob]
        dLogprob.fill(-1) // Makes every token more probable.
      }
      await differentiateBy(made.backend, batch, lossOf, newUpdate(), options)
      await made.backend.optimStep(optimizer, 0.01, unbounded)
      expect(seen).toEqual(before)
      const sum = (values: readonly number[]) => values.reduce((a, b) => a + b)
      expect(sum(await logprobsOf(made))).toBeGreaterThan(sum(before) + 1e-3)
    })

    test('leaves the weights where the derivatives are 0, and brings a gradient down to the norm', async () => {
      const made = await make()
      const before = await logprobsOf(made)
      const used = newUpdate()
      used.dLogprob.fill(5) // Of another step: a loss that writes nothing has derivatives of 0.
      await differentiateBy(made.backend, batch, () => {}, used, options)
      expect(await made.backend.optimStep(optimizer, 1, unbounded)).toBe(0)
      expect(await logprobsOf(made)).toEqual(before)
      const { sums, norm } = await step(made, 0)
      await differentiate(made.backend, made.kernels, batch, crossEntropy(made.kernels), options)
      const bound = norm / 4
      expect(await made.backend.optimStep({ ...optimizer, momentum: 0 }, 1e-2, bound)).toBeCloseTo(norm, 5)
      const { policy } = await differentiate(made.backend, made.kernels, batch, crossEntropy(made.kernels), options)
      const change = policy[PolicySum.loss]! - sums.policy[PolicySum.loss]!
      expect(change / (-1e-2 * bound * norm)).toBeCloseTo(1, 1)
    })

    test('does what it is asked in turn, waited for or not', async () => {
      const [one, other] = [await make(), await make()]
      for (let i = 0; i < 2; i++) await step(one, 0.2)
      const after = await logprobsOf(one)
      const before = logprobsOf(other)
      const { backend, kernels } = other
      const asked: Promise<unknown>[] = []
      for (let i = 0; i < 2; i++) {
        const { totals, update } = crossEntropy(kernels)
        for (let t = 0; t < numTokens; t++) if (update.learned[t] === 1) update.dLogprob[t] = -1 / totals.denominator
        asked.push(backend.backward(batch, update, options))
        asked.push(backend.optimStep(optimizer, 0.2, unbounded))
      }
      const found = await logprobsOf(other)
      await Promise.all(asked)
      for (const [t, value] of found.entries()) expect(value).toBeCloseTo(after[t]!, 4)
      expect(await before).not.toEqual(found)
    })

    test('refuses a step without a gradient, and a gradient before the step of the last', async () => {
      const { backend, kernels } = await make()
      await expect(backend.optimStep(optimizer, 0.1, 1)).rejects.toThrow(InputError)
      await differentiate(backend, kernels, batch, crossEntropy(kernels), options)
      await expect(differentiate(backend, kernels, batch, crossEntropy(kernels), options)).rejects.toThrow(InputError)
      expect(await backend.optimStep(optimizer, 0.1, 1)).toBeGreaterThan(0)
      await expect(backend.optimStep(optimizer, 0.1, 1)).rejects.toThrow(InputError)
    })

    test('refuses a gradient that is not finite, and all that comes after, until it is loaded again', async () => {
      const made = await make()
      const before = await logprobsOf(made)
      const name = await made.backend.saveCheckpoint(join(await temporaryFolder(), 'kept'))
      const lossOf = (_: unknown, { dLogprob }: { dLogprob: Float32Array }) => void dLogprob.fill(Number.NaN)
      await differentiateBy(made.backend, batch, lossOf, newUpdate(), options)
      const failed = made.backend.optimStep(optimizer, 0.1, 1)
      const behind = [made.backend.backward(batch, newUpdate(), options), made.backend.optimStep(optimizer, 0.1, 1)]
      await expect(failed).rejects.toThrow(/gradient: got a norm of NaN/)
      for (const each of behind) await expect(each).rejects.toThrow(InputError)
      for (const call of [
        () => made.backend.forward(batch, 'policy', 1, newUpdate()),
        () => made.backend.backward(batch, newUpdate(), options),
        () => made.backend.optimStep(optimizer, 0.1, 1),
        () => made.backend.start(),
        () => made.backend.saveCheckpoint(`${name}-2`),
        () => made.backend.getWeights(1),
        () => made.backend.loadWeights(new Float32Array(1)),
      ]) {
        await expect(call()).rejects.toThrow(
          /got a call after optimStep\(\) failed \(gradient: got a norm of NaN.*expected loadCheckpoint\(\) before it/,
        )
      }
      await made.backend.loadCheckpoint(name)
      expect(await logprobsOf(made)).toEqual(before)
      expect((await step(made, 0.1)).norm).toBeGreaterThan(0)
    })

    test('keeps the reference as it was when it started, and starts again from what it has become', async () => {
      const made = await make()
      const before = await logprobsOf(made, 'reference')
      expect(before).toEqual(await logprobsOf(made))
      await step(made, 0.5)
      const after = await logprobsOf(made)
      expect(after).not.toEqual(before)
      expect(await logprobsOf(made, 'reference')).toEqual(before)
      await made.backend.start()
      expect(await logprobsOf(made, 'reference')).toEqual(after)
    })

    test('goes on from what it saved: weights, reference and optimizer', async () => {
      const made = await make()
      const { backend } = made
      await step(made, 0.5)
      const name = await backend.saveCheckpoint(join(await temporaryFolder(), 'kept'))
      const kept = [await logprobsOf(made), await logprobsOf(made, 'reference')]
      await step(made, 0.5)
      const next = await logprobsOf(made)
      await backend.start()
      await step(made, 0.5)
      await backend.loadCheckpoint(name)
      expect([await logprobsOf(made), await logprobsOf(made, 'reference')]).toEqual(kept)
      await step(made, 0.5)
      expect(await logprobsOf(made)).toEqual(next)
      await expect(backend.loadCheckpoint(`${name}-of-nobody`)).rejects.toThrow(InputError)
    })

    test('takes other weights in place of its own, and keeps reference and optimizer', async () => {
      const [made, other] = [await make(), await make()]
      const { weights } = await made.backend.getWeights(1)
      const first = weights.slice()
      const before = await logprobsOf(made)
      await step(made, 0.5)
      await step(made, 0.5)
      const after = await logprobsOf(made)
      await step(other, 0.5)
      await other.backend.loadWeights(first)
      expect(await logprobsOf(other)).toEqual(before)
      expect(await logprobsOf(other, 'reference')).toEqual(before)
      await step(other, 0.5) // With the previous step's momentum.
      const changed = await logprobsOf(other)
      expect(changed).not.toEqual(before)
      expect(changed).not.toEqual(after)
      const fresh = await make()
      await step(fresh, 0.5)
      expect(await logprobsOf(fresh)).not.toEqual(changed)
      await expect(other.backend.loadWeights(first.subarray(1))).rejects.toThrow(InputError)
      expect(await logprobsOf(other)).toEqual(changed)
    })

    test('gives futures that say which call they are of, and whether it is done', async () => {
      const { backend, kernels } = await make()
      const { update } = crossEntropy(kernels)
      const asked = [backend.backward(batch, update, options), backend.optimStep(optimizer, 0.1, 1)] as const
      expect(asked.map(({ call }) => call)).toEqual(['backward', 'optimStep'])
      expect(asked[1].index - asked[0].index).toBe(1)
      expect(asked[1].done()).toBe(false)
      expect(await asked[1].result()).toBe(await asked[1])
      expect(asked.map((each) => each.done())).toEqual([true, true])
      const refused = backend.optimStep(optimizer, 0.1, 1)
      await expect(refused.result()).rejects.toThrow(InputError)
      expect(refused.done()).toBe(true)
    })

    test('gives the weights as they are by then, under the number that is asked for', async () => {
      const made = await make()
      const first = await made.backend.getWeights(4)
      expect(first.version).toBe(4)
      const before = [...first.weights]
      await step(made, 0.5)
      const { version, weights } = await made.backend.getWeights(5)
      expect([version, weights.length]).toEqual([5, before.length])
      expect([...weights]).not.toEqual(before)
    })
  })
}
