import { describe, expect, test } from 'vitest'
import { type LossColumns, LossRun, traceLoss } from '../../src/algorithms/losses/loss-program.ts'
import { columnOf, type Expression, expressionOf, where } from '../../src/base/expressions/expression.ts'
import * as fc from '../support/properties.ts'

const names = ['x', 'y', 'given'] as const
type Name = (typeof names)[number]
type Rows = Readonly<Record<Name, readonly number[]>>

const shape = { columns: names, differentiable: ['x', 'y'], results: [], hasSequences: true } as const

/** What a program gives for rows that form sequences with these ends. */
function run(loss: (columns: LossColumns<Name>) => Expression, rows: Rows, ends = [rows.x.length]) {
  const count = rows.x.length
  const program = new LossRun(traceLoss<Name>('test', loss, shape))
  for (const name of names) program.column(name, count)?.set(rows[name])
  program.run(count, Int32Array.from(ends), ends.length)
  const result = (name: string) => Array.from(program.result(name)!.subarray(0, count))
  return { loss: result('loss'), x: result('dX'), y: result('dY') }
}

/** One row. */
function at(loss: (columns: LossColumns<Name>) => Expression, x: number, y = 0) {
  const { loss: values, x: byX, y: byY } = run(loss, { x: [x], y: [y], given: [0] })
  return [values[0], byX[0], byY[0]]
}

/** Once more, node by node: a number for each row. */
function valuesOf(node: Expression, rows: Rows, ends: readonly number[]): number[] {
  const count = rows.x.length
  const [a, b, c] = node.operands.map((operand) => valuesOf(operand, rows, ends)) as [number[], number[], number[]]
  const [low, high] = node.numbers as [number, number]
  const each = (of: (i: number) => number) => Array.from({ length: count }, (_, i) => of(i))
  switch (node.operation) {
    case 'constant':
      return each(() => node.numbers[0]!)
    case 'column':
      return [...rows[node.name as Name]]
    case 'add':
      return each((i) => a[i]! + b[i]!)
    case 'subtract':
      return each((i) => a[i]! - b[i]!)
    case 'multiply':
      return each((i) => a[i]! * b[i]!)
    case 'divide':
      return each((i) => a[i]! / b[i]!)
    case 'negate':
      return each((i) => -a[i]!)
    case 'exp':
      return a.map(Math.exp)
    case 'log':
      return a.map(Math.log)
    case 'sqrt':
      return a.map(Math.sqrt)
    case 'sin':
      return a.map(Math.sin)
    case 'cos':
      return a.map(Math.cos)
    case 'floor':
      return a.map(Math.floor)
    case 'tanh':
      return a.map(Math.tanh)
    case 'sigmoid':
      return a.map((value) => 1 / (1 + Math.exp(-value)))
    case 'abs':
      return a.map(Math.abs)
    case 'min':
      return each((i) => Math.min(a[i]!, b[i]!))
    case 'max':
      return each((i) => Math.max(a[i]!, b[i]!))
    case 'clip':
      return a.map((value) => Math.min(Math.max(value, low), high))
    case 'greater':
      return each((i) => (a[i]! > b[i]! ? 1 : 0))
    case 'less':
      return each((i) => (a[i]! < b[i]! ? 1 : 0))
    case 'equal':
      return each((i) => (a[i] === b[i] ? 1 : 0))
    case 'where':
      return each((i) => (a[i] ? b[i]! : c[i]!))
    case 'sequenceSum':
      return each((i) => {
        const s = ends.findIndex((end) => i < end)
        return a.slice(s === 0 ? 0 : ends[s - 1]!, ends[s]).reduce((sum, value) => sum + value, 0)
      })
    default:
      throw new Error(node.operation)
  }
}

/**
 * Numbers of a grid that no other grid shares: what is compared is equal, or further apart than difference quotients reach, so
 * that no two kinks hide each other.
 */
const onGrid = (min: number, max: number, perUnit: number, offset: number) =>
  fc.integer({ min, max }).map((place) => place / perUnit + offset)

/** Expressions of some depth whose logarithms, roots and quotients are far from where they have none. */
const { expression: expressions } = fc.letrec<{ expression: Expression }>((tie) => {
  const one = (of: (a: Expression) => Expression) => tie('expression').map(of)
  const two = (of: (a: Expression, b: Expression) => Expression) =>
    fc.tuple(tie('expression'), tie('expression')).map(([a, b]) => of(a, b))
  return {
    expression: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      fc.oneof(fc.constantFrom<Name>('x', 'y', 'given').map(columnOf), onGrid(-64, 64, 32, 0.0103).map(expressionOf)),
      two((a, b) => a.plus(b)),
      two((a, b) => a.minus(b)),
      two((a, b) => a.times(b)),
      two((a, b) => a.over(b.square().plus(0.5))),
      two((a, b) => a.min(b)),
      two((a, b) => a.max(b)),
      two((a, b) => where(a.greaterThan(b), a.times(b), b.square())),
      two((a, b) => where(a.lessThan(0.3), b, 1)),
      one((a) => a.negative()),
      one((a) => a.tanh().exp()),
      one((a) => a.square().plus(0.3).log()),
      one((a) => a.square().plus(0.3).sqrt()),
      one((a) => a.sigmoid()),
      one((a) => a.sin()),
      one((a) => a.cos()),
      one((a) => a.abs()),
      one((a) => a.clip(-0.5, 0.7)),
      one((a) => a.sumOfSequence()),
    ),
  }
})

const numbers = (count: number, offset: number) =>
  fc.array(onGrid(-64, 64, 64, offset), { minLength: count, maxLength: count })
const cases = fc
  .record({ expression: expressions, length: fc.integer({ min: 1, max: 5 }), cut: fc.nat(5) })
  .chain(({ expression, length, cut }) =>
    fc
      .record({ x: numbers(length, 0.0013), y: numbers(length, 0.0041), given: numbers(length, 0.0067) })
      .map((rows) => {
        const ends = [...new Set([Math.min(cut + 1, length), length])]
        return { expression, rows, ends }
      }),
  )

describe('a loss as an expression', () => {
  test('is what its nodes say one by one, and its derivatives are difference quotients', () => {
    const H = 1e-6
    let compared = 0
    fc.assert(
      fc.property(cases, ({ expression, rows, ends }) => {
        const got = run(() => expression, rows, ends)
        const total = (at: Rows) => valuesOf(expression, at, ends).reduce((sum, value) => sum + value, 0)
        const size = Math.max(1, ...valuesOf(expression, rows, ends).map(Math.abs))
        fc.pre(size < 1e3)
        valuesOf(expression, rows, ends).forEach((value, i) => {
          expect(Math.abs(got.loss[i]! - value)).toBeLessThanOrEqual(1e-12 * size)
        })
        for (const name of ['x', 'y'] as const) {
          for (let i = 0; i < rows.x.length; i++) {
            const along = (move: number) => total({ ...rows, [name]: rows[name].with(i, rows[name][i]! + move) })
            const [left, right] = [(total(rows) - along(-H)) / H, (along(H) - total(rows)) / H]
            if (Math.abs(left - right) > 1e-3 * Math.max(1, Math.abs(left))) continue // At a kink.
            compared++
            const middle = (left + right) / 2
            const tolerance = 1e-5 * Math.max(size, Math.abs(middle)) + Math.abs(left - right)
            expect(Math.abs(got[name][i]! - middle)).toBeLessThanOrEqual(tolerance)
          }
        }
      }),
      { numRuns: 500 },
    )
    expect(compared).toBeGreaterThan(600)
  })

  // x = torch.tensor(…, requires_grad=True); f(x).backward(); f(x), x.grad
  test.each<[string, (columns: LossColumns<Name>) => Expression, number, number, number]>([
    ['clip at its upper bound', ({ x }) => x.clip(-1, 2), 2, 2, 1],
    ['clip at its lower bound', ({ x }) => x.clip(-1, 2), -1, -1, 1],
    ['clip beyond its bound', ({ x }) => x.clip(-1, 2), 2.5, 2, 0],
    ['abs at 0', ({ x }) => x.abs(), 0, 0, 0],
    ['abs below 0', ({ x }) => x.abs(), -3, 3, -1],
  ])('%s has the derivative that torch gives', (_, loss, x, value, derivative) => {
    expect(at(loss, x).slice(0, 2)).toEqual([value, derivative])
  })

  test('min and max have the derivative of their first argument at a tie', () => {
    expect(at(({ x, y }) => x.min(y), 2, 2)).toEqual([2, 1, 0])
    expect(at(({ x, y }) => y.min(x), 2, 2)).toEqual([2, 0, 1])
    expect(at(({ x, y }) => x.times(3).max(y.times(3)), 2, 2)).toEqual([6, 3, 0])
    expect(at(({ x, y }) => y.max(x), 2, 2)).toEqual([2, 0, 1])
  })

  test('where takes the derivative of the chosen side, though the other has none', () => {
    const loss = ({ x }: LossColumns<Name>) => where(x.greaterThan(0), x.sqrt(), x.times(2))
    expect(at(loss, 4)).toEqual([2, 0.25, 0])
    expect(at(loss, -4)).toEqual([-8, 2, 0])
  })

  test('detach keeps the number and drops the derivative, in a sum too', () => {
    expect(at(({ x }) => x.square().detach().times(x), 3)).toEqual([27, 9, 0])
    const rows = { x: [1, 2, 4], y: [0, 0, 0], given: [0, 0, 0] }
    // Σ x = 3 for the first two rows, which are a sequence, and 4 for the last.
    expect(run(({ x }) => x.sumOfSequence().detach().times(x), rows, [2, 3]).x).toEqual([3, 3, 4])
    expect(run(({ x }) => x.sumOfSequence().times(x), rows, [2, 3]).x).toEqual([6, 6, 8])
  })

  test('computes what is there twice once, and reuses registers', () => {
    const deep = ({ x, y }: LossColumns<Name>) => {
      let sum = x
      for (let i = 0; i < 20; i++) sum = sum.plus(x.times(y).exp()).tanh()
      return sum
    }
    const { steps, numRegisters } = traceLoss<Name>('test', deep, { ...shape, differentiable: [] })
    expect(steps.map(({ operation }) => operation).filter((each) => each === 'exp')).toHaveLength(1)
    expect(steps).toHaveLength(2 + 2 * 20)
    expect(numRegisters).toBeLessThan(6)
    const derived = traceLoss<Name>('test', deep, shape)
    expect(derived.numRegisters).toBeLessThan(derived.steps.length)
  })

  test('says which column there is not, and what is no number', () => {
    const trace = (loss: unknown, given: object = {}) =>
      traceLoss<Name>('own', loss as () => Expression, { ...shape, ...given })
    expect(() => trace(({ xx }: Record<string, Expression>) => xx)).toThrow(/column of own: got "xx".*did you mean "x"/)
    expect(() => trace(({ x }: LossColumns<Name>) => x.plus(undefined as never))).toThrow(
      /operand of an expression: got undefined, expected an expression or a number/,
    )
    expect(() => trace(({ x }: LossColumns<Name>) => x.times(Number.NaN))).toThrow(/operand of an expression: got NaN/)
    expect(() => trace(({ x }: LossColumns<Name>) => x.clip(1, 0))).toThrow(/clip.*got 1, 0, expected two numbers/)
    expect(() => trace(() => 'x')).toThrow(/loss of own: got "x", expected an expression/)
    expect(() => trace(({ x }: LossColumns<Name>) => ({ x }))).toThrow(/result of own: got "x"/)
    expect(() => trace(({ x }: LossColumns<Name>) => ({ loss: x }), { results: ['kl'] })).toThrow(/no kl/)
    expect(() => trace(({ x }: LossColumns<Name>) => x.sumOfSequence(), { hasSequences: false })).toThrow(
      /loss of own: got a sum over a sequence/,
    )
  })
})
