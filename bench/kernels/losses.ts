/** PPO's loss as an expression beside its kernel, over one block of rows: results are compared, then both are timed in turns. */
import { rowLoss } from '../../src/entries/algorithms.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { check, type Figure, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'
import type { Columns } from './columns.ts'
import { ppoExpression } from './expressions.ts'
import { TwinNumbers } from './network.ts'

const ROWS = 256
const CALLS = 200

export async function lossFigures(
  bodies: readonly (readonly [KernelBuild, Kernels])[],
  columns: Columns,
): Promise<Figure[]> {
  const numbers = new TwinNumbers()
  const floats = (low: number, high: number) => {
    const column = columns.floats(ROWS)
    numbers.fill(column, low, high)
    return column
  }
  const evaluated = { logprob: floats(-1, 0), entropy: floats(0, 1), value: floats(-1, 1) }
  const recorded = {
    logprob: floats(-1, 0),
    value: floats(-1, 1),
    advantage: floats(-2, 2),
    return: floats(-1, 1),
  }
  const derivatives = { dLogprob: floats(0, 1), dEntropy: floats(0, 1), dValue: floats(0, 1) }
  const sums = columns.doubles(5)
  const minibatch = { advantageMean: 0.1, advantageScale: 0.8, weight: 1 / ROWS }
  const coefficients = { clipCoef: 0.2, entropyCoef: 0.01, valueCoef: 0.5 }
  const clipped = { ...minibatch, ...coefficients, clipValue: Number.POSITIVE_INFINITY }
  const metrics = ['policyLoss', 'valueLoss', 'entropy', 'approxKl', 'clipFraction']
  const loss = rowLoss<never>((given) => ppoExpression(given, { ...coefficients, clipValue: null }))
  const [, plain] = bodies[0]!
  const own = loss({} as never, plain, { id: 'expression', metrics })
  const calls = Object.fromEntries([
    ['expression', () => own.ofRows(derivatives, sums, evaluated, recorded, minibatch, ROWS, 0, 0)],
    ...bodies.map(([build, kernels]) => [
      build,
      () => kernels.ppoLoss(derivatives, sums, evaluated, recorded, clipped, ROWS, 0, 0),
    ]),
  ]) as Readonly<Record<string, () => void>>
  let wanted: number[] = []
  for (const [name, call] of Object.entries(calls)) {
    sums.fill(0)
    call()
    const got = [...Object.values(derivatives).flatMap((column) => [...column]), ...sums]
    if (name === 'expression') wanted = got
    got.forEach((value, i) => {
      check(Math.abs(value - wanted[i]!) < 1e-4 * Math.max(1, Math.abs(wanted[i]!)), `${name}: number ${i} is ${value}`)
    })
  }
  const runners = Object.entries(calls).map(([name, call]) => {
    const run = () =>
      secondsOf(() => {
        for (let i = 0; i < CALLS; i++) call()
      })
    for (let i = 0; i < 20; i++) run()
    return [name, run] as const
  })
  const seconds = await interleave(Object.fromEntries(runners), { repeats: 15 })
  const { expression, ...kernels } = seconds
  const million = rates((ROWS * CALLS) / 1e6, expression!)
  const ratios = Object.entries(kernels).map(([build, taken]) => ratio(`the kernel, ${build}`, taken, expression!))
  return [{ ...figure(`PPO's loss as an expression, ${ROWS} rows`, 'M rows/s', million), ratios }]
}
