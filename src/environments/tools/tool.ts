/**
 * Tools: functions that a model may call during a conversation. A tool is an ordinary function with a JSON schema of its arguments; its
 * result is returned to the model as text. Errors (an unknown name, wrong arguments, an exception or a timeout) are returned to the model
 * and counted, not thrown, since the model can try again.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { ToolArguments, ToolCall } from './tool-calls.ts'

/** A function that a model may call. */
export interface Tool {
  readonly name: string
  readonly description: string
  /** JSON schema of its arguments, of type object. */
  readonly parameters: Readonly<Record<string, unknown>>
  /** Seconds after which a call has failed. */
  readonly seconds: number
  /** Returns a string, or a value that the model gets as JSON. The signal aborts when the result is no longer needed. */
  run(given: ToolArguments, signal: AbortSignal): unknown
}

const SECONDS = 10

/**
 * Defines a tool.
 * @throws InputError for an invalid name, parameters that are not an object schema, a `run` that is not a function, and seconds that are
 * not above 0.
 * @example
 * const add = defineTool({
 *   name: 'add',
 *   description: 'The sum of two numbers.',
 *   parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
 *   run: ({ a, b }) => (a as number) + (b as number),
 * })
 */
export function defineTool(options: Omit<Tool, 'seconds'> & { readonly seconds?: number }): Tool {
  const { name, description, parameters, seconds = SECONDS, run } = options ?? {}
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name)) {
    throw new InputError('tool, name', show(name), 'letters, digits, _, . and -, 64 at most')
  }
  const refuse = (what: string, got: unknown, expected: string) =>
    new InputError(`tool ${name}, ${what}`, show(got), expected)
  if (typeof description !== 'string') throw refuse('description', description, 'a text')
  if (typeof parameters !== 'object' || parameters === null || parameters.type !== 'object') {
    throw refuse('parameters', parameters, 'a JSON schema of type object')
  }
  if (!(Number.isFinite(seconds) && seconds > 0)) throw refuse('seconds', seconds, 'a number above 0')
  if (typeof run !== 'function') throw refuse('run', run, 'a function')
  return { name, description, parameters, seconds, run }
}

/** A tool in the format of chat templates and servers. */
export interface ToolSchema {
  readonly type: 'function'
  readonly function: Pick<Tool, 'name' | 'description' | 'parameters'>
}

/** Converts tools for chat templates: `tools` of an example. */
export function toolSchemas(tools: readonly Tool[]): ToolSchema[] {
  checkGiven('tools of toolSchemas', tools, 'a list')
  return tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description, parameters },
  }))
}

/** The result of a call. */
export interface ToolResult {
  /** Text for the model: the tool's result, or the error. */
  readonly content: string
  readonly isError: boolean
}

/** Calls the tool with that name. Never throws: the model gets errors as text. */
export async function callTool(tools: readonly Tool[], call: ToolCall, signal: AbortSignal): Promise<ToolResult> {
  checkGiven('tools of callTool', tools, 'a list')
  checkGiven('call of callTool', call, [])
  if ('malformed' in call) return failed(call.malformed)
  const tool = tools.find(({ name }) => name === call.name)
  if (tool === undefined) {
    return failed(`no tool ${show(call.name)}; there are ${tools.map(({ name }) => name).join(', ')}`)
  }
  const wrong = misfit(tool.parameters, call.arguments)
  if (wrong !== null) return failed(`${tool.name}: ${wrong}`)
  if (signal.aborted) return failed(`${tool.name}: the result is no longer needed`)
  const stop = new AbortController()
  const abort = () => stop.abort(new Error('the result is no longer needed'))
  let timer: ReturnType<typeof setTimeout> | undefined
  signal.addEventListener('abort', abort)
  try {
    const ended = new Promise<never>((_, reject) => {
      stop.signal.addEventListener('abort', () => reject(stop.signal.reason))
      timer = setTimeout(() => stop.abort(new Error(`no answer within ${tool.seconds} s`)), 1000 * tool.seconds)
    })
    const answer = await Promise.race([Promise.resolve(tool.run(call.arguments, stop.signal)), ended])
    return { content: textOf(answer), isError: false }
  } catch (error) {
    return failed(`${tool.name}: ${error instanceof Error ? error.message : String(error)}`)
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', abort)
  }
}

function failed(what: string): ToolResult {
  return { content: `error: ${what}`, isError: true }
}

function textOf(answer: unknown): string {
  if (typeof answer === 'string') return answer
  if (answer === undefined) return ''
  return JSON.stringify(answer) ?? String(answer)
}

const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === 'boolean',
  array: Array.isArray,
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  null: (value) => value === null,
}

/** Why arguments do not fit a schema, judged by names, types and enums; null if they fit. */
function misfit({ properties = {}, required = [] }: Readonly<Record<string, unknown>>, given: ToolArguments) {
  const missing = (required as readonly string[]).find((name) => !Object.hasOwn(given, name))
  if (missing !== undefined) return `${missing} is missing`
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(properties as object, name)) return `${name} is not one of its arguments`
    const { type, enum: values } = (properties as Record<string, { type?: string | string[]; enum?: unknown[] }>)[name]!
    const types = type === undefined ? [] : [type].flat()
    if (types.length > 0 && !types.some((each) => TYPES[each]?.(value))) {
      return `${name} is ${show(value)}, not of type ${types.join(' or ')}`
    }
    if (values !== undefined && !values.includes(value)) return `${name} is ${show(value)}, not one of ${show(values)}`
  }
  return null
}
