/** The parts of networks: dense and convolutional layers, recurrent cells, and sequences of them. */
import type { Tensor2D, Tensor3D, Tensor4D } from '@tensorflow/tfjs-core'
import { hasLayers, type LayerActivation, runBiasLayer, runDenseLayer } from '../devices/layers.ts'
import { type Cell, hasRecurrence, recurrence } from '../devices/recurrent.ts'
import type { Tf } from '../devices/tfjs.ts'
import { orthogonal } from '../orthogonal.ts'
import type { ImageShape } from '../stack/convolution.ts'
import type { Features, Module, NetworkParameter, SeenSteps, Weights } from './module.ts'

function matrix(name: string, shape: readonly number[], gain: number): NetworkParameter {
  const numOutputs = shape.at(-1)!
  const numInputs = shape.slice(0, -1).reduce((product, side) => product * side, 1)
  return {
    name,
    shape,
    initialize: (values, random, key, layer) => orthogonal(values, numInputs, numOutputs, gain, random, key, layer),
  }
}

/** A dense layer: y = activation(x W + b), with initial W orthogonal times `gain`. */
export function denseLayer(
  name: string,
  numInputs: number,
  numOutputs: number,
  activation: LayerActivation,
  gain: number,
): Module {
  return {
    parameters: [
      matrix(`${name}.weight`, [numInputs, numOutputs], gain),
      { name: `${name}.bias`, shape: [numOutputs] },
    ],
    numOutputs,
    memoryWidth: 0,
    forward(tf, weights, { x }) {
      return { y: layerOf(tf, weights, name, x, activation), memory: null }
    },
  }
}

function layerOf(tf: Tf, weights: Weights, name: string, x: Tensor2D, activation: LayerActivation): Tensor2D {
  const [weight, bias] = [weights(`${name}.weight`) as Tensor2D, weights(`${name}.bias`)]
  if (hasLayers(tf)) return runDenseLayer(tf, x, weight, bias, activation)
  return activate(tf, tf.add(tf.matMul(x, weight), bias) as Tensor2D, activation)
}

function activate(tf: Tf, x: Tensor2D, activation: LayerActivation): Tensor2D {
  if (activation === 'tanh') return tf.tanh(x)
  return activation === 'relu' ? tf.relu(x) : x
}

/** A convolution over images, flattened row by row with channels last, with `same` padding and relu; its output is flattened too. */
export function convolutionLayer(name: string, image: ImageShape, filters: number, kernelSize: number): Module {
  const [height, width, channels] = image
  return {
    parameters: [
      matrix(`${name}.weight`, [kernelSize, kernelSize, channels, filters], Math.SQRT2),
      { name: `${name}.bias`, shape: [filters] },
    ],
    numOutputs: height * width * filters,
    memoryWidth: 0,
    forward(tf, weights, { x }) {
      const numRows = x.shape[0]
      const images = tf.reshape(x, [numRows, height, width, channels]) as Tensor4D
      const y = tf.conv2d(images, weights(`${name}.weight`) as Tensor4D, 1, 'same')
      const bias = weights(`${name}.bias`)
      const rectified = hasLayers(tf)
        ? runBiasLayer(tf, tf.reshape(y, [numRows * height * width, filters]), bias, 'relu')
        : tf.relu(tf.add(y, bias))
      return { y: tf.reshape(rectified, [numRows, height * width * filters]), memory: null }
    },
  }
}

/** Runs parts one after another. */
export function inOrder(modules: readonly Module[], numInputs: number): Module {
  return {
    parameters: modules.flatMap(({ parameters }) => parameters),
    numOutputs: modules.at(-1)?.numOutputs ?? numInputs,
    memoryWidth: modules.reduce((sum, { memoryWidth }) => sum + memoryWidth, 0),
    forward(tf, weights, seen) {
      let x = seen.x
      let at = 0
      const memories: Tensor2D[] = []
      for (const module of modules) {
        const { y, memory } = module.forward(tf, weights, { ...memoryPart(tf, seen, at, module.memoryWidth), x })
        x = y
        at += module.memoryWidth
        if (memory !== null) memories.push(memory)
      }
      return { y: x, memory: memories.length > 1 ? tf.concat(memories, 1) : (memories[0] ?? null) }
    },
  }
}

/** The input of a part that uses `width` elements of the memory, from element `at`. */
export function memoryPart(tf: Tf, seen: SeenSteps, at: number, width: number): SeenSteps {
  const { memory, carried } = seen
  if (memory === null || width === memory.shape[2]) return seen
  return {
    ...seen,
    memory: width === 0 ? null : tf.slice(memory, [0, 0, at], [-1, -1, width]),
    carried: carried === null || width === 0 ? null : tf.slice(carried, [0, at], [-1, width]),
  }
}

/**
 * A gated recurrent unit (Cho et al. 2014, in the form of cuDNN and torch), over the steps of each lane:
 *
 *     r = σ(x Wr + br + h Ur + cr)        z = σ(x Wz + bz + h Uz + cz)
 *     n = tanh(x Wn + bn + r (h Un + cn))        h' = (1 − z) n + z h
 *
 * The matrices are concatenated in the order r, z, n. Its memory is h.
 */
export function gruCell(name: string, numInputs: number, units: number): Module {
  return recurrentCell(name, numInputs, units, 'Gru', 3, units, (tf, fromInput, fromHidden, h) => {
    const [xr, xz, xn] = tf.split(fromInput, 3, 1) as [Tensor2D, Tensor2D, Tensor2D]
    const [hr, hz, hn] = tf.split(fromHidden, 3, 1) as [Tensor2D, Tensor2D, Tensor2D]
    const r = tf.sigmoid(tf.add(xr, hr))
    const z = tf.sigmoid(tf.add(xz, hz))
    const n = tf.tanh(tf.add(xn, tf.mul(r, hn)))
    const next = tf.add(n, tf.mul(z, tf.sub(h, n))) as Tensor2D
    return { y: next, memory: next }
  })
}

/**
 * A long short-term memory (Hochreiter, Schmidhuber 1997, with the forget gate of Gers et al. 2000, as in torch):
 *
 *     i, f, o = σ(x W + b + h U + c)   each with its own        g = tanh(x Wg + bg + h Ug + cg)
 *     s' = f s + i g        h' = o tanh(s')
 *
 * The matrices are concatenated in the order i, f, g, o. Its memory is h and s, concatenated.
 */
export function lstmCell(name: string, numInputs: number, units: number): Module {
  return recurrentCell(name, numInputs, units, 'Lstm', 4, 2 * units, (tf, fromInput, fromHidden, _, memory) => {
    const [i, f, g, o] = tf.split(tf.add(fromInput, fromHidden), 4, 1) as [Tensor2D, Tensor2D, Tensor2D, Tensor2D]
    const state = tf.slice(memory, [0, units], [-1, units])
    const kept = tf.mul(tf.sigmoid(f), state)
    const next = tf.add(kept, tf.mul(tf.sigmoid(i), tf.tanh(g))) as Tensor2D
    const h = tf.mul(tf.sigmoid(o), tf.tanh(next)) as Tensor2D
    return { y: h, memory: tf.concat([h, next], 1) }
  })
}

/** One step of a cell, from the gates' parts of input and hidden state. `memory` begins with the hidden state `h`. */
type CellStep = (
  tf: Tf,
  fromInput: Tensor2D,
  fromHidden: Tensor2D,
  h: Tensor2D,
  memory: Tensor2D,
) => { y: Tensor2D; memory: Tensor2D }

function recurrentCell(
  name: string,
  numInputs: number,
  units: number,
  cell: Cell,
  gates: number,
  memoryWidth: number,
  step: CellStep,
): Module {
  return {
    parameters: [
      matrix(`${name}.input.weight`, [numInputs, gates * units], 1),
      { name: `${name}.input.bias`, shape: [gates * units] },
      matrix(`${name}.hidden.weight`, [units, gates * units], 1),
      { name: `${name}.hidden.bias`, shape: [gates * units] },
    ],
    numOutputs: units,
    memoryWidth,
    forward(tf, weights, seen) {
      const { numLanes, length } = seen
      const inputs = layerOf(tf, weights, `${name}.input`, seen.x, 'linear')
      const hiddenWeight = weights(`${name}.hidden.weight`) as Tensor2D
      const hiddenBias = weights(`${name}.hidden.bias`)
      if (hasRecurrence(tf)) {
        const { memory, continues, carried } = seen
        const after = recurrence(tf, cell, inputs, hiddenWeight, hiddenBias, { memory: memory!, continues, carried })
        const last = length === 1 ? after : lastOf(tf, tf.reshape(after, [numLanes, length, memoryWidth]))
        return { y: memoryWidth === units ? after : tf.slice(after, [0, 0], [-1, units]), memory: last }
      }
      const inputsByStep = tf.unstack(tf.reshape(inputs, [numLanes, length, gates * units]), 1) as Tensor2D[]
      const outputs: Tensor2D[] = []
      let after: Tensor2D | null = seen.carried
      for (let t = 0; t < length; t++) {
        const memory = memoryBefore(tf, seen, t, after)
        const h = memoryWidth === units ? memory : tf.slice(memory, [0, 0], [-1, units])
        const fromHidden = tf.add(tf.matMul(h, hiddenWeight), hiddenBias) as Tensor2D
        const done = step(tf, inputsByStep[t]!, fromHidden, h, memory)
        outputs.push(done.y)
        after = done.memory
      }
      const y = length === 1 ? outputs[0]! : (tf.stack(outputs, 1) as Tensor3D)
      return { y: tf.reshape(y, [numLanes * length, units]), memory: after } satisfies Features
    },
  }
}

function lastOf(tf: Tf, byStep: Tensor3D): Tensor2D {
  return tf.squeeze(tf.slice(byStep, [0, byStep.shape[1] - 1, 0], [-1, 1, -1]), [1]) as Tensor2D
}

/** Each lane's memory before step t: that after the previous step, or the recorded one if the step does not continue it. */
function memoryBefore(tf: Tf, { memory, continues }: SeenSteps, t: number, after: Tensor2D | null): Tensor2D {
  const recorded = tf.squeeze(tf.slice(memory!, [0, t, 0], [-1, 1, -1]), [1]) as Tensor2D
  if (after === null || continues === null) return recorded
  const goesOn = tf.slice(continues, [0, t], [-1, 1])
  return tf.add(tf.mul(after, goesOn), tf.mul(recorded, tf.sub(1, goesOn))) as Tensor2D
}
