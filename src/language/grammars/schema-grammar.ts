/**
 * JSON schemas as grammars. Every answer of the grammar matches the schema: keywords that are not supported are refused
 * by name. The grammar allows fewer values than the schema: properties come in the schema's order, others are allowed
 * only with `additionalProperties` or if no properties are given, numbers have at most 15 digits before and after the
 * point, and at most 16 spaces separate two parts.
 */
import { InputError, show } from '../../base/errors.ts'
import { ANY_INTEGER, ANY_NUMBER, type Bound, numberGrammar } from './number-grammar.ts'
import { ALL, type Ranges, without } from './ranges.ts'
import { regexGrammar } from './regex-grammar.ts'
import { characterClass, either, literal, Rules, repeated } from './rules.ts'

type Schema = Readonly<Record<string, unknown>>

/** At most 16 spaces between two parts, so a model cannot write spaces forever. */
export const SPACES = 'ws ::= [ \\n\\t]{0,16}'
/** Keywords that do not restrict values. */
const NOTES = [
  ...['title', 'description', 'default', 'examples', '$schema', '$id', '$comment', '$defs', 'definitions', '$anchor'],
  ...['deprecated', 'readOnly', 'writeOnly', 'contentEncoding', 'contentMediaType', 'contentSchema', 'discriminator'],
]
const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  ...{ null: [], boolean: [] },
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems'],
  object: ['properties', 'required', 'additionalProperties', 'minProperties', 'maxProperties'],
}
const TYPES = Object.keys(KEYWORDS)

const DAY = '(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8])'
const TIME = '([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)'
const BYTE = '(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const LABEL = '[a-zA-Z\\d]([a-zA-Z\\d-]{0,20}[a-zA-Z\\d])?'
/**
 * Formats as regular expressions. Other standard formats are refused; formats that are not in the standard are ignored.
 */
const FORMATS: Readonly<Record<string, string>> = {
  date: `\\d{4}-(${DAY})`,
  time: TIME,
  'date-time': `\\d{4}-(${DAY})T${TIME}`,
  duration:
    'P(\\d{1,9}W|(\\d{1,9}D)?T\\d{1,9}(H(\\d{1,9}M(\\d{1,9}S)?)?|M(\\d{1,9}S)?|S)|\\d{1,9}(Y(\\d{1,9}M(\\d{1,9}D)?)?|M(\\d{1,9}D)?|D))',
  email: `[a-zA-Z\\d_+-]{1,32}(\\.[a-zA-Z\\d_+-]{1,32})?@${LABEL}(\\.${LABEL}){1,3}`,
  hostname: `${LABEL}(\\.${LABEL}){0,3}`,
  ipv4: `${BYTE}(\\.${BYTE}){3}`,
  ipv6: '[\\da-f]{1,4}(:[\\da-f]{1,4}){7}',
  uuid: '[\\da-f]{8}-[\\da-f]{4}-[\\da-f]{4}-[\\da-f]{4}-[\\da-f]{12}',
  uri: `[a-z][a-z\\d+.-]{0,15}://${LABEL}(\\.${LABEL}){0,3}(:\\d{1,4})?(/[a-zA-Z\\d._~-]*)*(\\?[a-zA-Z\\d._~=&-]*)?`,
}
const OTHER_FORMATS = [
  ...['idn-email', 'idn-hostname', 'uri-reference', 'iri', 'iri-reference', 'uri-template', 'json-pointer'],
  ...['relative-json-pointer', 'regex'],
]

const QUOTE: Ranges = [[34, 34]]
const BACKSLASH: Ranges = [[92, 92]]
const CONTROLS: Ranges = [[0, 31]]
const ESCAPES: Readonly<Record<number, string>> = { 8: 'b', 9: 't', 10: 'n', 12: 'f', 13: 'r', 34: '"', 92: '\\' }
/** A character in a JSON string. Escaped surrogates are excluded. */
const CHARACTER =
  '([^"\\\\\\x00-\\x1f] | "\\\\" (["\\\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F] | [dD] [0-7]) [0-9a-fA-F] [0-9a-fA-F]))'

/**
 * The GBNF grammar of a schema's JSON.
 * @throws InputError if the schema is invalid or no answer can match it, and for each unsupported keyword, by name.
 */
export function schemaGrammar(schema: unknown): string {
  return `${schemaRules(schema, 'schema', 'root', 'r')}\n${SPACES}`
}

/**
 * The same as rules for a larger grammar, which has `SPACES`. The first is called `name`, and the names of the others begin with
 * `prefix`; `subject` is the schema's name in errors.
 */
export function schemaRules(schema: unknown, subject: string, name: string, prefix: string): string {
  const writer = new Writer(schema, prefix)
  const root = writer.value(schema, subject)
  return writer.rules.grammar(name, root)
}

class Writer {
  readonly rules: Rules
  readonly #root: unknown
  /** The rule of each reference, by where it points. */
  readonly #referred = new Map<string, string>()
  readonly #character: string
  #any: string | null = null
  #compared = 0

  constructor(root: unknown, prefix: string) {
    this.rules = new Rules(prefix)
    this.#root = root
    this.#character = this.rules.add(CHARACTER)
  }

  /** The name of a rule, or a literal, for the values of a schema. */
  value(schema: unknown, path: string, references: readonly string[] = []): string {
    if (schema === true) return this.#anyValue()
    if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) {
      throw new InputError(path, show(schema), 'a JSON schema that some value matches: an object, or true')
    }
    const rules = schema as Schema
    const words = Object.keys(rules).filter((word) => !NOTES.includes(word) && rules[word] !== undefined)
    const alone = ['$ref', 'const', 'enum', 'anyOf', 'oneOf', 'allOf'].find((word) => words.includes(word))
    if (alone === undefined) return this.#typed(rules, words, path)
    const hasValues = alone === 'const' || alone === 'enum'
    const other = words.find((word) => word !== alone && !(hasValues && word === 'type'))
    if (other !== undefined) throw new InputError(`${path}.${other}`, `one beside ${alone}`, `${alone} alone`)
    if (alone === '$ref') return this.#reference(rules.$ref, path, references)
    if (hasValues) return this.#values(rules, alone, path)
    const parts = rules[alone]
    if (!Array.isArray(parts) || parts.length === 0)
      throw new InputError(`${path}.${alone}`, show(parts), 'a list of schemas')
    if (alone === 'allOf' && parts.length > 1) {
      throw new InputError(`${path}.allOf`, `${parts.length} schemas`, 'one: several cannot be enforced together')
    }
    if (alone === 'oneOf') this.#checkApart(parts, path)
    return this.rules.add(either(parts.map((part, i) => this.value(part, `${path}.${alone}[${i}]`, references))))
  }

  #anyValue(): string {
    if (this.#any !== null) return this.#any
    const any = this.rules.reserve()
    this.#any = any
    const member = `${this.#text()} ws ":" ws ${any}`
    const list = (open: string, item: string, close: string) =>
      `"${open}" ws (${item} (ws "," ws ${item})* ws)? "${close}"`
    const alternatives = [
      list('{', member, '}'),
      list('[', any, ']'),
      this.#text(),
      ANY_NUMBER,
      '"true"',
      '"false"',
      '"null"',
    ]
    return this.rules.set(any, alternatives.join(' | '))
  }

  #text(): string {
    return this.rules.add(`"\\"" ${this.#character}* "\\""`)
  }

  #reference(pointer: unknown, path: string, references: readonly string[]): string {
    if (typeof pointer !== 'string' || !/^#(\/|$)/.test(pointer)) {
      throw new InputError(`${path}.$ref`, show(pointer), 'a place in this schema, like "#/$defs/name"')
    }
    if (references.includes(pointer))
      throw new InputError(`${path}.$ref`, show(pointer), 'a schema that does not refer only to itself')
    const known = this.#referred.get(pointer)
    if (known !== undefined) return known
    const schema = this.#target(pointer, path)
    const name = this.rules.reserve()
    // A schema that is only a reference is not kept, so that `references` reveals cycles of them.
    const isPassed = typeof schema === 'object' && schema !== null && Object.hasOwn(schema, '$ref')
    if (!isPassed) this.#referred.set(pointer, name)
    return this.rules.set(name, this.value(schema, pointer, isPassed ? [...references, pointer] : []))
  }

  #target(pointer: string, path: string): unknown {
    const parts = pointer.split('/').slice(1)
    return parts.reduce((at: unknown, part) => {
      const name = unescaped(part).replaceAll('~1', '/').replaceAll('~0', '~')
      if (typeof at === 'object' && at !== null && Object.hasOwn(at, name)) return (at as Schema)[name]
      throw new InputError(`${path}.$ref`, show(pointer), 'a place that the schema has')
    }, this.#root)
  }

  #values(rules: Schema, word: string, path: string): string {
    const all = word === 'const' ? [rules.const] : rules.enum
    if (!Array.isArray(all)) throw new InputError(`${path}.enum`, show(all), 'a list of values')
    const types = rules.type === undefined ? null : typesOf(rules.type, path)
    const values = all.filter((value) => types === null || types.some((type) => isOf(type, value)))
    if (values.length > 0) return this.rules.add(either(values.map((value) => literal(JSON.stringify(value)))))
    throw new InputError(`${path}.${word}`, show(all), 'at least one value of the type')
  }

  #typed(rules: Schema, words: readonly string[], path: string): string {
    const others = words.filter((word) => word !== 'type')
    const unknown = others.find((word) => !TYPES.some((type) => KEYWORDS[type]!.includes(word)))
    if (unknown !== undefined) {
      const expected = `none: only ${[...new Set(Object.values(KEYWORDS).flat())].join(', ')} and references are enforced`
      throw new InputError(`${path}.${unknown}`, show(rules[unknown]), expected)
    }
    if (rules.type === undefined && others.length === 0) return this.#anyValue()
    // A schema with the keywords of one type but no `type` gets that type.
    const meant = TYPES.filter((type) => type !== 'integer' && others.every((word) => KEYWORDS[type]!.includes(word)))
    if (rules.type === undefined && meant.length === 0)
      throw new InputError(`${path}.type`, 'none', 'the type of its keywords')
    const types = rules.type === undefined ? meant : typesOf(rules.type, path)
    return this.rules.add(either(types.map((type) => this.#ofType(type, rules, path))))
  }

  #ofType(type: string, rules: Schema, path: string): string {
    if (type === 'null') return '"null"'
    if (type === 'boolean') return '("true" | "false")'
    if (type === 'string') return this.#string(rules, path)
    if (type === 'array') return this.#array(rules, path)
    if (type === 'object') return this.#object(rules, path)
    const lower = boundOf(rules, 'minimum', 'exclusiveMinimum', path, (a, b) => a > b)
    const upper = boundOf(rules, 'maximum', 'exclusiveMaximum', path, (a, b) => a < b)
    if (lower === null && upper === null) return this.rules.add(type === 'integer' ? ANY_INTEGER : ANY_NUMBER)
    return this.rules.add(numberGrammar(type === 'integer', lower, upper, path))
  }

  #string(rules: Schema, path: string): string {
    const { pattern, format } = rules
    const min = countOf(rules, 'minLength', path) ?? 0
    const max = countOf(rules, 'maxLength', path)
    const isBounded = min > 0 || max !== null
    const known = typeof format === 'string' && Object.hasOwn(FORMATS, format) ? FORMATS[format]! : null
    if (typeof format === 'string' && OTHER_FORMATS.includes(format)) {
      throw new InputError(`${path}.format`, show(format), `one of ${Object.keys(FORMATS).join(', ')}`)
    }
    if (pattern !== undefined && typeof pattern !== 'string')
      throw new InputError(`${path}.pattern`, show(pattern), 'a text')
    const given = [isBounded ? 'a length' : null, pattern === undefined ? null : 'pattern', known && 'format'].filter(
      Boolean,
    )
    if (given.length > 1) throw new InputError(path, given.join(' and '), 'one of length, pattern and format')
    if (isBounded) {
      if (max !== null && max < min)
        throw new InputError(`${path}.maxLength`, String(max), `at least minLength, ${min}`)
      return this.rules.add(`"\\"" ${repeated(this.#character, min, max)} "\\""`)
    }
    const regex = pattern ?? known
    if (regex === null) return this.#text()
    const spelled = regexGrammar(regex, (ranges) => this.#spell(ranges, path), known !== null, `${path}.pattern`)
    return this.rules.add(`"\\"" ${spelled} "\\""`)
  }

  /** The characters of a class in a JSON string. */
  #spell(ranges: Ranges, path: string): string {
    const raw = without(without(without(ranges, QUOTE), BACKSLASH), CONTROLS)
    const escaped = without(ranges, without(ALL, [...CONTROLS, ...QUOTE, ...BACKSLASH]))
    const alternatives = raw.length === 0 ? [] : [characterClass(raw)]
    for (const [from, to] of escaped) {
      for (let code = from; code <= to; code++) {
        const short = ESCAPES[code]
        alternatives.push(literal(short === undefined ? `\\u${code.toString(16).padStart(4, '0')}` : `\\${short}`))
      }
    }
    if (alternatives.length === 0)
      throw new InputError(`${path}.pattern`, 'a class without characters', 'a class with characters')
    return this.rules.add(either(alternatives))
  }

  #array(rules: Schema, path: string): string {
    if (rules.uniqueItems === true) throw new InputError(`${path}.uniqueItems`, 'true', 'false: it cannot be enforced')
    const { prefixItems = [], items = true } = rules
    const min = countOf(rules, 'minItems', path) ?? 0
    const max = countOf(rules, 'maxItems', path)
    if (!Array.isArray(prefixItems)) throw new InputError(`${path}.prefixItems`, show(prefixItems), 'a list of schemas')
    if (max !== null && max < min) throw new InputError(`${path}.maxItems`, String(max), `at least minItems, ${min}`)
    const first = prefixItems
      .slice(0, max ?? prefixItems.length)
      .map((each, i) => this.value(each, `${path}.prefixItems[${i}]`))
    const most = items === false ? first.length : max
    if (most !== null && most < min)
      throw new InputError(`${path}.minItems`, String(min), `at most ${most}, as items says`)
    const isMore = most === null || most > first.length
    const item = isMore ? this.value(items, `${path}.items`) : ''
    const rest = isMore
      ? repeated(
          `(ws "," ws ${item})`,
          Math.max(0, min - Math.max(1, first.length)),
          most === null ? null : most - Math.max(1, first.length),
        )
      : '""'
    if (most === 0) return this.rules.add('"[" ws "]"')
    // From the last item to the first: the array may end after any item once it has `minItems`.
    let tail = rest
    for (let i = first.length - 1; i >= 1; i--) {
      const more = `ws "," ws ${first[i]} ${tail}`
      tail = this.rules.add(i < min ? more : `(${more})?`)
    }
    const filled = `${first[0] ?? item} ${tail}`
    return this.rules.add(`"[" ws ${min > 0 ? filled : `(${filled})?`} ws "]"`)
  }

  #object(rules: Schema, path: string): string {
    const { properties = {}, required = [], additionalProperties: additional } = rules
    if (typeof properties !== 'object' || properties === null || Array.isArray(properties)) {
      throw new InputError(`${path}.properties`, show(properties), 'schemas by name')
    }
    if (!Array.isArray(required) || required.some((name) => typeof name !== 'string')) {
      throw new InputError(`${path}.required`, show(required), 'a list of names')
    }
    const schemas = new Map(Object.entries(properties))
    for (const name of required as string[]) if (!schemas.has(name)) schemas.set(name, additional ?? true)
    // Skip properties that must not be there.
    const names = [...schemas.keys()].filter((name) => schemas.get(name) !== false || required.includes(name))
    const isMap = names.length === 0
    const others = additional === false || (additional === undefined && !isMap) ? null : (additional ?? true)
    const extra = others === null ? null : this.#member(names, others, path)
    const [min, max] = [countOf(rules, 'minProperties', path) ?? 0, countOf(rules, 'maxProperties', path)]
    if (!isMap && (min > 0 || max !== null)) {
      const word = min > 0 ? 'minProperties' : 'maxProperties'
      throw new InputError(`${path}.${word}`, 'one beside properties', 'none: it is enforced without properties alone')
    }
    if (min > 1) throw new InputError(`${path}.minProperties`, String(min), '0 or 1')
    if (max !== null && max < min) throw new InputError(`${path}.maxProperties`, String(max), `at least ${min}`)
    if (isMap) {
      if (extra === null || max === 0) return this.rules.add('"{" ws "}"')
      const filled = `${extra} ${repeated(`(ws "," ws ${extra})`, 0, max === null ? null : max - 1)} ws`
      return this.rules.add(`"{" ws ${min > 0 ? filled : `(${filled})?`} "}"`)
    }
    const members = names.map((name) => {
      const value = this.value(schemas.get(name), `${path}.properties.${name}`)
      return this.rules.add(`${literal(JSON.stringify(name))} ws ":" ws ${value}`)
    })
    // The remaining members after one has been written (`behind`), or if none has been (`first`), built from the last
    // member on.
    let behind = extra === null ? '""' : `(ws "," ws ${extra})*`
    let first = extra === null ? '""' : `(${extra} (ws "," ws ${extra})*)?`
    const needed = new Set(required)
    for (let i = names.length - 1; i >= 0; i--) {
      const isRequired = needed.has(names[i])
      const begun = `${members[i]} ${behind}`
      first = this.rules.add(isRequired ? begun : `${begun} | ${first}`)
      const more = `ws "," ws ${members[i]} ${behind}`
      behind = this.rules.add(isRequired ? more : `(ws "," ws ${members[i]})? ${behind}`)
    }
    return this.rules.add(`"{" ws ${first} ws "}"`)
  }

  /** A member whose name is not in `names`. */
  #member(names: readonly string[], schema: unknown, path: string): string {
    const value = this.value(schema, `${path}.additionalProperties`)
    const name =
      names.length === 0
        ? this.#text()
        : this.rules.add(`"\\"" ${this.#otherThan(names.map((each) => Array.from(each)))}`)
    return this.rules.add(`${name} ws ":" ws ${value}`)
  }

  /**
   * The continuations after the common beginning of these texts that differ from each of them, up to the closing quote,
   * without escapes.
   */
  #otherThan(texts: readonly (readonly string[])[]): string {
    const raw = without(without(without(ALL, QUOTE), BACKSLASH), CONTROLS)
    const begins = [...new Set(texts.flatMap(([character]) => (character === undefined ? [] : [character])))]
    const codes = begins.map((character): readonly [number, number] => [
      character.codePointAt(0)!,
      character.codePointAt(0)!,
    ])
    const alternatives = [`${characterClass(without(raw, codes))} ${characterClass(raw)}* "\\""`]
    if (texts.every(({ length }) => length > 0)) alternatives.push('"\\""')
    for (const [i, character] of begins.entries()) {
      if (without(raw, [codes[i]!]).length === raw.length) continue // Only an escape can write it.
      const rest = texts.filter(([own]) => own === character).map((text) => text.slice(1))
      alternatives.push(`${literal(character)} ${this.#otherThan(rest)}`)
    }
    return this.rules.add(either(alternatives))
  }

  /** Throws if a value may match two of the alternatives. */
  #checkApart(parts: readonly unknown[], path: string): void {
    const resolved = parts.map((part) => this.#resolved(part, path))
    for (const [i, a] of resolved.entries()) {
      const together = resolved.slice(i + 1).findIndex((b) => !this.#areApart(a, b, path))
      if (together < 0) continue
      const got = `alternatives ${i} and ${i + 1 + together}, which a value may both match`
      throw new InputError(`${path}.oneOf`, got, 'alternatives of other types or with other constants, or anyOf')
    }
  }

  #resolved(schema: unknown, path: string): Schema {
    let at = (typeof schema === 'object' ? schema : null) as Schema | null
    for (let i = 0; i < 32 && typeof at?.$ref === 'string'; i++) at = this.#target(at.$ref, path) as Schema | null
    return at ?? {}
  }

  #areApart(a: Schema, b: Schema, path: string): boolean {
    const [own, others] = [valuesOf(a), valuesOf(b)]
    this.#compared += 1 + (own?.length ?? 0) + (others?.length ?? 0)
    if (this.#compared > COMPARED_MAX) {
      const got = `more than ${COMPARED_MAX} pairs of alternatives to compare`
      throw new InputError(`${path}.oneOf`, got, 'fewer alternatives, or anyOf')
    }
    const [left, right] = [kindsOf(a), kindsOf(b)]
    if (left === null || right === null) return false
    if (left.every((kind) => !right.includes(kind))) return true
    if (own !== null && others !== null) {
      const values = new Set(others)
      return own.every((value) => !values.has(value))
    }
    const [properties, otherProperties] = [a, b].map(({ properties }) => (properties ?? {}) as Schema) as [
      Schema,
      Schema,
    ]
    const [names, otherNames] = [a, b].map(({ required }) => (Array.isArray(required) ? required : [])) as [
      string[],
      string[],
    ]
    const required = names.filter((name) => otherNames.includes(name))
    if (left.length > 1 || right.length > 1 || left[0] !== 'object') return false
    return required.some((name) => {
      return this.#areApart(this.#resolved(properties[name], path), this.#resolved(otherProperties[name], path), path)
    })
  }
}

/** A part of a reference without its percent signs, or as it is if they are wrong. */
function unescaped(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

function isOf(type: string, value: unknown): boolean {
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'integer') return Number.isInteger(value)
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  return typeof value === type
}

function typesOf(type: unknown, path: string): readonly string[] {
  const types: unknown[] = [type].flat()
  const isRight = types.length > 0 && types.every((each) => typeof each === 'string' && TYPES.includes(each))
  if (isRight) return types as string[]
  throw new InputError(`${path}.type`, show(type), `one or several of ${TYPES.join(', ')}`)
}

/** The types of a schema's values, with integers as numbers; null if unknown. */
function kindsOf(schema: Schema): readonly string[] | null {
  const values = valuesOf(schema)
  if (values !== null) return values.map((value) => kindOf(JSON.parse(value)))
  if (schema.type === undefined) return null
  return ([schema.type].flat() as string[]).map((type) => (type === 'integer' ? 'number' : type))
}

function kindOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
}

/** A schema's values as JSON, if it lists them. */
function valuesOf(schema: Schema): readonly string[] | null {
  if (Object.hasOwn(schema, 'const')) return [JSON.stringify(schema.const)]
  return Array.isArray(schema.enum) ? schema.enum.map((value) => JSON.stringify(value)) : null
}

function countOf(rules: Schema, word: string, path: string): number | null {
  const value = rules[word]
  if (value === undefined) return null
  if (Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= COUNT_MAX) return value as number
  throw new InputError(`${path}.${word}`, show(value), `a whole number from 0 to ${COUNT_MAX}`)
}
const COUNT_MAX = 4096
/** Pairs of schemas, and their constants, that `oneOf` compares. */
const COMPARED_MAX = 100_000

/** The stricter of two bounds. */
function boundOf(
  rules: Schema,
  inclusive: string,
  exclusive: string,
  path: string,
  isTighter: (a: number, b: number) => boolean,
): Bound | null {
  const [including, excluding] = [inclusive, exclusive].map((word) => {
    const value = rules[word]
    if (value === undefined || Number.isFinite(value)) return value as number | undefined
    throw new InputError(`${path}.${word}`, show(value), 'a number')
  })
  if (including === undefined && excluding === undefined) return null
  if (including === undefined || (excluding !== undefined && !isTighter(including, excluding))) {
    return { value: excluding!, isExclusive: true }
  }
  return { value: including, isExclusive: false }
}
