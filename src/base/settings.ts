/** Settings: numbers, words, lists and switches, declared once with default, range and sentence for all uses. */
import { checkGiven, InputError, show, unknownWord } from './errors.ts'
import { withTodaysNames } from './former-names.ts'

/** The types of settings. */
export type SettingValue = number | string | boolean | null | readonly number[] | readonly string[]

/** One setting: its default gives its type. */
export interface Setting<T extends SettingValue = SettingValue> {
  readonly default: T
  readonly description: string
  /** The accepted values, for the error and the help: `a number in (0, 1]`. */
  readonly expected: string
  /** For the id of a part, like a reward: the kind of part, in one word. */
  readonly noun?: string
  /** The choices of a closed list, or known values of an open one, for completion. */
  readonly words?: readonly (string | number)[]
  /** Whether it is a number that need not be whole. */
  readonly isContinuous?: boolean
  /** @throws InputError for a value of which it can tell more than `expected`. */
  accepts(value: unknown): boolean
}

/** Declarations of settings by name. */
export type Settings = Readonly<Record<string, Setting>>

/** The values of a declaration: each key with the type of its default. */
export type SettingValues<S extends Settings> = { [K in keyof S]: S[K] extends Setting<infer T> ? T : never }

interface Range {
  min?: number
  max?: number
  /** Excludes the minimum itself; likewise `below` for the maximum. */
  above?: number
  below?: number
}

function inRange(value: number, { min = -Infinity, max = Infinity, above = -Infinity, below = Infinity }: Range) {
  return value >= min && value <= max && value > above && value < below
}

function describe(noun: string, { min, max, above, below }: Range): string {
  const low = above !== undefined ? `> ${above}` : min !== undefined ? `≥ ${min}` : ''
  const high = below !== undefined ? `< ${below}` : max !== undefined ? `≤ ${max}` : ''
  return [noun, [low, high].filter(Boolean).join(' and ')].filter(Boolean).join(' ')
}

/** A finite number. */
export function number(initial: number, description: string, range: Range = {}): Setting<number> {
  return {
    default: initial,
    description,
    expected: describe('a number', range),
    isContinuous: true,
    accepts: (value) => typeof value === 'number' && Number.isFinite(value) && inRange(value, range),
  }
}

/** A number from 0 to 1, like a probability. */
export function fraction(initial: number, description: string): Setting<number> {
  return number(initial, description, { min: 0, max: 1 })
}

/** A whole number. */
export function integer(initial: number, description: string, range: Range = {}): Setting<number> {
  return {
    default: initial,
    description,
    expected: describe('a whole number', range),
    accepts: (value) => Number.isSafeInteger(value) && inRange(value as number, range),
  }
}

/** A finite number, or null to disable the feature. */
export function optionalNumber(initial: number | null, description: string, range: Range = {}): Setting<number | null> {
  const some = number(0, description, range)
  return {
    default: initial,
    description,
    expected: `${some.expected}, or null`,
    isContinuous: true,
    accepts: (value) => value === null || some.accepts(value),
  }
}

/** true or false. */
export function boolean(initial: boolean, description: string): Setting<boolean> {
  return { default: initial, description, expected: 'true or false', accepts: (value) => typeof value === 'boolean' }
}

/** One word, or one number, of a closed list. */
export function choice<const W extends string | number>(
  initial: W,
  words: readonly W[],
  description: string,
): Setting<W> {
  checkGiven('words of choice', words, 'a list')
  checkGiven('description of choice', description, 'a text')
  return {
    default: initial,
    description,
    expected: `one of ${words.join(', ')}`,
    words,
    accepts: (value) => words.includes(value as W),
  }
}

/** Any text, like the name of a file. */
export function text(initial: string, description: string): Setting<string> {
  return { default: initial, description, expected: 'a text', accepts: (value) => typeof value === 'string' }
}

/** The id of a part, like a reward; `noun` names its kind. A run's key also takes a module's path. */
export function part(noun: string, initial: string, description: string): Setting<string> {
  const expected = `the id of ${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}, or the path of a module that exports one`
  return {
    default: initial,
    description,
    expected,
    noun,
    accepts: (value) => typeof value === 'string' && value !== '',
  }
}

/** Maximum numbers in a list: each may be a layer of a network. */
const LIST_MAX = 1000

/** A list of whole numbers of at least `min`; may be empty. */
export function integers(initial: readonly number[], description: string, min: number): Setting<readonly number[]> {
  return {
    default: Object.freeze([...initial]),
    description,
    expected: `a list of whole numbers ≥ ${min}, like 64,64, at most ${LIST_MAX} of them`,
    accepts: (value) =>
      Array.isArray(value) &&
      value.length <= LIST_MAX &&
      value.every((size) => Number.isSafeInteger(size) && size >= min),
  }
}

/** A list of whole numbers ≥ 1; may be empty. */
export function sizes(initial: readonly number[], description: string): Setting<readonly number[]> {
  checkGiven('initial of sizes', initial, 'a list')
  checkGiven('description of sizes', description, 'a text')
  return integers(initial, description, 1)
}

/** A list of non-empty texts; may itself be empty. */
export function strings(initial: readonly string[], description: string): Setting<readonly string[]> {
  checkGiven('initial of strings', initial, 'a list')
  checkGiven('description of strings', description, 'a text')
  return {
    default: Object.freeze([...initial]),
    description,
    expected: 'texts with commas between them, like csv,tensorboard',
    accepts: (value) => Array.isArray(value) && value.every((word) => typeof word === 'string' && word !== ''),
  }
}

/** Fills in defaults and checks the given values; `subject` names the owner in errors (`ppo`). */
export function resolveSettings<S extends Settings>(
  subject: string,
  declared: S,
  given: Partial<SettingValues<S>> = {},
): SettingValues<S> {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new InputError(subject, show(given), 'an object of settings')
  const today = withTodaysNames(subject, given)
  for (const key of Object.keys(today)) {
    if (!Object.hasOwn(declared, key)) throw unknownWord(`${subject} setting`, key, Object.keys(declared))
  }
  const resolved: Record<string, SettingValue> = {}
  for (const [key, setting] of Object.entries(declared)) {
    const value = (today as Record<string, SettingValue | undefined>)[key]
    if (value === undefined) resolved[key] = setting.default
    else if (setting.accepts(value)) resolved[key] = Array.isArray(value) ? Object.freeze([...value]) : value
    else throw new InputError(`${subject}.${key}`, show(value), setting.expected)
  }
  return resolved as SettingValues<S>
}

/** A part's settings from texts like `url=…`; | separates list entries. @throws InputError for a wrong text. */
export function readSettingTexts(
  subject: string,
  owner: string,
  declared: Settings,
  texts: readonly string[],
): Record<string, SettingValue> {
  const given: Record<string, SettingValue> = {}
  for (const item of texts) {
    const [, key, value] = /^([^=]+)=(.*)$/s.exec(item) ?? []
    if (key === undefined || value === undefined) throw new InputError(subject, show(item), 'key=value, like scale=0.5')
    if (!Object.hasOwn(declared, key)) throw unknownWord(`setting of the ${owner}`, key, Object.keys(declared))
    if (Object.hasOwn(given, key)) throw new InputError(subject, `${key} twice`, 'each key once')
    const setting = declared[key]!
    const text = Array.isArray(setting.default) ? value.replaceAll('|', ',') : value
    given[key] = parseSetting(`${owner}.${key}`, setting, text)
  }
  return given
}

/** A setting's value from the text of a command line (`key=text`). */
export function parseSetting(subject: string, setting: Setting, text: string): SettingValue {
  if (typeof text !== 'string') throw new InputError(subject, show(text), 'a text, as on a command line')
  const value = readText(setting, text)
  if (value === undefined || !setting.accepts(value)) throw new InputError(subject, show(text), setting.expected)
  return value
}

function readText(setting: Setting, text: string): SettingValue | undefined {
  if (text === 'null') return null
  if (Array.isArray(setting.default)) {
    const parts = text === '' ? [] : text.split(',')
    return setting.accepts(parts) ? parts : parts.map(Number)
  }
  if (typeof setting.default === 'boolean') return text === 'true' ? true : text === 'false' ? false : undefined
  if (typeof setting.default === 'string') return text
  const value = /^[-+.\d]/.test(text) && !/^[-+]?0[xob]/i.test(text) ? Number(text.replaceAll('_', '')) : Number.NaN
  return Number.isNaN(value) ? text : value
}
