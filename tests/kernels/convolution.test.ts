import { describe, expect, test } from 'vitest'
import {
  convolutionBackwardInput,
  convolutionBackwardWeights,
  convolutionForward,
  type ImageFilters,
} from '../../src/kernels/convolution/convolution.ts'

const sines = (length: number, from: number) => Float32Array.from({ length }, (_, i) => Math.sin(from + 0.7 * i))
const none = new Float32Array(0)
/** Σ values[i] · sin(from + 0.7 i), in which an element in another place would show. */
const sumOf = (values: Float32Array, from: number) =>
  values.reduce((sum, x, i) => sum + x * Math.sin(from + 0.7 * i), 0)

// s = lambda n, a: torch.tensor([sin(a + 0.7 * i) for i in range(n)])    in f64, two images of h × w × c
// x = s(2*h*w*c, 1).reshape(2, h, w, c)    W = s(k*k*c*f, 2).reshape(k, k, c, f)    b = s(f, 3)    before, after = (k - 1) // 2, k // 2
// y = relu(conv2d(pad(x.permute(0, 3, 1, 2), (before, after) * 2), W.permute(3, 2, 0, 1), b).permute(0, 2, 3, 1))
// (y * s(y.numel(), 4).reshape(y.shape)).sum().backward()
const cases = [
  {
    image: { height: 3, width: 4, channels: 2, filters: 3, kernelSize: 3 },
    y: [0.288258256, 0, 0, 0.703678091, 0, 0, 1.23816593, 0],
    ySum: 7.9673922967091535, // y.sum()
    dWeight: [0.913378617, 0, 0.906169294, 1.68418202, 0, 0.68279708], // W.grad.flatten()[:6]
    dWeightSum: 0.4825340504180926, // (W.grad.flatten() * s(W.numel(), 5)).sum()
    dBias: [0.920351055, 0, 0.00989120909], // b.grad
    dXSum: 0.9709824875357191, // (x.grad.flatten() * s(x.numel(), 6)).sum()
  },
  {
    image: { height: 4, width: 3, channels: 3, filters: 2, kernelSize: 2 },
    y: [0, 0, 0, 0, 0.290043755, 0.39147212, 0, 0],
    ySum: 6.116072751630164,
    dWeight: [0.0640594654, 0.0230598137, 0.0778653744, 0.0162250053, 0.0550499811, 0.0017593235],
    dWeightSum: 1.148794934907232,
    dBias: [-0.0393967745, -0.0192005808],
    dXSum: -0.8637745791174771,
  },
  {
    image: { height: 3, width: 3, channels: 1, filters: 5, kernelSize: 4 },
    y: [0.373624263, 0.363944189, 0.183095477, 0, 0, 0.313232752, 0, 0],
    ySum: 9.824847209456307,
    dWeight: [-1.08641541, -0.181027247, 0, 0, 0, -2.00264467],
    dWeightSum: 5.687541637210984,
    dBias: [0.749624874, -2.21178972, -1.48950151, 0, -1.99423405],
    dXSum: -6.579483601037845,
  },
] satisfies { image: ImageFilters; [name: string]: unknown }[]

describe.each(cases)('$image', ({ image, ...theirs }) => {
  const { height, width, channels, filters, kernelSize } = image
  const numRows = 2
  const [numInputs, numOutputs] = [numRows * height * width * channels, numRows * height * width * filters]
  const [x, weight, bias] = [sines(numInputs, 1), sines(kernelSize ** 2 * channels * filters, 2), sines(filters, 3)]
  const near = (got: number, wanted: number) => expect(Math.abs(got - wanted)).toBeLessThan(2e-6)
  const y = new Float32Array(numOutputs)
  convolutionForward(y, x, weight, bias, none, image, numRows, 0)
  /** Gradients by the sums before the relu. */
  const dy = sines(numOutputs, 4).map((d, i) => (y[i]! > 0 ? d : 0))

  test("is torch's, from whichever row", () => {
    for (const [i, wanted] of theirs.y.entries()) near(y[i]!, wanted)
    near(
      y.reduce((sum, value) => sum + value, 0),
      theirs.ySum,
    )
    const second = new Float32Array(numOutputs / 2)
    convolutionForward(second, x, weight, bias, none, image, 1, 1)
    expect(second).toEqual(y.slice(numOutputs / 2))
  })

  test("adds torch's gradients to those of weights and biases", () => {
    const [dWeight, dBias] = [sines(weight.length, 7), sines(filters, 8)]
    convolutionBackwardWeights(dWeight, dBias, dy, x, none, image, numRows, 0)
    const added = dWeight.map((d, i) => d - Math.sin(7 + 0.7 * i))
    for (const [i, wanted] of theirs.dWeight.entries()) near(added[i]!, wanted)
    near(sumOf(added, 5), theirs.dWeightSum)
    for (const [f, wanted] of theirs.dBias.entries()) near(dBias[f]! - Math.sin(8 + 0.7 * f), wanted)
  })

  test("gives torch's gradient by the images, and 0 where the relu below them was", () => {
    const dx = sines(numInputs, 9)
    convolutionBackwardInput(dx, dy, weight, none, new Float32Array(numInputs).fill(1), image, numRows)
    near(sumOf(dx, 6), theirs.dXSum)
    const below = sines(numInputs, 11).map((value) => Math.max(0, value))
    const masked = new Float32Array(numInputs)
    convolutionBackwardInput(masked, dy, weight, none, below, image, numRows)
    expect(masked).toEqual(dx.map((d, i) => (below[i]! > 0 ? d : 0)))
  })
})
