/** Output formats (JSON, JSON of a schema, tool calls), enforced by engines with guided decoding and checked here. */

import { InputError, show } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { Constraint } from '../../environments/text.ts'
import { isOfConstraint } from '../../language/grammars/grammars.ts'
import { SPACES, schemaRules } from '../../language/grammars/schema-grammar.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import type { Choice } from '../serving/choices.ts'
import { badField } from '../serving/fields.ts'
import { CALL_END, callForm, type ToolCall } from '../serving/tools.ts'
import type { ModelHost } from './dialect.ts'
import { guidedConstraint } from './guided.ts'
import type { Hints } from './hints.ts'

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
export function formOf(body: Body, names: readonly string[], { served, hints }: ModelHost): Form | null {
  const { tokenizer, batcher } = served
  const asked = askedForm(body, names, tokenizer, hints)
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
function askedForm(body: Body, names: readonly string[], tokenizer: Tokenizer, hints: Hints) {
  const { tool_choice: choice = null, response_format: format = null } = body
  const isForced = choice !== null && choice !== 'auto' && choice !== 'none'
  const json = jsonForm(format)
  const guided = guidedConstraint(body)
  const asked = [
    ...(json === null ? [] : [{ param: 'response_format', free: '{ "type": "text" }', form: () => json }]),
    ...(guided === null ? [] : [{ param: guided.param, free: 'none', form: () => formOfText(guided.constraint) }]),
    ...(isForced
      ? [{ param: 'tool_choice', free: '"auto" or "none"', form: () => callsForm(body, names, tokenizer, hints) }]
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
        // Another engine may enforce a constraint that is unknown here.
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
  { tools, tool_choice: choice, parallel_tool_calls: parallel }: Body,
  names: readonly string[],
  tokenizer: Tokenizer,
  hints: Hints,
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
  const parameters = wanted.map((name) => parametersOf(tools, name))
  const grammar = [
    `root ::= call${several}`,
    `call ::= ${literal(open)} (${wanted.map((_, i) => `call${i}`).join(' | ')}) ${literal(close)}`,
    ...wanted.map((name, i) => `call${i} ::= ${literal(name + between)} arguments${i}`),
    ...parameters.map((each, i) => argumentRules(each, wanted[i]!, i, hints)),
    SPACES,
  ].join('\n')
  return {
    constraint: { grammar },
    misfit(_, calls) {
      if (calls.length === 0) return 'no call of a tool'
      for (const { function: called } of calls) {
        const place = wanted.indexOf(called.name)
        if (place < 0) return `a call of ${called.name}`
        const why = outside(parameters[place]!.schema, JSON.parse(called.arguments))
        if (why !== null) return `a call of ${called.name} with arguments that have ${why}`
      }
      return null
    },
  }
}

/** A tool's arguments. */
interface Parameters {
  readonly schema: object
  readonly isStrict: boolean
}

function parametersOf(tools: unknown, name: string): Parameters {
  const called = (tools as { function: Record<string, unknown> }[]).find(
    (tool) => tool.function.name === name,
  )!.function
  const { parameters, strict = false } = called
  const given = typeof parameters === 'object' && parameters !== null ? parameters : {}
  return { schema: { type: 'object', ...given }, isStrict: strict === true }
}

/**
 * The rules of the arguments of tool `i`. Arguments whose schema cannot be enforced are any object, which is counted as a hint.
 * @throws RequestError 400 for those of a strict tool.
 */
function argumentRules({ schema, isStrict }: Parameters, name: string, i: number, hints: Hints): string {
  const rules = (each: object) => schemaRules(each, `${name}.parameters`, `arguments${i}`, `t${i}r`)
  try {
    return rules(schema)
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    if (isStrict) throw new RequestError(400, `tools: ${error.message}`, { param: 'tools', code: 'bad_field' })
    hints.add(error.subject)
    return rules({ type: 'object' })
  }
}

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
