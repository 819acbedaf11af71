/** Compares mathematical answers with counted limits. Beyond them an answer is wrong, and a reference undecided. */
import { normalizeMathAnswer, parseExactNumber, splitUnit } from './maths/answers.ts'
import { areEqual, areProportional, type Expression, Unreadable } from './maths/expression.ts'
import { readLatex } from './maths/latex.ts'
import { isSame, spend, TooLarge, withWork } from './maths/rational.ts'
import type { ExcessKind } from './reward.ts'

/** An answer and its reference, as extracted. */
export interface MathsTask {
  readonly answer: string
  readonly reference: string
}

/** `undecided`: the reference is unreadable, has no value or exceeds a limit. `excess`: the answer's exceeded limit. */
export interface MathsVerdict {
  readonly verdict: 'equal' | 'different' | 'undecided'
  readonly reason?: string
  readonly excess?: ExcessKind
}

/** Maximum entries of a list, set, tuple or matrix. */
const MAX_ENTRIES = 64
/** Units of work per comparison. */
const MAX_WORK = 1_000_000

/** Units of work to check a reference, separate from the answer's. */
const MAX_REFERENCE_WORK = 1_000_000

/** Expressions parsed in this comparison. */
const known = new Map<string, Expression | Error>()
/** References with a value in this comparison. */
const usable = new Map<string, Expression>()

/** Parses LaTeX, without simplification. */
function read(text: string): Expression {
  const before = known.get(text)
  if (before instanceof Error) throw before
  if (before !== undefined) return before
  spend(text.length)
  try {
    const percent = /^(.*)\\%$/.exec(text)
    const expression = readLatex(percent?.[1] ?? text)
    const value: Expression = percent === null ? expression : ['Divide', expression, { num: '100' }]
    known.set(text, value)
    return value
  } catch (error) {
    known.set(text, error as Error)
    throw error
  }
}

/** Splits a text at separators outside all brackets. */
function split(text: string, separator: RegExp): { parts: string[]; separators: string[] } {
  const parts: string[] = []
  const separators: string[] = []
  let depth = 0
  let start = 0
  const pattern = new RegExp(separator.source, 'y')
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\' && /[{}]/.test(text[i + 1] ?? '')) {
      depth += text[i + 1] === '{' ? 1 : -1
      i++
      continue
    }
    if ('([{'.includes(text[i]!)) depth++
    else if (')]}'.includes(text[i]!)) depth--
    pattern.lastIndex = i
    const match = depth === 0 ? pattern.exec(text) : null
    if (match !== null) {
      parts.push(text.slice(start, i).trim())
      separators.push(match[0].trim())
      i += match[0].length - 1
      start = i + 1
    }
  }
  parts.push(text.slice(start).trim())
  return { parts, separators }
}

const RELATION = /\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<|>|=/
const FLIPPED: Readonly<Record<string, string>> = { '<': '>', '>': '<', '\\le': '\\ge', '\\ge': '\\le' }

/** Whether the lists have equal members in any order. */
function isPermutation(a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false
  checkEntries(a)
  const left = [...b]
  return a.every((item) => {
    const place = left.findIndex((other) => isEqual(item, other))
    if (place >= 0) left.splice(place, 1)
    return place >= 0
  })
}

function checkEntries(list: readonly unknown[]): void {
  if (list.length > MAX_ENTRIES) throw new TooMany(`more than ${MAX_ENTRIES} entries are not compared`)
}

class TooMany extends Error {}

/** The content and the brackets, if one pair encloses the whole text. */
function enclosed(text: string): { open: string; close: string; inside: string } | undefined {
  const match = /^(\\\{|[([])(.*)(\\\}|[)\]])$/.exec(text)
  if (match === null) return undefined
  const [, open = '', inside = '', close = ''] = match
  let depth = 1
  for (const character of inside.replace(/\\([{}])/g, '$1')) {
    if ('([{'.includes(character)) depth++
    else if (')]}'.includes(character) && --depth === 0) return undefined // For example (1)(2).
  }
  return { open, close, inside: inside.trim() }
}

function isEqual(a: string, b: string): boolean {
  spend((a.length + b.length) / 10)
  if (a.replaceAll(' ', '') === b.replaceAll(' ', '')) return true
  const unions = [a, b].map((side) => split(side, /\\cup(?![a-z])/).parts)
  if (unions.some((parts) => parts.length > 1)) return isPermutation(unions[0]!, unions[1]!)
  const lists = [a, b].map((side) => split(side, /,/).parts)
  if (lists.some((parts) => parts.length > 1)) return isPermutation(expand(lists[0]!), expand(lists[1]!))
  const signs = [a, b].map((side) => expand([side]))
  if (signs.some((parts) => parts.length > 1)) return isPermutation(signs[0]!, signs[1]!)
  const brackets = [a, b].map((side) => {
    const found = enclosed(side)
    const items = found === undefined ? [] : split(found.inside, /,/).parts
    return found !== undefined && (items.length > 1 || found.open !== '(') ? { ...found, items } : undefined
  })
  const [left, right] = brackets
  if (left !== undefined && right !== undefined) {
    if (left.open !== right.open || left.close !== right.close) return false
    if (left.open === '\\{') return isPermutation(expand(left.items), expand(right.items))
    return left.items.length === right.items.length && left.items.every((item, i) => isEqual(item, right.items[i]!))
  }
  if (left !== undefined || right !== undefined) return false
  const chains = [a, b].map((side) => split(side, RELATION))
  if (chains.some(({ separators }) => separators.length > 0)) return areSameRelations(chains[0]!, chains[1]!)
  return areSameQuantities(a, b)
}

/** `a \pm b` is both a + b and a − b. */
function expand(items: readonly string[]): string[] {
  return items.flatMap((item) => {
    const { parts } = split(item, /\\pm(?![a-z])/)
    return parts.length === 2 ? [`${parts[0]}+${parts[1]}`, `${parts[0]}-${parts[1]}`] : [item]
  })
}

type Chain = ReturnType<typeof split>

function areSameRelations(a: Chain, b: Chain): boolean {
  // If only one of them names the unknown, as in x = 5, the name is ignored.
  for (const [named, bare] of [
    [a, b],
    [b, a],
  ] as const) {
    if (bare.separators.length > 0) continue
    const isNamed = named.separators.join() === '=' && /^[A-Za-z](?:\([A-Za-z]\))?$/.test(named.parts[0]!)
    const [given, wanted] = named === a ? [a.parts[1], b.parts[0]] : [a.parts[0], b.parts[1]]
    return isNamed && isEqual(given!, wanted!)
  }
  if (a.separators.length !== b.separators.length) return false
  const isSameWay = (parts: readonly string[], separators: readonly string[]): boolean =>
    separators.every((separator, i) => separator === b.separators[i]) &&
    parts.every((part, i) => areSameQuantities(part, b.parts[i]!))
  if (isSameWay(a.parts, a.separators)) return true
  const flipped = a.separators.toReversed().map((separator) => FLIPPED[separator] ?? separator)
  if (isSameWay(a.parts.toReversed(), flipped)) return true
  if (a.separators.join() !== '=' || b.separators.join() !== '=') return false
  const sides = ({ parts }: Chain): Expression => ['Subtract', read(parts[0]!), read(parts[1]!)]
  const wanted = readReference(() => sides(b))
  return unlessUnreadable(() => areProportional(sides(a), wanted) ?? false)
}

function areSameQuantities(a: string, b: string): boolean {
  if (a.replaceAll(' ', '') === b.replaceAll(' ', '')) return true
  const [left, right] = [splitUnit(a), splitUnit(b)]
  if (left.unit !== '' && right.unit !== '' && left.unit !== right.unit) return false
  const q = readReference(() => parseExactNumber(right.quantity))
  const p = parseExactNumber(left.quantity)
  if (p !== null && q !== null) return isSame(p, q)
  const wanted = usable.get(right.quantity) ?? readReference(() => checkedReference(right.quantity))
  return unlessUnreadable(() => compare(read(left.quantity), wanted))
}

/** The expression of a reference, which must have a value. */
function checkedReference(text: string): Expression {
  const expression = read(text)
  if (!compare(expression, expression)) throw new Unreadable(`${text} has no value`)
  usable.set(text, expression)
  return expression
}

class UnusableReference extends Error {}

function readReference<T>(make: () => T): T {
  try {
    return withWork(MAX_REFERENCE_WORK, make)
  } catch (error) {
    throw error instanceof Unreadable || error instanceof TooLarge ? new UnusableReference(error.message) : error
  }
}

/** False if an answer cannot be parsed. */
function unlessUnreadable(compareThem: () => boolean): boolean {
  try {
    return compareThem()
  } catch (error) {
    if (error instanceof Unreadable) return false
    throw error
  }
}

function compare(a: Expression, b: Expression): boolean {
  const [rowsA, rowsB] = [rowsOf(a), rowsOf(b)]
  if (rowsA !== undefined && rowsB !== undefined) {
    return rowsA.length === rowsB.length && rowsA.every((item, i) => compare(item, rowsB[i]!))
  }
  if (rowsA !== undefined || rowsB !== undefined) return false
  return areEqual(a, b) ?? false
}

/** The rows of a matrix, or the entries of a row. */
function rowsOf(expression: Expression): readonly Expression[] | undefined {
  if (!Array.isArray(expression)) return undefined
  if (expression[0] === 'Matrix') return rowsOf(expression[1] as Expression)
  return expression[0] === 'List' ? (expression.slice(1) as Expression[]) : undefined
}

/** Three letters in a row are a word and not a product, unless LaTeX or a function's name contains them. */
function isProse(text: string): boolean {
  const plain = text
    .replace(/\\(?:text|textrm|mathrm|mbox)\s*\{[^{}]*\}/g, '')
    .replace(/\\(?:begin|end)\s*\{[a-z]*\}|\\[a-zA-Z]+/g, ' ')
  return (plain.match(/[A-Za-z]{3,}/g) ?? []).some((word) => !/^(?:sin|cos|tan|log|exp|sqrt)$/.test(word))
}

export function compareAnswers({ answer, reference }: MathsTask): MathsVerdict {
  const [given, wanted] = [answer, reference].map(normalizeMathAnswer) as [string, string]
  if (isProse(wanted) || isProse(given)) {
    const [a, b] = [given, wanted].map((text) => text.toLowerCase().replaceAll(' ', ''))
    return { verdict: a === b ? 'equal' : 'different' }
  }
  known.clear()
  usable.clear()
  try {
    return { verdict: withWork(MAX_WORK, () => isEqual(given, wanted)) ? 'equal' : 'different' }
  } catch (error) {
    if (error instanceof UnusableReference) return { verdict: 'undecided', reason: error.message }
    if (error instanceof TooLarge) return { verdict: 'different', reason: error.message, excess: error.kind }
    if (error instanceof TooMany) return { verdict: 'different', reason: error.message, excess: 'length' }
    throw error
  }
}
