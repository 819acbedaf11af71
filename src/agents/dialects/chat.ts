/** OpenAI's chat completions, rendered by the model's chat template. */
import { randomUUID } from 'node:crypto'
import { jsonOrText } from '../../base/files/files.ts'
import { type Body, RequestError, type RouteAnswer } from '../../base/http/server.ts'
import { isMessage, type Message } from '../../environments/text.ts'
import type { Tools } from '../../language/tokenizers/turn-ids.ts'
import { type GeneratedToken, type Generation, whole } from '../serving/batcher.ts'
import {
  besides,
  type Choice,
  choicesOf,
  pieces,
  readPromptLogprobs,
  readTelling,
  seconds,
  spelling,
  tokenized,
  toldPrompt,
  turnsOf,
  usageOf,
} from '../serving/choices.ts'
import { anyClient, type ClientTurns, tellAnswer } from '../serving/client-turns.ts'
import { badField, booleanField, integerField, textField } from '../serving/fields.ts'
import type { ServedModel } from '../serving/served-model.ts'
import { CALL_END, callsIn, endsCalls, type ToolCall, tellsTools } from '../serving/tools.ts'
import type { ModelHost } from './dialect.ts'
import { checkForm, formOf } from './forms.ts'
import { checkDialect } from './known-fields.ts'
import { templateVariables } from './template-variables.ts'

/** Answers a conversation. `client` may keep earlier turns. */
export async function chat(
  host: ModelHost,
  body: Body,
  signal: AbortSignal,
  client: ClientTurns = anyClient(host.served),
): Promise<RouteAnswer> {
  checkDialect(body, 'chat', host.hints)
  const { served, naming } = host
  const { tokenizer } = served
  const wantsLogprobs = booleanField(body, 'logprobs', false)
  const numTop = integerField(body, 'top_logprobs', 0, 0, 20)
  if (numTop > 0 && !wantsLogprobs) throw badField('top_logprobs', numTop, '0 without logprobs')
  const telling = readTelling(body, host, wantsLogprobs ? numTop : null)
  const numPrompt = readPromptLogprobs(body, telling)
  const { tools, names } = toolsOf(served, body)
  const messages = messagesOf(body.messages)
  const variables = templateVariables(body, tokenizer, host.hints)
  const prompt = tokenized('messages', () => client.promptOf(messages, { tools, variables }))
  const { ids } = prompt
  const asked = integerField(body, 'max_completion_tokens', integerField(body, 'max_tokens', null, 1), 1)
  const requests = turnsOf([ids], body, () => client.budgetOf(ids, asked, 'messages'), telling, served, client.owner)
  const mayCall = names.length > 0
  const form = formOf(body, names, host)
  const isAlone = mayCall && !booleanField(body, 'parallel_tool_calls', true)
  if (isAlone && !endsCalls(tokenizer)) {
    throw badField('parallel_tool_calls', false, `true: the model's chat template does not end a call with ${CALL_END}`)
  }
  // A call's end tag ends the turn and, unlike the request's stop strings, stays in the text.
  const submitted = requests.map((each) => ({
    ...each,
    ...(isAlone ? { stopStrings: [...each.stopStrings, CALL_END] } : {}),
    ...(form === null ? {} : { constraint: form.constraint }),
    ...(numPrompt === null ? {} : { numPromptTop: numPrompt }),
  }))
  const group = served.batcher.submit(submitted, textField(body, 'request_id', null))
  const choices = choicesOf(group, requests, served, !mayCall) // Some models call tools with special tokens.
  const head = { id: `chatcmpl-${randomUUID()}`, created: seconds(), model: telling.model }
  const spell = spelling(served, telling)
  const promptTold = telling.tokenIds ? { prompt_token_ids: Array.from(ids) } : {}
  const logprobs = (tokens: readonly GeneratedToken[]) => {
    const entry = (id: number, logprob: number) => ({
      token: spell(id),
      logprob,
      bytes: bytesOf(tokenizer.decode([id])),
    })
    if (telling.numTop === null) return null
    const content = tokens.map(({ id, logprob, top }) => ({
      ...entry(id, logprob),
      top_logprobs: top.map(([each, value]) => entry(each, value)),
    }))
    return { content, refusal: null }
  }
  const read = (choice: Choice, text: string) => {
    if (!mayCall) return { content: text, calls: [] }
    const { content, calls } = callsIn(text, names, () => `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`)
    const stop = choice.text.stopString
    if (calls.length > 0) return { content, calls }
    const said = tokenizer.decode(wordsOf(choice.turn, tokenizer.endIds), { skipSpecial: true })
    return { content: stop === null ? said : text, calls }
  }
  const finish = (choice: Choice, calls: readonly ToolCall[]) => (calls.length > 0 ? 'tool_calls' : choice.finishReason)
  const reply = (content: string, calls: readonly ToolCall[]): Message => ({
    role: 'assistant',
    content: calls.length > 0 && content === '' ? null : content,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  })
  if (!telling.isStream) {
    await whole(group, signal)
    const texts = choices.map((choice) => choice.take()?.text ?? '')
    return {
      ...{ ...head, object: 'chat.completion' },
      choices: choices.map((choice, index) => {
        const { content, calls } = read(choice, texts[index]!)
        checkForm(form, content, calls, choice)
        const message = reply(content, calls)
        tellAnswer(client, { prompt, turn: choice.turn, message }, signal)
        return {
          index,
          message: { ...message, refusal: null },
          ...{ logprobs: logprobs(choice.turn.tokens), finish_reason: finish(choice, calls) },
          ...besides(choice, choice.turn.tokens, telling, naming),
        }
      }),
      usage: usageOf(choices),
      ...(numPrompt === null ? {} : { prompt_logprobs: toldPrompt(choices[0]!, served) }),
      ...promptTold,
    }
  }
  async function* events() {
    const chunk = (index: number, delta: object, more: object = {}) => ({
      ...{ ...head, object: 'chat.completion.chunk' },
      choices: [{ index, delta, logprobs: null, finish_reason: null, ...more }],
    })
    for (const { index } of choices) yield { ...chunk(index, { role: 'assistant', content: '' }), ...promptTold }
    const held = choices.map(() => '')
    const said = choices.map(() => '')
    for await (const { choice, tokens, text } of pieces(group, choices, signal)) {
      const { index } = choice
      held[index] += text
      // If the model may call tools, its text is sent only when it is clear which parts are calls.
      const isTold = !mayCall || choice.isOver
      const { content, calls } = isTold ? read(choice, mayCall ? held[index]! : text) : { content: '', calls: [] }
      said[index] += content
      if (choice.isOver) {
        checkForm(form, said[index]!, calls, choice)
        tellAnswer(client, { prompt, turn: choice.turn, message: reply(said[index]!, calls) }, signal)
      }
      yield chunk(
        index,
        {
          ...(content === '' ? {} : { content }),
          ...(calls.length === 0 ? {} : { tool_calls: calls.map((call, place) => ({ index: place, ...call })) }),
        },
        {
          ...{ logprobs: logprobs(tokens), finish_reason: finish(choice, calls) },
          ...besides(choice, tokens, telling, naming),
        },
      )
    }
    if (telling.includesUsage) yield { ...head, object: 'chat.completion.chunk', choices: [], usage: usageOf(choices) }
  }
  return { events: events() }
}

/** The tools for the chat template, and their names; none with `tool_choice: none`. */
function toolsOf({ tokenizer, writesCalls }: ServedModel, body: Body): { tools: Tools | undefined; names: string[] } {
  const { tools: given = null, tool_choice: choice = null } = body
  if (given === null || (Array.isArray(given) && given.length === 0) || choice === 'none')
    return { tools: undefined, names: [] }
  const names = (Array.isArray(given) ? given : [null]).map((tool) => {
    const { type, function: called } = (tool ?? {}) as { type?: unknown; function?: { name?: unknown } }
    if (type === 'function' && typeof called?.name === 'string' && called.name !== '') return called.name
    throw badField('tools', given, 'a list like [{ "type": "function", "function": { "name": … } }]')
  })
  const tools = given as readonly object[]
  if (!writesCalls || !tokenized('tools', () => tellsTools(tokenizer, tools))) {
    throw new RequestError(
      400,
      "tools: the model's chat template does not render tools, or writes calls in a format that cannot be parsed",
      {
        param: 'tools',
        code: 'unsupported_field',
      },
    )
  }
  return { tools, names }
}

/** The messages of a chat: content parts are joined into one text, and call arguments are parsed. */
function messagesOf(given: unknown): Message[] {
  if (!Array.isArray(given) || given.length === 0) throw badField('messages', given, 'a list of messages, not empty')
  return given.map((each, i) => {
    const { role, content, tool_calls, ...rest } = (each ?? {}) as Record<string, unknown>
    const calls = tool_calls ?? []
    if (!Array.isArray(calls)) throw badField(`messages[${i}].tool_calls`, calls, 'a list')
    const message = {
      role: role === 'developer' ? 'system' : role, // The name in chat templates.
      ...rest,
      content: textOf(content ?? null, `messages[${i}].content`),
      ...(tool_calls == null
        ? {}
        : { tool_calls: calls.map((call) => withArguments(call, `messages[${i}].tool_calls`)) }),
    }
    if (isMessage(message)) return message
    throw badField(`messages[${i}]`, each, 'one like { "role": "user", "content": "2+2=" }')
  })
}

function textOf(content: unknown, param: string): string | null {
  if (content === null || typeof content === 'string') return content
  if (!Array.isArray(content)) throw badField(param, content, 'a text, or a list of parts')
  return content
    .map((part) => {
      const { type, text } = (part ?? {}) as { type?: unknown; text?: unknown }
      if (type === 'text' && typeof text === 'string') return text
      throw badField(param, part, 'parts of type text')
    })
    .join('')
}

/** A call with its arguments as an object, as templates take them. */
function withArguments(call: unknown, param: string): unknown {
  const { function: called, ...rest } = (call ?? {}) as { function?: { name?: unknown; arguments?: unknown } }
  if (typeof called?.name !== 'string') throw badField(param, call, 'calls like { "function": { "name": … } }')
  if (typeof called.arguments !== 'string') return call
  // Arguments that are not JSON stay text, as the model wrote them.
  return { ...rest, function: { ...called, arguments: jsonOrText(called.arguments) } }
}

function wordsOf({ tokens }: Generation, endIds: readonly number[]): number[] {
  const ids = tokens.map(({ id }) => id)
  return endIds.includes(ids.at(-1)!) ? ids.slice(0, -1) : ids
}

/** The bytes of a token's text; null if it is part of a character. */
function bytesOf(text: string): number[] | null {
  return text.includes('\u{fffd}') ? null : Array.from(new TextEncoder().encode(text))
}
