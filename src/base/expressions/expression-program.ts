/** Compiles expressions to operations over registers. Equal subexpressions are computed once; registers are reused. */
import type { Expression, Operation } from './expression.ts'

/** One operation, with the registers it reads and writes. */
export interface ProgramStep {
  readonly operation: Operation
  readonly to: number
  readonly from: readonly number[]
  readonly numbers: readonly number[]
}

/** Operations over registers; made by `programOf`. */
export interface ExpressionProgram {
  /** The input columns, and the register of each. */
  readonly columns: Readonly<Record<string, number>>
  /** Registers with the same number in all rows. */
  readonly constants: readonly (readonly [register: number, value: number])[]
  readonly steps: readonly ProgramStep[]
  /** The register of each result, by name. */
  readonly results: Readonly<Record<string, number>>
  readonly numRegisters: number
}

/** A value that has no register yet. */
interface Value {
  readonly operation: Operation
  readonly from: readonly number[]
  readonly name: string
  readonly numbers: readonly number[]
}

/** Compiles expressions to a program with one named result each. */
export function programOf(wanted: ReadonlyMap<string, Expression>): ExpressionProgram {
  const values: Value[] = []
  const results = numberValues(wanted, values)
  return placeValues(values, results)
}

/** Lists the values to compute, each once and after its operands. Returns the index of each result. */
function numberValues(wanted: ReadonlyMap<string, Expression>, values: Value[]): Map<string, number> {
  const byKey = new Map<string, number>()
  const known = new Map<Expression, number>()
  const enter = (value: Value): number => {
    const key = [value.operation, value.name, value.numbers.map(keyOf), value.from].join(' ')
    const found = byKey.get(key)
    if (found !== undefined) return found
    byKey.set(key, values.length)
    return values.push(value) - 1
  }
  const isOne = (value: number) => values[value]!.operation === 'constant' && values[value]!.numbers[0] === 1
  const visit = (node: Expression): number => {
    const found = known.get(node)
    if (found !== undefined) return found
    const from = node.operands.map(visit)
    let value: number
    if (node.operation === 'detach') value = from[0]!
    else if (node.operation === 'multiply' && isOne(from[0]!)) value = from[1]!
    else if ((node.operation === 'multiply' || node.operation === 'divide') && isOne(from[1]!)) value = from[0]!
    else value = enter({ operation: node.operation, from, name: node.name, numbers: node.numbers })
    known.set(node, value)
    return value
  }
  return new Map([...wanted].map(([name, expression]) => [name, visit(expression)]))
}

/** Distinguishes −0 from 0. */
function keyOf(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value)
}

/** Assigns registers: columns, constants and results have their own, other values reuse free ones. */
function placeValues(values: readonly Value[], results: ReadonlyMap<string, number>): ExpressionProgram {
  const lastUse = new Map<number, number>()
  values.forEach(({ from }, i) => {
    for (const operand of from) lastUse.set(operand, i)
  })
  const isKept = new Set(results.values())
  const free: number[] = []
  const place: number[] = []
  let numRegisters = 0
  const columns: Record<string, number> = {}
  const constants: (readonly [number, number])[] = []
  const steps: ProgramStep[] = []
  values.forEach(({ operation, from, name, numbers }, i) => {
    if (!lastUse.has(i) && !isKept.has(i)) return // The 1 of a product that was left out.
    const isGiven = operation === 'column' || operation === 'constant'
    for (const operand of new Set(from)) {
      const { operation: made } = values[operand]!
      if (lastUse.get(operand) !== i || isKept.has(operand) || made === 'column' || made === 'constant') continue
      free.push(place[operand]!)
    }
    // A row-wise operation may write where it reads.
    place[i] = (isGiven ? undefined : free.pop()) ?? numRegisters++
    if (operation === 'column') columns[name] = place[i]!
    else if (operation === 'constant') constants.push([place[i]!, numbers[0]!])
    else steps.push({ operation, to: place[i]!, from: from.map((operand) => place[operand]!), numbers })
  })
  const placed = Object.fromEntries([...results].map(([name, value]) => [name, place[value]!]))
  return { columns, constants, steps, results: placed, numRegisters }
}
