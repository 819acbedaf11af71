import { describe, expect, test } from 'vitest'
import { rmspropStep } from '../../src/kernels/optimizer/rmsprop.ts'

/** Six steps from zero moments with half of each gradient; the last gradient is small beside epsilon. */
function run(momentum: number, weightDecay: number) {
  const weight = Float32Array.of(0.5, -1.25, 2, 0)
  const [moment, squareMoment] = [new Float32Array(4), new Float32Array(4)]
  const history = [1, 2, 3, 4, 5, 6].map((s) => {
    const gradient = Float32Array.of(Math.sin(s), Math.sin(2 * s), Math.sin(3 * s), 1e-6 * s)
    rmspropStep(weight, moment, squareMoment, gradient, 0.5, 0.01, 0.99, momentum, 1e-5, weightDecay, 4)
    return weight.slice()
  })
  return { history, moment, squareMoment }
}

describe('rmspropStep', () => {
  test.each([
    // w = torch.tensor([0.5, -1.25, 2, 0], requires_grad=True)
    // opt = torch.optim.RMSprop([w], lr=0.01, alpha=0.99, eps=1e-5)
    // for s in range(1, 7):
    //     w.grad = 0.5 * torch.tensor([sin(s), sin(2 * s), sin(3 * s), 1e-6 * s]); opt.step()
    [
      'RMSprop',
      0,
      0,
      [0.400023758411, -1.34997797012, 1.90014147758, -0.000497512402944],
      [0.438912123442, -1.26188468933, 1.97666025162, -0.0101810134947],
    ],
    // opt = torch.optim.RMSprop([w], lr=0.01, alpha=0.99, eps=1e-5, momentum=0.9)
    [
      'RMSprop with momentum',
      0.9,
      0,
      [0.400023758411, -1.34997797012, 1.90014147758, -0.000497512461152],
      [-0.0455882623792, -1.45423650742, 1.7544631958, -0.0241660382599],
    ],
    // The same, and before each step: with torch.no_grad(): w.mul_(1 - 0.01 * 0.01)
    [
      'RMSprop with momentum, after a decay as in torch.optim.AdamW',
      0.9,
      0.01,
      [0.399973750114, -1.34985291958, 1.8999414444, -0.000497512461152],
      [-0.0457045920193, -1.45341110229, 1.7533441782, -0.0241628568619],
    ],
  ])('steps as torch.optim.%s does', (_, momentum, weightDecay, afterOne, afterSix) => {
    const { history, moment, squareMoment } = run(momentum, weightDecay)
    for (let i = 0; i < 4; i++) {
      expect(Math.abs(history[0]![i]! - afterOne[i]!)).toBeLessThan(3e-7)
      expect(Math.abs(history[5]![i]! - afterSix[i]!)).toBeLessThan(2e-6)
    }
    // opt.state[w]['square_avg']; opt.state[w]['momentum_buffer']
    const squares = [0.00759175373241, 0.00738123990595, 0.00380885275081, 2.24894159285e-13]
    const buffer = [0.725446939468, -0.948766469955, -0.134897708893, 0.862712144852]
    squares.forEach((v, i) => void expect(Math.abs(squareMoment[i]! / v - 1)).toBeLessThan(2e-6))
    if (momentum > 0) buffer.forEach((m, i) => void expect(Math.abs(moment[i]! / m - 1)).toBeLessThan(2e-5))
  })

  test('leaves elements beyond `length` alone, and weights without gradient and decay where they are', () => {
    const [weight, moment, squareMoment] = [Float32Array.of(1, 2), Float32Array.of(0, 5), Float32Array.of(0, 6)]
    rmspropStep(weight, moment, squareMoment, Float32Array.of(0, 9), 1, 0.1, 0.99, 0.9, 1e-5, 0, 1)
    expect([...weight, ...moment, ...squareMoment]).toEqual([1, 2, 0, 5, 0, 6])
  })
})
