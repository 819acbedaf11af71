import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { LossId } from '../../src/algorithms/losses/loss-presets.ts'
import type { LossSettings } from '../../src/algorithms/losses/loss-settings.ts'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { bestKernelBuild, createKernels, PolicySum, spansOf } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { loadTransformer } from '../../src/language/transformer/folder.ts'
import { updateOf } from '../support/updates.ts'

// Recorded by tests/golden/record_trl_model.py, which says how.
const folder = new URL('../golden/trl', import.meta.url).pathname
const recorded = JSON.parse(readFileSync(`${folder}/batch.json`, 'utf8'))
const { tensors } = await readSafetensors(`${folder}/gradients.safetensors`)

const LONGEST = 14
const optimizer = { optimizer: 'sgd', momentum: 0, weightDecay: 0 } as const
const cases: readonly { name: string; id: LossId; overrides: Partial<LossSettings> }[] = [
  { name: 'grpo', id: 'grpo', overrides: {} },
  { name: 'grpo with a KL penalty', id: 'grpo', overrides: { klCoef: 0.04 } },
  { name: 'dr_grpo', id: 'dr-grpo', overrides: { maxLength: recorded.max_completion_length } },
  { name: 'dapo', id: 'dapo', overrides: {} },
  { name: 'dapo with a KL penalty', id: 'dapo', overrides: { klCoef: 0.1 } },
]

/** Loss and gradients of the recorded batch, in micro-batches of at most `rows` rows. */
async function learn(id: LossId, overrides: Partial<LossSettings>, rows: number, build: KernelBuild) {
  const { model, weights } = await loadTransformer(folder)
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, rows, LONGEST, optimizer, false),
  }
  const { arena, columns } = takeArena(plan)
  columns.weights.set(weights)
  const kernels = createKernels(arena.memory, build)
  const learner = new TokenLearner(model, columns.weights, columns.learner, kernels)
  const loss = describeLoss(id, 'trl', overrides)
  const batch = packBatch({ ...recorded, ...spansOf(recorded.offsets) }, rows)
  const { order, spans } = batch
  const update = updateOf(batch)
  const { prepared, learned: lossMask } = update
  const oldLogprob = Float32Array.from(recorded.oldLogprob)
  const referenceLogprob = Float32Array.from(recorded.referenceLogprob)
  const group = Int32Array.from(order, (i) => Math.floor(i / recorded.group_size))
  const reward = Float64Array.from(order, (i) => recorded.reward[i])
  const known = new Uint8Array(order.length).fill(1)
  const whole = { spans, lossMask, reward, known, group, oldLogprob, behaviorLogprob: oldLogprob, referenceLogprob }
  const totals = prepareLoss(loss, whole, prepared, kernels)
  const reference = overrides.klCoef ? referenceLogprob : null
  const given = { oldLogprob, referenceLogprob: reference, oldValue: null, wholeTokens: null }
  const sums = alone(learner.differentiate(batch, loss, totals, given, update, recorded.temperature))
  return {
    model,
    numParts: batch.parts.length - 1,
    loss: sums.policy[PolicySum.loss]!,
    gradient: learner.trained.gradient,
  }
}

describe('the same model and batch in TRL', () => {
  const builds: KernelBuild[] = ['plain', bestKernelBuild()]
  // Micro-batches of all sequences, of several, and of hardly more than one.
  const cuts = [
    { rows: 128, parts: 1 },
    { rows: 40, parts: 3 },
    { rows: 13, parts: 7 },
  ]
  const each = cases.flatMap((one) => builds.flatMap((build) => cuts.map((cut) => ({ ...one, build, ...cut }))))

  test.each(each)(
    '$name: loss and every gradient, rows $rows, $build',
    async ({ name, id, overrides, rows, parts, build }) => {
      const { model, numParts, loss, gradient } = await learn(id, overrides, rows, build)
      expect(numParts).toBe(parts)
      expect(Math.abs(loss - recorded.cases[name].loss)).toBeLessThan(1e-5)
      for (const { name: parameter, offset, shape } of model.parameters) {
        const theirs = tensorValues(tensors.get(`${name}.${parameter}`)!) as Float32Array
        expect(theirs.length).toBe(shape.reduce((product, side) => product * side, 1))
        const apart = Math.hypot(...theirs.map((value, i) => value - gradient[offset + i]!))
        expect(apart / Math.hypot(...theirs), parameter).toBeLessThan(1e-4)
      }
    },
  )
})
