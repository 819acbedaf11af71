/** One call of each kernel, over columns of a usual size, with what it does counted. */
import {
  Activation,
  Combination,
  Comparison,
  DepthwiseTarget,
  ElementMap,
  MATMUL_SCRATCH,
} from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import type { Columns } from './columns.ts'
import { TwinNumbers } from './network.ts'

export interface Case {
  readonly name: string
  /** What is counted: flop, rows, lanes or elements a call. */
  readonly unit: 'flop' | 'rows' | 'lanes' | 'elements'
  readonly count: number
  /** Puts the columns back that the kernel changes in place. */
  readonly restore: () => void
  readonly run: (kernels: Kernels) => unknown
  /** What the call wrote. */
  readonly outputs: readonly (Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array)[]
}

const BLOCK = 256
const LANES = 8192
const NUM_STEPS = 128

export function kernelCases(columns: Columns): Case[] {
  const numbers = new TwinNumbers()
  const floats = (length: number, low = -1, high = 1) => {
    const column = columns.floats(length)
    numbers.fill(column, low, high)
    return column
  }
  const flags = (length: number, part: number) => {
    const column = columns.flags(length)
    for (let i = 0; i < length; i++) column[i] = numbers.uniform(0, 1) < part ? 1 : 0
    return column
  }
  const wholes = (length: number, below: number) => {
    const column = columns.wholes(length)
    for (let i = 0; i < length; i++) column[i] = Math.floor(numbers.uniform(0, below))
    return column
  }
  const order = (length: number, below: number) => {
    const column = columns.counts(length)
    for (let i = 0; i < length; i++) column[i] = Math.floor(numbers.uniform(0, below))
    return column
  }
  const saved = (...given: Float32Array[]) => {
    const copies = given.map((column) => column.slice())
    return () => given.forEach((column, i) => void column.set(copies[i]!))
  }
  const nothing = () => {}

  const dense = (numInputs: number, numOutputs: number, activation: number): Case[] => {
    const shape = `${numInputs} × ${numOutputs}, ${BLOCK} rows`
    const [x, y] = [floats(BLOCK * numInputs), floats(BLOCK * numOutputs)]
    const [dx, dy] = [floats(BLOCK * numInputs), floats(BLOCK * numOutputs)]
    const [weight, bias] = [floats(numInputs * numOutputs, -0.2, 0.2), floats(numOutputs)]
    const [dWeight, dBias] = [floats(weight.length), floats(numOutputs)]
    const backward = columns.floats(weight.length + numInputs)
    const flop = 2 * BLOCK * numInputs * numOutputs
    const what = activation === Activation.tanh ? ' + tanh' : ''
    return [
      {
        name: `denseForward${what}, ${shape}`,
        unit: 'flop',
        count: flop,
        restore: nothing,
        run: (k) => k.denseForward(y, x, weight, bias, BLOCK, numInputs, numOutputs, activation, 0, 0),
        outputs: [y],
      },
      {
        name: `denseBackwardWeights, ${shape}`,
        unit: 'flop',
        count: flop,
        restore: saved(dWeight, dBias),
        run: (k) => k.denseBackwardWeights(dWeight, dBias, dy, x, BLOCK, numInputs, numOutputs, 0),
        outputs: [dWeight, dBias],
      },
      {
        name: `denseBackwardInput${what}, ${shape}`,
        unit: 'flop',
        count: flop,
        restore: nothing,
        run: (k) => k.denseBackwardInput(dx, dy, weight, backward, x, BLOCK, numInputs, numOutputs, false, activation),
        outputs: [dx],
      },
    ]
  }

  const [logits, mean, uniform, normal] = [floats(LANES * 2), floats(LANES), floats(LANES, 0, 1), floats(LANES)]
  const [dLogits, logprob, entropy] = [floats(LANES * 2), floats(LANES, -1, 0), floats(LANES, 0, 1)]
  const [action, box, logStd, sizes] = [wholes(LANES, 2), floats(LANES), floats(1), columns.wholes(1)]
  sizes[0] = 2
  const [dLogprob, dEntropy, dValue] = [floats(LANES), floats(LANES), floats(LANES)]
  const [chosen, sampled, dMean, dLogStd] = [wholes(LANES, 2), floats(LANES), floats(LANES), floats(1)]
  const [lane, episode, words] = [order(LANES, LANES), order(LANES, 99), columns.counts(4)]
  const step = wholes(LANES, 400)
  const [value, old, advantage, returns] = [floats(LANES), floats(LANES, -1, 0), floats(LANES), floats(LANES)]
  const [derivatives, evaluated] = [
    { dLogprob, dEntropy, dValue },
    { logprob: value, entropy, value },
  ]
  const minibatch = { logprob: old, value: old, advantage, return: returns }
  const bounds = { clipCoef: 0.2, clipValue: Number.POSITIVE_INFINITY, entropyCoef: 0.01, valueCoef: 0.5 }
  const lossSettings = { advantageMean: 0, advantageScale: 1, ...bounds, weight: 1 / LANES }
  const adam = { beta1: 0.9, beta2: 0.999, epsilon: 1e-5, weightDecay: 0 }
  const [sums, moments] = [columns.doubles(5), columns.doubles(2)]
  const state = [floats(LANES, -2, 2), floats(LANES), floats(LANES, -0.2, 0.2), floats(LANES)] as const
  const [lowest, highest] = [floats(4, -99, -98), floats(4, 98, 99)]
  const [observation, reward, ended] = [floats(4 * LANES), floats(LANES), flags(LANES, 0.01)]
  const [angle, speed, torque, seen] = [floats(LANES, -3, 3), floats(LANES), floats(LANES), floats(3 * LANES)]
  const weights = [floats(65_536), floats(65_536), floats(65_536, 0, 1), floats(65_536)] as const
  const slots = floats(16 * 16_384)
  const size = NUM_STEPS * LANES
  const [runningMean, runningSquares] = [columns.doubles(4), columns.doubles(4)]
  const [runningCount, normalized] = [columns.doubles(1), floats(4 * LANES)]
  const [center, deviation] = [floats(4), floats(4, 0.5, 2)]
  const rollout = {
    advantage: floats(size),
    return: floats(size),
    reward: floats(size),
    value: floats(size),
    nextValue: floats(size),
    logprob: floats(size, -1, 0),
    terminated: flags(size, 0.01),
    truncated: flags(size, 0.01),
    valid: flags(size, 1),
  }
  const [carry, logprobNow] = [floats(LANES), floats(size, -1, 0)]
  const rows = order(LANES, size)
  const [listed, shuffled] = [columns.counts(size), columns.counts(size)]
  for (let i = 0; i < size; i++) shuffled[i] = i
  const gathered = floats(4 * LANES)
  const source = floats(4 * size)

  return [
    ...dense(64, 64, Activation.tanh),
    dense(64, 64, Activation.linear)[0]!,
    ...dense(4, 64, Activation.tanh).slice(0, 2),
    ...dense(64, 2, Activation.linear),
    ...dense(64, 1, Activation.linear),
    dense(256, 256, Activation.tanh)[0]!,
    {
      name: 'categoricalSample, 2 choices',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.categoricalSample(chosen, sampled, logits, uniform, sizes, LANES, 1, 2, 0),
      outputs: [sampled],
    },
    {
      name: 'categoricalEvaluate, 2 choices',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.categoricalEvaluate(logprob, entropy, action, logits, sizes, LANES, 1, 2, 0),
      outputs: [logprob, entropy],
    },
    {
      name: 'categoricalBackward, 2 choices',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.categoricalBackward(dLogits, dLogprob, dEntropy, action, logits, sizes, LANES, 1, 2, 0),
      outputs: [dLogits],
    },
    {
      name: 'gaussianSample, 1 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.gaussianSample(box, sampled, mean, logStd, normal, LANES, 1, 0),
      outputs: [box, sampled],
    },
    {
      name: 'gaussianBackward, 1 wide',
      unit: 'rows',
      count: LANES,
      restore: saved(dLogStd),
      run: (k) => k.gaussianBackward(dMean, dLogStd, dLogprob, dEntropy, normal, mean, logStd, LANES, 1, 0),
      outputs: [dMean],
    },
    {
      name: 'drawUniform, 1 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.drawUniform(sampled, words, lane, episode, step, 7, 11, LANES, 1, 0),
      outputs: [sampled],
    },
    {
      name: 'drawNormal, 1 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.drawNormal(sampled, words, lane, episode, step, 7, 11, LANES, 1, 0),
      outputs: [sampled],
    },
    {
      name: 'ppoLoss',
      unit: 'rows',
      count: LANES,
      restore: () => sums.fill(0),
      run: (k) => k.ppoLoss(derivatives, sums, evaluated, minibatch, lossSettings, LANES, 0, 0),
      outputs: [dEntropy, dValue],
    },
    {
      name: 'adamStep',
      unit: 'elements',
      count: 65_536,
      restore: saved(...weights),
      run: (k) => k.adamStep(...weights, 1, 1e-3, adam, 0.1, 0.001, 65_536),
      outputs: weights,
    },
    {
      name: 'sgdStep',
      unit: 'elements',
      count: 65_536,
      restore: saved(...weights),
      run: (k) => k.sgdStep(weights[0], weights[1], weights[3], 1, 1e-3, 0.9, 0, 65_536),
      outputs: weights,
    },
    {
      name: 'rmspropStep',
      unit: 'elements',
      count: 65_536,
      restore: saved(...weights),
      run: (k) => k.rmspropStep(...weights, 1, 1e-3, 0.99, 0.9, 1e-5, 0, 65_536),
      outputs: weights,
    },
    {
      name: 'globalNorm',
      unit: 'elements',
      count: 65_536,
      restore: () => sums.fill(0),
      run: (k) => {
        sums[0] = k.globalNorm(weights[3], 65_536)
      },
      outputs: [sums],
    },
    {
      name: 'sumSlots, 16',
      unit: 'elements',
      count: slots.length,
      restore: saved(slots),
      run: (k) => k.sumSlots(slots, 16, 16_384, 0, 16_384),
      outputs: [],
    },
    {
      name: `gae, ${NUM_STEPS} × ${LANES}`,
      unit: 'rows',
      count: size,
      restore: nothing,
      run: (k) => k.gae(rollout, carry, 0.99, 0.95, NUM_STEPS, LANES),
      outputs: [rollout.advantage, rollout.return],
    },
    {
      name: `vtrace, ${NUM_STEPS} × ${LANES}`,
      unit: 'rows',
      count: size,
      restore: nothing,
      run: (k) => k.vtrace(rollout, carry, logprobNow, 0.99, 0.95, 1, 1, NUM_STEPS, LANES),
      outputs: [rollout.advantage, rollout.return],
    },
    {
      name: `discountedReturns, ${NUM_STEPS} × ${LANES}`,
      unit: 'rows',
      count: size,
      restore: nothing,
      run: (k) => k.discountedReturns(rollout, carry, 0.99, NUM_STEPS, LANES),
      outputs: [rollout.return],
    },
    {
      name: `cartPoleStep, ${LANES} lanes`,
      unit: 'lanes',
      count: LANES,
      restore: saved(...state),
      run: (k) => k.cartPoleStep(...state, observation, reward, ended, action, 0, LANES),
      outputs: [observation],
    },
    {
      name: `pendulumStep, ${LANES} lanes`,
      unit: 'lanes',
      count: LANES,
      restore: saved(angle, speed),
      run: (k) => k.pendulumStep(angle, speed, seen, reward, torque, 10, 0, LANES),
      outputs: [seen, reward],
    },
    {
      name: 'gatherRows, 1 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.gatherRows(sampled, source, rows, 0, LANES, 1),
      outputs: [sampled],
    },
    {
      name: 'gatherRows, 4 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.gatherRows(gathered, source, rows, 0, LANES, 4),
      outputs: [gathered],
    },
    {
      name: 'shuffleRows',
      unit: 'rows',
      count: LANES,
      restore: () => {
        for (let i = 0; i < LANES; i++) shuffled[i] = i
      },
      run: (k) => k.shuffleRows(shuffled, words, LANES, 3, 1, 7, 11),
      outputs: [shuffled],
    },
    {
      name: 'listValid',
      unit: 'rows',
      count: size,
      restore: nothing,
      run: (k) => k.listValid(listed, rollout.valid, size),
      outputs: [listed],
    },
    {
      name: 'findNonFinite',
      unit: 'elements',
      count: 4 * LANES,
      restore: nothing,
      run: (k) => k.findNonFinite(gathered, 0, 4 * LANES),
      outputs: [],
    },
    {
      name: 'findBeyond, 4 elements a lane',
      unit: 'elements',
      count: 4 * LANES,
      restore: nothing,
      run: (k) => k.findBeyond(gathered, lowest, highest, 4, 0, LANES),
      outputs: [],
    },
    {
      name: 'findMiswritten',
      unit: 'lanes',
      count: LANES,
      restore: nothing,
      run: (k) => k.findMiswritten(reward, ended, ended, 2 ** 50, 0, LANES),
      outputs: [],
    },
    {
      name: 'meanAndDeviation',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.meanAndDeviation(moments, advantage, LANES),
      outputs: [moments],
    },
    {
      name: 'updateRunning, 4 wide',
      unit: 'rows',
      count: LANES,
      restore: () => {
        for (const column of [runningMean, runningSquares, runningCount]) column.fill(0)
      },
      run: (k) => k.updateRunning(runningMean, runningSquares, runningCount, observation, rollout.valid, LANES, 4),
      outputs: [runningMean, runningSquares, runningCount],
    },
    {
      name: 'normalizeRows, 4 wide',
      unit: 'rows',
      count: LANES,
      restore: nothing,
      run: (k) => k.normalizeRows(normalized, observation, center, deviation, 10, LANES, 4, 0),
      outputs: [normalized],
    },
    ...tensorCases(columns, floats, flags, wholes),
  ]
}

type Fill<Column> = (length: number, ...bounds: number[]) => Column

/** The kernels that tfjs's tensors run on, at a transformer's sizes. */
function tensorCases(
  columns: Columns,
  floats: Fill<Float32Array>,
  flags: (length: number, part: number) => Uint8Array,
  wholes: (length: number, below: number) => Int32Array,
): Case[] {
  const [rows, width, wide] = [1024, 128, 512]
  const size = rows * wide
  const [x, y, out] = [floats(size), floats(size), columns.floats(size)]
  const [positive, none] = [floats(size, 0.01, 4), columns.floats(0)]
  const [condition, chosen] = [flags(size, 0.5), columns.flags(size)]
  const [sides, product] = [floats(rows * width), columns.floats(rows * wide)]
  const [scratch, sums, segment] = [columns.floats(MATMUL_SCRATCH), columns.floats(wide * wide), wholes(rows, wide)]
  const filter = floats(9 * 32)
  const [images, filters] = [
    { height: 64, width: 64, channels: 32 },
    { filterHeight: 3, filterWidth: 3 },
  ]
  const steps = { strideHeight: 1, strideWidth: 1, dilationHeight: 1, dilationWidth: 1, padTop: 1, padLeft: 1 }
  const geometry = { ...images, outHeight: 64, outWidth: 64, ...filters, ...steps }
  const image = columns.floats(64 * 64 * 32)
  const patches = columns.floats(image.length * 9)
  const given = (
    name: string,
    run: Case['run'],
    outputs: Case['outputs'],
    count = size,
    unit: Case['unit'] = 'elements',
  ) => {
    return { name, unit, count, run, outputs, restore: () => outputs.forEach((column) => void column.fill(0)) }
  }
  const multiply = (a: boolean, b: boolean): Case => {
    const [numRows, depth] = a ? [width, rows] : [rows, width]
    const name = `matmul, ${numRows} × ${wide}, depth ${depth}${a ? ', A transposed' : ''}${b ? ', B transposed' : ''}`
    const [left, right] = [sides, a ? x : y.subarray(0, width * wide)]
    const run = (k: Kernels) => k.matmul(product, left, right, none, scratch, numRows, wide, depth, a, b, false)
    return given(name, run, [product], 2 * rows * width * wide, 'flop')
  }
  return [
    multiply(false, false),
    multiply(false, true),
    multiply(true, false),
    ...Object.entries(ElementMap).map(([name, map]) =>
      given(`mapElements, ${name}`, (k) => k.mapElements(out, positive, map, size), [out]),
    ),
    given('combineRows, maximum', (k) => k.combineRows(out, x, y, Combination.maximum, 1, size, 0, 1, 0, 1), [out]),
    given('compareRows, greater', (k) => k.compareRows(chosen, x, y, Comparison.greater, 1, size, 0, 1, 0, 1), [
      chosen,
    ]),
    given('selectElements', (k) => k.selectElements(out, condition, x, y, size), [out]),
    given('flagsToFloats', (k) => k.flagsToFloats(out, condition, size), [out]),
    given('transposeMatrices', (k) => k.transposeMatrices(out, x, 1, rows, wide), [out]),
    given('copyRows, 128 of 512', (k) => k.copyRows(out, x, rows, width, width, wide, 0, 0), [out], rows * width),
    given('sumMiddle, by columns', (k) => k.sumMiddle(sums, x, 1, rows, wide), [sums]),
    given('sumMiddle, by rows', (k) => k.sumMiddle(sums, x, rows, wide, 1), [sums]),
    given('addToSegments, 512 wide', (k) => k.addToSegments(sums, x, segment, rows, wide, wide), [sums]),
    given('unfoldPatches, 3 × 3', (k) => k.unfoldPatches(patches, x, geometry, 1), [patches], patches.length),
    given('foldPatches, 3 × 3', (k) => k.foldPatches(image, patches, geometry, 1), [image], patches.length),
    given(
      'addDepthwise, 3 × 3',
      (k) => k.addDepthwise(image, x, filter, geometry, DepthwiseTarget.output, 1, 1),
      [image],
      2 * patches.length,
      'flop',
    ),
  ]
}
