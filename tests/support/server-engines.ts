/** Engines over our servers, and over servers with wrong answers. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { EngineDefinition } from '../../src/engines/engine.ts'
import { type SglangOptions, sglangEngine } from '../../src/engines/servers/sglang.ts'
import { type VllmOptions, vllmEngine } from '../../src/engines/servers/vllm.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { talkUntil, talkWorld } from './conversations.ts'
import { atEnd } from './end.ts'
import { post, served } from './serving.ts'
import { temporaryFolder } from './temporary.ts'

/** The kinds of training server, each with its client and its route of turns. */
export const serverKinds = {
  vllm: { make: vllmEngine, turn: '/inference/v1/generate' },
  sglang: { make: sglangEngine, turn: '/generate' },
} as const
export type ServerKind = keyof typeof serverKinds

/** The model of `talkWorld`. */
export const talkPolicy = (settings: object = {}) => languageModel({ width: 16, layers: 1, heads: 2, ...settings })

/** An engine's options, its server's settings, and the server's number of slots. */
export type PairOptions = Partial<VllmOptions & SglangOptions> & { settings?: object; slots?: number }

/** A server with the initial weights of `talkWorld`. */
export function talkServer({ settings, slots = 4 }: Pick<PairOptions, 'settings' | 'slots'> = {}) {
  return served({ policy: talkPolicy(settings), environment: reverse(), control: true, slots, seed: 3 })
}

/** A server of the model of `talkWorld`, and its engine. */
export async function pair(kind: ServerKind, options: PairOptions = {}) {
  const { settings, slots, ...rest } = options
  const server = await talkServer({ ...(settings && { settings }), ...(slots && { slots }) })
  const engine: EngineDefinition = serverKinds[kind].make({
    url: server.url,
    weights: await temporaryFolder(),
    ...rest,
  })
  return { server, engine }
}

/** Replaces an answer's JSON; null breaks the connection. */
export type Lie = { status?: number; json?: unknown; text?: string; headers?: Record<string, string> } | null

/** A proxy whose answers `answer` changes; `rewrite` changes requests, and `replace` sets a new server. */
export async function lyingServer(
  // biome-ignore lint/suspicious/noExplicitAny: lies are of any kind.
  answer: (path: string, json: any, asked: any) => Lie | Promise<Lie> = () => ({}),
  options: Pick<PairOptions, 'settings' | 'slots'> = {},
  // biome-ignore lint/suspicious/noExplicitAny: requests are of any kind.
  rewrite: (path: string, asked: any) => object = (_, asked) => asked,
) {
  let server = await talkServer(options)
  const asked: { path: string; body: string }[] = []
  const forward = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString()
    asked.push({ path: request.url!, body })
    const headers = { 'content-type': 'application/json' }
    const told = await fetch(server.url + request.url, {
      ...{ method: request.method!, headers },
      ...(request.method === 'POST' ? { body: body && JSON.stringify(rewrite(request.url!, JSON.parse(body))) } : {}),
    })
    const text = await told.text()
    const said = await answer(request.url!, JSON.parse(text), body === '' ? null : JSON.parse(body))
    if (said === null) return void request.socket.destroy()
    response.writeHead(said.status ?? told.status, { ...headers, ...said.headers })
    response.end(said.text ?? ('json' in said ? JSON.stringify(said.json) : text))
  }
  const http = createServer(
    (request, response) => void forward(request, response).catch(() => request.socket.destroy()),
  )
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  atEnd(() => {
    http.closeAllConnections()
    http.close()
  })
  return {
    asked,
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    /** Sends a request to the server behind it. */
    tell: (path: string, body: object) => post(server.url + path, body),
    replace: async () => {
      server = await talkServer(options)
    },
  }
}

/** The same, with its engine. */
export async function liar(
  kind: ServerKind,
  answer: Parameters<typeof lyingServer>[0],
  options: PairOptions = {},
): Promise<{ asked: { path: string; body: string }[]; engine: EngineDefinition }> {
  const { settings, slots, ...rest } = options
  const { asked, url } = await lyingServer(answer, { ...(settings && { settings }), ...(slots && { slots }) })
  return { asked, engine: serverKinds[kind].make({ url, retries: 0, weights: await temporaryFolder(), ...rest }) }
}

/** The error of the first conversation's unknown reward. */
export async function errorOf(engine: EngineDefinition): Promise<string | null> {
  const [row] = await talkUntil(await talkWorld({ engine, numLanes: 1 }), 1)
  return row!.error
}
