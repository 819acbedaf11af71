import { describe, expect, test } from 'vitest'
import { sgdStep } from '../../src/kernels/optimizer/sgd.ts'

/** Six steps from zero moments with half of each gradient. */
function run(momentum: number, weightDecay: number) {
  const [weight, moment] = [Float32Array.of(0.5, -1.25, 2, 0), new Float32Array(4)]
  const history = [1, 2, 3, 4, 5, 6].map((s) => {
    const gradient = Float32Array.of(Math.sin(s), Math.sin(2 * s), Math.sin(3 * s), 1e-6 * s)
    sgdStep(weight, moment, gradient, 0.5, 0.01, momentum, weightDecay, 4)
    return weight.slice()
  })
  return { history, moment }
}

describe('sgdStep', () => {
  test.each([
    // w = torch.tensor([0.5, -1.25, 2, 0], requires_grad=True)
    // opt = torch.optim.SGD([w], lr=0.01)
    // for s in range(1, 7):
    //     w.grad = 0.5 * torch.tensor([sin(s), sin(2 * s), sin(3 * s), 1e-6 * s]); opt.step()
    [
      'SGD',
      0,
      0,
      [0.495792657137, -1.25454652309, 1.99929440022, -4.99999996961e-9],
      [0.500516295433, -1.248909235, 2.00181722641, -1.0499999803e-7],
    ],
    // opt = torch.optim.SGD([w], lr=0.01, momentum=0.9)
    [
      'SGD with momentum',
      0.9,
      0,
      [0.495792657137, -1.25454652309, 1.99929440022, -4.99999996961e-9],
      [0.480002731085, -1.25655722618, 2.00017642975, -2.47663933806e-7],
    ],
    // The same, and before each step: with torch.no_grad(): w.mul_(1 - 0.01 * 0.01)
    [
      'SGD with momentum, after a decay as in torch.optim.AdamW',
      0.9,
      0.01,
      [0.49574264884, -1.25442147255, 1.99909436703, -4.99999996961e-9],
      [0.479711174965, -1.25580430031, 1.99897694588, -2.476315899e-7],
    ],
  ])('steps as torch.optim.%s does', (_, momentum, weightDecay, afterOne, afterSix) => {
    const { history, moment } = run(momentum, weightDecay)
    for (let i = 0; i < 4; i++) {
      expect(Math.abs(history[0]![i]! - afterOne[i]!)).toBeLessThan(3e-7)
      expect(Math.abs(history[5]![i]! - afterSix[i]!)).toBeLessThan(8e-7)
    }
    // The last weight begins at 0 and stays near it, and so has six figures of its own.
    expect(Math.abs(history[5]![3]! / afterSix[3]! - 1)).toBeLessThan(1e-5)
    // opt.state[w]['momentum_buffer']
    const buffer = [-0.279555439949, -0.194056391716, -0.199956193566, 8.91484523891e-6]
    if (momentum > 0) buffer.forEach((m, i) => void expect(Math.abs(moment[i]! / m - 1)).toBeLessThan(2e-6))
  })

  test('leaves elements beyond `length` alone, and weights without gradient and decay where they are', () => {
    const [weight, moment] = [Float32Array.of(1, 2), Float32Array.of(0, 5)]
    sgdStep(weight, moment, Float32Array.of(0, 9), 1, 0.1, 0.9, 0, 1)
    expect([...weight, ...moment]).toEqual([1, 2, 0, 5])
  })
})
