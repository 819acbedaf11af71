/**
 * Plain arithmetic over columns, for losses and for steps of environments. An expression says what to compute for each row;
 * nothing is computed when it is written. Its derivatives are expressions too, made by the rules of forward mode: what does
 * not depend on a column has no derivative by it at all. `expression-program.ts` makes one list of operations of expressions;
 * `algorithms/losses/loss-program.ts` runs those of a loss and its derivatives in f64, `kernels/column-loop.ts` those of a step in f32.
 *
 * Where a function has a kink, one side is taken, as the hand-written kernels do: `min` and `max` take the derivative of
 * their first argument at a tie (torch takes half of each), `clip` passes the derivative at its bounds, and that of `abs`
 * at 0 is 0 (both as torch). `where` takes the derivative of the chosen side alone, whatever the other one is.
 */
import { InputError, show } from '../errors.ts'

/** What an expression does with its operands; comparisons give 1 or 0. */
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

/** A number for each row. Its methods make further expressions; losses are computed in f64, steps of environments in f32. */
export class Expression {
  readonly operation: Operation
  readonly operands: readonly Expression[]
  /** Of a column. */
  readonly name: string
  /** Of a constant, and the bounds of `clip` and `within`. */
  readonly numbers: readonly number[]

  /** Use the columns that a loss or a step is given, and what the methods return. */
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

  /** this + other */
  plus(other: Operand): Expression {
    return new Expression('add', [this, expressionOf(other)])
  }

  /** this − other */
  minus(other: Operand): Expression {
    return new Expression('subtract', [this, expressionOf(other)])
  }

  /** this · other */
  times(other: Operand): Expression {
    return new Expression('multiply', [this, expressionOf(other)])
  }

  /** this / other */
  over(other: Operand): Expression {
    return new Expression('divide', [this, expressionOf(other)])
  }

  /** −this */
  negative(): Expression {
    return new Expression('negate', [this])
  }

  /** this² */
  square(): Expression {
    return this.times(this)
  }

  /** e to this */
  exp(): Expression {
    return new Expression('exp', [this])
  }

  /** The natural logarithm. */
  log(): Expression {
    return new Expression('log', [this])
  }

  /** The square root. */
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

  /** The largest whole number that is not above this; its derivative is 0. */
  floor(): Expression {
    return new Expression('floor', [this])
  }

  /** The hyperbolic tangent. */
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

  /** The smaller of the two; at a tie with the derivative of this one. */
  min(other: Operand): Expression {
    return new Expression('min', [this, expressionOf(other)])
  }

  /** The larger of the two; at a tie with the derivative of this one. */
  max(other: Operand): Expression {
    return new Expression('max', [this, expressionOf(other)])
  }

  /**
   * This clipped to two bounds, which may be infinite; the derivative is 0 beyond them, and passes at them.
   * @throws InputError if they are not numbers, the lower one first.
   */
  clip(low: number, high: number): Expression {
    if (!(low <= high))
      throw new InputError('clip(low, high)', `${show(low)}, ${show(high)}`, 'two numbers, low ≤ high')
    return new Expression('clip', [this], { numbers: [low, high] })
  }

  /** 1 where this is above the other one, else 0. */
  greaterThan(other: Operand): Expression {
    return new Expression('greater', [this, expressionOf(other)])
  }

  /** 1 where this is below the other one, else 0. */
  lessThan(other: Operand): Expression {
    return new Expression('less', [this, expressionOf(other)])
  }

  /** 1 where both are equal, else 0. */
  equalTo(other: Operand): Expression {
    return new Expression('equal', [this, expressionOf(other)])
  }

  /** 1 where this or the other one is not 0, else 0. */
  or(other: Expression): Expression {
    return where(this, 1, where(other, 1, 0))
  }

  /** 1 where neither this nor the other one is 0, else 0. */
  and(other: Expression): Expression {
    return where(this, where(other, 1, 0), 0)
  }

  /** The same numbers, without derivatives. */
  detach(): Expression {
    return new Expression('detach', [this])
  }

  /** The sum over the tokens of the sequence that are learned from, for each of them. Only in losses of tokens. */
  sumOfSequence(): Expression {
    return new Expression('sequenceSum', [this])
  }
}

/** `chosen` where the condition is not 0, else `other`. */
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

/** Whether something is an expression, also of another copy of the package, as a module elsewhere may have. */
export function isExpression(value: unknown): value is Expression {
  return Array.isArray((value as Expression | null | undefined)?.operands)
}

/** The column of that name. */
export function columnOf(name: string): Expression {
  return new Expression('column', [], { name })
}

/**
 * The derivative of the sum of `loss` over all rows by a column, row by row; null where it does not depend on it. A row counts
 * in its own loss and in those of all rows whose sequence sums it is part of.
 */
export function derivativeOf(loss: Expression, column: string): Expression | null {
  const own = differentiate(loss, (leaf) => leaf.operation === 'column' && leaf.name === column)
  // A sum over a sequence is one number for its rows: their derivatives by it add up, and go on to all that is summed.
  return sumsIn(loss).reduce((total, sum) => {
    const bySum = differentiate(loss, (leaf) => leaf === sum)
    if (bySum === null) return total
    const [summed] = sum.operands as [Expression]
    return added(total, derivativeOf(summed.times(bySum.sumOfSequence().detach()), column))
  }, own)
}

/** The sums over sequences that are outermost in an expression; nothing passes a derivative through `detach`. */
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

/** The derivative by the leaf, row by row; sums over sequences are leaves. Null where there is none. */
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
