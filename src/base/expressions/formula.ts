/** Formulas as text, like `episodeReturn >= 475 and approxKl < 0.05`: one number of other numbers, by name. */
import { InputError, show, unknownWord } from '../errors.ts'
import { computeStep } from './compute.ts'
import { columnOf, type Expression, expressionOf, where } from './expression.ts'
import { programOf } from './expression-program.ts'

/** A formula, called for its value; comparisons give 1 or 0. A number that `known` does not have is NaN, of which no comparison is true. */
export interface Formula {
  (known: (name: string) => number | undefined): number
  /** The names in it. */
  readonly names: readonly string[]
}

/** The reader and the program recurse: longer formulas could overflow the stack. */
const MAX_WORDS = 500

/** 1 for any number but 0, otherwise 0: NaN is not true. */
const isTrue = (a: Expression) => a.lessThan(0).or(a.greaterThan(0))

const FUNCTIONS: Readonly<Record<string, (...given: [Expression, Expression, Expression]) => Expression>> = {
  abs: (a) => a.abs(),
  cos: (a) => a.cos(),
  exp: (a) => a.exp(),
  floor: (a) => a.floor(),
  if: (a, b, c) => where(isTrue(a), b, c),
  log: (a) => a.log(),
  max: (a, b) => a.max(b),
  min: (a, b) => a.min(b),
  sqrt: (a) => a.sqrt(),
}
const NUM_OPERANDS: Readonly<Record<string, number>> = { if: 3, max: 2, min: 2 }

const COMPARISONS = 2
/** Operators between two operands, the loosest first; those of a line bind alike, from left to right, and comparisons do not chain. */
const OPERATORS: readonly Readonly<Record<string, (a: Expression, b: Expression) => Expression>>[] = [
  { or: (a, b) => isTrue(a).or(isTrue(b)) },
  { and: (a, b) => isTrue(a).and(isTrue(b)) },
  {
    '>=': (a, b) => a.greaterThan(b).or(a.equalTo(b)),
    '<=': (a, b) => a.lessThan(b).or(a.equalTo(b)),
    '>': (a, b) => a.greaterThan(b),
    '<': (a, b) => a.lessThan(b),
  },
  { '+': (a, b) => a.plus(b), '-': (a, b) => a.minus(b) },
  { '*': (a, b) => a.times(b), '/': (a, b) => a.over(b) },
]

const TOKEN = /\s*(?:(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)|([A-Za-z_][\w.]*)|(>=|<=|[-+*/()<>,]))/iy

/**
 * Reads a formula of numbers, names, `+ - * /`, comparisons, `and`, `or`, `min`, `max`, `abs`, `exp`, `log`, `sqrt`, `cos`, `floor` and
 * `if(condition, then, otherwise)`. A name may have parts, like `phaseSeconds.collect`: `names` has it whole, or its first part.
 * @throws InputError for an invalid formula, with the place, and for an unknown name, with the nearest.
 */
export function readFormula(subject: string, text: string, names: readonly string[]): Formula {
  const tokens = [...tokensOf(subject, text)]
  if (tokens.length > MAX_WORDS)
    throw new InputError(subject, `a formula of ${tokens.length} words`, `at most ${MAX_WORDS}`)
  let at = 0
  const fail = (expected: string): never => {
    throw new InputError(subject, `${show(text)}, ${tokens[at] ?? 'its end'} as word ${at + 1}`, expected)
  }
  const take = (token: string): void => {
    if (tokens[at] !== token) fail(token)
    at++
  }
  const atom = (): Expression => {
    const token = tokens[at] ?? fail('a number or a name')
    if (token === '-') {
      at++
      return atom().negative()
    }
    if (token === '(') {
      at++
      const inside = level(0)
      take(')')
      return inside
    }
    if (/^[\d.]/.test(token)) {
      at++
      return expressionOf(Number(token))
    }
    if (!/^[A-Za-z_]/.test(token) || token === 'and' || token === 'or') return fail('a number or a name')
    at++
    if (tokens[at] !== '(') return columnOf(knownName(subject, token, names))
    if (!Object.hasOwn(FUNCTIONS, token)) throw unknownWord(`function of ${subject}`, token, Object.keys(FUNCTIONS))
    at++
    const operands = [level(0)]
    while (operands.length < (NUM_OPERANDS[token] ?? 1)) {
      take(',')
      operands.push(level(0))
    }
    take(')')
    return FUNCTIONS[token]!(...(operands as [Expression, Expression, Expression]))
  }
  const level = (depth: number): Expression => {
    const operators = OPERATORS[depth]
    if (operators === undefined) return atom()
    let left = level(depth + 1)
    const from = at
    while (at < tokens.length && Object.hasOwn(operators, tokens[at]!)) {
      if (depth === COMPARISONS && at > from) fail('and, or or the end: comparisons do not chain')
      left = operators[tokens[at++]!]!(left, level(depth + 1))
    }
    return left
  }
  const whole = level(0)
  if (at < tokens.length) fail('an operator, or the end')
  return formulaOf(whole)
}

function* tokensOf(subject: string, text: string): Generator<string> {
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const from = TOKEN.lastIndex
    const found = TOKEN.exec(text)
    if (found === null)
      throw new InputError(subject, `${show(text)}, at letter ${from + 1}`, 'a formula, like loss < 0.1')
    yield found[1] ?? found[2] ?? found[3]!
  }
}

function knownName(subject: string, name: string, names: readonly string[]): string {
  if (!names.includes(name) && !names.includes(name.split('.')[0]!))
    throw unknownWord(`name in ${subject}`, name, names)
  return name
}

function formulaOf(expression: Expression): Formula {
  const { columns, constants, steps, results, numRegisters } = programOf(new Map([['value', expression]]))
  const registers = Array.from({ length: numRegisters }, () => new Float64Array(1))
  const formula = (known: Parameters<Formula>[0]) => {
    for (const [register, value] of constants) registers[register]![0] = value
    for (const [name, register] of Object.entries(columns)) registers[register]![0] = known(name) ?? Number.NaN
    for (const step of steps) computeStep(step, registers, 1)
    return registers[results.value!]![0]!
  }
  return Object.assign(formula, { names: Object.keys(columns) })
}
