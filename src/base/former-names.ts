/** Former names of settings, accepted for one more release with a notice. */
import { InputError } from './errors.ts'

/** Current names by former name, for each owner: a run, a command, or the definition with this id. */
const FORMER: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  run: { heldOut: 'heldOutFraction', opponentsShare: 'opponentsFraction' },
  command: { faultRate: 'faultFraction' },
  sft: { steps: 'updates', schedule: 'learningRateSchedule' },
  rl: { schedule: 'learningRateSchedule' },
  'text/tool-arithmetic': { shown: 'shownFraction' },
  'environment model': { numAgents: 'numPlayers' },
}

const told = new Set<string>()

/** The current name of an owner's renamed setting; notifies on standard error, once. */
export function renamed(owner: string, name: string): string | undefined {
  const names = Object.hasOwn(FORMER, owner) ? FORMER[owner]! : {}
  if (!Object.hasOwn(names, name)) return undefined
  const former = owner === 'run' || owner === 'command' ? name : `${owner}.${name}`
  if (!told.has(former)) console.warn(`colonnade: ${former} is now called ${names[name]}`)
  told.add(former)
  return names[name]
}

/** Values by current names; the same object if none was renamed. @throws InputError for a value under both. */
export function withTodaysNames<T extends object>(owner: string, given: T): T {
  const entries = Object.entries(given)
  if (!Object.hasOwn(FORMER, owner) || !entries.some(([name]) => Object.hasOwn(FORMER[owner]!, name))) return given
  const today: Record<string, unknown> = {}
  for (const [name, value] of entries) {
    const now = renamed(owner, name) ?? name
    if (now !== name && Object.hasOwn(given, now))
      throw new InputError(`${owner}.${name}`, `a value, and ${now}`, 'only one of the two names')
    today[now] = value
  }
  return today as T
}

/** Texts by current names (`sft.steps` becomes `sft.updates` if a key). @throws InputError for a value under both. */
export function keysOfToday(keys: { has(key: string): boolean }, texts: Readonly<Record<string, string>>) {
  const today: Record<string, string> = {}
  for (const [key, text] of Object.entries(texts)) {
    const now = keys.has(key) ? key : (todaysKey(keys, key) ?? key)
    if (now !== key && Object.hasOwn(texts, now))
      throw new InputError(key, `a value, and ${now}`, 'only one of the two names')
    today[now] = text
  }
  return today
}

function todaysKey(keys: { has(key: string): boolean }, key: string): string | undefined {
  const [, prefix = '', name = key] = /^(.+\.)([^.]+)$/.exec(key) ?? []
  const owners =
    prefix === '' ? ['run', 'command'] : prefix === 'environment.' ? Object.keys(FORMER) : [prefix.slice(0, -1)]
  const owner = owners.find((each) => Object.hasOwn(FORMER, each) && keys.has(`${prefix}${FORMER[each]![name]}`))
  return owner === undefined ? undefined : `${prefix}${renamed(owner, name)}`
}
