/** The contract of chat templates, which render a conversation as one text, in the form the model was trained on. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Message } from '../../environments/text.ts'

/** Options of `ChatTemplate.render`. */
export interface RenderOptions {
  /** Ends the text at the start of the assistant's next message, for the model to write; default false. */
  readonly addGenerationPrompt?: boolean
  /** Tools as JSON schemas, for templates that show them to the model. */
  readonly tools?: readonly object[]
  /** Values of the template's variables, like `enable_thinking: false`. */
  readonly variables?: TemplateArguments
}

/** Renders conversations as text. */
export interface ChatTemplate {
  /** The template's origin, for errors. */
  readonly name: string
  /** The variables that `RenderOptions.variables` may set; default none. */
  readonly reads?: readonly string[]
  /** Whether a long conversation ends with the same text without its middle (see `isLocal`); default false. */
  readonly isLocal?: boolean
  /** Renders messages, the same on any day. @throws InputError with the template's reason, if it refuses them. */
  render(messages: readonly Message[], options?: RenderOptions): string
}

/** The user's values of a template's variables, like `enable_thinking: false`. */
export type TemplateArguments = Readonly<Record<string, unknown>>

/** Variables that templates always have, and users cannot set. */
const OWN_NAMES = ['messages', 'tools', 'add_generation_prompt', 'loop', 'strftime_now']
/** Constants, which the parser treats as names. */
const CONSTANTS = ['true', 'false', 'none', 'True', 'False', 'None', 'undefined']

/**
 * A chat template in Jinja. Of several, it takes `tool_use` if there are tools and `default` otherwise, as Hugging
 * Face's libraries do. `variables` are set besides the messages; `given` are the user's. There is no date
 * (`strftime_now`), so a conversation does not change at midnight. A template is untrusted, so its work and memory are
 * limited; exceeding a limit is an error like any other.
 * @throws InputError for a malformed template, and for an argument that no template reads.
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
        throw new InputError(name, 'tools, which it cannot render', 'a template that reads tools')
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
        throw new InputError(
          name,
          `messages of roles ${roles} (${(cause as Error).message})`,
          'messages that it can render',
          {
            cause,
          },
        )
      }
    },
  }
}

/** Checks the user's template arguments: names that the template reads. @throws InputError for other names. */
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

/** The variables that a template reads and that are not already set. */
function settable(read: readonly string[], told: readonly string[]): string[] {
  return [...new Set(read)].filter((name) => !OWN_NAMES.includes(name) && !told.includes(name))
}

/** The variables that a parsed template reads before it sets them, without fields and called names. */
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
    if (typeof part !== 'object' || part === null || isMany) return // Visiting shared parts twice would take 2ⁿ visits.
    const { type, operator: _, ...fields } = part as Node
    const isName = (field: unknown) => (field as Node | undefined)?.type === 'Identifier'
    if (type === 'Identifier' && !isSet.has(String(fields.value))) names.add(String(fields.value))
    if (type === 'MemberExpression' && fields.computed === false) delete fields.property
    if (type === 'KeywordArgumentExpression') delete fields.key
    if (type === 'FilterExpression' && isName(fields.filter)) delete fields.filter
    if (type === 'TestExpression') delete fields.test
    if (type === 'CallExpression' && isName(fields.callee)) delete fields.callee
    if (type === 'If') {
      readBranches(fields)
      return
    }
    const { assignee, loopvar, value, iterable, ...rest } = fields
    for (const first of [value, iterable]) read(first)
    for (const name of [assignee, loopvar]) set(name)
    for (const field of Object.values(rest)) read(field)
  }
  /** What only one branch sets may be unset behind it. */
  const readBranches = ({ test, body, alternate }: Node): void => {
    read(test)
    const before = [...isSet]
    const ends = [body, alternate].map((branch) => {
      read(branch)
      const end = new Set(isSet)
      isSet.clear()
      for (const name of before) isSet.add(name)
      return end
    })
    for (const name of ends[0]!) if (ends[1]!.has(name)) isSet.add(name)
  }
  read(template)
  return [...names]
}

type Node = { readonly type?: string; operator?: unknown } & Record<string, unknown>
