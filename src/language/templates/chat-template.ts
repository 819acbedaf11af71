/**
 * How a conversation becomes one text: what stands before, between and after its messages. A model was trained on one such
 * form and understands no other.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Message } from '../../environments/text.ts'

/** What a template may be told besides the messages. */
export interface RenderOptions {
  /** Ends the text where the assistant's next message begins, so that the model writes it; default false. */
  readonly addGenerationPrompt?: boolean
  /** Tools as JSON schemas, for templates that tell the model of them. */
  readonly tools?: readonly object[]
  /** Values of variables that the template reads, like `enable_thinking: false`. */
  readonly variables?: TemplateArguments
}

/** A chat template. */
export interface ChatTemplate {
  /** Where it came from: stands in errors. */
  readonly name: string
  /** The variables that `RenderOptions.variables` may set; default none. */
  readonly reads?: readonly string[]
  /** Whether the end of a long conversation has the same text without the middle, as `isLocal` says; default false. */
  readonly isLocal?: boolean
  /**
   * The conversation as text: the same for the same messages, on any day.
   * @throws InputError naming the template and its reason, where it refuses the messages.
   */
  render(messages: readonly Message[], options?: RenderOptions): string
}

/** What a user tells a template by name, as `enable_thinking: false`. */
export type TemplateArguments = Readonly<Record<string, unknown>>

/** What templates are always told, which nobody else says. */
const OWN_NAMES = ['messages', 'tools', 'add_generation_prompt', 'loop', 'strftime_now']
/** Constants, which the parser takes for names. */
const CONSTANTS = ['true', 'false', 'none', 'True', 'False', 'None', 'undefined']

/**
 * A chat template in Jinja. Of several, `tool_use` is taken where tools are given, and `default` otherwise, as Hugging Face's
 * libraries do; `variables` are what it may name besides the messages, and `given` what a user tells it. It is told no date
 * (`strftime_now`), so that a conversation does not become another one at midnight, and what it may do is bounded, since it
 * is a stranger's program: one that runs on, or makes too much of little, is an error like any other of it.
 * @throws InputError for a template that is malformed, and for an argument that none of the templates reads.
 */
export async function jinjaTemplate(
  name: string,
  sources: Readonly<Record<string, string>>,
  variables: Readonly<Record<string, unknown>> = {},
  given: TemplateArguments = {},
): Promise<ChatTemplate> {
  const { parseBounded, renderBounded } = await import('./bounded-template.ts')
  const { isLocal } = await import('./local-template.ts')
  const templates = new Map(
    Object.entries(sources).map(([key, source]) => {
      try {
        return [key, parseBounded(source)] as const
      } catch (cause) {
        throw new InputError(name, `an error in ${key} (${(cause as Error).message})`, 'a Jinja template', { cause })
      }
    }),
  )
  const read = [...templates.values()].flatMap(namesRead)
  const told = Object.keys(variables)
  checkArguments(name, given, read, told)
  const reads = settable(read, [...told, ...Object.keys(given)])
  return {
    ...{ name, reads, isLocal: [...templates.values()].every(isLocal) },
    render(messages, { addGenerationPrompt = false, tools, variables: asked = {} } = {}) {
      checkArguments(name, asked, reads)
      if (tools !== undefined && !templates.has('tool_use') && !read.includes('tools')) {
        throw new InputError(name, 'tools, which it does not show to the model', 'a template that reads tools')
      }
      const key = tools !== undefined && templates.has('tool_use') ? 'tool_use' : 'default'
      const template = templates.get(key)
      if (template === undefined) throw new InputError(name, `only ${[...templates.keys()].join(', ')}`, 'a default')
      try {
        return renderBounded(template, {
          ...variables,
          ...given,
          ...asked,
          messages,
          ...(tools === undefined ? {} : { tools }),
          add_generation_prompt: addGenerationPrompt,
        })
      } catch (cause) {
        const roles = show(messages.map(({ role }) => role))
        throw new InputError(name, `messages of roles ${roles} (${(cause as Error).message})`, 'what it can render', {
          cause,
        })
      }
    },
  }
}

/**
 * Checks what a user tells a template: names that it reads, and that are not told it already.
 * @throws InputError that names the nearest one.
 */
export function checkArguments(
  subject: string,
  given: TemplateArguments,
  read: readonly string[],
  told: readonly string[] = [],
): void {
  const names = settable(read, told)
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw unknownWord(`${subject}, argument`, name, names)
  }
}

/** The variables among those that a template reads which it is not told already. */
function settable(read: readonly string[], told: readonly string[]): string[] {
  return [...new Set(read)].filter((name) => !OWN_NAMES.includes(name) && !told.includes(name))
}

/** The variables that a parsed template reads before it sets them: not the fields of others, or what it calls. */
function namesRead(template: unknown): string[] {
  const isSet = new Set(CONSTANTS)
  const names = new Set<string>()
  const set = (part: unknown): void => {
    if (Array.isArray(part)) part.forEach(set)
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return
    const { type, value } = part as Node
    if (type === 'Identifier' && !names.has(String(value))) isSet.add(String(value))
    else if (type === 'TupleLiteral') set(value)
  }
  const read = (part: unknown): void => {
    const isMany = Array.isArray(part) || part instanceof Map
    if (isMany) for (const each of part) read(each)
    if (typeof part !== 'object' || part === null || isMany) return // Read twice, parts in parts would take 2ⁿ readings.
    const { type, operator: _, ...fields } = part as Node
    const isName = (field: unknown) => (field as Node | undefined)?.type === 'Identifier'
    if (type === 'Identifier' && !isSet.has(String(fields.value))) names.add(String(fields.value))
    if (type === 'MemberExpression' && fields.computed === false) delete fields.property
    if (type === 'KeywordArgumentExpression') delete fields.key
    if (type === 'FilterExpression' && isName(fields.filter)) delete fields.filter
    if (type === 'TestExpression') delete fields.test
    if (type === 'CallExpression' && isName(fields.callee)) delete fields.callee
    const { assignee, loopvar, value, iterable, ...rest } = fields
    for (const first of [value, iterable]) read(first)
    for (const name of [assignee, loopvar]) set(name)
    for (const field of Object.values(rest)) read(field)
  }
  read(template)
  return [...names]
}

/** A node of a parsed template. */
type Node = { readonly type?: string; operator?: unknown } & Record<string, unknown>
