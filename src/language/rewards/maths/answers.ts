/** Extracts answers from solutions and normalizes them. Everything is linear in the text's length. */
import { checkGiven } from '../../../base/errors.ts'
import { over, parseDecimal, plus, type Rational, rational, times } from './rational.ts'

/** The content of the last `\boxed{…}` or `\fbox{…}`, with inner braces; null without one or its closing brace. */
export function extractBoxedAnswer(text: string): string | null {
  checkGiven('text of extractBoxedAnswer', text, 'a text')
  const match = [...text.matchAll(/\\(?:boxed|fbox)\s*(?=\{)/g)].at(-1)
  if (match === undefined) return /\\boxed\s+(?<plain>[^\s$.,]+)/.exec(text)?.groups?.plain ?? null
  const start = match.index + match[0].length
  let depth = 0
  for (let i = start; i < text.length; i++) {
    if (text[i] === '\\') i++
    else if (text[i] === '{') depth++
    else if (text[i] === '}' && --depth === 0) return text.slice(start + 1, i).trim()
  }
  return null
}

/** A written number: sign, currency, thousands separators, decimals, fraction, percent. */
const NUMBER = /(?:(?<![\w)])-)?\$?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:\s*\/\s*\d+)?(?:\s?\\?%)?/g

/** The last number of a text; null without one. */
export function extractFinalNumber(text: string): string | null {
  checkGiven('text of extractFinalNumber', text, 'a text')
  const found = text.match(NUMBER)?.at(-1)
  return found === undefined ? null : found.replace('$', '').replace(/\s+/g, '')
}

/** The answer of a solution: boxed; or after the last `####` (GSM8K) or "answer is"; or the last number; or null. */
export function extractFinalAnswer(text: string): string | null {
  checkGiven('text of extractFinalAnswer', text, 'a text')
  const boxed = extractBoxedAnswer(text)
  if (boxed !== null) return boxed
  const marked = text.split('####')
  if (marked.length > 1) return marked.at(-1)!.trim().split('\n')[0]!.trim() || null
  const stated = text.split(/answer\s*(?:is|:|=)\s*/i)
  if (stated.length > 1) {
    const line = stated.at(-1)!.trim().split('\n')[0]!
    const sentence = line.split(/\.(?:\s|$)/)[0]!.trim()
    if (sentence !== '') return sentence
  }
  return extractFinalNumber(text)
}

const CHARACTERS: Readonly<Record<string, string>> = {
  '−': '-',
  '–': '-',
  '×': '\\times ',
  '·': '\\cdot ',
  '÷': '/',
  π: '\\pi ',
  '∞': '\\infty ',
  '≤': '\\le ',
  '≥': '\\ge ',
  '≠': '\\ne ',
  '∪': '\\cup ',
  '√': '\\sqrt ',
  '°': '^\\circ ',
}

/** Normalizes an answer: removes dollar signs, bracket sizes, spaces, final periods and thousands separators. */
export function normalizeMathAnswer(answer: string): string {
  checkGiven('answer of normalizeMathAnswer', answer, 'a text')
  let text = answer
    .replace(/[−–×·÷π∞≤≥≠∪√°]/g, (character) => CHARACTERS[character]!)
    .replace(/\\\$|\$/g, '')
    .replace(/(?<!\\)\\[([\])]/g, '') // \( … \) and \[ … \]
    .replace(/(?<=\d)\\[,!](?=\d{3})/g, '')
    .replace(/\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])/g, '')
    .replace(/\\(?:displaystyle|limits|quad|qquad)(?![a-zA-Z])/g, ' ')
    .replace(/(?<!\\)\\[,;:!> ]|~/g, ' ')
    .replace(/\\[dtc]frac(?![a-zA-Z])/g, '\\frac')
    .replace(/\\[dt]binom(?![a-zA-Z])/g, '\\binom')
    .replace(/\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{\s*(and|or)\s*\}/g, ',')
    .replace(/\\(leq|geq|neq)(?![a-zA-Z])/g, (_, name: string) => `\\${name.slice(0, 2)} `)
    .replace(/\*\*/g, '^')
    .replace(/(?<!\\)%/g, '\\%')
    .replace(/\{,\}/g, '')
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/^[A-Za-z] ?\\in(?![a-z]) ?/, '') // x ∈ [1, 2] means [1, 2].
    .replace(/(?<=[^.])\.$/, '')
    .trim()
  const whole = /^\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}$/.exec(text)
  if (whole !== null) text = whole[1]!.trim()
  if (/^\([A-Za-z]\)$/.test(text)) text = text[1]! // A choice's letter.
  return /[([{]/.test(text.replace(/\\[a-zA-Z]+\s*(?:\{[^{}]*\})+/g, ''))
    ? text
    : text.replace(/(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])/g, (number) => number.replaceAll(',', ''))
}

/** Splits off a unit; '' without one. Degrees of an angle inside a function are not a unit. */
export function splitUnit(text: string): { quantity: string; unit: string } {
  const match =
    /^(.*[\d})!.])\s*(?:\\(?:text|textrm|mathrm|mbox)\s*\{\s*([^{}]*?)\s*\}(\^\{?-?\d\}?)?|\^\s*\{?\s*\\circ\s*\}?([CF]?))$/.exec(
      text,
    )
  if (match === null || /\\(?:sin|cos|tan|cot|sec|csc)/.test(text)) return { quantity: text, unit: '' }
  const [, quantity = '', name, exponent = '', scale] = match
  return { quantity: quantity.trim(), unit: name === undefined ? `degree${scale}` : `${name}${exponent}` }
}

/** The exact value of a normalized number, fraction, mixed number or percentage; null for everything else. */
export function parseExactNumber(text: string): Rational | null {
  const match = /^(.*?)(\s*\\%)?$/.exec(text)!
  const value = parseFraction(match[1]!.trim())
  return value === null || match[2] === undefined ? value : times(value, rational(1n, 100n)!)
}

function parseFraction(text: string): Rational | null {
  const power = /^(.+?)\s*\\(?:times|cdot)\s*10\s*\^\s*(?:\{\s*(-?\d{1,4})\s*\}|(\d))$/.exec(text)
  if (power !== null) {
    const factor = parseDecimal(power[1]!.replaceAll(' ', ''))
    const scale = parseDecimal(`1e${power[2] ?? power[3]}`)!
    return factor === null ? null : times(factor, scale)
  }
  const fraction =
    /^([-+]?)\s*(?:(\d+)\s*(?:\s|(?=\\)))?(?:\\frac\s*(?:\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}|(\d)\s*(\d))|(\d+)\s*\/\s*(\d+))$/.exec(
      text,
    )
  if (fraction === null) return parseDecimal(text)
  const [, sign, whole = '0', a, b, c, d, e, f] = fraction
  const part = over(rational(BigInt(a ?? c ?? e!))!, rational(BigInt(b ?? d ?? f!))!)
  if (part === null) return null
  const sum = plus(rational(BigInt(whole))!, part)
  return sign === '-' ? times(sum, rational(-1n)!) : sum
}
