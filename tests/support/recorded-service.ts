/**
 * Replays exchanges with another server that a proxy recorded. Requests must be the recorded ones, except for random
 * names (eight hexadecimal digits after a dash); equal requests get their answers in order.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'
import { VERSION } from '../../src/base/version.ts'

/** A request and its answer; binary bytes as base64. */
interface Exchange {
  readonly asked: string
  readonly status: number
  readonly location: string | null
  readonly base64: string
}

/** The identity of a request. */
function questionOf(method: string, url: string, body: string): string {
  return `${method} ${url} ${body}`.replaceAll(/-[\da-f]{8}\b/g, '-name').replaceAll(`"${VERSION}"`, '"version"')
}

async function listen(handle: (request: IncomingMessage, body: string, response: ServerResponse) => Promise<void>) {
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    await handle(request, Buffer.concat(chunks).toString(), response).catch((error: Error) => {
      response.writeHead(599)
      response.end(error.message)
    })
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, close: () => http.close() }
}

/** A proxy in front of a server; `save` writes the exchanges. */
export async function recordService(target: string) {
  const exchanges: Exchange[] = []
  const server = await listen(async (request, body, response) => {
    const { method, url } = request as { method: string; url: string }
    const answer = await fetch(target + url, {
      method,
      headers: { 'content-type': 'application/json' },
      redirect: 'manual',
      ...(method === 'POST' ? { body } : {}),
    })
    const bytes = Buffer.from(await answer.arrayBuffer())
    const found = answer.headers.get('location')
    const location = found === null ? null : new URL(found).pathname
    const { status } = answer
    exchanges.push({ asked: questionOf(method, url, body), status, location, base64: bytes.toString('base64') })
    response.writeHead(status, location === null ? {} : { location })
    response.end(bytes)
  })
  return {
    ...server,
    save: async (path: string) => writeFile(path, await promisify(gzip)(JSON.stringify(exchanges))),
  }
}

/** A server that answers as recorded; other requests get status 599. */
export async function replayService(path: string) {
  const exchanges = JSON.parse((await promisify(gunzip)(await readFile(path))).toString()) as Exchange[]
  const answers = new Map<string, Exchange[]>()
  for (const exchange of exchanges) answers.set(exchange.asked, [...(answers.get(exchange.asked) ?? []), exchange])
  return listen(async (request, body, response) => {
    const question = questionOf(request.method!, request.url!, body)
    const found = answers.get(question)
    if (found === undefined) throw new Error(`not recorded: ${question.slice(0, 2000)}`)
    const { status, location, base64 } = found.length > 1 ? found.shift()! : found[0]!
    response.writeHead(status, location === null ? {} : { location })
    response.end(Buffer.from(base64, 'base64'))
  })
}
