/**
 * Muon (Jordan 2024): the momentum of a matrix, made nearly orthogonal by five steps of Newton and Schulz's iteration. As in Liu et al.
 * (2025, "Muon is scalable for LLM training") and PyTorch's `match_rms_adamw`, a step is scaled to the length of an
 * Adam step, so the learning rates and weight decay of Adam apply. Embeddings, the head, norms and biases are trained by Adam.
 */
import { MATMUL_SCRATCH } from '../../kernels/bind.ts'
import { sizeOf } from '../../language/transformer/parameters.ts'
import type { Parameter } from '../../policies/policy.ts'
import { adam } from './adam.ts'
import { defineOptimizer, type TensorStep } from './define-optimizer.ts'

/** The polynomial a x + b x³ + c x⁵, and its number of steps. */
const [A, B, C] = [3.4445, -4.775, 2.0315]
const STEPS = 5
const MOMENTUM = 0.95
const LEAST_NORM = 1e-7
const step = adam().step

/** Matrices in layers, an adapter's too. */
function isHidden({ name, shape }: Parameter): boolean {
  return shape.length === 2 && name.includes('.layers.')
}

export const muon = defineOptimizer({
  id: 'muon',
  takes: ['momentum', 'beta1', 'beta2'],
  powersOf: ['beta1', 'beta2'],
  moments(parameter) {
    const size = sizeOf(parameter)
    return isHidden(parameter) ? [size, 0] : [size, size]
  },
  workspace(parameter) {
    if (!isHidden(parameter)) return 0
    const [rows, columns] = parameter.shape as [number, number]
    return 2 * rows * columns + 2 * Math.min(rows, columns) ** 2 + MATMUL_SCRATCH
  },
  step(given) {
    if (isHidden(given.parameter)) stepMatrix(given)
    else step(given)
  },
})

function stepMatrix(given: TensorStep): void {
  const { weights, moment, gradient, gradientScale, learningRate, settings, length, parameter, workspace } = given
  const [rows, columns] = parameter.shape as [number, number]
  const keep = settings.momentum === 0 ? MOMENTUM : settings.momentum
  const side = Math.min(rows, columns)
  let at = 0
  const take = (size: number) => {
    at += size
    return workspace.subarray(at - size, at)
  }
  const [x, next, square, fourth] = [take(length), take(length), take(side * side), take(side * side)]
  const scratch = take(MATMUL_SCRATCH)
  let squares = 0
  for (let i = 0; i < length; i++) {
    const g = gradient[i]! * gradientScale
    const m = moment[i]! + (1 - keep) * (g - moment[i]!)
    moment[i] = m
    x[i] = g + keep * (m - g) // Nesterov's.
    squares += x[i]! * x[i]!
  }
  const perNorm = 1 / Math.max(Math.sqrt(squares), LEAST_NORM)
  for (let i = 0; i < length; i++) x[i] = x[i]! * perNorm
  orthogonalize(given.kernels, { x, next, square, fourth, scratch }, rows, columns)
  const rate = learningRate * 0.2 * Math.sqrt(Math.max(rows, columns))
  const shrink = 1 - learningRate * settings.weightDecay
  for (let i = 0; i < length; i++) weights[i] = weights[i]! * shrink - rate * x[i]!
}

/** Five times X = a X + (b S + c S²) X with S = X Xᵀ, on the shorter side. */
function orthogonalize(
  { matmul }: TensorStep['kernels'],
  { x, next, square, fourth, scratch }: Readonly<Record<'x' | 'next' | 'square' | 'fourth' | 'scratch', Float32Array>>,
  rows: number,
  columns: number,
): void {
  const none = x.subarray(0, 0)
  const isWide = rows <= columns
  const side = Math.min(rows, columns)
  for (let i = 0; i < STEPS; i++) {
    matmul(square, x, x, none, scratch, side, side, Math.max(rows, columns), !isWide, isWide, false)
    matmul(fourth, square, square, none, scratch, side, side, side, false, false, false)
    for (let j = 0; j < square.length; j++) square[j] = B * square[j]! + C * fourth[j]!
    for (let j = 0; j < x.length; j++) next[j] = A * x[j]!
    if (isWide) matmul(next, square, x, none, scratch, rows, columns, rows, false, false, true)
    else matmul(next, x, square, none, scratch, rows, columns, columns, false, false, true)
    x.set(next)
  }
}
