/** The routes of OpenAI and Anthropic, for model servers (anonymous clients) and gateways (sessions). */

import type { RouteAnswer } from '../../base/http/server.ts'
import { type Body, type EventStream, RequestError, type RequestHead, type Route } from '../../base/http/server.ts'
import { isMessage, type Message } from '../../environments/text.ts'
import { anyClient, type ClientTurns } from '../serving/client-turns.ts'
import { booleanField } from '../serving/fields.ts'
import { anthropic } from './anthropic.ts'
import { chat } from './chat.ts'
import { complete } from './completions.ts'
import type { ChatAnswered, ChatChunk, Dialect, ModelHost } from './dialect.ts'
import { answeredMessages, responses } from './responses.ts'

/** Messages of Responses, by response id. */
export interface ResponseStore {
  get(id: string): readonly Message[] | undefined
  /** Keeps messages without the first `numDropped`. */
  set(id: string, messages: readonly Message[], numDropped: number): void
}

/** The client of a request. */
export interface Asker {
  readonly client: ClientTurns
  /** Completes a request's body with sampling fields that the client does not set. */
  readonly drawn: (body: Body) => Body
  /** The responses that `previous_response_id` may name; null if none are kept. */
  readonly responses: ResponseStore | null
  /** Aborts when nothing is answered any longer. */
  readonly signal?: AbortSignal
  /** Called when an answer is complete, or with the error when the request was refused. */
  over(refusal?: unknown): void
}

export interface ModelRoutesOptions {
  host(): ModelHost
  /** The asker of a request; `begin` is true when an answer begins. @throws RequestError for unknown credentials. */
  asker(head: RequestHead, begins: boolean): Asker
}

/** An anonymous client of a server that keeps no state. */
export function stranger({ served }: ModelHost): Asker {
  return { client: anyClient(served), drawn: (body) => body, responses: null, over() {} }
}

export function modelRoutes({ host, asker }: ModelRoutesOptions): [string, Route][] {
  const created = Math.floor(Date.now() / 1000)
  const models = () => {
    const { served, naming } = host()
    const told = { object: 'model', created, owned_by: 'colonnade', root: served.name, max_model_len: served.context }
    return naming.names().map((id) => ({ id, ...told }))
  }
  const asking = (answer: (asker: Asker, body: Body, signal: AbortSignal) => Promise<RouteAnswer>): Route => {
    return async ({ body, signal, ...head }) => {
      const who = asker(head, true)
      let answered: RouteAnswer
      try {
        answered = await answer(who, body, who.signal === undefined ? signal : AbortSignal.any([signal, who.signal]))
        if (who.signal?.aborted) throw new RequestError(410, 'the session is over', { code: 'session_over' })
      } catch (error) {
        who.over(error)
        throw error
      }
      if (answered === null || !('events' in answered)) {
        who.over()
        return answered
      }
      const stream = answered as EventStream
      return { ...stream, events: finishing(stream.events, () => who.over()) }
    }
  }
  const translated = (dialectOf: (asker: Asker, body: Body) => Dialect, keep?: Keeper): Route =>
    asking(async (who, body, signal) => {
      const { hints } = host()
      const dialect = dialectOf(who, body)
      const asked = who.drawn(dialect.toChat(body, hints))
      const isStream = booleanField(body, 'stream', false)
      const streamed = isStream ? { ...asked, stream: true, stream_options: { include_usage: true } } : asked
      const answered = await chat(host(), streamed, signal, who.client)
      if (!isStream) {
        const told = dialect.answer(answered as unknown as ChatAnswered, body)
        keep?.(who, told, body, asked)
        return told
      }
      const told = dialect.events((answered as EventStream).events as AsyncIterable<ChatChunk>, body)
      const events = keep === undefined ? told : kept(told, (answer) => keep(who, answer, body, asked))
      return { events, isNamed: true }
    })
  const anthropicErrors = { errorBody: anthropic.errorBody! }
  const messagesRoute: Route = Object.assign(
    translated(() => anthropic),
    anthropicErrors,
  )
  const countRoute: Route = Object.assign(({ body, ...head }: Parameters<Route>[0]) => {
    const { client } = asker(head, false)
    const { messages, tools } = anthropic.toChat(body, host().hints) as {
      messages: Message[]
      tools?: readonly object[]
    }
    return { input_tokens: client.promptOf(checkedMessages(messages), { tools }).ids.length }
  }, anthropicErrors)
  return [
    ['GET /v1/models', () => ({ object: 'list', data: models() })],
    [
      'GET /v1/models/:model',
      ({ params: { model } }) => {
        const id = decodeURIComponent(model!)
        const found = models().find((each) => each.id === id)
        if (found !== undefined) return found
        throw new RequestError(404, `there is no model ${JSON.stringify(id)}`, { code: 'model_not_found' })
      },
    ],
    ['POST /v1/chat/completions', asking((who, body, signal) => chat(host(), who.drawn(body), signal, who.client))],
    ['POST /v1/completions', asking((who, body, signal) => complete(host(), who.drawn(body), signal, who.client))],
    ['POST /v1/responses', translated(responsesOf, keepResponse)],
    ['POST /v1/messages', messagesRoute],
    ['POST /v1/messages/count_tokens', countRoute],
    [
      'POST /v1/embeddings',
      () => {
        throw new RequestError(501, 'embeddings: the served model only generates text', {
          code: 'not_implemented',
        })
      },
    ],
  ]
}

function checkedMessages(messages: readonly Message[]): readonly Message[] {
  if (messages.length > 0 && messages.every(isMessage)) return messages
  throw new RequestError(400, 'messages: expected messages with text', { param: 'messages', code: 'bad_field' })
}

/** Passes events on, and calls `over` at the end or when the client stops reading. */
async function* finishing(events: AsyncIterable<object>, over: () => void): AsyncGenerator<object> {
  try {
    yield* events
  } finally {
    over()
  }
}

/** Keeps an answer to Responses for later requests that continue it. */
type Keeper = (asker: Asker, told: object, body: Body, asked: Body) => void

/** Passes events on. The last one has the whole answer. */
async function* kept(events: AsyncIterable<object>, keep: (answer: object) => void): AsyncGenerator<object> {
  for await (const event of events) {
    const { response } = event as { response?: { status?: string } }
    if (response !== undefined && response.status !== 'in_progress') keep(response)
    yield event
  }
}

function responsesOf({ responses: known }: Asker, { previous_response_id: id = null }: Body): Dialect {
  if (id === null) return responses([])
  const messages = typeof id === 'string' ? known?.get(id) : undefined
  if (messages !== undefined) return responses(messages)
  const why =
    known === null ? 'this server keeps no responses: send the whole input' : 'the session has no such response'
  throw new RequestError(404, `previous_response_id: ${why}`, {
    ...{ param: 'previous_response_id', code: 'previous_response_not_found' },
  })
}

function keepResponse({ responses: known }: Asker, told: object, body: Body, asked: Body): void {
  if (known === null) return
  const { id, output } = told as { id: string; output: readonly Record<string, unknown>[] }
  const messages = [...(asked.messages as Message[]), ...(answeredMessages(output) as Message[])]
  known.set(id, messages, typeof body.instructions === 'string' ? 1 : 0) // Instructions apply to this request only.
}
