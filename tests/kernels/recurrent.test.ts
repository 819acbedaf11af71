import { describe, expect, test } from 'vitest'
import { gruBackward, gruForward } from '../../src/kernels/recurrent/gru.ts'
import { lstmBackward, lstmForward } from '../../src/kernels/recurrent/lstm.ts'

const sines = (length: number, from: number) => Float32Array.from({ length }, (_, i) => Math.sin(from + 0.7 * i))
const none = new Float32Array(0)
const [units, numInputs] = [2, 3]

const cells = [
  {
    name: 'gru',
    numGates: 3,
    numKept: 4,
    width: units,
    forward: gruForward,
    backward: gruBackward,
    start: [0.3, -0.2],
    // s = lambda n, a: torch.tensor([sin(a + 0.7 * i) for i in range(n)])    torch.nn.GRU(3, 2), in f64
    // weight_ih_l0 = s(18, 1).reshape(3, 6).T    weight_hh_l0 = s(12, 2).reshape(2, 6).T    biases s(6, 3), s(6, 4)
    // m(s(9, 5).reshape(3, 1, 3), [[[0.3, -0.2]]])
    after: [-0.366005084, 0.617778167, -0.068628308, 0.582175799, -0.219526525, 0.150050166],
    // (out * [[1, -2], [0.5, 1.5], [-1, 1]]).sum().backward()    weight_hh_l0.grad.T
    dWeight: [
      ...[0.015690527, -0.05630075, 0.011880173, -0.001793751, 0.094236202, -0.075488721],
      ...[-0.066682735, 0.133779178, -0.041797751, 0.124290724, -0.188713497, 0.216577465],
    ],
    // bias_hh_l0.grad, bias_ih_l0.grad
    dBias: [-0.08922185, 0.186944869, -0.030855452, 0.323066826, 0.011028648, 0.31327466],
    dXSum: [-0.08922185, 0.186944869, -0.030855452, 0.323066826, 0.181457528, 0.795200747],
  },
  {
    name: 'lstm',
    numGates: 4,
    numKept: 5,
    width: 2 * units,
    forward: lstmForward,
    backward: lstmBackward,
    start: [0.3, -0.2, 0.5, -0.4],
    // The same with torch.nn.LSTM(3, 2): weights s(24, 1).reshape(3, 8).T, s(16, 2).reshape(2, 8).T, biases s(8, 3), s(8, 4)
    // m(s(9, 5).reshape(3, 1, 3), ([[[0.3, -0.2]]], [[[0.5, -0.4]]]))
    after: [0.105838303, -0.017848957, 0.034471966, -0.058862226, -0.235751302, 0.079472932],
    dWeight: [
      ...[0.018130929, -0.028851437, 0.005038198, 0.031957273, 0.03317359, 0.048369434, 0.003075044, -0.005518663],
      ...[-0.016604122, 0.013905891, -0.00279387, -0.021117831, -0.005119257, -0.009321401, -0.001671437, 0.000100976],
    ],
    dBias: [
      ...[0.177294646, -0.05467973, 0.018610886, 0.094254555, 0.002337094, 0.482818067, 0.036244612, -0.055994346],
    ],
    dXSum: [0.177294646, -0.05467973, 0.018610886, 0.094254555, 0.002337094, 0.482818067, 0.036244612, -0.055994346],
  },
]

describe.each(cells)('$name', ({ numGates, numKept, width, forward, backward, start, ...theirs }) => {
  const gates = numGates * units
  const [W, b] = [sines(numInputs * gates, 1), sines(gates, 3)]
  const [weight, bias] = [sines(units * gates, 2), sines(gates, 4)]

  /** What the input gives the gates of `numRows` rows. */
  function fromInput(numRows: number): Float32Array {
    const x = sines(numRows * numInputs, 5)
    return Float32Array.from({ length: numRows * gates }, (_, i) => {
      const [row, j] = [Math.floor(i / gates), i % gates]
      return [0, 1, 2].reduce((sum, k) => sum + x[row * numInputs + k]! * W[k * gates + j]!, b[j]!)
    })
  }

  function run(
    recorded: Float32Array,
    continues: Float32Array,
    carried: Float32Array,
    numLanes: number,
    length: number,
  ) {
    const numRows = numLanes * length
    const after = new Float32Array(numRows * width)
    const kept = new Float32Array(numRows * numKept * units)
    const x = fromInput(numRows)
    const starts = { recorded, continues, carried }
    forward(after, kept, x, weight, bias, starts, none, numLanes, length, units)
    const dAfter = new Float32Array(numRows * width)
    for (let i = 0; i < numRows * units; i++) {
      dAfter[Math.floor(i / units) * width + (i % units)] = [1, -2, 0.5, 1.5, -1, 1][i % 6]!
    }
    const [dX, dWeight, dBias] = [new Float32Array(x.length), sines(units * gates, 7), sines(gates, 7)]
    backward(dX, dWeight, dBias, dAfter, after, kept, weight, starts, none, numLanes, length, units)
    const added = (sums: Float32Array) => sums.map((sum, i) => sum - Math.sin(7 + 0.7 * i))
    return { after, dX, dWeight: added(dWeight), dBias: added(dBias) }
  }

  const close = (got: Float32Array, wanted: readonly number[]) => {
    expect(got.length).toBe(wanted.length)
    for (const [i, x] of wanted.entries()) expect(Math.abs(got[i]! - x)).toBeLessThan(2e-7)
  }

  test.each(['recorded', 'carried'])(
    "is torch's, with its gradient, where a sequence begins with what is %s",
    (from) => {
      const recorded = Float32Array.of(...start, ...sines(2 * width, 9))
      const first = from === 'recorded' ? 0 : 1
      if (from === 'carried') recorded.fill(9, 0, width)
      const carried = from === 'carried' ? Float32Array.from(start) : none
      const { after, dX, dWeight, dBias } = run(recorded, Float32Array.of(first, 1, 1), carried, 1, 3)
      const h = Float32Array.from({ length: 6 }, (_, i) => after[Math.floor(i / units) * width + (i % units)]!)
      close(h, theirs.after)
      close(dWeight, theirs.dWeight)
      close(dBias, theirs.dBias)
      const dXSum = new Float32Array(gates)
      for (const [i, d] of dX.entries()) dXSum[i % gates] = dXSum[i % gates]! + d
      close(dXSum, theirs.dXSum)
    },
  )

  test('a row that does not go on begins a sequence of its own: one of six steps is two of three', () => {
    const recorded = sines(6 * width, 9)
    const whole = run(recorded, Float32Array.of(0, 1, 1, 0, 1, 1), none, 1, 6)
    const parts = run(recorded, Float32Array.of(0, 1, 1, 0, 1, 1), none, 2, 3)
    expect(whole).toEqual(parts)
    expect(whole).toEqual(run(recorded, Float32Array.of(1, 1, 1, 1, 1, 1), none, 2, 3))
    const alone = run(recorded, none, none, 1, 6)
    expect(alone.after).toEqual(run(recorded, none, none, 6, 1).after)
    expect(alone.after).not.toEqual(whole.after)
  })
})
