/** Requests and a small model for tests of servers. */
import { Hints } from '../../src/agents/dialects/hints.ts'
import { modelRoutes, stranger } from '../../src/agents/dialects/routes.ts'
import type { Naming } from '../../src/agents/serving/naming.ts'
import type { ServedModel } from '../../src/agents/serving/served-model.ts'
import { type ModelServer, type ServeOptions, serveModel } from '../../src/agents/serving/server.ts'
import type { Route } from '../../src/base/http/server.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { atEnd } from './end.ts'

/** A new small model that knows all bytes, with a chat template. */
export const smallModel = () => languageModel({ width: 16, layers: 2, heads: 2, context: 64, anyText: true })

/** Serves the small model, or another, until the end of the test file. */
export async function served(options: Partial<ServeOptions> = {}): Promise<ModelServer> {
  const server = await serveModel({ policy: smallModel(), seed: 3, name: 'small', ...options })
  atEnd(() => server.close({ now: true }))
  return server
}

/** An answer: its status, its headers, and its JSON. */
export interface Answered {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
  readonly json: any
}

/** Posts JSON, or other text unchanged. */
export async function post(url: string, body: object | string, init: RequestInit = {}): Promise<Answered> {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(url, { method: 'POST', headers, body: text, ...init })
  const said = await response.text()
  return { status: response.status, headers: response.headers, json: said === '' ? null : JSON.parse(said) }
}

/** Gets JSON. */
export async function get(url: string): Promise<Answered> {
  const response = await fetch(url)
  return { status: response.status, headers: response.headers, json: await response.json() }
}

/** Posts, and reads the server-sent events of the answer; the last must be `[DONE]`. */
// biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
export async function stream(url: string, body: object): Promise<any[]> {
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }) })
  if (response.headers.get('content-type') !== 'text/event-stream') throw new Error(await response.text())
  const lines = (await response.text()).split('\n\n').filter((line) => line !== '')
  if (lines.at(-1) !== 'data: [DONE]') throw new Error(`the stream ends with ${lines.at(-1)}`)
  return lines.slice(0, -1).map((line) => JSON.parse(line.slice('data: '.length)))
}

/** A model's routes, as on its server. */
export function routesOf(served: ServedModel, naming: Naming): Map<string, Route> {
  const host = { served, naming, hints: new Hints() }
  return new Map(modelRoutes({ host: () => host, asker: () => stranger(host) }))
}
