/** An error of the caller: it names the subject, the received value and the expected one. A failed `assert` is a bug. */
export class InputError extends Error {
  override readonly name = 'InputError'
  /** The wrong thing, in the caller's terms: `numLanes`, `ppo.clipCoef`, `checkpoint runs/a`. */
  declare readonly subject: string
  /** The received value, as text; for an unknown word also the likely correct one. */
  declare readonly got: string
  /** What would have been accepted. */
  declare readonly expected: string

  constructor(subject: string, got: string, expected: string, options?: ErrorOptions) {
    super(printable(`${subject}: got ${got}, expected ${expected}`), options)
    // Not enumerable: Node would print them below the message, which contains them.
    for (const [key, value] of Object.entries({ subject, got, expected })) Object.defineProperty(this, key, { value })
    nameCaller(this)
    hideOwnFrames(options?.cause)
  }
}

/** Escapes control characters except tabs and line feeds, and U+2028 and U+2029, which some readers break at. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (letter) => {
    const code = letter.charCodeAt(0).toString(16)
    return letter === '\n' || letter === '\t' ? letter : `\\u${code.padStart(4, '0')}`
  })
}

/** The folder of installed or built modules. Undefined when sources run: our own frames are useful then. */
const OWN_MODULES = /^.*\/dist\/src\//.exec(import.meta.url)?.[0]
/** Maximum number of our frames before the caller's line. */
const MAX_FRAMES = 50

/** Makes an error's stack begin at the caller's line, after another thread's stack. Also used before rethrowing. */
export function nameCaller(error: Error, otherStack = ''): void {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = MAX_FRAMES
  Error.captureStackTrace(error, nameCaller)
  Error.stackTraceLimit = limit
  const [, head, frames] = /^(.*?)((?:\n +at .*)*)$/s.exec(error.stack!)!
  const others = otherStack.split('\n').filter((line) => /^ +at /.test(line))
  setStack(error, [head, ...others].join('\n') + frames)
  hideOwnFrames(error)
}

function setStack(error: Error, value: string): void {
  Object.defineProperty(error, 'stack', { value, writable: true, configurable: true })
}

/** Removes our and Node's frames from a stack, unless no other is left. @returns the error. */
export function hideOwnFrames<E>(error: E): E {
  if (OWN_MODULES === undefined || !(error instanceof Error) || typeof error.stack !== 'string') return error
  const isHidden = (line: string) =>
    /^ +at /.test(line) && (line.includes(OWN_MODULES) || /node:|<anonymous>\)$/.test(line))
  const lines = error.stack.split('\n').filter((line) => !isHidden(line))
  // If all frames are ours, an InputError is its message; any other error is our bug, and needs its frames.
  if (error instanceof InputError || lines.some((line) => /^ +at /.test(line))) setStack(error, lines.join('\n'))
  return error
}

/** A thrown value as text: an error's message or stack, or the value. Never throws, even for hostile objects. */
export function thrownText(thrown: unknown, part: 'message' | 'stack' = 'message'): string {
  try {
    if (!(thrown instanceof Error)) return typeof thrown === 'string' ? thrown : show(thrown)
    const text: unknown = thrown instanceof InputError ? thrown.message : thrown[part]
    return typeof text === 'string' ? text : show(text)
  } catch {
    return 'an object that throws when it is read'
  }
}

/** Converts what a user's function threw: an error loses our frames, any other value becomes an `InputError`. */
export function thrownBy(subject: string, name: string, thrown: unknown): Error {
  try {
    if (thrown instanceof Error && typeof thrown.stack === 'string' && typeof thrown.message === 'string') {
      return hideOwnFrames(thrown)
    }
  } catch {
    // An error whose properties throw: reported below.
  }
  return new InputError(
    subject,
    `${typeof thrown === 'string' ? show(thrown) : thrownText(thrown)} thrown by ${name}`,
    'an Error as the exception',
  )
}

/** A step was requested without an optimizer. */
export class OptimizerRequiredError extends InputError {
  constructor(subject: string, got: string) {
    super(subject, got, "an optimizer, like { optimizer: 'adam', learningRate: 1e-3 }")
  }
}

/** Throws if `condition` is false, which means a bug of ours; the caller's mistakes are `InputError`s. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(`Colonnade has a bug: ${message}`)
}

/** A value as text for an error: strings quoted, other values as JavaScript prints them, cut at 80 characters. */
export function show(value: unknown): string {
  let text: string
  if (typeof value === 'string') text = JSON.stringify(value)
  else if (typeof value === 'function') text = `function ${value.name}`
  else if (typeof value === 'object' && value !== null) text = showObject(value)
  else text = String(value)
  return text.length > 80 ? `${text.slice(0, 77)}...` : text
}

/** JSON, except that NaN, infinities and bigints are printed as in JavaScript, and values without JSON by class. */
function showObject(value: object): string {
  const plain = (_: string, part: unknown) =>
    typeof part === 'bigint' || (typeof part === 'number' && !Number.isFinite(part)) ? String(part) : part
  try {
    return JSON.stringify(value, plain) ?? `a ${value.constructor?.name ?? 'object'}`
  } catch {
    return `a ${value.constructor?.name ?? 'object'}` // Circular: only an error's text needs it.
  }
}

/** The candidate with the fewest edits (insert, delete, replace) from `word`; the first of equals. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined
  let bestDistance = Number.POSITIVE_INFINITY
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) {
      bestDistance = distance
      best = candidate
    }
  }
  return best
}

/** A candidate likely meant by a word: its last part's spelling, beginning, few edits, or initials (`lr`). */
export function similar(word: string, candidates: readonly string[]): string | undefined {
  const spelled = candidates.find((candidate) => letters(lastPart(candidate)) === letters(word))
  if (spelled !== undefined) return spelled
  const near = nearest(word, candidates)
  if (near === undefined) return undefined
  const distance = editDistance(word.toLowerCase(), near.toLowerCase())
  const begins = (name: string) => word.length >= 3 && name.startsWith(word)
  const whole = candidates.find((candidate) => begins(candidate) || begins(lastPart(candidate)))
  if (whole !== undefined && distance > 1) return whole
  const isNear = near.startsWith(word) || (distance < word.length && distance <= (word.length + 1) / 2)
  return isNear ? near : candidates.find((candidate) => initials(lastPart(candidate)) === word.toLowerCase())
}

function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1)
}

function letters(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, '')
}

/** `lr` for `learningRate`. */
function initials(name: string): string {
  return (name.slice(0, 1) + name.replaceAll(/[^A-Z]/g, '')).toLowerCase()
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const current = [i]
    for (let j = 1; j <= b.length; j++) {
      const replace = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      current.push(Math.min(replace, previous[j]! + 1, current[j - 1]! + 1))
    }
    previous = current
  }
  return previous[b.length]!
}

/** Longer closed lists are not listed in errors, only the nearest words; lists of keys never are. */
const LISTED = 10
const NEAREST = 3

/** The error for an unknown word: names the nearest, and the list or its three nearest. `otherwise` is also valid. */
export function unknownWord(subject: string, word: unknown, valid: readonly string[], otherwise = ''): InputError {
  return unknown(subject, word, valid, otherwise, LISTED)
}

/** The error for an unknown key: names the three nearest. */
export function unknownKey(key: string, valid: readonly string[]): InputError {
  return unknown('key', key, valid, '', NEAREST)
}

function unknown(
  subject: string,
  word: unknown,
  valid: readonly string[],
  otherwise: string,
  most: number,
): InputError {
  const near = typeof word === 'string' ? similar(word, valid) : undefined
  const hint = near === undefined ? '' : ` (did you mean ${show(near)}?)`
  const some = valid.length <= most ? valid.join(', ') : `${valid.length}, like ${nearestWords(word, valid).join(', ')}`
  const listed = valid.length === 0 ? 'none: there are none to choose from' : `one of ${some}`
  return new InputError(subject, show(word) + hint, otherwise === '' ? listed : `${listed}, or ${otherwise}`)
}

/** The three nearest words; a likely one comes first. */
export function nearestWords(word: unknown, valid: readonly string[]): string[] {
  if (typeof word !== 'string') return valid.slice(0, NEAREST)
  const meant = similar(word, valid)
  const distance = (name: string) => {
    const same = word.includes('.') ? name : lastPart(name)
    return name === meant ? -1 : editDistance(word, same) / Math.max(word.length, same.length)
  }
  return valid.toSorted((a, b) => distance(a) - distance(b)).slice(0, NEAREST)
}

/** The candidate with an id. @throws InputError that names the nearest id, if there is none. */
export function byId<T extends { readonly id: string }>(
  noun: string,
  candidates: readonly T[],
  id: string,
  otherwise?: string,
): T {
  const found = candidates.find((candidate) => candidate.id === id)
  if (found !== undefined) return found
  const ids = candidates.map((candidate) => candidate.id)
  throw unknownWord(noun, id, ids, otherwise)
}

/** A property that every T has; only these may be checked for. */
type RequiredKey<T> = { [K in keyof T]-?: Record<never, never> extends Pick<T, K> ? never : K }[keyof T] & string

/** Checks a text, a list (or typed array), a function, or an object with these properties. @throws InputError */
export function checkGiven<T>(
  subject: string,
  given: T,
  expected: 'a text' | 'a list' | 'a function' | readonly RequiredKey<T>[],
): void {
  if (typeof expected === 'string') {
    const isList = Array.isArray(given) || ArrayBuffer.isView(given)
    const kind = isList ? 'a list' : { string: 'a text', function: 'a function' }[typeof given as string]
    if (kind !== expected) throw new InputError(subject, show(given), expected)
    return
  }
  const isObject = (typeof given === 'object' || typeof given === 'function') && given !== null
  const missing = isObject ? expected.filter((name) => (given as Record<string, unknown>)[name] === undefined) : []
  if (isObject && missing.length === 0) return
  const got = missing.length === 0 ? show(given) : `${show(given)} without ${missing.join(', ')}`
  throw new InputError(subject, got, expected.length === 0 ? 'an object' : `an object with ${expected.join(', ')}`)
}

/** Checks a whole number from `least` to `most`. @throws InputError */
export function checkCount(subject: string, count: unknown, least = 1, most = Number.POSITIVE_INFINITY): void {
  if (Number.isSafeInteger(count) && (count as number) >= least && (count as number) <= most) return
  const range = most === Number.POSITIVE_INFINITY ? `≥ ${least}` : `from ${least} to ${most}`
  throw new InputError(subject, show(count), `a whole number ${range}`)
}

/** Checks that options have only these keys. @throws InputError that names the nearest. */
export function checkOptions(subject: string, given: object, known: readonly string[]): void {
  checkGiven(`options of ${subject}`, given, [])
  for (const key of Object.keys(given)) if (!known.includes(key)) throw unknownWord(`option of ${subject}`, key, known)
}
