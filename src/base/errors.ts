/**
 * Two kinds of failure. `InputError` is the caller's: it names the thing, what came and what was expected.
 * `assert` is ours: when it fails, Colonnade has a bug.
 */
export class InputError extends Error {
  override readonly name = 'InputError'
  /** What was wrong, as the caller would name it: `numLanes`, `ppo.clipCoef`, `checkpoint runs/a`. */
  declare readonly subject: string
  /** What came, as text; of a word that is unknown also the one that may be meant. */
  declare readonly got: string
  /** What would have been accepted. */
  declare readonly expected: string

  constructor(subject: string, got: string, expected: string, options?: ErrorOptions) {
    super(printable(`${subject}: got ${got}, expected ${expected}`), options)
    // Not enumerable: Node would print them below the message, which says the same.
    for (const [key, value] of Object.entries({ subject, got, expected })) Object.defineProperty(this, key, { value })
    nameCaller(this)
    hideOwnFrames(options?.cause)
  }
}

/**
 * A text whose control characters, but for tabs and line feeds, are written as escapes, so that names from files of others neither
 * steer a terminal nor turn the order of letters around, nor end a line: U+2028 and U+2029 do in some readers, as Node's since 24.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (letter) => {
    const code = letter.charCodeAt(0).toString(16)
    return letter === '\n' || letter === '\t' ? letter : `\\u${code.padStart(4, '0')}`
  })
}

/** Where the modules of an installed or built package lie. Undefined where the sources run: there our own frames are of use. */
const OWN_MODULES = /^.*\/dist\/src\//.exec(import.meta.url)?.[0]
/** The caller's line may lie behind so many frames of our own. */
const MAX_FRAMES = 50

/**
 * Lets the stack of an error begin at the caller's line, behind the frames of another thread's stack if there is one. Whoever throws
 * an error that was made earlier calls it, too.
 */
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

/**
 * Leaves out of an error's stack the frames of the package and of Node, where any other stays: what a user's function threw begins
 * and ends with the user's lines.
 * @returns the error.
 */
export function hideOwnFrames<E>(error: E): E {
  if (OWN_MODULES === undefined || !(error instanceof Error) || typeof error.stack !== 'string') return error
  const isHidden = (line: string) =>
    /^ +at /.test(line) && (line.includes(OWN_MODULES) || /node:|<anonymous>\)$/.test(line))
  const lines = error.stack.split('\n').filter((line) => !isHidden(line))
  // Where all are ours an InputError is its message; any other error is a fault of ours, and they tell where it is.
  if (error instanceof InputError || lines.some((line) => /^ +at /.test(line))) setStack(error, lines.join('\n'))
  return error
}

/** Describes a thrown value: an error's message or stack, or the value itself. Never throws, also for hostile objects. */
export function thrownText(thrown: unknown, part: 'message' | 'stack' = 'message'): string {
  try {
    if (!(thrown instanceof Error)) return typeof thrown === 'string' ? thrown : show(thrown)
    const text: unknown = thrown instanceof InputError ? thrown.message : thrown[part]
    return typeof text === 'string' ? text : show(text)
  } catch {
    return 'an object that throws when it is read'
  }
}

/** Turns what a user's function threw into an error: an error loses our frames, any other value becomes an `InputError`. */
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
    'an Error where it fails',
  )
}

/** A step was asked of what has no optimizer. */
export class OptimizerRequiredError extends InputError {
  constructor(subject: string, got: string) {
    super(subject, got, "an optimizer, like { optimizer: 'adam', learningRate: 1e-3 }")
  }
}

/** Throws when `condition` is false. For what only a bug of ours can break; the caller's mistakes are `InputError`s. */
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

/** JSON, but with NaN, infinities and bigints as JavaScript prints them; what has no JSON goes by its class. */
function showObject(value: object): string {
  const plain = (_: string, part: unknown) =>
    typeof part === 'bigint' || (typeof part === 'number' && !Number.isFinite(part)) ? String(part) : part
  try {
    return JSON.stringify(value, plain) ?? `a ${value.constructor?.name ?? 'object'}`
  } catch {
    return `a ${value.constructor?.name ?? 'object'}` // Circular: only the text of an error is at stake.
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

/**
 * The nearest candidate, if it is so near that it may be meant: one whose last part is the word but for its spelling
 * (`learning_rate` for `ppo.learningRate`), that begins with it (`clip` for `ppo.clipCoef`), that takes few edits, or whose last part has the
 * word as its initials (`lr`).
 */
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

/** `lr` of `learningRate`. */
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

/** Of a closed list that is longer an error names the nearest words, of keys always. */
const LISTED = 9
const NEAREST = 3

/**
 * An unknown word among a closed list: the error asks whether the nearest valid one was meant, and lists them all, or of a long list the
 * three that are nearest. What a program or a file gave for it may be no text at all. `otherwise` is what would be accepted beside the list.
 */
export function unknownWord(subject: string, word: unknown, valid: readonly string[], otherwise = ''): InputError {
  return unknown(subject, word, valid, otherwise, LISTED)
}

/** An unknown key of a command or a run: the error names the three nearest of the many keys. */
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

/** The three words that a word is nearest to, letter for letter; the one that may be meant comes first. */
export function nearestWords(word: unknown, valid: readonly string[]): string[] {
  if (typeof word !== 'string') return valid.slice(0, NEAREST)
  const meant = similar(word, valid)
  const distance = (name: string) => {
    const same = word.includes('.') ? name : lastPart(name)
    return name === meant ? -1 : editDistance(word, same) / Math.max(word.length, same.length)
  }
  return valid.toSorted((a, b) => distance(a) - distance(b)).slice(0, NEAREST)
}

/** The candidate of an id. @throws InputError that names the nearest id, where none has it. */
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

/** A property that every T has: only such a one may be asked for. */
type RequiredKey<T> = { [K in keyof T]-?: Record<never, never> extends Pick<T, K> ? never : K }[keyof T] & string

/**
 * Checks what a caller gave: a text, a list (also a typed one), a function, or an object that has these properties.
 * @throws InputError
 */
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

/** Checks that an object of options has no other keys than these. @throws InputError that names the nearest. */
export function checkOptions(subject: string, given: object, known: readonly string[]): void {
  checkGiven(`options of ${subject}`, given, [])
  for (const key of Object.keys(given)) if (!known.includes(key)) throw unknownWord(`option of ${subject}`, key, known)
}
