/**
 * A loss of one's own, traced: the operations that make it and its derivatives, in order, over registers of a few hundred
 * rows. A program goes to other threads as it is; the function that it was made of stays at home. Running a program
 * allocates nothing: each operation is one loop over a register.
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

/** The operations of a loss and of its derivatives; made by `traceLoss`. The derivative by a column is `d` and the column's name. */
export type LossProgram = ExpressionProgram

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
  const program = programOf(wanted)
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
