import { describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { alone, TokenLearner, tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { bestKernelBuild, createKernels, PolicySum, spansOf } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { loadTransformer } from '../../src/language/transformer/folder.ts'
import { PackedTransformer, packedPlan } from '../../src/language/transformer/packed.ts'
import { SoftTargets } from '../../src/language/transformer/soft-targets.ts'
import { updateOf } from '../support/updates.ts'

// Recorded by tests/golden/record_parts.py, which says how.
const folder = new URL('../golden/parts', import.meta.url).pathname
const { tensors } = await readSafetensors(`${folder}/distillation.safetensors`)
const take = (name: string) => tensorValues(tensors.get(name)!) as Float32Array | Int32Array
const [student, teacher] = [await loadTransformer(`${folder}/student`), await loadTransformer(`${folder}/teacher`)]
const optimizer = { optimizer: 'sgd', momentum: 0, weightDecay: 0 } as const

function learn(build: KernelBuild, rows: number) {
  const { model, weights } = student
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, rows, 16, optimizer, false),
    teacher: column('f32', teacher.model.numParameters),
    packed: packedPlan(teacher.model, rows, 16),
  }
  const { arena, columns } = takeArena(plan)
  columns.weights.set(weights)
  columns.teacher.set(teacher.weights)
  const kernels = createKernels(arena.memory, build)
  const learner = new TokenLearner(model, columns.weights, columns.learner, kernels)
  const offsets = [0]
  for (const length of take('lengths')) offsets.push(offsets.at(-1)! + length)
  const batch = packBatch(
    { ...spansOf(offsets), token: Int32Array.from(take('tokens')), lossMask: Uint8Array.from(take('mask')) },
    rows,
  )
  const update = updateOf(batch)
  const { spans } = batch
  const totals = prepareLoss(describeLoss('sft'), { spans, lossMask: update.learned }, update.prepared, kernels)
  const targets = new SoftTargets(new PackedTransformer(teacher.model, columns.teacher, columns.packed, kernels))
  const none = new Float32Array(0)
  const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null, teacher: targets }
  const sums = alone(learner.differentiate(batch, describeLoss('sft'), totals, given, update, 1))
  return {
    loss: sums.policy[PolicySum.loss]!,
    gradient: learner.trained.gradient,
    parts: batch.parts.length - 1,
  }
}

describe('distillation from the distributions of a teacher', () => {
  const cases = (['plain', bestKernelBuild()] as const).flatMap((build) => [16, 8].map((rows) => ({ build, rows })))

  test.each(cases)(
    'has the loss and the gradient of GKDTrainer with beta 0 ($build, rows $rows)',
    ({ build, rows }) => {
      const { loss, gradient, parts } = learn(build, rows)
      expect(parts).toBe(rows === 16 ? 1 : 2)
      expect(Math.abs(loss - take('loss')[0]!)).toBeLessThan(1e-5)
      for (const { name, offset, shape } of student.model.parameters) {
        const theirs = take(`gradient.${name}`)
        expect(theirs.length).toBe(shape.reduce((product, side) => product * side, 1))
        const apart = Math.hypot(...Array.from(theirs, (value, i) => value - gradient[offset + i]!))
        expect(apart / Math.hypot(...theirs), name).toBeLessThan(1e-4)
      }
    },
  )
})
