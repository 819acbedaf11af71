/**
 * How a conversation becomes one text: what stands before, between and after its messages. A model was trained on one such
 * form and understands no other.
 */
import type { Message } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'

/** What a template may be told besides the messages. */
export interface RenderOptions {
  /** Ends the text where the assistant's next message begins, so that the model writes it; default false. */
  readonly addGenerationPrompt?: boolean
  /** Tools as JSON schemas, for templates that tell the model of them. */
  readonly tools?: readonly object[]
}

/** A chat template. */
export interface ChatTemplate {
  /** Where it came from: stands in errors. */
  readonly name: string
  /**
   * The conversation as text: the same for the same messages, on any day.
   * @throws InputError naming the template and its reason, where it refuses the messages.
   */
  render(messages: readonly Message[], options?: RenderOptions): string
}

/** Stands before a template: takes away the clock that the library gives it. Jinja drops the line end behind a statement. */
const NO_CLOCK = '{% set strftime_now = undefined %}'

/**
 * A chat template in Jinja. Of several, `tool_use` is taken where tools are given, and `default` otherwise, as Hugging Face's
 * libraries do; `variables` are what it may name besides the messages. It is told no date (`strftime_now`), so that a
 * conversation does not become another one at midnight.
 * @throws InputError for a template that is malformed.
 */
export async function jinjaTemplate(
  name: string,
  sources: Readonly<Record<string, string>>,
  variables: Readonly<Record<string, unknown>> = {},
): Promise<ChatTemplate> {
  const { Template } = await import('@huggingface/jinja')
  const templates = new Map(
    Object.entries(sources).map(([key, source]) => {
      try {
        return [key, new Template(`${NO_CLOCK}\n${source}`)] as const
      } catch (cause) {
        throw new InputError(name, `an error in ${key} (${(cause as Error).message})`, 'a Jinja template', { cause })
      }
    }),
  )
  return {
    name,
    render(messages, { addGenerationPrompt = false, tools } = {}) {
      const key = tools !== undefined && templates.has('tool_use') ? 'tool_use' : 'default'
      const template = templates.get(key)
      if (template === undefined) throw new InputError(name, `only ${[...templates.keys()].join(', ')}`, 'a default')
      try {
        return template.render({
          ...variables,
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
