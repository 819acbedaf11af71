/**
 * Parses mathematical expressions in LaTeX. It reads each character once, so any text takes linear time. Existing
 * libraries take exponential time for nested brackets, which a policy would find.
 *
 * Juxtaposition is a product (`2xy`, `x(x-1)`) and binds more tightly than a slash. A function applies to the brackets
 * after it, or else to the product after it, up to the next function (`\sin 2x \cos x`).
 */
import { type Expression, Unreadable } from './expression.ts'
import { TooLarge } from './rational.ts'

/** Nesting depth of brackets of any kind, arguments and exponents included. */
export const MAX_NESTING = 50
/** Digits of the exponent in 1e99. */
const MAX_EXPONENT_DIGITS = 4

/** Commands for a letter or a constant. */
const SYMBOLS: Readonly<Record<string, string>> = {
  '\\pi': 'Pi',
  '\\infty': 'PositiveInfinity',
  '\\emptyset': 'EmptySet',
  '\\varnothing': 'EmptySet',
  '\\varepsilon': 'epsilon',
  '\\varphi': 'phi',
  '\\vartheta': 'theta',
  '\\varrho': 'rho',
  ...Object.fromEntries(
    (
      'alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega ' +
      'Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar'
    )
      .split(' ')
      .map((name) => [`\\${name}`, name === 'Pi' ? 'CapitalPi' : name]),
  ),
}

/** Functions of one argument, by LaTeX name. */
/** The meaning of `\sin^{-1}` and the like. */
const FUNCTIONS: Readonly<Record<string, string>> = Object.fromEntries(
  'sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp ln log lg'
    .split(' ')
    .map((name) => [name, name === 'lg' ? 'Log' : `${name[0]!.toUpperCase()}${name.slice(1)}`]),
)
const INVERSES: Readonly<Record<string, string>> = { Sin: 'Arcsin', Cos: 'Arccos', Tan: 'Arctan' }

const MATRICES = ['matrix', 'pmatrix', 'bmatrix', 'vmatrix', 'smallmatrix', 'array']
const NAMED = ['\\text', '\\textrm', '\\mathrm', '\\mathbf', '\\mathit', '\\mbox', '\\operatorname', '\\mathbb']

/** Tokens that begin a factor, besides numbers, letters, braces, bars and functions. */
const OPENING = ['(', '[', '\\lvert', '\\lfloor', '\\lceil', '\\frac', '\\sqrt', '\\binom', '\\begin', ...NAMED]
const IS_NUMBER = /^[\d.]/

/** A number, a command, a matrix row end, or one character; spaces are skipped. */
const TOKEN = /(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|\\[A-Za-z]+|\\.|[^\s]/gsu

class Parser {
  readonly #text: string
  readonly #tokens: string[]
  #at = 0
  #depth = 0
  /** Whether a bar in operator position closes an absolute value. */
  #inBars = false

  constructor(text: string) {
    this.#text = text
    this.#tokens = text.match(TOKEN) ?? []
  }

  whole(): Expression {
    const expression = this.#sum()
    if (this.#at < this.#tokens.length) throw this.#unreadable()
    return expression
  }

  get #next(): string | undefined {
    return this.#tokens[this.#at]
  }

  #unreadable(): Unreadable {
    return new Unreadable(`${this.#text} cannot be parsed at ${this.#next ?? 'its end'}`)
  }

  #take(token: string): boolean {
    if (this.#next !== token) return false
    this.#at++
    return true
  }

  #expect(token: string): void {
    if (!this.#take(token)) throw this.#unreadable()
  }

  /** Nested content, up to the closing token. */
  #nested<T>(read: () => T, close: string): T {
    if (++this.#depth > MAX_NESTING) throw new TooLarge('nesting', `brackets are nested more than ${MAX_NESTING} deep`)
    const outer = this.#inBars
    this.#inBars = close === '|'
    const result = read()
    this.#expect(close)
    this.#inBars = outer
    this.#depth--
    return result
  }

  /** Terms with + and − between them. */
  #sum = (): Expression => {
    const terms = [this.#term()]
    for (;;) {
      if (this.#take('+')) terms.push(this.#term())
      else if (this.#take('-')) terms.push(['Negate', this.#term()])
      else return terms.length === 1 ? terms[0]! : ['Add', ...terms]
    }
  }

  /** Skips signs; returns whether the number of minus signs is odd. */
  #sign(): boolean {
    let isNegative = false
    while (this.#next === '+' || this.#next === '-')
      isNegative = this.#tokens[this.#at++] === '-' ? !isNegative : isNegative
    return isNegative
  }

  /** Products with multiplication and division signs between them, from the left. */
  #term(): Expression {
    const isNegative = this.#sign()
    let result = this.#product()
    for (;;) {
      const token = this.#next
      const isTimes = token === '\\times' || token === '\\cdot' || token === '*'
      if (!isTimes && token !== '/' && token !== '\\div') return isNegative ? ['Negate', result] : result
      this.#at++
      const isMinus = this.#sign()
      const factor = this.#product()
      result = [isTimes ? 'Multiply' : 'Divide', result, isMinus ? ['Negate', factor] : factor]
    }
  }

  /** Juxtaposed factors; a function's argument ends before the next function. */
  #product(isArgument = false): Expression {
    const factors = [this.#power()]
    while (this.#beginsFactor() && !(isArgument && this.#beginsFunction())) {
      const isBesideNumber = IS_NUMBER.test(this.#tokens[this.#at - 1]!)
      if (isBesideNumber && IS_NUMBER.test(this.#next!)) throw this.#unreadable()
      factors.push(this.#power())
    }
    return factors.length === 1 ? factors[0]! : ['InvisibleOperator', ...factors]
  }

  #beginsFunction(): boolean {
    const token = this.#next ?? ''
    return token.startsWith('\\') && Object.hasOwn(FUNCTIONS, token.slice(1))
  }

  #beginsFactor(): boolean {
    const token = this.#next
    if (token === undefined) return false
    if (token === '|') return !this.#inBars
    return (
      /^[\dA-Za-z.{]/.test(token) || Object.hasOwn(SYMBOLS, token) || OPENING.includes(token) || this.#beginsFunction()
    )
  }

  /** A factor with its exponents, factorials and degrees. */
  #power(): Expression {
    let base = this.#atom()
    for (;;) {
      if (this.#take('!')) {
        base = ['Factorial', base]
        if (this.#next === '!') throw this.#unreadable() // A double factorial is another function.
      } else if (this.#take('\\degree')) base = ['Degrees', base]
      else if (this.#take('^')) base = this.#raised(base)
      else return base
    }
  }

  #raised(base: Expression): Expression {
    const isDegree = this.#tokens.slice(this.#at, this.#at + 3).join('') === '{\\circ}'
    if (isDegree) this.#at += 3
    if (isDegree || this.#take('\\circ')) return ['Degrees', base]
    const isNegative = this.#sign()
    let exponent = this.#argument()
    if (this.#take('^')) exponent = this.#raised(exponent)
    return ['Power', base, isNegative ? ['Negate', exponent] : exponent]
  }

  /** TeX's argument: a group in braces, or the next token; of a number, its first digit. */
  #argument(): Expression {
    if (this.#take('{')) return this.#nested(this.#sum, '}')
    const token = this.#next
    if (token === undefined) throw this.#unreadable()
    if (!/^\d./.test(token)) return this.#atom()
    this.#tokens[this.#at] = token.slice(1)
    return { num: token[0]! }
  }

  #atom(): Expression {
    const token = this.#next
    if (token === undefined) throw this.#unreadable()
    if (IS_NUMBER.test(token)) return this.#number()
    this.#at++
    if (/^[A-Za-z]$/.test(token)) return this.#indexed(token)
    if (Object.hasOwn(SYMBOLS, token)) return this.#indexed(SYMBOLS[token]!)
    if (token === '{') return this.#nested(this.#sum, '}')
    if (token === '|') return ['Abs', this.#nested(this.#sum, '|')]
    if (token === '\\lvert') return ['Abs', this.#nested(this.#sum, '\\rvert')]
    if (token === '\\lfloor') return ['Floor', this.#nested(this.#sum, '\\rfloor')]
    if (token === '\\lceil') return ['Ceil', this.#nested(this.#sum, '\\rceil')]
    if (token === '(') return ['Delimiter', this.#nested(this.#sum, ')')]
    if (token === '[') return ['Delimiter', this.#nested(this.#sum, ']')]
    if (token === '\\frac') return ['Divide', this.#argument(), this.#argument()]
    if (token === '\\binom') return ['Binomial', this.#argument(), this.#argument()]
    if (token === '\\sqrt') {
      const index = this.#take('[') ? this.#nested(this.#sum, ']') : undefined
      return index === undefined ? ['Sqrt', this.#argument()] : ['Root', this.#argument(), index]
    }
    if (token === '\\begin') return this.#matrix()
    if (NAMED.includes(token)) return this.#named(token)
    if (token.startsWith('\\') && Object.hasOwn(FUNCTIONS, token.slice(1)))
      return this.#applied(FUNCTIONS[token.slice(1)]!)
    this.#at--
    throw this.#unreadable()
  }

  #number(): Expression {
    const token = this.#tokens[this.#at++]!
    const exponent = /[eE][-+]?(\d+)$/.exec(token)?.[1] ?? ''
    if (exponent.length > MAX_EXPONENT_DIGITS) throw new TooLarge('number', `the exponent of ${token} is too large`)
    return { num: token.endsWith('.') ? token.slice(0, -1) : token }
  }

  /** The words of a group in braces, or one token. */
  #words(): string {
    if (!this.#take('{')) return this.#tokens[this.#at++] ?? ''
    const from = this.#at
    while (this.#next !== undefined && this.#next !== '}' && this.#next !== '{') this.#at++
    const words = this.#tokens.slice(from, this.#at).join('')
    this.#expect('}')
    return words
  }

  /** A symbol with its index, which together name another symbol. */
  #indexed(symbol: string): Expression {
    if (!this.#take('_')) return symbol
    const index = this.#words()
    if (!/^[\w,+-]{1,8}$/.test(index)) throw this.#unreadable()
    return `${symbol}_${index}`
  }

  /** A name of several letters, or a function without a LaTeX command. */
  #named(command: string): Expression {
    const name = this.#words()
    if (command !== '\\text' && Object.hasOwn(FUNCTIONS, name)) return this.#applied(FUNCTIONS[name]!)
    if (name === '') throw this.#unreadable()
    const isLetter = /^[ei]$/.test(name) || (name.length === 1 && command !== '\\mathbb')
    return this.#indexed(isLetter ? name : `${command} ${name}`)
  }

  /** A function's argument, with the exponent and the base before it. */
  #applied(name: string): Expression {
    let head = name
    let base: Expression | undefined
    let exponent: Expression | undefined
    for (;;) {
      if (name === 'Log' && base === undefined && this.#take('_')) base = this.#argument()
      else if (exponent === undefined && this.#take('^')) {
        const isInverse = this.#tokens
          .slice(this.#at, this.#at + 4)
          .join('')
          .startsWith('{-1}')
        if (isInverse && Object.hasOwn(INVERSES, head)) {
          this.#at += 4
          head = INVERSES[head]!
        } else exponent = this.#argument()
      } else break
    }
    const argument = this.#applicand()
    const applied: Expression = base === undefined ? [head, argument] : [head, argument, base]
    return exponent === undefined ? applied : ['Power', applied, exponent]
  }

  /** The operand of a function: the brackets after it, or else the juxtaposed factors. */
  #applicand(): Expression {
    if (++this.#depth > MAX_NESTING) throw new TooLarge('nesting', `functions are nested more than ${MAX_NESTING} deep`)
    const isNegative = this.#sign()
    const argument = ['(', '[', '{', '|', '\\lvert'].includes(this.#next ?? '') ? this.#atom() : this.#product(true)
    this.#depth--
    return isNegative ? ['Negate', argument] : argument
  }

  /** Rows separated by `\\`, of entries separated by `&`. */
  #matrix(): Expression {
    const name = this.#words()
    if (!MATRICES.includes(name)) throw this.#unreadable()
    if (name === 'array') this.#words()
    const rows = this.#nested(() => {
      const rows: [string, ...Expression[]][] = [['List', this.#sum()]]
      for (;;) {
        if (this.#take('&')) rows.at(-1)!.push(this.#sum())
        else if (!this.#take('\\\\')) return rows
        else if (this.#next !== '\\end') rows.push(['List', this.#sum()])
      }
    }, '\\end')
    if (this.#words() !== name) throw this.#unreadable()
    return ['Matrix', ['List', ...rows]]
  }
}

/** Parses LaTeX. @throws Unreadable if it is not an expression, TooLarge for deep nesting or a large exponent. */
export function readLatex(text: string): Expression {
  return new Parser(text).whole()
}
