/** JSON schemas by chance, and a checker of values that knows nothing of grammars. */

/** A schema, or a part of one. */
export type Schema = Readonly<Record<string, unknown>>

/** Numbers in [0, 1), one after another. */
type Draw = () => number

const NAMES = ['a', 'name', 'is it', 'x"y', 'ключ', 'b\\c', 'id', 'value']
const CONSTANTS = [null, true, 0, -3, 1.5, 'red', 'two words', 'q"', '', [1, 'a'], { k: [] }]
const PATTERNS = ['^[a-z]{1,4}$', '^\\d{3}-\\d{2}$', '^(yes|no)$', '^[A-F0-9]+$', '^a.c$', '^\\w+$', '^[^x]{2}$']
const FORMATS = ['date', 'time', 'date-time', 'uuid', 'ipv4', 'email', 'duration']

/** A schema by chance, of at most so many levels. */
export function randomSchema(draw: Draw, depth = 3): Schema {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(draw() * list.length)]!
  const chance = (p: number) => draw() < p
  const below = (n: number) => Math.floor(draw() * n)
  const some = <T>(list: readonly T[]): T[] => list.filter(() => chance(0.4))
  const kinds = ['string', 'integer', 'number', 'boolean', 'null', 'enum', 'const']
  const kind = pick(depth > 0 ? [...kinds, 'object', 'object', 'array', 'anyOf', 'types'] : kinds)
  const described = chance(0.2) ? { description: 'what it is' } : {}
  switch (kind) {
    case 'string': {
      const least = below(4)
      const bounds = {
        ...(chance(0.5) ? { minLength: least } : {}),
        ...(chance(0.5) ? { maxLength: least + below(8) } : {}),
      }
      return { type: kind, ...described, ...pick([{}, bounds, { pattern: pick(PATTERNS) }, { format: pick(FORMATS) }]) }
    }
    case 'integer':
    case 'number': {
      const scale = kind === 'number' && chance(0.5) ? 0.25 : 1
      const least = (below(2000) - 1000) * scale
      const most = least + (1 + below(500)) * scale
      const lower = pick([{}, { minimum: least }, { exclusiveMinimum: least }])
      const upper = pick([{}, { maximum: most }, { exclusiveMaximum: most + scale }])
      return { type: kind, ...described, ...lower, ...upper }
    }
    case 'enum':
      return { enum: [pick(CONSTANTS), ...some(CONSTANTS)] }
    case 'const':
      return { const: pick(CONSTANTS) }
    case 'object': {
      const names = some(NAMES)
      const properties = Object.fromEntries(names.map((name) => [name, randomSchema(draw, depth - 1)]))
      const additional = pick([{}, { additionalProperties: false }, { additionalProperties: false }])
      return { type: kind, ...described, properties, required: some(names), ...additional }
    }
    case 'array': {
      const least = below(3)
      const bounds = {
        ...(chance(0.5) ? { minItems: least } : {}),
        ...(chance(0.6) ? { maxItems: least + below(3) } : {}),
      }
      return { type: kind, ...described, items: randomSchema(draw, depth - 1), ...bounds }
    }
    case 'anyOf':
      return { anyOf: [randomSchema(draw, depth - 1), randomSchema(draw, depth - 1)] }
    case 'types':
      return { type: [pick(['string', 'integer']), pick(['null', 'boolean'])] }
    default:
      return { type: kind, ...described }
  }
}

const FORMAT: Readonly<Record<string, RegExp>> = {
  date: /^\d{4}-\d{2}-\d{2}$/,
  time: /^\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/,
  'date-time': /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/,
  uuid: /^[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}$/,
  ipv4: /^(\d{1,3}\.){3}\d{1,3}$/,
  email: /^.+@.+$/s,
  duration: /^P(?=.)/,
}

/** Why a value is outside a schema, by the name of what it is outside of; null where it is not. */
export function outside(schema: unknown, value: unknown, root: unknown = schema): string | null {
  if (schema === true) return null
  if (schema === false) return 'false'
  const rules = schema as Schema
  const isOf = (type: unknown): boolean => {
    if (type === 'integer') return typeof value === 'number' && Number.isInteger(value)
    if (type === 'array') return Array.isArray(value)
    if (type === 'null') return value === null
    if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
    return typeof value === type
  }
  const same = (other: unknown) => canonical(other) === canonical(value)
  const fits = (part: unknown) => outside(part, value, root) === null
  const own = Object.entries(isOf('object') ? (value as object) : {})
  const items = Array.isArray(value) ? value : []
  const length = typeof value === 'string' ? Array.from(value).length : 0
  const checks: Record<string, (rule: never) => boolean> = {
    type: (rule: string | string[]) => [rule].flat().some(isOf),
    enum: (rule: unknown[]) => rule.some(same),
    const: (rule: unknown) => same(rule),
    $ref: (rule: string) => fits(referred(root, rule)),
    allOf: (rule: unknown[]) => rule.every(fits),
    anyOf: (rule: unknown[]) => rule.some(fits),
    oneOf: (rule: unknown[]) => rule.filter(fits).length === 1,
    minLength: (rule: number) => typeof value !== 'string' || length >= rule,
    maxLength: (rule: number) => typeof value !== 'string' || length <= rule,
    pattern: (rule: string) => typeof value !== 'string' || new RegExp(rule, 'u').test(value),
    format: (rule: string) => typeof value !== 'string' || FORMAT[rule] === undefined || FORMAT[rule].test(value),
    minimum: (rule: number) => typeof value !== 'number' || value >= rule,
    maximum: (rule: number) => typeof value !== 'number' || value <= rule,
    exclusiveMinimum: (rule: number) => typeof value !== 'number' || value > rule,
    exclusiveMaximum: (rule: number) => typeof value !== 'number' || value < rule,
    minItems: (rule: number) => !Array.isArray(value) || items.length >= rule,
    maxItems: (rule: number) => !Array.isArray(value) || items.length <= rule,
    prefixItems: (rule: unknown[]) =>
      items.every((item, i) => i >= rule.length || outside(rule[i], item, root) === null),
    items: (rule: unknown) =>
      items.every(
        (item, i) => i < ((rules.prefixItems as unknown[]) ?? []).length || outside(rule, item, root) === null,
      ),
    properties: (rule: Schema) =>
      own.every(([name, each]) => !Object.hasOwn(rule, name) || outside(rule[name], each, root) === null),
    required: (rule: string[]) => !isOf('object') || rule.every((name) => own.some(([own]) => own === name)),
    additionalProperties: (rule: unknown) =>
      own.every(
        ([name, each]) => Object.hasOwn((rules.properties as Schema) ?? {}, name) || outside(rule, each, root) === null,
      ),
    minProperties: (rule: number) => !isOf('object') || own.length >= rule,
    maxProperties: (rule: number) => !isOf('object') || own.length <= rule,
    propertyNames: (rule: unknown) => own.every(([name]) => outside(rule, name, root) === null),
  }
  return Object.keys(rules).find((name) => checks[name]?.(rules[name] as never) === false) ?? null
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, each) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  )
}

function referred(root: unknown, pointer: string): unknown {
  return pointer
    .split('/')
    .slice(1)
    .map((part) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((at, part) => (at as Schema)[part], root)
}
