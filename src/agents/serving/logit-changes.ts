/** Request fields that change the logits before tokens are drawn. */
import { show } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { LogitChanges } from '../../environments/text.ts'
import { badField, integerField, numberField } from './fields.ts'
import type { ServedModel } from './served-model.ts'

/** The change that each field asks for. */
export type ChangeFields = Readonly<Record<string, keyof LogitChanges>>

/** The fields of OpenAI and vLLM. */
export const CHANGE_FIELDS = {
  logit_bias: 'bias',
  frequency_penalty: 'frequency',
  presence_penalty: 'presence',
  repetition_penalty: 'repetition',
  min_tokens: 'minTokens',
} as const satisfies ChangeFields

/** Maximum number of biases, as for OpenAI. */
const MOST_BIASES = 1024

/**
 * The changes that a request asks for, as `changes`; empty if it asks for none.
 * @throws RequestError 400 for invalid values, and for changes that the engine does not make.
 */
export function changesOf(
  body: Body,
  fields: ChangeFields,
  { batcher: { engine }, vocabularySize }: Pick<ServedModel, 'batcher' | 'vocabularySize'>,
): { readonly changes?: LogitChanges } {
  const changes: Record<string, unknown> = {}
  for (const [field, name] of Object.entries(fields)) {
    if (body[field] === undefined || body[field] === null) continue
    const value = READ[name](body, field, vocabularySize)
    if (value === null) continue
    if (engine.changes?.includes(name) !== true) {
      const able = engine.changes ?? []
      const others = Object.entries(fields).flatMap(([each, change]) => (able.includes(change) ? [each] : []))
      const can = others.length === 0 ? 'no such change; the local one and vLLM do' : others.join(', ')
      const why = `${field}: got ${show(body[field])}, expected none: engine ${engine.id} makes ${can}`
      throw new RequestError(400, why, { param: field, code: 'unsupported_field' })
    }
    changes[name] = value
  }
  return Object.keys(changes).length === 0 ? {} : { changes }
}

/** Reads each change; null if it changes nothing. */
const READ: Readonly<Record<keyof LogitChanges, (body: Body, field: string, vocabularySize: number) => unknown>> = {
  bias: biasOf,
  repetition(body, field) {
    const value = numberField(body, field, 1, 0, 100)
    if (value === 0) throw badField(field, value, 'a number above 0')
    return value === 1 ? null : value
  },
  frequency: (body, field) => numberField(body, field, 0, -2, 2) || null,
  presence: (body, field) => numberField(body, field, 0, -2, 2) || null,
  minTokens: (body, field) => integerField(body, field, 0, 0) || null,
}

/** Biases by id, as OpenAI and vLLM write them, or llama.cpp's list of pairs. */
function biasOf(body: Body, field: string, vocabularySize: number): LogitChanges['bias'] | null {
  const given = body[field]
  const isPair = (each: unknown) => Array.isArray(each) && each.length === 2
  const isList = Array.isArray(given) && given.every(isPair)
  if (typeof given !== 'object' || (Array.isArray(given) && !isList)) {
    throw badField(field, given, 'biases by token id, like { "17": -100 }')
  }
  const biases = (isList ? given : Object.entries(given as object)) as [unknown, unknown][]
  if (biases.length > MOST_BIASES) throw badField(field, `${biases.length} biases`, `at most ${MOST_BIASES}`)
  const read: Record<string, number> = {}
  for (const [id, bias] of biases) {
    const number = typeof id === 'string' && /^\d+$/.test(id) ? Number(id) : id
    if (!Number.isSafeInteger(number) || (number as number) < 0 || (number as number) >= vocabularySize) {
      throw badField(field, id, `token ids from 0 to ${vocabularySize - 1}`)
    }
    if (!(typeof bias === 'number' && bias >= -100 && bias <= 100)) {
      throw badField(field, bias, 'biases from -100 to 100')
    }
    if (bias !== 0) read[String(number)] = bias
  }
  return Object.keys(read).length === 0 ? null : read
}
