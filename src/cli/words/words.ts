/** Parses a command line. `--key value`, `--key=value` and `key=value` mean the same. */
import { InputError, show, similar } from '../../base/errors.ts'
import { isPair } from '../../base/pair.ts'
import type { Setting } from '../../base/settings.ts'

/** Options that take no value. */
export const FLAGS = ['help', 'version', 'json', 'quiet', 'print-config'] as const
const SHORT: Readonly<Record<string, Flag>> = { h: 'help', q: 'quiet' }

type Flag = (typeof FLAGS)[number]

/** The words of a command line by kind. */
export interface CommandLine {
  /** Words without a key, in order. The first is the command's name. */
  readonly names: readonly string[]
  /** The keys with their values, as `key=value`. */
  readonly pairs: readonly string[]
  readonly flags: ReadonlySet<Flag>
}

/**
 * Sorts the words of a command line by kind. A key without a value means `key=true`: nothing or another option follows
 * it, or its setting is a boolean and the next word is neither `true` nor `false`. `settingOf` returns the declaration
 * of a key. After `--` no word is an option.
 * @throws InputError for an unknown option with one dash, and for a value of an option that takes none.
 */
export async function tellApart(
  args: readonly string[],
  settingOf: (key: string) => Promise<Setting | undefined>,
): Promise<CommandLine> {
  const names: string[] = []
  const pairs: string[] = []
  const flags = new Set<Flag>()
  const take = (word: string) => (isPair(word) ? pairs : names).push(word)
  for (let i = 0; i < args.length; i++) {
    const word = args[i]!
    if (word === '--') {
      for (const rest of args.slice(i + 1)) take(rest)
      break
    }
    const [, key, value] = /^--([^=]+)(?:=(.*))?$/s.exec(word) ?? []
    if (key === undefined) {
      if (/^-[^-\d.]/.test(word)) for (const letter of word.slice(1)) flags.add(shortFlag(word, letter))
      else take(word)
      continue
    }
    if (isFlag(key)) {
      if (value !== undefined) throw new InputError(word, show(value), `no value, only --${key}`)
      flags.add(key)
      continue
    }
    const next = args[i + 1]
    const declared = value === undefined && !isNumber(next) ? await settingOf(key) : undefined
    const meant = value === undefined && declared === undefined ? similar(key, FLAGS) : undefined
    if (meant !== undefined) throw new InputError('option', word, `--${meant}, or a key with its value`)
    const isSwitch = typeof declared?.default === 'boolean'
    const isNext = next !== undefined && !/^--?[a-z]|^--$/i.test(next) && (!isSwitch || /^(true|false)$/.test(next))
    const isValue = value === undefined && isNext
    pairs.push(`${key}=${value ?? (isValue ? next : 'true')}`)
    if (isValue) i++
  }
  return { names, pairs, flags }
}

function isNumber(word = ''): boolean {
  return /^[-+]?\.?\d/.test(word)
}

function isFlag(word: string): word is Flag {
  return (FLAGS as readonly string[]).includes(word)
}

function shortFlag(word: string, letter: string): Flag {
  const flag = SHORT[letter]
  if (flag === undefined) throw new InputError('option', word, '-h, -q, or a key with two dashes, like --seed 3')
  return flag
}
