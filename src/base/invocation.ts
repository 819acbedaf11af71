/** The contract of commands, built-in and yours. */
import { checkGiven, InputError, show, unknownKey } from './errors.ts'
import { keysOfToday } from './former-names.ts'
import { isPair } from './pair.ts'
import { parseSetting, type Settings, type SettingValues } from './settings.ts'

/** The inputs of a command. */
export interface Invocation {
  /** The words after the command's name. */
  readonly words: readonly string[]
  /** Print one JSON document at the end, and nothing else on standard output. */
  readonly json: boolean
  /** Print no progress. */
  readonly quiet: boolean
}

/** Runs, prints for people, and returns the document that `json` prints. */
export type Command = (invocation: Invocation) => Promise<object>

/**
 * Your own command, with an id: `colonnade ./count.mjs …` runs the command that the module exports.
 * @throws InputError without an id or a function.
 * @example
 * export const count = defineCommand('count', async ({ words, json }) => {
 *   const { subject, texts } = splitWords(words, 'a run')
 *   const { from } = readKeys({ from: integer(0, 'where to begin') }, texts)
 *   if (!json) console.log(`${subject} from ${from}`)
 *   return { subject, from }
 * })
 */
export function defineCommand(id: string, run: Command): Command & { readonly id: string } {
  if (typeof id !== 'string' || id === '') throw new InputError('command id', show(id), 'a name, like count')
  if (typeof run !== 'function') throw new InputError(`command ${id}`, show(run), 'a function of an invocation')
  return Object.assign((invocation: Invocation) => run(invocation), { id })
}

/** Splits words into the command's one subject and its `key=value` texts. */
export function splitWords(words: readonly string[], noun: string): { subject: string; texts: Record<string, string> } {
  checkGiven('words of splitWords', words, 'a list')
  checkGiven('noun of splitWords', noun, 'a text')
  const [subject, ...rest] = words
  if (subject === undefined || isPair(subject)) {
    throw new InputError('first word', subject ?? 'nothing', `${noun}; see colonnade --help`)
  }
  return { subject, texts: readTexts(rest) }
}

export function readTexts(words: readonly string[]): Record<string, string> {
  const texts: Record<string, string> = {}
  for (const word of words) {
    const at = word.indexOf('=')
    if (at < 1) throw new InputError('argument', JSON.stringify(word), 'key=value')
    const key = word.slice(0, at)
    if (Object.hasOwn(texts, key)) throw new InputError(key, 'a value twice', 'one value')
    texts[key] = word.slice(at + 1)
  }
  return texts
}

/** @throws InputError for the first given one of these keys, which have no effect; `expected` is an alternative. */
export function refuseKeys(texts: Readonly<Record<string, string>>, keys: readonly string[], expected: string): void {
  const given = keys.find((key) => Object.hasOwn(texts, key))
  if (given !== undefined) throw new InputError(given, show(texts[given]), expected)
}

/** The values of a command's own keys. */
export function readKeys<S extends Settings>(declared: S, texts: Readonly<Record<string, string>>): SettingValues<S> {
  checkGiven('declared of readKeys', declared, [])
  checkGiven('texts of readKeys', texts, [])
  const values: Record<string, unknown> = {}
  for (const [key, setting] of Object.entries(declared)) values[key] = setting.default
  const known = new Set(Object.keys(declared))
  for (const [key, text] of Object.entries(keysOfToday(known, texts))) {
    const setting = Object.hasOwn(declared, key) ? declared[key] : undefined
    if (setting === undefined) throw unknownKey(key, Object.keys(declared))
    values[key] = parseSetting(key, setting, text)
  }
  return values as SettingValues<S>
}
