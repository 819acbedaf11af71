/** OpenAI's Responses as chat completions: converts requests in, and answers and streams out. */
import { randomUUID } from 'node:crypto'
import type { Body } from '../../base/http/server.ts'
import { badField, objectField } from '../serving/fields.ts'
import type { ToolCall } from '../serving/tools.ts'
import { type ChatAnswered, type Dialect, finishOf } from './dialect.ts'
import type { Hints } from './hints.ts'
import { checkDialect, drawingOf } from './known-fields.ts'

type Item = Readonly<Record<string, unknown>>

/** Output items of Responses as messages of the continued conversation. */
export function answeredMessages(output: readonly object[]): object[] {
  return messagesOf(output)
}

/** OpenAI's Responses API. `messages` are those of `previous_response_id`, with its answer. */
export function responses(messages: readonly object[]): Dialect {
  return {
    toChat(body, hints) {
      checkDialect(body, 'responses', hints)
      const { instructions = null, input, tools = null, tool_choice: choice = null } = body
      if (instructions !== null && typeof instructions !== 'string') {
        throw badField('instructions', instructions, 'a text')
      }
      return {
        ...drawingOf(body),
        messages: [
          ...(instructions === null ? [] : [{ role: 'system', content: instructions }]),
          ...(instructions === null ? messages : messages.filter((each) => (each as Item).role !== 'system')),
          ...messagesOf(input),
        ],
        ...(body.max_output_tokens === undefined ? {} : { max_completion_tokens: body.max_output_tokens }),
        ...(tools === null ? {} : { tools: toolsOf(tools) }),
        ...(choice === null ? {} : { tool_choice: toolChoiceOf(choice) }),
        ...(body.parallel_tool_calls == null ? {} : { parallel_tool_calls: body.parallel_tool_calls }),
        ...effortOf(body, hints),
        ...formatOf(body, hints),
      }
    },
    answer: (answered, asked) => {
      const [choice] = answered.choices
      const { content, tool_calls: calls = [] } = choice!.message
      const output = [
        ...(content === null || content === '' ? [] : [messageItem(content)]),
        ...calls.map((call) => callItem(call)),
      ]
      return responseOf(headOf(answered.model, asked), finishOf(choice!), output, answered.usage)
    },
    async *events(chunks, asked) {
      let number = 0
      const event = (type: string, more: object) => ({ type, sequence_number: number++, ...more })
      const output: object[] = []
      let head: object | null = null
      let text = ''
      let item: object | null = null
      let finish = 'stop'
      let usage: ChatAnswered['usage'] | null = null
      const at = () => ({ output_index: output.length })
      const closeText = function* () {
        if (item === null) return
        const done = { ...item, status: 'completed', content: [textPart(text)] }
        const part = { item_id: (item as Item).id, ...at(), content_index: 0 }
        yield event('response.output_text.done', { ...part, text, logprobs: [] })
        yield event('response.content_part.done', { ...part, part: textPart(text) })
        yield event('response.output_item.done', { ...at(), item: done })
        output.push(done)
        item = null
      }
      for await (const chunk of chunks) {
        if (head === null) {
          head = headOf(chunk.model, asked)
          yield event('response.created', { response: { ...head, status: 'in_progress' } })
          yield event('response.in_progress', { response: { ...head, status: 'in_progress' } })
        }
        usage = chunk.usage ?? usage
        const [choice] = chunk.choices
        if (choice === undefined) continue
        const { content = '', tool_calls: calls = [] } = choice.delta
        if (content !== '') {
          if (item === null) {
            text = ''
            item = { ...messageItem(''), status: 'in_progress', content: [] }
            yield event('response.output_item.added', { ...at(), item })
            const part = { item_id: (item as Item).id, ...at(), content_index: 0, part: textPart('') }
            yield event('response.content_part.added', part)
          }
          text += content
          const delta = { item_id: (item as Item).id, ...at(), content_index: 0, delta: content, logprobs: [] }
          yield event('response.output_text.delta', delta)
        }
        for (const call of calls) {
          yield* closeText()
          const done = callItem(call)
          const { id, arguments: given } = done
          yield event('response.output_item.added', {
            ...at(),
            item: { ...done, status: 'in_progress', arguments: '' },
          })
          yield event('response.function_call_arguments.delta', { item_id: id, ...at(), delta: given })
          const whole = { item_id: id, ...at(), name: done.name, arguments: given }
          yield event('response.function_call_arguments.done', whole)
          yield event('response.output_item.done', { ...at(), item: done })
          output.push(done)
        }
        if (choice.finish_reason !== null) finish = finishOf(choice)
      }
      yield* closeText()
      const response = responseOf(head!, finish, output, usage)
      yield event(finish === 'length' ? 'response.incomplete' : 'response.completed', { response })
    },
  }
}

function headOf(model: string, asked: Body): object {
  const { instructions = null, max_output_tokens: most = null, previous_response_id: previous = null } = asked
  const { tools = [], tool_choice: choice = 'auto', metadata = {}, parallel_tool_calls: parallel = true } = asked
  return {
    ...{
      id: `resp_${randomUUID().replaceAll('-', '')}`,
      object: 'response',
      created_at: Math.floor(Date.now() / 1000),
    },
    ...{ status: 'completed', background: false, error: null, incomplete_details: null, instructions, model },
    ...{ max_output_tokens: most, output: [], parallel_tool_calls: parallel, previous_response_id: previous },
    ...{ reasoning: { effort: null, summary: null }, store: true, text: { format: { type: 'text' } }, tools },
    ...{ temperature: null, top_p: null, tool_choice: choice, truncation: 'disabled', usage: null, metadata },
  }
}

function responseOf(head: object, finish: string, output: readonly object[], usage: ChatAnswered['usage'] | null) {
  const isCut = finish === 'length'
  return {
    ...head,
    ...(isCut ? { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } } : {}),
    output,
    usage: usage === null ? null : usageOf(usage),
  }
}

function usageOf({
  prompt_tokens: input,
  completion_tokens: output,
  prompt_tokens_details: details,
}: ChatAnswered['usage']) {
  return {
    ...{ input_tokens: input, input_tokens_details: details, output_tokens: output },
    ...{ output_tokens_details: { reasoning_tokens: 0 }, total_tokens: input + output },
  }
}

function textPart(text: string): object {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function messageItem(text: string): object {
  const id = `msg_${randomUUID().replaceAll('-', '')}`
  return { type: 'message', id, status: 'completed', role: 'assistant', content: [textPart(text)] }
}

function callItem({ id, function: { name, arguments: given } }: ToolCall) {
  return {
    ...{ type: 'function_call', id: `fc_${randomUUID().replaceAll('-', '')}`, call_id: id },
    ...{ name, arguments: given, status: 'completed' },
  }
}

/** Chat completions nest the name of a chosen tool. */
function toolChoiceOf(choice: unknown): unknown {
  const { type, name } = choice as Item
  return type === 'function' ? { type, function: { name } } : choice
}

function effortOf(body: Body, hints: Hints): object {
  const { effort = null, ...others } = objectField(body, 'reasoning')
  for (const [name, value] of Object.entries(others)) if (value !== null) hints.add(`reasoning.${name}`)
  return effort === null ? {} : { reasoning_effort: effort }
}

/** Chat completions nest the schema of a format. */
function formatOf(body: Body, hints: Hints): object {
  const { format = null, ...others } = objectField(body, 'text')
  for (const [name, value] of Object.entries(others)) if (value !== null) hints.add(`text.${name}`)
  if (format === null) return {}
  const { type, ...schema } = format as Item
  return { response_format: type === 'json_schema' ? { type, json_schema: schema } : format }
}

function toolsOf(tools: unknown): object[] {
  if (!Array.isArray(tools)) throw badField('tools', tools, 'a list')
  return tools.map((tool) => {
    const { type, name, description, parameters } = (tool ?? {}) as Item
    if (type !== 'function') throw badField('tools', tool, 'tools of type function: only client tools are supported')
    return { type, function: { name, ...(description == null ? {} : { description }), parameters: parameters ?? {} } }
  })
}

/** Input items as messages: the calls of a turn join the assistant's preceding text. */
function messagesOf(input: unknown): object[] {
  if (typeof input === 'string') return [{ role: 'user', content: input }]
  if (!Array.isArray(input)) throw badField('input', input, 'a text, or a list of items')
  const messages: Record<string, unknown>[] = []
  for (const [i, each] of input.entries()) {
    const item = (each ?? {}) as Item
    const { type = 'message', role, content } = item
    if (type === 'message') messages.push({ role: role === 'developer' ? 'system' : role, content: textOf(content, i) })
    else if (type === 'function_call') {
      if (typeof item.name !== 'string') throw badField(`input[${i}].name`, item.name, "a tool's name")
      const call = { id: item.call_id, type: 'function', function: { name: item.name, arguments: item.arguments } }
      const last = messages.at(-1)
      if (last?.role === 'assistant') last.tool_calls = [...((last.tool_calls as object[]) ?? []), call]
      else messages.push({ role: 'assistant', content: null, tool_calls: [call] })
    } else if (type === 'function_call_output') {
      messages.push({ role: 'tool', tool_call_id: item.call_id, content: textOf(item.output, i) })
    } else if (type !== 'reasoning') {
      throw badField(`input[${i}].type`, type, 'one of message, function_call, function_call_output')
    }
  }
  return messages
}

function textOf(content: unknown, i: number): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw badField(`input[${i}]`, content, 'a text, or a list of parts')
  return content
    .map((part) => {
      const { type, text } = (part ?? {}) as Item
      if (['input_text', 'output_text', 'text'].includes(type as string) && typeof text === 'string') return text
      throw badField(`input[${i}]`, part, 'parts of type input_text or output_text')
    })
    .join('')
}
