/**
 * Kernels over your own columns, without a world. An arena takes one memory for a plan and places its columns there;
 * kernels are bound to that memory, and accept only columns in it.
 */
import { column, takeArena } from 'colonnade/data'
import { Activation, bestKernelBuild, createKernels } from 'colonnade/kernels'

// A group argument of a kernel is a part of the plan: `columns.rollout` has the columns that `gae` needs, by name.
const [numSteps, numLanes, numInputs, numOutputs] = [200, 8, 4, 2]
const rows = numSteps * numLanes
const { arena, columns } = takeArena({
  rollout: {
    reward: column('f32', rows),
    value: column('f32', rows),
    nextValue: column('f32', rows),
    terminated: column('u8', rows),
    truncated: column('u8', rows),
    valid: column('u8', rows),
    advantage: column('f32', rows),
    return: column('f32', rows),
  },
  carry: column('f32', numLanes),
  layer: {
    x: column('f32', rows, numInputs),
    weight: column('f32', numInputs, numOutputs),
    bias: column('f32', numOutputs),
    y: column('f32', rows, numOutputs),
  },
})
const kernels = createKernels(arena.memory, bestKernelBuild())

// Rows are time-major: row t * numLanes + n is step t of lane n. Every step earns 1; lane 0 ends its episode at step
// 99.
const { rollout, carry, layer } = columns
rollout.reward.fill(1)
rollout.valid.fill(1)
rollout.terminated[99 * numLanes] = 1
kernels.gae(rollout, carry, 0.9, 1, numSteps, numLanes)
console.log(`return of lane 0 at step 98: ${rollout.return[98 * numLanes]!.toFixed(3)}`)
console.log(`return of lane 1 at step 98: ${rollout.return[98 * numLanes + 1]!.toFixed(3)}`)

// A dense layer over all rows: y = tanh(x · weight + bias).
layer.x.fill(0.25)
layer.weight.set([1, 0, 1, 0, 1, 0, 1, 0])
layer.bias.set([0, 0.5])
kernels.denseForward(layer.y, layer.x, layer.weight, layer.bias, rows, numInputs, numOutputs, Activation.tanh, 0, 0)
console.log(`the layer's first row: ${[...layer.y.subarray(0, numOutputs)].map((y) => y.toFixed(4)).join(' ')}`)
