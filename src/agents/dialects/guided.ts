/** Constraints on answers in the fields of vLLM, SGLang and llama.cpp. */
import { jsonOrText } from '../../base/files/files.ts'
import type { Body } from '../../base/http/server.ts'
import type { Constraint } from '../../environments/text.ts'
import { either, literal } from '../../language/grammars/rules.ts'
import { badField, objectField } from '../serving/fields.ts'
import { GUIDED } from './known-fields.ts'

/** Reads a field's value. */
type Read = (value: unknown, param: string) => Constraint

const schema: Read = (value, param) => {
  const read = typeof value === 'string' ? jsonOrText(value) : value
  if (typeof read === 'object' && read !== null && !Array.isArray(read)) return { schema: read }
  throw badField(param, value, 'a JSON schema, as an object or a text')
}
const text = (value: unknown, param: string, what: string): string => {
  if (typeof value === 'string') return value
  throw badField(param, value, what)
}
const regex: Read = (value, param) => ({ regex: text(value, param, 'a regular expression') })
const grammar: Read = (value, param) => ({ grammar: text(value, param, 'a grammar in GBNF') })
const choice: Read = (value, param) => {
  const isList = Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === 'string')
  if (isList) return { grammar: `root ::= ${either((value as string[]).map(literal))}` }
  throw badField(param, value, 'a list of texts, not empty')
}

const FIELDS: Readonly<Record<Exclude<(typeof GUIDED)[number], 'structured_outputs'>, Read>> = {
  ...{ guided_json: schema, guided_regex: regex, guided_choice: choice, guided_grammar: grammar },
  ...{ json_schema: schema, regex, ebnf: grammar, grammar },
}
/** The fields of `structured_outputs`. */
const PARTS: Readonly<Record<string, Read>> = {
  ...{ json: schema, regex, choice, grammar },
  json_object: (value, param) => {
    if (value === true) return { schema: { type: 'object' } }
    throw badField(param, value, 'true')
  },
}

/**
 * The constraint in a request's fields, and its field; null without one. @throws RequestError 400 for an invalid
 * constraint, and for several constraints.
 */
export function guidedConstraint(body: Body): { readonly param: string; readonly constraint: Constraint } | null {
  const given = GUIDED.filter((name) => body[name] !== undefined && body[name] !== null)
  const [param] = given
  if (param === undefined) return null
  if (given.length > 1) throw badField(given[1]!, body[given[1]!], `no other constraint beside ${param}`)
  if (param !== 'structured_outputs') return { param, constraint: FIELDS[param](body[param], param) }
  const parts = Object.entries(objectField(body, param)).filter(([, value]) => value !== null)
  const [part] = parts
  if (parts.length !== 1 || !Object.hasOwn(PARTS, part![0])) {
    throw badField(param, body[param], `one of ${Object.keys(PARTS).join(', ')}`)
  }
  return { param, constraint: PARTS[part![0]]!(part![1], `${param}.${part![0]}`) }
}
