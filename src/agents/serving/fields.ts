/** Reads the fields of a request's body. Routes list fields to take, to ignore, or to refuse; null counts as absent. */
import { InputError, show, similar } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import { philox4x32 } from '../../base/random.ts'
import { checkSampling, type Sampling } from '../../language/transformer/sampling.ts'

export interface KnownFields {
  readonly taken: readonly string[]
  /** Fields that identify the client or purpose and change no answer. */
  readonly ignored: readonly string[]
  /** Unsupported fields, and their neutral values. */
  readonly refused: Readonly<Record<string, readonly unknown[]>>
}

/** Checks the names of a body's fields. @throws RequestError 400 for an unknown or unsupported field. */
export function checkFields(body: Body, { taken, ignored, refused }: KnownFields, within = ''): void {
  for (const [name, value] of Object.entries(body)) {
    if (value === null || value === undefined || taken.includes(name) || ignored.includes(name)) continue
    const param = within + name
    const neutral = Object.hasOwn(refused, name) ? refused[name]! : null
    if (neutral === null) {
      const near = similar(name, [...taken, ...Object.keys(refused)])
      const hint = near === undefined ? '' : ` (did you mean ${near}?)`
      throw new RequestError(400, `unknown field ${param}${hint}`, { param, code: 'unknown_field' })
    }
    if (neutral.some((each) => JSON.stringify(each) === JSON.stringify(value))) continue
    const instead = neutral.length === 0 ? '' : `, expected ${neutral.map(show).join(' or ')}`
    throw new RequestError(400, `${param}: got ${show(value)}${instead}: this server cannot do that`, {
      param,
      code: 'unsupported_field',
    })
  }
}

export function badField(param: string, value: unknown, expected: string): RequestError {
  return new RequestError(400, `${param}: got ${show(value)}, expected ${expected}`, { param, code: 'bad_field' })
}

/** A field's value, or `initial` if it is absent. */
function given(body: Body, name: string): unknown {
  return body[name] ?? undefined
}

export function integerField<D>(
  body: Body,
  name: string,
  initial: D,
  min: number,
  max = Number.MAX_SAFE_INTEGER,
): number | D {
  const value = given(body, name)
  if (value === undefined) return initial
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return value as number
  const range = max === Number.MAX_SAFE_INTEGER ? `≥ ${min}` : `from ${min} to ${max}`
  throw badField(name, value, `a whole number ${range}`)
}

export function numberField(body: Body, name: string, initial: number, min: number, max: number): number {
  const value = given(body, name)
  if (value === undefined) return initial
  if (typeof value === 'number' && value >= min && value <= max) return value
  throw badField(name, value, `a number from ${min} to ${max}`)
}

export function booleanField(body: Body, name: string, initial: boolean): boolean {
  const value = given(body, name)
  if (value === undefined) return initial
  if (typeof value === 'boolean') return value
  throw badField(name, value, 'true or false')
}

export function textField<D>(body: Body, name: string, initial: D): string | D {
  const value = given(body, name)
  if (value === undefined) return initial
  if (typeof value === 'string') return value
  throw badField(name, value, 'a text')
}

export function objectField(body: Body, name: string): Body {
  const value = given(body, name)
  if (value === undefined) return {}
  if (typeof value === 'object' && !Array.isArray(value)) return value as Body
  throw badField(name, value, 'an object')
}

/** A text or a list of at most `most` texts, none empty. */
export function textsField(body: Body, name: string, most: number): string[] {
  const value = given(body, name)
  if (value === undefined) return []
  const list = typeof value === 'string' ? [value] : value
  const isFine = Array.isArray(list) && list.length <= most && list.every((text) => typeof text === 'string' && text)
  if (isFine) return list as string[]
  throw badField(name, value, `a text, or at most ${most} of them, none empty`)
}

/** A non-empty list of ids below the vocabulary's size. */
export function idsField(name: string, value: unknown, vocabularySize: number): Int32Array {
  if (!Array.isArray(value) || value.length === 0) throw badField(name, value, 'a list of token ids that is not empty')
  const wrong = value.find((id) => !(Number.isSafeInteger(id) && id >= 0 && id < vocabularySize))
  if (wrong !== undefined) throw badField(name, wrong, `token ids from 0 to ${vocabularySize - 1}`)
  return Int32Array.from(value as number[])
}

export interface Drawing {
  readonly sampling: Sampling
  readonly explore: boolean
}

const GREEDY: Sampling = Object.freeze({ temperature: 1, topK: 0, topP: 1, minP: 0 })
const drawn = new Map<string, Sampling>()

/** The sampling fields. Temperature 0: the most probable. Equal requests share an object, to be sampled together. */
export function drawingOf(body: Body): Drawing {
  const temperature = numberField(body, 'temperature', 1, 0, 100)
  const topP = numberField(body, 'top_p', 1, 0, 1)
  const topK = Math.max(0, integerField(body, 'top_k', 0, -1))
  const minP = numberField(body, 'min_p', 0, 0, 1)
  if (temperature === 0) return { sampling: GREEDY, explore: false }
  let sampling: Sampling
  try {
    sampling = checkSampling({ temperature, topK, topP, minP })
  } catch (error) {
    throw error instanceof InputError ? badField('top_p', topP, error.expected) : error // The only remaining cause.
  }
  const key = JSON.stringify(sampling)
  if (!drawn.has(key)) {
    if (drawn.size >= 256) drawn.clear()
    drawn.set(key, sampling)
  }
  return { sampling: drawn.get(key)!, explore: true }
}

/** The random key of a request's turn `index`, unique by seed and turn; continuing a request continues its numbers. */
export function keyOfSeed(seed: number, index: number): readonly [number, number, number] {
  const words = new Uint32Array(4)
  philox4x32(words, seed | 0, Math.floor(seed / 2 ** 32) | 0, index, 0, 0, 0)
  return [words[0]! | 0, words[1]! | 0, 0]
}
