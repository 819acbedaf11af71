/** Maps a request's thinking fields and other template variables to the chat template, if it reads them. */
import { type Body, RequestError } from '../../base/http/server.ts'
import type { TemplateArguments } from '../../language/templates/chat-template.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { badField, objectField } from '../serving/fields.ts'
import type { Hints } from './hints.ts'

/** Template variables that turn thinking on. */
const THINKING = ['enable_thinking', 'thinking']

/**
 * The variables that a chat completion sets. `reasoning_effort`, `enable_thinking` and `thinking` (`{ "type":
 * "disabled" }`) are hints if the template reads none of them; the effort `none` turns thinking off.
 * @throws RequestError 400 for a variable of `chat_template_kwargs` that the template does not read.
 */
export function templateVariables(body: Body, { chatTemplate }: Tokenizer, hints: Hints): TemplateArguments {
  const reads = chatTemplate?.reads ?? []
  const switchName = THINKING.find((name) => reads.includes(name))
  const variables: Record<string, unknown> = {}
  const set = (field: string, name: string | undefined, value: unknown): void => {
    if (name === undefined) hints.add(field)
    else variables[name] = value
  }
  const { reasoning_effort: effort = null, enable_thinking: isOn = null, thinking = null } = body
  if (effort !== null) {
    const isOff = effort === 'none' && !reads.includes('reasoning_effort')
    const name = reads.find((each) => each === (isOff ? switchName : 'reasoning_effort'))
    set('reasoning_effort', name, isOff ? false : effort)
  }
  if (isOn !== null) set('enable_thinking', switchName, isOn)
  if (thinking !== null) set('thinking', switchName, isThinking(thinking))
  for (const [name, value] of Object.entries(objectField(body, 'chat_template_kwargs'))) {
    if (!reads.includes(name)) {
      const names =
        reads.length === 0 ? 'none: the template reads none' : `a variable that the template reads: ${reads.join(', ')}`
      throw new RequestError(400, `chat_template_kwargs: got ${JSON.stringify(name)}, expected ${names}`, {
        ...{ param: 'chat_template_kwargs', code: 'unsupported_field' },
      })
    }
    variables[name] = value
  }
  return variables
}

/** Parses Anthropic's form, or true and false. */
function isThinking(said: unknown): boolean {
  if (typeof said === 'boolean') return said
  const { type } = (said ?? {}) as { type?: unknown }
  if (typeof type === 'string') return type !== 'disabled'
  throw badField('thinking', said, 'one like { "type": "disabled" }')
}
