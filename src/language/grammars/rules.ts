/** The rules of a GBNF grammar, and how GBNF writes texts and characters. */
import type { Ranges } from './ranges.ts'

/** Rules by name. */
export class Rules {
  readonly #bodies = new Map<string, string>()
  readonly #names = new Map<string, string>()
  readonly #prefix: string
  #next = 0

  /** Names of rules begin with `prefix`. */
  constructor(prefix = 'r') {
    this.#prefix = prefix
  }

  /** Adds a rule and returns its name; equal bodies share one rule. */
  add(body: string): string {
    return this.#names.get(body) ?? this.set(this.reserve(), body)
  }

  /** A name for a rule that is set later. */
  reserve(): string {
    return `${this.#prefix}${this.#next++}`
  }

  set(name: string, body: string): string {
    this.#bodies.set(name, body)
    if (!this.#names.has(body)) this.#names.set(body, name)
    return name
  }

  /** The rules, one per line, after a rule called `first` with the body `root`. */
  grammar(first: string, root: string): string {
    return [[first, root], ...this.#bodies].map(([name, body]) => `${name} ::= ${body}`).join('\n')
  }
}

/** A text in GBNF. */
export function literal(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&').replace(/\p{Cc}/gu, escaped)}"`
}

/** One of these alternatives. */
export function either(alternatives: readonly string[]): string {
  return alternatives.length === 1 ? alternatives[0]! : `(${alternatives.join(' | ')})`
}

/** `item` from `min` to `max` times; null is no limit. */
export function repeated(item: string, min: number, max: number | null): string {
  if (max === 0) return '""'
  if (min === 0 && max === null) return `${item}*`
  if (min === 1 && max === null) return `${item}+`
  if (min === 1 && max === 1) return item
  return `${item}{${min},${max ?? ''}}`
}

/** A character class in GBNF. */
export function characterClass(ranges: Ranges): string {
  const spelled = (code: number) => `\\U${code.toString(16).padStart(8, '0')}`
  return `[${ranges.map(([from, to]) => (from === to ? spelled(from) : `${spelled(from)}-${spelled(to)}`)).join('')}]`
}

function escaped(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
}
