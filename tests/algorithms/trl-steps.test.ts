import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { scheduleFactor } from '../../src/algorithms/schedule.ts'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { bestKernelBuild, createKernels, spansOf } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { loadTransformer } from '../../src/language/transformer/folder.ts'
import { updateOf } from '../support/updates.ts'

// Recorded by tests/golden/record_trl_steps.py, which says how.
const folder = new URL('../golden/trl', import.meta.url).pathname
const recorded = JSON.parse(readFileSync(`${folder}/steps.json`, 'utf8'))
const groups = JSON.parse(readFileSync(`${folder}/batch.json`, 'utf8'))
const { tensors } = await readSafetensors(`${folder}/steps.safetensors`)

const ROWS = 20
const LONGEST = 14

/** The settings of a case by our names. What TRL has by default is not said, but the learning rate and its schedule. */
function settingsOf(name: string) {
  const { learning_rate, lr_scheduler_type, ...theirs } = recorded.cases[name].settings
  const own = { learningRate: learning_rate, learningRateSchedule: lr_scheduler_type }
  if (name !== 'sft with other settings') return own
  const { adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm } = theirs
  const adam = { beta1: adam_beta1, beta2: adam_beta2, epsilon: adam_epsilon }
  return { ...own, ...adam, weightDecay: weight_decay, maxGradNorm: max_grad_norm }
}

/** Six optimizer steps as the recording made them: their gradients' norms, and the weights before and after. */
async function sixSteps(name: string, build: KernelBuild) {
  const isRl = name === 'grpo'
  const loss = isRl ? describeLoss('dapo', 'trl', { clipHigh: 0.2 }) : describeLoss('sft')
  const { settings } = isRl ? rl(settingsOf(name)) : sft(settingsOf(name))
  const sequences = isRl ? groups : recorded
  const { model, weights: before } = await loadTransformer(folder)
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, ROWS, LONGEST, settings, false),
  }
  const { arena, columns } = takeArena(plan)
  const { weights } = columns
  weights.set(before)
  const kernels = createKernels(arena.memory, build)
  const learner = new TokenLearner(model, weights, columns.learner, kernels)
  learner.trained.start()
  const batch = packBatch({ ...sequences, ...spansOf(sequences.offsets) }, ROWS)
  expect(batch.parts.length - 1).toBeGreaterThan(1)
  const { order, spans } = batch
  const update = updateOf(batch)
  const oldLogprob = Float32Array.from(isRl ? groups.oldLogprob : [])
  const whole = {
    spans,
    lossMask: update.learned,
    ...(isRl && {
      reward: Float64Array.from(order, (i) => groups.reward[i]),
      known: new Uint8Array(order.length).fill(1),
      group: Int32Array.from(order, (i) => Math.floor(i / groups.group_size)),
      oldLogprob,
      behaviorLogprob: oldLogprob,
    }),
  }
  const totals = prepareLoss(loss, whole, update.prepared, kernels)
  const given = { oldLogprob, referenceLogprob: null, oldValue: null, wholeTokens: null }
  const temperature = isRl ? groups.temperature : 1
  const norms: number[] = []
  for (let step = 0; step < recorded.steps; step++) {
    alone(learner.differentiate(batch, loss, totals, given, update, temperature))
    const rate = settings.learningRate! * scheduleFactor(settings.learningRateSchedule, 0, step, recorded.steps)
    norms.push(learner.trained.descend(settings, rate, settings.maxGradNorm))
  }
  return { model, before, after: weights, norms }
}

describe('six AdamW steps with clipping end where TRL’s end', () => {
  const builds: KernelBuild[] = ['plain', bestKernelBuild()]
  const cases = Object.keys(recorded.cases).flatMap((name) => builds.map((build) => ({ name, build })))

  test.each(cases)('$name, $build: within 1e-4 of the distance moved', async ({ name, build }) => {
    const { model, before, after, norms } = await sixSteps(name, build)
    const clipped = recorded.cases[name].settings.max_grad_norm
    for (const [step, norm] of norms.entries()) {
      expect(Math.abs(norm / recorded.cases[name].gradNorm[step] - 1)).toBeLessThan(1e-5)
      expect(norm).toBeGreaterThan(clipped)
    }
    const [apart, moved] = [[] as number[], [] as number[]]
    for (const { name: parameter, offset, shape } of model.parameters) {
      const theirs = tensorValues(tensors.get(`${name}.${parameter}`)!) as Float32Array
      expect(theirs.length).toBe(shape.reduce((product, side) => product * side, 1))
      for (const [i, value] of theirs.entries()) {
        apart.push(value - after[offset + i]!)
        moved.push(value - before[offset + i]!)
      }
    }
    expect(moved.length).toBe(model.numParameters)
    expect(Math.hypot(...apart) / Math.hypot(...moved)).toBeLessThan(1e-4)
  })
})
