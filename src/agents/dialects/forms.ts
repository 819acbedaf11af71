/** Output formats (JSON, JSON of a schema, tool calls), enforced by engines with guided decoding and checked here. */

import { InputError, show } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { Constraint } from '../../environments/text.ts'
import { isOfConstraint } from '../../language/grammars/grammars.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import type { Choice } from '../serving/choices.ts'
import { badField } from '../serving/fields.ts'
import type { ServedModel } from '../serving/served-model.ts'
import { CALL_END, callForm, type ToolCall } from '../serving/tools.ts'
import { guidedConstraint } from './guided.ts'

/** A required output format. */
export interface Form {
  readonly constraint: Constraint
  /** Why a finished answer violates the format; null if it does not. */
  misfit(content: string, calls: readonly ToolCall[]): string | null
}

/**
 * The format that `tool_choice`, `response_format` or a field of a server's requires, or null. `names` are the tools in the prompt.
 * @throws RequestError 400 if unsupported.
 */
export function formOf(body: Body, names: readonly string[], { tokenizer, batcher }: ServedModel): Form | null {
  const asked = askedForm(body, names, tokenizer)
  if (asked === null) return null
  const { engine } = batcher
  const { param, free } = asked
  if (engine.constrains !== true) {
    const why = `engine ${engine.id} has no guided decoding; the local one, vLLM, SGLang and llama.cpp do`
    throw new RequestError(400, `${param}: got ${show(body[param])}, expected ${free}: ${why}`, {
      ...{ param, code: 'unsupported_field' },
    })
  }
  const form = asked.form()
  try {
    engine.prepare?.(form.constraint)
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    throw new RequestError(400, `${param}: ${error.message}`, { param, code: 'bad_field' })
  }
  return form
}

/** The field that requires a format, the values of it that require none, and the format. */
function askedForm(body: Body, names: readonly string[], tokenizer: Tokenizer) {
  const { tool_choice: choice = null, response_format: format = null } = body
  const isForced = choice !== null && choice !== 'auto' && choice !== 'none'
  const json = jsonForm(format)
  const guided = guidedConstraint(body)
  const asked = [
    ...(json === null ? [] : [{ param: 'response_format', free: '{ "type": "text" }', form: () => json }]),
    ...(guided === null ? [] : [{ param: guided.param, free: 'none', form: () => formOfText(guided.constraint) }]),
    ...(isForced
      ? [{ param: 'tool_choice', free: '"auto" or "none"', form: () => callsForm(body, names, tokenizer) }]
      : []),
  ]
  const [first, second] = asked
  if (first === undefined) return null
  if (first.param !== 'tool_choice' && names.length > 0) {
    throw badField(first.param, body[first.param], `no tools beside it, or ${first.free}: an answer cannot be both`)
  }
  if (second !== undefined) throw badField(second.param, body[second.param], `${second.free} beside ${first.param}`)
  return first
}

/** The format of a constraint. */
function formOfText(constraint: Constraint): Form {
  if ('schema' in constraint) return formOfSchema(constraint.schema)
  return {
    constraint,
    misfit(content) {
      try {
        return isOfConstraint(constraint, content) ? null : 'another text'
      } catch (error) {
        // Another engine may enforce what is not known here.
        if (error instanceof InputError) return null
        throw error
      }
    },
  }
}

/** A format of JSON answers, with or without a schema. */
function jsonForm(format: unknown): Form | null {
  if (format === null) return null
  const { type, json_schema: named } = format as { type?: unknown; json_schema?: { schema?: unknown } }
  if (type === 'text') return null
  const schema = type === 'json_object' ? { type: 'object' } : type === 'json_schema' ? named?.schema : null
  if (typeof schema !== 'object' || schema === null) {
    throw badField('response_format', format, 'type text, json_object, or json_schema with a schema')
  }
  return formOfSchema(schema)
}

function formOfSchema(schema: object): Form {
  return {
    constraint: { schema },
    misfit(content) {
      try {
        return outside(schema, JSON.parse(content))
      } catch {
        return 'no JSON'
      }
    },
  }
}

interface Schema {
  readonly type?: unknown
  readonly required?: readonly string[]
}

/** Why a value violates a schema: its type and required names are checked. */
function outside({ type, required = [] }: Schema, value: unknown): string | null {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (type !== 'object') return null
  if (!isObject) return 'no object'
  const missing = required.find((name) => !Object.hasOwn(value, name))
  return missing === undefined ? null : `no ${missing}`
}

/** A format of tool calls only: of any tool, or of the named one. */
function callsForm(
  { tool_choice: choice, parallel_tool_calls: parallel }: Body,
  names: readonly string[],
  tokenizer: Tokenizer,
): Form {
  const named = (choice as { function?: { name?: unknown } }).function?.name
  const wanted = choice === 'required' ? names : names.filter((name) => name === named)
  if (wanted.length === 0) {
    const expected =
      names.length === 0 ? 'tools to choose from' : `"auto", "none", "required", or one of ${names.join(', ')}`
    throw badField('tool_choice', choice, expected)
  }
  const form = callForm(tokenizer)
  if (form === null) {
    throw badField(
      'tool_choice',
      choice,
      '"auto" or "none": the chat template does not write calls as JSON between tags',
    )
  }
  const { open, between, close } = form
  const literal = JSON.stringify
  const several = choice === 'required' && parallel !== false ? ` (${literal('\n')} call)*` : ''
  const grammar = [
    `root ::= call${several}`,
    `call ::= ${literal(open)} name ${literal(between)} object ${literal(close)}`,
    `name ::= ${wanted.map((name) => literal(name)).join(' | ')}`,
    ...JSON_GRAMMAR,
  ].join('\n')
  return {
    constraint: { grammar },
    misfit(_, calls) {
      if (calls.length === 0) return 'no call of a tool'
      const other = calls.find(({ function: { name } }) => !wanted.includes(name))
      return other === undefined ? null : `a call of ${other.function.name}`
    },
  }
}

/** JSON in GBNF, for llama.cpp, XGrammar and the local engine. */
const JSON_GRAMMAR = [
  'object ::= "{" ws (member (ws "," ws member)*)? ws "}"',
  'member ::= string ws ":" ws value',
  'value ::= object | array | string | number | "true" | "false" | "null"',
  'array ::= "[" ws (value (ws "," ws value)*)? ws "]"',
  'string ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" (["\\\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]))* "\\""',
  'number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?',
  'ws ::= [ \\n\\t]?',
]

/** @throws RequestError 502 for a finished answer that violates the format that the engine had to enforce. */
export function checkForm(
  form: Form | null,
  content: string,
  calls: readonly ToolCall[],
  { finishReason, text: { stopString } }: Pick<Choice, 'finishReason' | 'text'>,
): void {
  const isCut = finishReason !== 'stop' || (stopString !== null && stopString !== CALL_END)
  if (form === null || isCut) return // A truncated answer has no format.
  const why = form.misfit(content, calls)
  if (why === null) return
  throw new RequestError(502, `the engine answered with ${why}, despite the required format`, {
    code: 'engine_failed',
  })
}
