/**
 * Regular expressions as grammars: characters, classes, groups, alternatives, repetitions and anchors at the ends. The
 * caller decides how a class is written, for instance with JSON's escapes.
 */
import { InputError, show } from '../../base/errors.ts'
import { ALL, type Ranges, without } from './ranges.ts'
import { either, repeated } from './rules.ts'

/** How the characters of a class are written. */
export type Spelling = (ranges: Ranges) => string

const DIGIT: Ranges = [[48, 57]]
const WORD: Ranges = [
  [48, 57],
  [65, 90],
  [95, 95],
  [97, 122],
]
const SPACE: Ranges = [
  [9, 13],
  [32, 32],
]
const LINE_ENDS: Ranges = [
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
]
/** How many characters a part that is read at once may have. */
const AHEAD = 64
const CONTROL: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, f: 12, v: 11, 0: 0 }

/**
 * The grammar of the texts in which the pattern matches; if `isWhole`, of the texts that it matches as a whole.
 * @throws InputError for unsupported parts, such as lookarounds and references to groups.
 */
export function regexGrammar(pattern: string, spell: Spelling, isWhole: boolean, path: string): string {
  try {
    new RegExp(pattern, 'u')
  } catch (cause) {
    throw new InputError(path, show(pattern), `a regular expression (${(cause as Error).message})`, { cause })
  }
  return new Reader(pattern, spell, isWhole, path).whole()
}

class Reader {
  readonly #pattern: string
  readonly #characters: readonly string[]
  readonly #spell: Spelling
  readonly #isWhole: boolean
  readonly #path: string
  #at = 0

  constructor(pattern: string, spell: Spelling, isWhole: boolean, path: string) {
    this.#pattern = pattern
    this.#characters = Array.from(pattern)
    this.#spell = spell
    this.#isWhole = isWhole
    this.#path = path
  }

  whole(): string {
    const any = `${this.#spell(ALL)}*`
    const alternatives: string[] = []
    do {
      const begins = this.#take('^')
      const body = this.#sequence()
      const ends = this.#take('$')
      const isOver = this.#next === undefined || this.#next === '|'
      if (!isOver) throw this.#unknown(this.#next!)
      const parts = [begins || this.#isWhole ? [] : [any], [body], ends || this.#isWhole ? [] : [any]].flat()
      alternatives.push(parts.join(' '))
    } while (this.#take('|'))
    return either(alternatives)
  }

  get #next(): string | undefined {
    return this.#characters[this.#at]
  }

  /** The next characters, enough for a count, a code or a group's name. */
  #ahead(): string {
    return this.#characters.slice(this.#at, this.#at + AHEAD).join('')
  }

  #take(character: string): boolean {
    if (this.#next !== character) return false
    this.#at++
    return true
  }

  #alternatives(): string {
    const list = [this.#sequence()]
    while (this.#take('|')) list.push(this.#sequence())
    return either(list)
  }

  #sequence(): string {
    const items: string[] = []
    while (this.#next !== undefined && !['|', ')', '$'].includes(this.#next)) items.push(this.#item())
    return items.length === 0 ? '""' : items.join(' ')
  }

  #item(): string {
    const atom = this.#atom()
    const [min, max] = this.#quantity()
    this.#take('?') // A lazy repetition matches the same texts.
    return min === 1 && max === 1 ? atom : repeated(atom, min, max)
  }

  #quantity(): readonly [min: number, max: number | null] {
    if (this.#take('*')) return [0, null]
    if (this.#take('+')) return [1, null]
    if (this.#take('?')) return [0, 1]
    const [all, min, comma, max] = /^\{(\d+)(,(\d*))?\}/.exec(this.#ahead()) ?? []
    if (all === undefined) return [1, 1]
    this.#at += all.length
    const least = Number(min)
    return [least, comma === undefined ? least : max === '' ? null : Number(max)]
  }

  #atom(): string {
    const character = this.#characters[this.#at++]!
    if (character === '(') return this.#group()
    if (character === '[') return this.#spell(this.#class())
    if (character === '.') return this.#spell(without(ALL, LINE_ENDS))
    if (character === '\\') return this.#spell(this.#escape())
    if (character === '^') throw this.#unknown('^')
    const code = character.codePointAt(0)!
    return this.#spell([[code, code]])
  }

  #group(): string {
    if (this.#take('?')) {
      const kind = this.#ahead()
      const [named] = /^<[A-Za-z_]\w*>/.exec(kind) ?? []
      if (named === undefined && !kind.startsWith(':')) throw this.#unknown(`(?${kind[0]}`)
      this.#at += named?.length ?? 1
    }
    const body = this.#alternatives()
    if (!this.#take(')')) throw this.#unknown(this.#next ?? 'the end')
    return `(${body})`
  }

  #escape(): Ranges {
    const character = this.#characters[this.#at++]!
    const set = { d: DIGIT, w: WORD, s: SPACE }[character.toLowerCase()]
    if (set !== undefined) return character === character.toLowerCase() ? set : without(ALL, set)
    const code = CONTROL[character] ?? this.#hex(character)
    if (code !== undefined) return [[code, code]]
    if (/[\p{L}\d]/u.test(character)) throw this.#unknown(`\\${character}`)
    const own = character.codePointAt(0)!
    return [[own, own]]
  }

  /** The character that \x or \u names; undefined for other escapes. */
  #hex(kind: string): number | undefined {
    const rest = this.#ahead()
    const [all, digits] =
      (kind === 'x' ? /^([\da-f]{2})/i : kind === 'u' ? /^\{?([\da-f]+)\}?/i : /^$/).exec(rest) ?? []
    if (all === undefined || digits === undefined) return undefined
    this.#at += all.length
    return Number.parseInt(digits, 16)
  }

  #class(): Ranges {
    const isExcluded = this.#take('^')
    const ranges: [number, number][] = []
    while (!this.#take(']')) {
      const from = this.#member()
      const isRange = this.#next === '-' && this.#characters[this.#at + 1] !== ']'
      if (!isRange || from.length !== 1 || from[0]![0] !== from[0]![1]) {
        ranges.push(...from.map(([a, b]): [number, number] => [a, b]))
        continue
      }
      this.#at++
      const to = this.#member()
      ranges.push([from[0]![0], to[0]![1]])
    }
    const joined = without(ALL, without(ALL, ranges))
    return isExcluded ? without(ALL, ranges) : joined
  }

  #member(): Ranges {
    const character = this.#characters[this.#at++]!
    if (character === '\\' && this.#take('b')) return [[8, 8]]
    if (character === '\\') return this.#escape()
    const code = character.codePointAt(0)!
    return [[code, code]]
  }

  #unknown(part: string): InputError {
    return new InputError(
      this.#path,
      `${show(part)} in ${show(this.#pattern)}`,
      'characters, classes, groups and repetitions',
    )
  }
}
