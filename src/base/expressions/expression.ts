/**
 * Arithmetic over columns, for losses and environments' steps. An expression says what to compute for each row; nothing
 * is computed when it is written. Derivatives are expressions too, by forward mode; an expression has no derivative by
 * a column that it does not use. `expression-program.ts` compiles expressions; `algorithms/losses/loss-program.ts` runs
 * losses and derivatives in f64, `kernels/column-loop.ts` runs steps in f32.
 *
 * At a kink one side is taken, as in the hand-written kernels: `min` and `max` take the derivative of their first
 * argument at a tie (torch takes half of each), `clip` passes the derivative at its bounds, and that of `abs` at 0 is 0
 * (both as torch). `where` takes only the chosen side's derivative.
 */
import { InputError, show } from '../errors.ts'

/** Operations; comparisons give 1 or 0. */
export type Operation =
  | 'constant'
  | 'column'
  | 'add'
  | 'subtract'
  | 'multiply'
  | 'divide'
  | 'negate'
  | 'exp'
  | 'log'
  | 'sqrt'
  | 'sin'
  | 'cos'
  | 'floor'
  | 'tanh'
  | 'sigmoid'
  | 'abs'
  | 'min'
  | 'max'
  | 'clip'
  | 'within'
  | 'greater'
  | 'less'
  | 'equal'
  | 'where'
  | 'detach'
  | 'sequenceSum'

/** An expression, or a number for all rows. */
export type Operand = Expression | number

/** A number for each row. Methods make further expressions. Losses are computed in f64, environments' steps in f32. */
export class Expression {
  readonly operation: Operation
  readonly operands: readonly Expression[]
  /** Of a column. */
  readonly name: string
  /** Of a constant, and the bounds of `clip` and `within`. */
  readonly numbers: readonly number[]

  /** Use the columns that a loss or a step receives, and the methods' results. */
  constructor(
    operation: Operation,
    operands: readonly Expression[] = [],
    { name = '', numbers = [] }: { readonly name?: string; readonly numbers?: readonly number[] } = {},
  ) {
    this.operation = operation
    this.operands = operands
    this.name = name
    this.numbers = numbers
  }

  plus(other: Operand): Expression {
    return new Expression('add', [this, expressionOf(other)])
  }

  minus(other: Operand): Expression {
    return new Expression('subtract', [this, expressionOf(other)])
  }

  times(other: Operand): Expression {
    return new Expression('multiply', [this, expressionOf(other)])
  }

  over(other: Operand): Expression {
    return new Expression('divide', [this, expressionOf(other)])
  }

  negative(): Expression {
    return new Expression('negate', [this])
  }

  square(): Expression {
    return this.times(this)
  }

  /** e to this */
  exp(): Expression {
    return new Expression('exp', [this])
  }

  log(): Expression {
    return new Expression('log', [this])
  }

  sqrt(): Expression {
    return new Expression('sqrt', [this])
  }

  /** The sine of an angle in radians. */
  sin(): Expression {
    return new Expression('sin', [this])
  }

  /** The cosine of an angle in radians. */
  cos(): Expression {
    return new Expression('cos', [this])
  }

  /** The largest integer that is not above this; its derivative is 0. */
  floor(): Expression {
    return new Expression('floor', [this])
  }

  tanh(): Expression {
    return new Expression('tanh', [this])
  }

  /** 1 / (1 + e^−this) */
  sigmoid(): Expression {
    return new Expression('sigmoid', [this])
  }

  /** The absolute value; its derivative at 0 is 0. */
  abs(): Expression {
    return new Expression('abs', [this])
  }

  /** The smaller of the two; at a tie with this one's derivative. */
  min(other: Operand): Expression {
    return new Expression('min', [this, expressionOf(other)])
  }

  /** The larger of the two; at a tie with this one's derivative. */
  max(other: Operand): Expression {
    return new Expression('max', [this, expressionOf(other)])
  }

  /** Clips to bounds, maybe infinite; the derivative passes at them. @throws InputError unless low ≤ high. */
  clip(low: number, high: number): Expression {
    if (!(low <= high))
      throw new InputError('clip(low, high)', `${show(low)}, ${show(high)}`, 'two numbers, low ≤ high')
    return new Expression('clip', [this], { numbers: [low, high] })
  }

  /** 1 if this is above the other, otherwise 0. */
  greaterThan(other: Operand): Expression {
    return new Expression('greater', [this, expressionOf(other)])
  }

  /** 1 if this is below the other, otherwise 0. */
  lessThan(other: Operand): Expression {
    return new Expression('less', [this, expressionOf(other)])
  }

  /** 1 if both are equal, otherwise 0. */
  equalTo(other: Operand): Expression {
    return new Expression('equal', [this, expressionOf(other)])
  }

  /** 1 if either is not 0, otherwise 0. */
  or(other: Expression): Expression {
    return where(this, 1, where(other, 1, 0))
  }

  /** 1 if neither is 0, otherwise 0. */
  and(other: Expression): Expression {
    return where(this, where(other, 1, 0), 0)
  }

  /** The same numbers, without derivatives. */
  detach(): Expression {
    return new Expression('detach', [this])
  }

  /** For each token, the sum over its sequence's learned tokens. Only in losses of tokens. */
  sumOfSequence(): Expression {
    return new Expression('sequenceSum', [this])
  }
}

/** `chosen` if the condition is not 0, otherwise `other`. */
export function where(condition: Expression, chosen: Operand, other: Operand): Expression {
  return new Expression('where', [expressionOf(condition), expressionOf(chosen), expressionOf(other)])
}

/** An operand as an expression. @throws InputError if it is neither an expression nor a number. */
export function expressionOf(operand: Operand): Expression {
  if (isExpression(operand)) return operand
  if (typeof operand === 'number' && !Number.isNaN(operand))
    return new Expression('constant', [], { numbers: [operand] })
  throw new InputError('operand of an expression', show(operand), 'an expression or a number')
}

/** Whether it is an expression, also one from another copy of the package, as a user's module may have. */
export function isExpression(value: unknown): value is Expression {
  return Array.isArray((value as Expression | null | undefined)?.operands)
}

export function columnOf(name: string): Expression {
  return new Expression('column', [], { name })
}

/** The derivative of the loss's sum over rows by a column, row by row, with sequence sums; null if there is none. */
export function derivativeOf(loss: Expression, column: string): Expression | null {
  const own = differentiate(loss, (leaf) => leaf.operation === 'column' && leaf.name === column)
  // A sequence sum is one number for its rows: their derivatives by it add up, and pass to all summands.
  return sumsIn(loss).reduce((total, sum) => {
    const bySum = differentiate(loss, (leaf) => leaf === sum)
    if (bySum === null) return total
    const [summed] = sum.operands as [Expression]
    return added(total, derivativeOf(summed.times(bySum.sumOfSequence().detach()), column))
  }, own)
}

/** The outermost sequence sums in an expression, without those inside `detach`. */
function sumsIn(expression: Expression): Expression[] {
  const found = new Set<Expression>()
  const seen = new Set<Expression>()
  const visit = (node: Expression): void => {
    if (seen.has(node) || node.operation === 'detach') return
    seen.add(node)
    if (node.operation === 'sequenceSum') found.add(node)
    else for (const operand of node.operands) visit(operand)
  }
  visit(expression)
  return [...found]
}

/** The derivative by the leaf, row by row; sequence sums are leaves. Null without one. */
function differentiate(expression: Expression, isLeaf: (node: Expression) => boolean): Expression | null {
  const known = new Map<Expression, Expression | null>()
  const visit = (node: Expression): Expression | null => {
    const found = known.get(node)
    if (found !== undefined) return found
    const derivative = isLeaf(node) ? expressionOf(1) : ruleOf(node, visit)
    known.set(node, derivative)
    return derivative
  }
  return visit(expression)
}

function ruleOf(node: Expression, derive: (operand: Expression) => Expression | null): Expression | null {
  const { operation, operands, numbers } = node
  const [a, b, c] = operands as [Expression, Expression, Expression]
  switch (operation) {
    case 'constant':
    case 'column':
    case 'within':
    case 'greater':
    case 'less':
    case 'equal':
    case 'floor':
    case 'detach':
    case 'sequenceSum':
      return null
    case 'add':
      return added(derive(a), derive(b))
    case 'subtract':
      return added(derive(a), derive(b)?.negative() ?? null)
    case 'multiply':
      return added(product(derive(a), b), product(derive(b), a))
    case 'divide':
      return added(derive(a)?.over(b) ?? null, product(derive(b), node)?.over(b).negative() ?? null)
    case 'negate':
      return derive(a)?.negative() ?? null
    case 'exp':
      return product(derive(a), node)
    case 'log':
      return derive(a)?.over(a) ?? null
    case 'sqrt':
      return derive(a)?.over(node.times(2)) ?? null
    case 'sin':
      return product(derive(a), a.cos())
    case 'cos':
      return product(derive(a), a.sin().negative())
    case 'tanh':
      return product(derive(a), expressionOf(1).minus(node.square()))
    case 'sigmoid':
      return product(derive(a), node.times(expressionOf(1).minus(node)))
    case 'abs':
      return product(derive(a), a.greaterThan(0).minus(a.lessThan(0)))
    case 'min':
      return chosen(a.greaterThan(b), derive(b), derive(a))
    case 'max':
      return chosen(a.lessThan(b), derive(b), derive(a))
    case 'clip':
      return chosen(new Expression('within', [a], { numbers }), derive(a), null)
    case 'where':
      return chosen(a, derive(b), derive(c))
  }
}

function added(a: Expression | null, b: Expression | null): Expression | null {
  if (a === null || b === null) return a ?? b
  return a.plus(b)
}

function product(derivative: Expression | null, factor: Expression): Expression | null {
  return derivative?.times(factor) ?? null
}

function chosen(condition: Expression, a: Expression | null, b: Expression | null): Expression | null {
  return a === null && b === null ? null : where(condition, a ?? 0, b ?? 0)
}
