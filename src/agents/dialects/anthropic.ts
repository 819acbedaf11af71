/** Anthropic's Messages as chat completions: converts requests in, and answers and streams out. */
import { randomUUID } from 'node:crypto'
import { show } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import { badField, booleanField, objectField, textsField } from '../serving/fields.ts'
import { type ChatAnswered, type ChatChunk, type Dialect, finishOf } from './dialect.ts'
import type { Hints } from './hints.ts'
import { checkDialect, drawingOf } from './known-fields.ts'

/** Stop reasons, by OpenAI's finish reason. */
const STOPS: Readonly<Record<string, string>> = { length: 'max_tokens', tool_calls: 'tool_use' }

export const anthropic: Dialect = {
  toChat(body, hints) {
    checkDialect(body, 'messages', hints)
    checkThread(body.thread)
    return {
      ...drawingOf(body),
      messages: [...systemOf(body.system), ...messagesOf(body.messages)],
      ...(body.max_tokens === undefined ? {} : { max_completion_tokens: body.max_tokens }),
      ...toolsOf(body),
      ...(body.thinking == null ? {} : { thinking: body.thinking }),
      ...outputOf(body, hints),
      stop: textsField(body, 'stop_sequences', 16),
    }
  },
  answer: ({ model, choices, usage }) => {
    const [choice] = choices
    return {
      ...headOf(model),
      content: contentOf(choice!),
      ...stopOf(choice!),
      usage: usageOf(usage, usage.completion_tokens),
    }
  },
  async *events(chunks) {
    let index = -1
    let isText = false
    let end: object = { stop_reason: 'end_turn', stop_sequence: null }
    const close = function* () {
      if (index >= 0) yield { type: 'content_block_stop', index }
    }
    let isBegun = false
    let usage: ChatAnswered['usage'] | null = null
    for await (const chunk of chunks) {
      if (!isBegun) {
        const message = { ...headOf(chunk.model), content: [], stop_reason: null, stop_sequence: null }
        yield { type: 'message_start', message: { ...message, usage: usageOf(null, 0) } }
        isBegun = true
      }
      usage = chunk.usage ?? usage
      const [choice] = chunk.choices
      if (choice === undefined) continue
      const { content = '', tool_calls: calls = [] } = choice.delta
      if (content !== '') {
        if (!isText) {
          yield* close()
          yield { type: 'content_block_start', index: ++index, content_block: { type: 'text', text: '' } }
          isText = true
        }
        yield { type: 'content_block_delta', index, delta: { type: 'text_delta', text: content } }
      }
      for (const { id, function: called } of calls) {
        yield* close()
        isText = false
        const block = { type: 'tool_use', id, name: called.name, input: {} }
        yield { type: 'content_block_start', index: ++index, content_block: block }
        const delta = { type: 'input_json_delta', partial_json: called.arguments }
        yield { type: 'content_block_delta', index, delta }
      }
      if (choice.finish_reason !== null) end = stopOf(choice)
    }
    yield* close()
    yield { type: 'message_delta', delta: end, usage: usageOf(usage, usage?.completion_tokens ?? 0) }
    yield { type: 'message_stop' }
  },
  errorBody: ({ status, message, code }: RequestError) => {
    const details = code === NO_THREADS ? { details: { error_code: code, unsupported: ['thread'] } } : {}
    return { type: 'error', error: { type: kindOf(status), message, ...details } }
  },
}

/** Tells clients to send the whole conversation; Anthropic's tool runner then does. */
const NO_THREADS = 'thread_unsupported_request'

/** Threads are conversations kept by the server; requests send new messages only. @throws RequestError for any. */
function checkThread(thread: unknown): void {
  if (thread === undefined || thread === null) return
  const why = `thread: got ${show(thread)}, expected none: send the whole conversation in messages`
  throw new RequestError(400, why, { param: 'thread', code: NO_THREADS })
}

function kindOf(status: number): string {
  const kinds: Record<number, string> = {
    ...{ 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error', 413: 'request_too_large' },
    ...{ 429: 'rate_limit_error', 503: 'overloaded_error' },
  }
  return kinds[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error')
}

function headOf(model: string): object {
  return { id: `msg_${randomUUID().replaceAll('-', '')}`, type: 'message', role: 'assistant', model }
}

function usageOf(usage: ChatAnswered['usage'] | null, outputTokens: number): object {
  const cached = usage?.prompt_tokens_details.cached_tokens ?? 0
  return {
    input_tokens: (usage?.prompt_tokens ?? 0) - cached,
    ...{ cache_creation_input_tokens: 0, cache_read_input_tokens: cached, output_tokens: outputTokens },
  }
}

function stopOf(choice: ChatAnswered['choices'][number] | ChatChunk['choices'][number]): object {
  const reason = finishOf(choice)
  const stop = choice.stop_reason ?? null
  if (reason === 'stop' && stop !== null) return { stop_reason: 'stop_sequence', stop_sequence: stop }
  return { stop_reason: STOPS[reason] ?? 'end_turn', stop_sequence: null }
}

function contentOf({ message }: ChatAnswered['choices'][number]): object[] {
  const { content, tool_calls: calls = [] } = message
  return [
    ...(content === null || content === '' ? [] : [{ type: 'text', text: content }]),
    ...calls.map(({ id, function: { name, arguments: given } }) => {
      return { type: 'tool_use', id, name, input: JSON.parse(given) as object }
    }),
  ]
}

/** Thinking and output format, as fields of chat completions. */
function outputOf(body: Body, hints: Hints): object {
  const { effort = null, format = null, ...others } = objectField(body, 'output_config')
  for (const name of Object.keys(others)) hints.add(`output_config.${name}`)
  const { type, schema } = (format ?? {}) as { type?: unknown; schema?: unknown }
  return {
    ...(effort === null ? {} : { reasoning_effort: effort }),
    ...(format === null ? {} : { response_format: { type, json_schema: { name: 'answer', schema } } }),
  }
}

/** Anthropic's tool choices as those of chat completions. */
const CHOICES: Readonly<Record<string, string>> = { auto: 'auto', none: 'none', any: 'required' }

function toolsOf(body: Body): object {
  const { tools = null } = body
  const choice = objectField(body, 'tool_choice')
  const { type = 'auto', name } = choice
  const isNamed = type === 'tool' && typeof name === 'string'
  if (!isNamed && !Object.hasOwn(CHOICES, type as string)) {
    throw badField('tool_choice', body.tool_choice, 'type auto, any, tool with a name, or none')
  }
  const asked = {
    ...(body.tool_choice == null && tools === null
      ? {}
      : { tool_choice: isNamed ? { type: 'function', function: { name } } : CHOICES[type as string] }),
    ...(booleanField(choice, 'disable_parallel_tool_use', false) ? { parallel_tool_calls: false } : {}),
  }
  if (tools === null) return asked
  if (!Array.isArray(tools)) throw badField('tools', tools, 'a list')
  return {
    ...asked,
    tools: tools.map((tool) => {
      const { name, description, input_schema: parameters, type = 'custom' } = (tool ?? {}) as Record<string, unknown>
      if (type !== 'custom' || typeof name !== 'string' || typeof parameters !== 'object') {
        throw badField('tools', tool, 'one like { "name": …, "input_schema": … }: only client tools are supported')
      }
      return { type: 'function', function: { name, ...(description === undefined ? {} : { description }), parameters } }
    }),
  }
}

function systemOf(system: unknown): object[] {
  if (system === undefined || system === null) return []
  return [{ role: 'system', content: typeof system === 'string' ? system : textOf(system, 'system') }]
}

function textOf(blocks: unknown, param: string): string {
  if (typeof blocks === 'string') return blocks
  if (!Array.isArray(blocks)) throw badField(param, blocks, 'a text, or a list of blocks')
  return blocks
    .map((block) => {
      const { type, text } = (block ?? {}) as { type?: unknown; text?: unknown }
      if (type === 'text' && typeof text === 'string') return text
      throw badField(param, block, 'blocks of type text')
    })
    .join('')
}

function messagesOf(messages: unknown): object[] {
  if (!Array.isArray(messages)) throw badField('messages', messages, 'a list')
  return messages.flatMap((message, i) => {
    const param = `messages[${i}].content`
    const { role, content } = (message ?? {}) as { role?: unknown; content?: unknown }
    if (typeof content === 'string') return [{ role, content }]
    if (!Array.isArray(content)) throw badField(param, content, 'a text, or a list of blocks')
    return role === 'assistant' ? [assistantOf(content, param)] : userOf(content, role, param)
  })
}

function assistantOf(blocks: readonly unknown[], param: string): object {
  const ofType = (type: string) => blocks.filter((block) => (block as { type?: unknown } | null)?.type === type)
  const [texts, uses] = [ofType('text'), ofType('tool_use')]
  const thoughts = [...ofType('thinking'), ...ofType('redacted_thinking')]
  if (texts.length + uses.length + thoughts.length < blocks.length) {
    throw badField(param, blocks, 'blocks of type text and tool_use')
  }
  const calls = uses.map((use) => {
    const { id, name, input } = use as { id: unknown; name: unknown; input: unknown }
    if (typeof name !== 'string') throw badField(`${param}, tool_use.name`, name, "a tool's name")
    return { id, type: 'function', function: { name, arguments: JSON.stringify(input) } }
  })
  const said = textOf(texts, param)
  if (calls.length === 0) return { role: 'assistant', content: said }
  return { role: 'assistant', content: said === '' ? null : said, tool_calls: calls }
}

/** Tool results and the user's text, one message each. */
function userOf(blocks: readonly unknown[], role: unknown, param: string): object[] {
  const said: object[] = []
  let words: unknown[] = []
  const speak = () => {
    if (words.length > 0) said.push({ role, content: textOf(words, param) })
    words = []
  }
  for (const block of blocks) {
    const { type, tool_use_id: id, content } = (block ?? {}) as Record<string, unknown>
    if (type !== 'tool_result') {
      words.push(block)
      continue
    }
    const told = textOf(content ?? '', `${param}, tool_result`)
    if (typeof id !== 'string') throw badField(`${param}, tool_result.tool_use_id`, id, "a call's id")
    speak()
    said.push({ role: 'tool', tool_call_id: id, content: told })
  }
  speak()
  return said
}
