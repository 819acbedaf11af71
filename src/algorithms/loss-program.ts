/**
 * A loss of one's own, traced: the operations that make it and its derivatives, in order, over registers of a few hundred
 * rows. A program is plain data, so it goes to other threads as it is; the function that it was made of stays at home.
 *
 * What is computed twice is computed once, and a register whose number nobody needs any more is used again. Running a
 * program allocates nothing: each operation is one loop over a register.
 */
import { assert, InputError, show, unknownWord } from '../errors.ts'
import {
  columnOf,
  derivativeOf,
  type Expression,
  expressionOf,
  isExpression,
  type Operand,
  type Operation,
} from './expression.ts'

/** One operation: which registers it reads, and which one it writes. */
interface Step {
  readonly operation: Operation
  readonly to: number
  readonly from: readonly number[]
  readonly numbers: readonly number[]
}

/** Operations over registers; made by `traceLoss`. */
export interface LossProgram {
  /** The columns that are read, and the register of each. */
  readonly columns: Readonly<Record<string, number>>
  /** Registers that hold one number in all rows. */
  readonly constants: readonly (readonly [register: number, value: number])[]
  readonly steps: readonly Step[]
  /** The register of each result by its name; of the derivative by a column: `d` and the column's name. */
  readonly results: Readonly<Record<string, number>>
  readonly numRegisters: number
}

/** What a loss is of, by name. */
export type LossColumns<Name extends string> = Readonly<Record<Name, Expression>>

/** What a function of columns gives: the loss of a row, and further figures of it. */
export type LossResult = Expression | (Readonly<Record<string, Operand>> & { readonly loss: Operand })

/** What may go into a loss, and what must come of it. */
export interface LossShape<Name extends string> {
  readonly columns: readonly Name[]
  /** Those by which the loss is differentiated. */
  readonly differentiable: readonly Name[]
  /** Names of further results; they must be there, or may be. */
  readonly results: readonly string[]
  readonly optional?: readonly string[]
  readonly hasSequences: boolean
}

/**
 * Calls the function once, and makes a program of what it gives and of its derivatives.
 * @throws InputError where it asks for another column, or gives no expression, a figure too many or too few, or sums of
 * sequences where there are none.
 */
export function traceLoss<Name extends string>(
  id: string,
  loss: (columns: LossColumns<Name>) => LossResult,
  { columns, differentiable, results, optional = [], hasSequences }: LossShape<Name>,
): LossProgram {
  const leaves = new Map<string, Expression>(columns.map((name) => [name, columnOf(name)]))
  const given = new Proxy({} as LossColumns<Name>, {
    get(_, name) {
      const leaf = leaves.get(String(name))
      if (leaf === undefined) throw unknownWord(`column of ${id}`, String(name), columns)
      return leaf
    },
  })
  const result = loss(given)
  const figures: Readonly<Record<string, Operand>> = isExpression(result) ? { loss: result } : result
  if (typeof figures !== 'object' || figures === null) {
    throw new InputError(`loss of ${id}`, show(figures), 'an expression, or an object of expressions with a loss')
  }
  const names = ['loss', ...results, ...optional]
  for (const name of Object.keys(figures)) if (!names.includes(name)) throw unknownWord(`result of ${id}`, name, names)
  for (const name of ['loss', ...results]) {
    if (!Object.hasOwn(figures, name)) throw new InputError(`loss of ${id}`, `no ${name}`, names.join(', '))
  }
  const wanted = new Map(Object.entries(figures).map(([name, operand]) => [name, expressionOf(operand)]))
  const whole = wanted.get('loss')!
  for (const name of differentiable) wanted.set(derivativeName(name), derivativeOf(whole, name) ?? expressionOf(0))
  const program = compile(wanted)
  if (!hasSequences && program.steps.some(({ operation }) => operation === 'sequenceSum')) {
    throw new InputError(
      `loss of ${id}`,
      'a sum of a sequence',
      'arithmetic of each row: only losses of tokens have sequences',
    )
  }
  return program
}

/** The result that is the derivative of the loss by a column: `dLogprob` of `logprob`. */
export function derivativeName(column: string): string {
  return `d${column[0]!.toUpperCase()}${column.slice(1)}`
}

/** A value of the program, before it has a register. */
interface Value {
  readonly operation: Operation
  readonly from: readonly number[]
  readonly name: string
  readonly numbers: readonly number[]
}

function compile(wanted: ReadonlyMap<string, Expression>): LossProgram {
  const values: Value[] = []
  const results = numberValues(wanted, values)
  return placeValues(values, results)
}

/** Lists what has to be computed, each value once and after its operands. Returns the number of each result. */
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

/** Tells −0 from 0. */
function keyOf(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value)
}

/** Gives each value a register: columns, constants and results one of their own, the others one that is free again. */
function placeValues(values: readonly Value[], results: ReadonlyMap<string, number>): LossProgram {
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
  const steps: Step[] = []
  values.forEach(({ operation, from, name, numbers }, i) => {
    if (!lastUse.has(i) && !isKept.has(i)) return // The 1 of a product that was left out.
    const isGiven = operation === 'column' || operation === 'constant'
    for (const operand of new Set(from)) {
      const { operation: made } = values[operand]!
      if (lastUse.get(operand) !== i || isKept.has(operand) || made === 'column' || made === 'constant') continue
      free.push(place[operand]!)
    }
    // An operation over rows may write where it reads.
    place[i] = (isGiven ? undefined : free.pop()) ?? numRegisters++
    if (operation === 'column') columns[name] = place[i]!
    else if (operation === 'constant') constants.push([place[i]!, numbers[0]!])
    else steps.push({ operation, to: place[i]!, from: from.map((operand) => place[operand]!), numbers })
  })
  const placed = Object.fromEntries([...results].map(([name, value]) => [name, place[value]!]))
  return { columns, constants, steps, results: placed, numRegisters }
}

/** Rows that a program is run over at once: their registers stay in the cache. */
export const PROGRAM_ROWS = 256

/** A program at work: in one thread, over registers of its own. */
export class LossRun {
  readonly #program: LossProgram
  readonly #registers: Float64Array[]
  #rows = 0

  constructor(program: LossProgram) {
    this.#program = program
    this.#registers = Array.from({ length: program.numRegisters }, () => new Float64Array(0))
    this.#makeRoom(PROGRAM_ROWS)
  }

  /** Makes the registers large enough for so many rows: only a sequence longer than all before makes them anew. */
  #makeRoom(rows: number): void {
    if (rows <= this.#rows) return
    this.#rows = rows
    for (let r = 0; r < this.#registers.length; r++) this.#registers[r] = new Float64Array(rows)
    for (const [register, value] of this.#program.constants) this.#registers[register]!.fill(value)
  }

  /** The register of a column, to be filled before `run`; undefined where the loss does not read it. `rows` are to come. */
  column(name: string, rows: number): Float64Array | undefined {
    this.#makeRoom(rows)
    const register = this.#program.columns[name]
    return register === undefined ? undefined : this.#registers[register]
  }

  /** A result of the last `run`; undefined where the loss does not have it. */
  result(name: string): Float64Array | undefined {
    const register = this.#program.results[name]
    return register === undefined ? undefined : this.#registers[register]
  }

  /** Computes rows 0 … count − 1 of the results. Sequence i of `numSequences` ends before row `ends[i]`. */
  run(count: number, ends: Int32Array | null = null, numSequences = 0): void {
    const registers = this.#registers
    for (const { operation, to, from, numbers } of this.#program.steps) {
      const out = registers[to]!
      const a = registers[from[0]!]!
      if (operation === 'sequenceSum') sumSequences(out, a, ends!, numSequences)
      else compute(operation, out, a, registers[from[1] ?? 0]!, registers[from[2] ?? 0]!, numbers, count)
    }
  }
}

function sumSequences(out: Float64Array, a: Float64Array, ends: Int32Array, numSequences: number): void {
  let from = 0
  for (let i = 0; i < numSequences; i++) {
    let sum = 0
    for (let row = from; row < ends[i]!; row++) sum += a[row]!
    out.fill(sum, from, ends[i])
    from = ends[i]!
  }
}

function compute(
  operation: Operation,
  out: Float64Array,
  a: Float64Array,
  b: Float64Array,
  c: Float64Array,
  numbers: readonly number[],
  count: number,
): void {
  switch (operation) {
    case 'add':
      for (let i = 0; i < count; i++) out[i] = a[i]! + b[i]!
      return
    case 'subtract':
      for (let i = 0; i < count; i++) out[i] = a[i]! - b[i]!
      return
    case 'multiply':
      for (let i = 0; i < count; i++) out[i] = a[i]! * b[i]!
      return
    case 'divide':
      for (let i = 0; i < count; i++) out[i] = a[i]! / b[i]!
      return
    case 'negate':
      for (let i = 0; i < count; i++) out[i] = -a[i]!
      return
    case 'exp':
      for (let i = 0; i < count; i++) out[i] = Math.exp(a[i]!)
      return
    case 'log':
      for (let i = 0; i < count; i++) out[i] = Math.log(a[i]!)
      return
    case 'sqrt':
      for (let i = 0; i < count; i++) out[i] = Math.sqrt(a[i]!)
      return
    case 'tanh':
      for (let i = 0; i < count; i++) out[i] = Math.tanh(a[i]!)
      return
    case 'sigmoid':
      for (let i = 0; i < count; i++) out[i] = 1 / (1 + Math.exp(-a[i]!))
      return
    case 'abs':
      for (let i = 0; i < count; i++) out[i] = Math.abs(a[i]!)
      return
    case 'min':
      for (let i = 0; i < count; i++) out[i] = Math.min(a[i]!, b[i]!)
      return
    case 'max':
      for (let i = 0; i < count; i++) out[i] = Math.max(a[i]!, b[i]!)
      return
    case 'clip':
      for (let i = 0; i < count; i++) out[i] = Math.min(Math.max(a[i]!, numbers[0]!), numbers[1]!)
      return
    case 'within':
      for (let i = 0; i < count; i++) out[i] = a[i]! >= numbers[0]! && a[i]! <= numbers[1]! ? 1 : 0
      return
    case 'greater':
      for (let i = 0; i < count; i++) out[i] = a[i]! > b[i]! ? 1 : 0
      return
    case 'less':
      for (let i = 0; i < count; i++) out[i] = a[i]! < b[i]! ? 1 : 0
      return
    case 'equal':
      for (let i = 0; i < count; i++) out[i] = a[i] === b[i] ? 1 : 0
      return
    case 'where':
      for (let i = 0; i < count; i++) out[i] = a[i] !== 0 ? b[i]! : c[i]!
      return
    default:
      assert(false, `${operation} is no operation of a program`)
  }
}
