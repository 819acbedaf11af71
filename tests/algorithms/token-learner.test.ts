import { describe, expect, test } from 'vitest'
import type { LossSettings } from '../../src/algorithms/losses/loss-settings.ts'
import { describeLoss, type LossBatch, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { packBatch, type TokenSequences } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { Random, Stream } from '../../src/base/random.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels, spansOf } from '../../src/kernels/bind.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { updateOf } from '../support/updates.ts'

const optimizer = { optimizer: 'sgd', momentum: 0, weightDecay: 0 } as const
const model = transformer({
  model_type: 'llama',
  vocab_size: 8,
  hidden_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  intermediate_size: 16,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  initializer_range: 0.8,
})

function learner(rows = 64) {
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, rows, 32, optimizer, false),
  }
  const { arena, columns } = takeArena(plan)
  model.initialize(columns.weights, new Random(7), 0)
  const kernels = createKernels(arena.memory, 'plain')
  return { learner: new TokenLearner(model, columns.weights, columns.learner, kernels), kernels }
}

/** Sequences, what was recorded of them, and a reward each, in groups. */
interface Sampled extends Pick<TokenSequences, 'token' | 'lossMask'> {
  readonly offsets: readonly number[]
  readonly logprob: number[]
  readonly reward: number[]
  readonly group: number[]
}

/** The gradient of a loss, in micro-batches of at most so many rows. */
function gradientOf(
  sampled: Sampled,
  loss: Parameters<typeof describeLoss>,
  rows = 64,
  advantages?: number[],
): Float32Array {
  const { learner: own, kernels } = learner(rows)
  const descriptor = describeLoss(...loss)
  const batch = packBatch({ ...sampled, ...spansOf(sampled.offsets) }, rows)
  const { order, spans } = batch
  const update = updateOf(batch)
  const behaviorLogprob = Float32Array.from(sampled.logprob)
  const { oldLogprob, entropy, value, prepared } = update
  alone(own.evaluate(batch, 1, 'policy', { logprob: oldLogprob, entropy, value }, update))
  const whole: LossBatch = {
    spans,
    lossMask: update.learned,
    reward: Float64Array.from(order, (i) => sampled.reward[i]!),
    known: new Uint8Array(order.length).fill(1),
    group: Int32Array.from(order, (i) => sampled.group[i]!),
    oldLogprob,
    behaviorLogprob,
  }
  const totals = prepareLoss(descriptor, whole, prepared, kernels)
  if (advantages) prepared.tokenAdvantage.set(advantages)
  const given = { oldLogprob, referenceLogprob: null, oldValue: null, wholeTokens: null }
  alone(own.differentiate(batch, descriptor, totals, given, update, 1))
  return own.trained.gradient.slice()
}

function distance(a: Float32Array, b: Float32Array): number {
  let [apart, whole] = [0, 0]
  a.forEach((value, i) => {
    apart += (value - b[i]!) ** 2
    whole += b[i]! ** 2
  })
  return Math.sqrt(apart / whole)
}

/** Random conversations of 2 to 9 tokens. */
function conversations(count: number): Sampled {
  const random = new Random(3)
  const offsets = [0]
  const token: number[] = []
  const lossMask: number[] = []
  for (let i = 0; i < count; i++) {
    random.draw(Stream.reset, i, 0, 0)
    const length = 2 + Math.floor(random.uniform(0) * 8)
    for (let t = 0; t < length; t++) {
      if (t % 4 === 0) random.draw(Stream.reset, i, 1, t / 4)
      token.push(Math.floor(random.uniform(t % 4) * 8))
      lossMask.push(t === 0 ? 0 : 1)
    }
    offsets.push(token.length)
  }
  const reward = Array.from({ length: count }, (_, i) => (i * 7) % 5)
  return {
    offsets,
    token,
    lossMask,
    logprob: token.map(() => -2),
    reward,
    group: reward.map((_, i) => Math.floor(i / 4)),
  }
}

describe('batches of sequences', () => {
  test.each(['grpo', 'dr-grpo', 'dapo', 'gspo', 'rloo'] as const)(
    'however a batch is cut into micro-batches, the gradient of %s is that of the whole',
    (id) => {
      const sampled = conversations(24)
      const loss = [id, 'paper', { klCoef: 0, rewardKlCoef: 0, maxLength: 16 }] as Parameters<typeof describeLoss>
      const whole = gradientOf(sampled, loss, 400)
      for (const rows of [8, 13, 50]) expect(distance(gradientOf(sampled, loss, rows), whole)).toBeLessThan(1e-5)
    },
  )

  test('the order of the sequences in a batch does not matter', () => {
    const sampled = conversations(12)
    const turned = Array.from({ length: 12 }, (_, i) => 11 - i)
    const take = (values: ArrayLike<number>) =>
      turned.flatMap((i) => Array.from(values).slice(sampled.offsets[i], sampled.offsets[i + 1]))
    const offsets = [0]
    for (const i of turned) offsets.push(offsets.at(-1)! + sampled.offsets[i + 1]! - sampled.offsets[i]!)
    const other = {
      offsets,
      token: take(sampled.token),
      lossMask: take(sampled.lossMask),
      logprob: take(sampled.logprob),
      reward: turned.map((i) => sampled.reward[i]!),
      group: turned.map((i) => sampled.group[i]!),
    }
    const loss = ['grpo', 'paper', { klCoef: 0 }] as Parameters<typeof describeLoss>
    expect(distance(gradientOf(other, loss), gradientOf(sampled, loss))).toBeLessThan(1e-5)
  })

  test('micro-batches are filled first-fit, the longest first, and none is longer than it may be', () => {
    const lengths = [3, 9, 5, 2, 7, 4]
    const offsets = [0]
    for (const length of lengths) offsets.push(offsets.at(-1)! + length)
    const token = new Array(30).fill(0)
    const { order, parts } = packBatch({ ...spansOf(offsets), token, lossMask: token }, 9)
    expect(order.map((i) => lengths[i])).toEqual([9, 2, 7, 4, 5, 3])
    expect(parts).toEqual([0, 2, 4, 6])
    expect(() => packBatch({ ...spansOf(offsets), token, lossMask: token }, 7)).toThrow(/sequence 1.*9 tokens.*2 to 8/s)
  })
})

describe('a perturbed sampler', () => {
  // A bandit: after token 0 each of the 8 tokens is an answer, with rewards of its own.
  const rewardOf = (id: number) => (id === 2 ? 1 : id === 5 ? 0.6 : 0)
  const plain: Partial<LossSettings> = {
    klCoef: 0,
    clipLow: null,
    clipHigh: null,
    aggregation: 'sequence-mean',
    ratio: 'token',
  }

  /** log softmax(logits / temperature) of the answers. */
  function logprobs(temperature: number): number[] {
    const { learner: own } = learner()
    const offsets = Array.from({ length: 9 }, (_, i) => 2 * i)
    const token = Array.from({ length: 16 }, (_, t) => (t % 2 === 0 ? 0 : (t - 1) / 2))
    const lossMask = token.map((_, t) => t % 2)
    const batch = packBatch({ ...spansOf(offsets), token, lossMask }, 64)
    const update = updateOf(batch)
    alone(own.evaluate(batch, temperature, 'policy', update, update))
    const found = new Array(8).fill(0)
    batch.order.forEach((answer, place) => {
      found[answer] = update.logprob[batch.spans.begin[place]! + 1]!
    })
    return found
  }

  /** Answers drawn at temperature 1.3, in groups of 8, recorded with the probabilities that they were drawn with. */
  function drawn(count: number): Sampled {
    const behaviour = logprobs(1.3)
    const ends = behaviour.map((_, i) => behaviour.slice(0, i + 1).reduce((sum, logprob) => sum + Math.exp(logprob), 0))
    const random = new Random(11)
    const answers = Array.from({ length: count }, (_, i) => {
      random.draw(Stream.action, i, 0, 0)
      const drawn = random.uniform(0)
      const answer = ends.findIndex((end) => drawn < end)
      return answer < 0 ? 7 : answer
    })
    return {
      offsets: Array.from({ length: count + 1 }, (_, i) => 2 * i),
      token: answers.flatMap((answer) => [0, answer]),
      lossMask: answers.flatMap(() => [0, 1]),
      logprob: answers.flatMap((answer) => [0, behaviour[answer]!]),
      reward: answers.map(rewardOf),
      group: answers.map((_, i) => Math.floor(i / 8)),
    }
  }

  /** The true gradient: every answer once, weighed by its probability and advantage. */
  function exact(): Float32Array {
    const probability = logprobs(1).map(Math.exp)
    const mean = probability.reduce((sum, p, answer) => sum + p * rewardOf(answer), 0)
    const every: Sampled = {
      offsets: Array.from({ length: 9 }, (_, i) => 2 * i),
      token: Array.from({ length: 16 }, (_, t) => (t % 2 === 0 ? 0 : (t - 1) / 2)),
      lossMask: Array.from({ length: 16 }, (_, t) => t % 2),
      logprob: new Array(16).fill(0),
      reward: probability.map((_, answer) => answer),
      group: new Array(8).fill(0),
    }
    const advantages = probability.flatMap((p, answer) => [0, 8 * p * (rewardOf(answer) - mean)])
    return gradientOf(every, ['rloo', 'paper', { ...plain, rewardKlCoef: 0 }], 64, advantages)
  }

  test('of temperature 1.3 that is taken for 1 biases the gradient; truncated importance sampling takes the bias away', () => {
    const truth = exact()
    const sampled = drawn(40_000)
    const settings = { ...plain, rewardKlCoef: 0 }
    const biased = gradientOf(sampled, ['rloo', 'paper', settings], 4096)
    const tis: Partial<LossSettings> = { ...settings, correction: 'token-truncate', correctionHigh: null }
    const corrected = gradientOf(sampled, ['rloo', 'paper', tis], 4096)
    const truncated = gradientOf(sampled, ['rloo', 'paper', { ...tis, correctionHigh: 2 }], 4096)
    expect(distance(biased, truth)).toBeGreaterThan(0.15)
    expect(distance(corrected, truth)).toBeLessThan(0.02)
    expect(distance(truncated, truth)).toBeLessThan(0.02)
  })
})
