/**
 * A traced custom loss: its operations and those of its derivatives, in order, over registers of a few hundred rows. A program can be
 * sent to other threads; its source function cannot. Running a program allocates nothing: each operation is one loop over a register.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { computeStep } from '../../base/expressions/compute.ts'
import {
  columnOf,
  derivativeOf,
  type Expression,
  expressionOf,
  isExpression,
  type Operand,
} from '../../base/expressions/expression.ts'
import { type ExpressionProgram, programOf } from '../../base/expressions/expression-program.ts'

/** The operations of a loss and its derivatives, created by `traceLoss`. The derivative by a column is named `d` plus the column's name. */
export type LossProgram = ExpressionProgram

export type LossColumns<Name extends string> = Readonly<Record<Name, Expression>>

/** The result of a loss function: the loss of a row, and optional further values. */
export type LossResult = Expression | (Readonly<Record<string, Operand>> & { readonly loss: Operand })

/** The permitted inputs and results of a loss. */
export interface LossShape<Name extends string> {
  readonly columns: readonly Name[]
  readonly differentiable: readonly Name[]
  /** Names of further results, and whether they are required. */
  readonly results: readonly string[]
  readonly optional?: readonly string[]
  readonly hasSequences: boolean
}

/**
 * Calls the function once and traces its results and derivatives into a program.
 * @throws InputError for an unknown column, a result that is not an expression, missing or unknown results, and sums over sequences if
 * rows have no sequences.
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
  const program = programOf(wanted)
  if (!hasSequences && program.steps.some(({ operation }) => operation === 'sequenceSum')) {
    const expected = 'arithmetic per row: only token losses have sequences'
    throw new InputError(`loss of ${id}`, 'a sum over a sequence', expected)
  }
  return program
}

/** Name of the derivative of the loss by a column: `dLogprob` for `logprob`. */
export function derivativeName(column: string): string {
  return `d${column[0]!.toUpperCase()}${column.slice(1)}`
}

/** Rows per run of a program, chosen so that its registers stay in the cache. */
export const PROGRAM_ROWS = 256

/** A program with its registers, for one thread. */
export class LossRun {
  readonly #program: LossProgram
  readonly #registers: Float64Array[]
  #rows = 0

  constructor(program: LossProgram) {
    this.#program = program
    this.#registers = Array.from({ length: program.numRegisters }, () => new Float64Array(0))
    this.#makeRoom(PROGRAM_ROWS)
  }

  /** Grows the registers to this many rows; reallocates only for a sequence longer than all before. */
  #makeRoom(rows: number): void {
    if (rows <= this.#rows) return
    this.#rows = rows
    for (let r = 0; r < this.#registers.length; r++) this.#registers[r] = new Float64Array(rows)
    for (const [register, value] of this.#program.constants) this.#registers[register]!.fill(value)
  }

  /** Returns the register of a column for `rows` rows, to fill before `run`; undefined if the loss does not read it. */
  column(name: string, rows: number): Float64Array | undefined {
    this.#makeRoom(rows)
    const register = this.#program.columns[name]
    return register === undefined ? undefined : this.#registers[register]
  }

  /** Returns a result of the last `run`; undefined if the loss does not have it. */
  result(name: string): Float64Array | undefined {
    const register = this.#program.results[name]
    return register === undefined ? undefined : this.#registers[register]
  }

  /** The sum of a result over the rows of the last `run`; undefined if the loss does not have it. */
  sum(name: string, count: number): number | undefined {
    const result = this.result(name)
    let sum = 0
    for (let i = 0; result !== undefined && i < count; i++) sum += result[i]!
    return result && sum
  }

  /** Computes rows 0 … count − 1 of the results. Sequence i of `numSequences` ends before row `ends[i]`. */
  run(count: number, ends: Int32Array | null = null, numSequences = 0): void {
    const registers = this.#registers
    for (const step of this.#program.steps) {
      if (step.operation !== 'sequenceSum') computeStep(step, registers, count)
      else sumSequences(registers[step.to]!, registers[step.from[0]!]!, ends!, numSequences)
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
