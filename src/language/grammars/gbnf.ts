/**
 * Reads grammars in GBNF: rules made of literals, character classes, groups, alternatives and repetitions. The rule
 * `root` is the answer.
 */
import { InputError, show } from '../../base/errors.ts'
import { ALL, type Ranges, without } from './ranges.ts'

/** An expression of a grammar. */
export type Expression =
  | { readonly kind: 'class'; readonly ranges: Ranges }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'sequence' | 'either'; readonly parts: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly part: Expression; readonly min: number; readonly max: number | null }

/**
 * The rules of a grammar by name.
 * @throws InputError if the text is not GBNF, a rule is missing or defined twice, or there is no `root`.
 */
export function readGrammar(text: string): ReadonlyMap<string, Expression> {
  const reader = new Reader(text)
  const rules = reader.rules()
  for (const name of ['root', ...reader.named]) {
    if (!rules.has(name)) throw new InputError('grammar', `no rule ${name}`, 'a rule for each name, and root')
  }
  return rules
}

const NAME = /[A-Za-z_][\w.-]*/y
const SPACE = /(?:[ \t\r\n]|#[^\n]*)*/y
const COUNTS = /\{\s*(\d+)\s*(,\s*(\d*)\s*)?\}/y
const HEX: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }
const CONTROLS: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, 0: 0 }

class Reader {
  readonly named = new Set<string>()
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  rules(): Map<string, Expression> {
    const rules = new Map<string, Expression>()
    for (this.#skip(); this.#at < this.#text.length; this.#skip()) {
      const name = this.#match(NAME)?.[0]
      this.#skip()
      if (name === undefined || !this.#take('::=')) throw this.#wrong('a rule like `root ::= "yes" | "no"`')
      if (rules.has(name)) throw new InputError('grammar', `rule ${name} twice`, 'each rule once')
      rules.set(name, this.#either())
    }
    return rules
  }

  #either(): Expression {
    const parts = [this.#sequence()]
    for (this.#skip(); this.#take('|'); this.#skip()) parts.push(this.#sequence())
    return parts.length === 1 ? parts[0]! : { kind: 'either', parts }
  }

  #sequence(): Expression {
    const parts: Expression[] = []
    for (;;) {
      this.#skip()
      const next = this.#text[this.#at]
      if (next === undefined || next === '|' || next === ')' || this.#isRule()) break
      parts.push(this.#repeated(this.#atom()))
    }
    return parts.length === 1 ? parts[0]! : { kind: 'sequence', parts }
  }

  #isRule(): boolean {
    const at = this.#at
    const name = this.#match(NAME)
    this.#skip()
    const isRule = name !== null && this.#text.startsWith('::=', this.#at)
    this.#at = at
    return isRule
  }

  #repeated(part: Expression): Expression {
    let whole = part
    for (;;) {
      if (this.#take('*')) whole = { kind: 'repeat', part: whole, min: 0, max: null }
      else if (this.#take('+')) whole = { kind: 'repeat', part: whole, min: 1, max: null }
      else if (this.#take('?')) whole = { kind: 'repeat', part: whole, min: 0, max: 1 }
      else {
        const counts = this.#match(COUNTS)
        if (counts === null) return whole
        const [, min, comma, max] = counts
        const most = comma === undefined ? Number(min) : max === '' ? null : Number(max)
        if (most !== null && most < Number(min))
          throw this.#wrong('a repetition with a maximum of at least its minimum')
        whole = { kind: 'repeat', part: whole, min: Number(min), max: most }
      }
    }
  }

  #atom(): Expression {
    if (this.#take('"')) return this.#literal()
    if (this.#take('[')) return { kind: 'class', ranges: this.#class() }
    if (this.#take('.')) return { kind: 'class', ranges: ALL }
    if (this.#take('(')) {
      const inner = this.#either()
      this.#skip()
      if (!this.#take(')')) throw this.#wrong('a closing parenthesis')
      return inner
    }
    const name = this.#match(NAME)?.[0]
    if (name === undefined) throw this.#wrong('a text, a class, a group or the name of a rule')
    this.named.add(name)
    return { kind: 'rule', name }
  }

  #literal(): Expression {
    const parts: Expression[] = []
    while (!this.#take('"')) {
      const code = this.#character()
      parts.push({ kind: 'class', ranges: [[code, code]] })
    }
    return parts.length === 1 ? parts[0]! : { kind: 'sequence', parts }
  }

  #class(): Ranges {
    const isExcluded = this.#take('^')
    const ranges: [number, number][] = []
    while (!this.#take(']')) {
      const from = this.#character()
      const isRange = this.#text[this.#at] === '-' && this.#text[this.#at + 1] !== ']'
      if (isRange) this.#at++
      ranges.push([from, isRange ? this.#character() : from])
    }
    const others = without(ALL, ranges)
    return isExcluded ? others : without(ALL, others)
  }

  /** The code point of a character or escape. */
  #character(): number {
    const code = this.#text.codePointAt(this.#at)
    if (code === undefined) throw this.#wrong('the end of a text or class')
    this.#at += code > 0xffff ? 2 : 1
    if (code !== 92) return code
    const kind = this.#text[this.#at++] ?? ''
    const length = HEX[kind]
    if (length === undefined) return CONTROLS[kind] ?? kind.codePointAt(0) ?? 92
    const digits = this.#text.slice(this.#at, this.#at + length)
    this.#at += length
    if (!/^[\da-f]+$/i.test(digits) || digits.length < length) throw this.#wrong(`${length} hexadecimal digits`)
    return Number.parseInt(digits, 16)
  }

  #skip(): void {
    this.#match(SPACE)
  }

  #take(text: string): boolean {
    if (!this.#text.startsWith(text, this.#at)) return false
    this.#at += text.length
    return true
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)
    if (found !== null) this.#at += found[0].length
    return found
  }

  #wrong(expected: string): InputError {
    const line = this.#text.slice(0, this.#at).split('\n').length
    return new InputError(`grammar, line ${line}`, show(this.#text.slice(this.#at, this.#at + 20)), expected)
  }
}
