import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { definePreferenceLoss, type PreferenceLossFactory } from '../../src/algorithms/losses/define-preference-loss.ts'
import { type LossDescriptor, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { dpo, ipo, kto, orpo, reward, simpo } from '../../src/algorithms/losses/preference-losses.ts'
import { PreferenceSum } from '../../src/algorithms/losses/preference-run.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import type { NamedTokenColumns } from '../../src/algorithms/tokens/token-loss.ts'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { number } from '../../src/base/settings.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { bestKernelBuild, createKernels, spansOf } from '../../src/kernels/bind.ts'
import { loadTransformer } from '../../src/language/transformer/folder.ts'
import { updateOf } from '../support/updates.ts'

// Recorded by tests/golden/record_trl_preferences.py, which says how.
const folder = new URL('../golden/trl', import.meta.url).pathname
const recorded = JSON.parse(readFileSync(`${folder}/preferences.json`, 'utf8'))
const { tensors: gradients } = await readSafetensors(`${folder}/preferences.safetensors`)
const { tensors: steps } = await readSafetensors(`${folder}/steps.safetensors`)
const { model, weights: initial } = await loadTransformer(folder)

const hinge = definePreferenceLoss({
  id: 'hinge',
  settings: { beta: number(0.1, 'factor of the rewards') },
  loss({ chosenLogprob, rejectedLogprob, referenceChosenLogprob, referenceRejectedLogprob }, { beta }) {
    const chosen = chosenLogprob.minus(referenceChosenLogprob)
    const rejected = rejectedLogprob.minus(referenceRejectedLogprob)
    return rejected.minus(chosen).times(beta).plus(1).max(0)
  },
})

const losses: Record<string, readonly [factory: unknown, settings: object]> = {
  dpo: [dpo, {}],
  'dpo with another beta': [dpo, { beta: 0.7 }],
  ipo: [ipo, { beta: 0.3 }],
  hinge: [hinge, { beta: 0.5 }],
  kto: [kto, {}],
  'kto with weights': [kto, { beta: 0.6, goodWeight: 1.5, badWeight: 0.8 }],
  simpo: [simpo, { beta: 2, gamma: 0.5 }],
  'simpo with smoothing': [simpo, { beta: 1.3, gamma: 0.2, labelSmoothing: 0.1 }],
  orpo: [orpo, { learnsPrompt: true }],
  'orpo with another beta': [orpo, { beta: 0.8, learnsPrompt: true }],
}

function lossOf(name: string): LossDescriptor {
  const [factory, settings] = losses[name]!
  return (factory as PreferenceLossFactory)(settings as never)
}

interface Row {
  readonly ids: readonly number[]
  readonly prompt: number
  readonly isGood: boolean
  readonly unit: number
}

type Pair = { prompt: number[]; chosen: number[]; rejected: number[] }
type Answer = { prompt: number[]; answer: number[]; good: number; mismatched: number[] }

const row = (prompt: number[], answer: number[], isGood: boolean, unit: number): Row => {
  return { ids: [...prompt, ...answer], prompt: prompt.length, isGood, unit }
}
const pairs = (recorded.pairs as Pair[]).flatMap(({ prompt, chosen, rejected }, i) => [
  row(prompt, chosen, true, i),
  row(prompt, rejected, false, i),
])
const answers = (recorded.answers as Answer[]).map(({ prompt, answer, good }, i) => row(prompt, answer, good === 1, i))
const others = (recorded.answers as Answer[]).map(({ prompt, mismatched }, i) => row(prompt, mismatched, true, i))

function sequencesOf(rows: readonly Row[]) {
  const offsets = [0]
  for (const { ids } of rows) offsets.push(offsets.at(-1)! + ids.length)
  const token = rows.flatMap(({ ids }) => ids)
  const lossMask = rows.flatMap(({ ids, prompt }) => ids.map((_, t) => (t < prompt ? 0 : 1)))
  return { ...spansOf(offsets), token, lossMask, unit: rows.map(({ unit }) => unit) }
}

/** The policy of the recording, or its reference, in a learner with micro-batches of so many rows. */
function learnerOf(isPolicy: boolean, maxRows: number) {
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, maxRows, 14, sft().settings, false),
  }
  const { arena, columns } = takeArena(plan)
  columns.weights.set(initial)
  for (const { name, offset } of isPolicy ? model.parameters : []) {
    columns.weights.set(tensorValues(steps.get(`sft with other settings.${name}`)!) as Float32Array, offset)
  }
  const kernels = createKernels(arena.memory, bestKernelBuild())
  return { kernels, learner: new TokenLearner(model, columns.weights, columns.learner, kernels) }
}

/** The log-probability of each row's answer. */
function sumsOf(isPolicy: boolean, rows: readonly Row[]): number[] {
  const sequences = sequencesOf(rows)
  const batch = packBatch(sequences, 40)
  const update = updateOf(batch)
  alone(learnerOf(isPolicy, 40).learner.evaluate(batch, 1, 'policy', update, update))
  const { begin, end, lossMask } = sequences
  return rows.map((_, i) => {
    let sum = 0
    for (let t = begin[i]! + 1; t < end[i]!; t++) if (lossMask[t] === 1) sum += update.logprob[t]!
    return sum
  })
}

/** Loss, sums and gradient of the recorded policy's batch, in micro-batches of so many rows. */
function differentiated(loss: LossDescriptor, maxRows: number) {
  const rows = loss.level === 'pair' ? pairs : answers
  const batch = packBatch(sequencesOf(rows), maxRows)
  const update = updateOf(batch)
  const { kernels, learner } = learnerOf(true, maxRows)
  const learned = { spans: batch.spans, lossMask: update.learned, referenceLogprob: update.referenceLogprob }
  const totals = { ...prepareLoss(loss, learned, update.prepared, kernels), denominator: rows.at(-1)!.unit + 1 }
  const policy = sumsOf(true, others)
  const kl = sumsOf(false, others).reduce((sum, value, i) => sum + (policy[i]! - value) / others.length, 0)
  const reference = sumsOf(false, rows)
  for (const [place, i] of batch.order.entries()) {
    update.compared.unit[place] = rows[i]!.unit
    update.compared.isGood[place] = rows[i]!.isGood ? 1 : 0
    update.compared.reference[place] = reference[i]!
  }
  const none = new Float32Array(0)
  const compared = { ...update.compared, kl: Math.max(0, kl) }
  const given = { oldLogprob: none, referenceLogprob: null, oldValue: null, wholeTokens: null, compared }
  const { policy: sums } = alone(learner.differentiate(batch, loss, totals, given, update, 1))
  return { batch, sums, kl, gradient: learner.trained.gradient }
}

describe('losses of preferences', () => {
  test.each(Object.keys(losses))('%s agrees with TRL', (name) => {
    const { loss, metrics } = recorded.cases[name]
    const { batch, sums, kl, gradient } = differentiated(lossOf(name), 30)
    expect(batch.parts.length - 1).toBeGreaterThan(name.startsWith('kto') ? 0 : 1)
    expect(sums[PreferenceSum.loss]! / loss).toBeCloseTo(1, 5)
    let [away, norm] = [0, 0]
    for (const { name: parameter, offset } of model.parameters) {
      const theirs = tensorValues(gradients.get(`${name}.${parameter}`)!)
      for (const [i, value] of theirs.entries()) {
        away += (gradient[offset + i]! - Number(value)) ** 2
        norm += Number(value) ** 2
      }
    }
    expect(Math.sqrt(away / norm)).toBeLessThan(1e-4)
    expect(Math.sqrt(norm)).toBeGreaterThan(1e-3)
    if (name.startsWith('kto')) expect(kl).toBeCloseTo(metrics.kl, 5)
    if (name === 'hinge') return // It does not say its rewards.
    const { good, bad, goodReward, badReward, accurate } = PreferenceSum
    expect(sums[goodReward]! / sums[good]!).toBeCloseTo(metrics['rewards/chosen'], 4)
    expect(sums[badReward]! / sums[bad]!).toBeCloseTo(metrics['rewards/rejected'], 4)
    if (!name.startsWith('kto')) expect(sums[accurate]! / sums[good]!).toBeCloseTo(metrics['rewards/accuracies'], 6)
  })

  test('a batch in one micro-batch and in several has the same loss and gradient', () => {
    const [whole, parts] = [differentiated(dpo(), 200), differentiated(dpo(), 17)]
    expect([whole.batch.parts.length, parts.batch.parts.length]).toEqual([2, 5])
    expect(parts.sums[PreferenceSum.loss]).toBeCloseTo(whole.sums[PreferenceSum.loss]!, 6)
    expect(Math.max(...parts.gradient.map((value, i) => Math.abs(value - whole.gradient[i]!)))).toBeLessThan(1e-6)
  })

  test('keeps a pair in one micro-batch, and refuses one without room', () => {
    const { order, parts } = packBatch(sequencesOf(pairs), 17)
    for (const part of parts.slice(0, -1).keys()) {
      const units = order.slice(parts[part], parts[part + 1]).map((i) => pairs[i]!.unit)
      expect(units.filter((unit) => units.indexOf(unit) === units.lastIndexOf(unit))).toEqual([])
    }
    const refused = 'sequences 8, 9: got 15 tokens together, expected at most 12'
    expect(() => packBatch(sequencesOf(pairs), 10)).toThrow(refused)
  })
})

test('the loss of a reward model agrees with TRL', async () => {
  const { loss, metrics } = recorded.cases.reward
  const { model: scorer, weights } = await loadTransformer(folder, { valueHead: true })
  const sequences = sequencesOf(pairs.map((pair) => ({ ...pair, ids: [...pair.ids, 0] }))) // A place for the score.
  const batch = packBatch(sequences, 40)
  const update = updateOf(batch, true)
  const { arena, columns } = takeArena({
    weights: column('f32', scorer.numParameters),
    learner: tokenLearnerPlan(scorer, 40, 14, sft().settings, false),
  })
  columns.weights.set(weights)
  const head = scorer.parameters.find(({ name }) => name === 'v_head.summary.weight')!
  columns.weights.set(tensorValues(gradients.get('score')!) as Float32Array, head.offset)
  const kernels = createKernels(arena.memory, bestKernelBuild())
  const learner = new TokenLearner(scorer, columns.weights, columns.learner, kernels)
  const learned = { spans: batch.spans, lossMask: update.learned, referenceLogprob: update.referenceLogprob }
  const totals = { ...prepareLoss(reward(), learned, update.prepared, kernels), denominator: pairs.length / 2 }
  for (const [place, i] of batch.order.entries()) {
    update.compared.unit[place] = pairs[i]!.unit
    update.compared.isGood[place] = pairs[i]!.isGood ? 1 : 0
    update.compared.margin[place] = recorded.pairs[pairs[i]!.unit].margin
  }
  const none = new Float32Array(0)
  const compared = { ...update.compared, kl: 0 }
  const given = { oldLogprob: none, referenceLogprob: null, oldValue: null, wholeTokens: null, compared }
  const { policy: sums } = alone(learner.differentiate(batch, reward(), totals, given, update, 1))
  expect(sums[PreferenceSum.loss]! / loss).toBeCloseTo(1, 5)
  const { good, goodReward, badReward, accurate } = PreferenceSum
  expect((sums[goodReward]! - sums[badReward]!) / sums[good]!).toBeCloseTo(metrics.margin, 5)
  expect((sums[goodReward]! + sums[badReward]!) / (2 * sums[good]!)).toBeCloseTo(metrics.mean_reward, 5)
  expect(sums[accurate]! / sums[good]!).toBeCloseTo(metrics.accuracy, 6)
  let [away, norm] = [0, 0]
  for (const { name, offset } of scorer.parameters) {
    const theirs = gradients.get(`reward.${name === head.name ? 'score.weight' : name}`)
    if (theirs === undefined) expect(['lm_head.weight', 'v_head.summary.bias']).toContain(name)
    for (const [i, value] of theirs === undefined ? [] : tensorValues(theirs).entries()) {
      away += (learner.trained.gradient[offset + i]! - Number(value)) ** 2
      norm += Number(value) ** 2
    }
  }
  expect(Math.sqrt(away / norm)).toBeLessThan(1e-4)
  expect(Math.sqrt(norm)).toBeGreaterThan(0.1)
})

describe('definePreferenceLoss', () => {
  const of = (loss: Parameters<typeof definePreferenceLoss>[0]['loss']) => () =>
    definePreferenceLoss({ id: 'own', settings: {}, loss })()

  test('refuses columns of both kinds, of neither, and unknown ones', () => {
    expect(of(({ chosenLogprob, logprob }) => chosenLogprob.plus(logprob))).toThrow(
      'loss of own: got a loss that reads chosenLogprob, logprob, expected columns of pairs, or of single answers',
    )
    expect(of(({ chosenLogprob }) => chosenLogprob.minus(chosenLogprob.detach()))).not.toThrow()
    expect(of(({ chosenLogprob, chosenScore }) => chosenLogprob.plus(chosenScore))).toThrow(
      'expected scores or log-probabilities',
    )
    expect(of((columns) => (columns as unknown as NamedTokenColumns).advantage)).toThrow('column of own')
  })

  test('a loss of preferences is a part of sft, with its settings by name', () => {
    expect(sft({ loss: 'dpo', lossSettings: ['beta=0.3'] }).loss.id).toBe('dpo')
    expect(sft({ loss: 'dpo' }).parameters).toMatchObject({ loss: 'dpo' })
    expect(sft().parameters).not.toHaveProperty('loss')
    expect(sft({}, { loss: hinge }).loss.level).toBe('pair')
    expect(() => sft({ loss: 'dpa' })).toThrow(
      'sft.loss: got "dpa" (did you mean "dpo"?), expected one of dpo, ipo, kto',
    )
    expect(() => sft({ loss: 'dpo', lossSettings: ['gamma=1'] })).toThrow('setting of the loss dpo: got "gamma"')
    expect(() => sft({ loss: 'dpo', lossSettings: ['beta=0'] })).toThrow(
      'loss dpo.beta: got "0", expected a number > 0',
    )
    expect(() => sft({ lossSettings: ['beta=1'] })).toThrow('sft.lossSettings: got ["beta=1"], expected none')
    expect(() => sft({ loss: 'kto', batchSize: 1 })).toThrow('sft.batchSize: got 1, expected at least 2: kto pairs')
  })
})
