/** A server that speaks what is taken of the Hugging Face hub, and can be told to fail. */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

export const COMMIT = '0123456789abcdef0123456789abcdef01234567'

export interface HubServer {
  readonly endpoint: string
  /** Method, path and range of each request, in order. */
  readonly asked: string[]
  /** The authorization that came with each request for a file. */
  readonly tokens: (string | undefined)[]
  files: Record<string, Uint8Array>
  /** The head of the README, as the hub tells it. */
  cardData: object
  /** Answers a request instead of the hub; true where it has. */
  fault: ((request: IncomingMessage, response: ServerResponse) => boolean) | null
  close(): Promise<void>
}

const servers: HubServer[] = []

afterAll(async () => {
  for (const server of servers) await server.close()
})

/** Files of more than 1000 bytes are large ones, known by their SHA-256. */
export async function startHub(files: Record<string, Uint8Array>): Promise<HubServer> {
  const http = createServer((request, response) => {
    hub.asked.push(`${request.url}${request.headers.range ? ` ${request.headers.range}` : ''}`)
    if (hub.fault?.(request, response)) return
    const [path, query] = request.url!.split('?')
    const ask = /^\/api\/(models|datasets)\/org\/tiny\/(.*)$/.exec(path!)?.[2]
    if (ask === 'revision/main' || ask === `revision/${COMMIT}`) {
      return json(response, { sha: COMMIT, cardData: hub.cardData })
    }
    if (ask === `tree/${COMMIT}`) {
      const isSecond = query?.includes('cursor=2')
      const names = Object.keys(hub.files).filter((name) => !name.includes('/') || query?.includes('recursive=true'))
      const half = Math.ceil(names.length / 2) // Two pages.
      const more = query === undefined ? 'cursor=2' : `${query}&cursor=2`
      const link: Record<string, string> = isSecond ? {} : { link: `<${hub.endpoint}${path}?${more}>; rel="next"` }
      return json(
        response,
        (isSecond ? names.slice(half) : names.slice(0, half)).map((name) => entry(name, hub.files[name]!)),
        link,
      )
    }
    const name = new RegExp(`^(?:/datasets)?/org/tiny/resolve/${COMMIT}/(.*)$`).exec(path!)?.[1]
    const file = name === undefined ? undefined : hub.files[decodeURIComponent(name)]
    if (file === undefined) return void response.writeHead(404).end('{"error":"Repository not found"}')
    hub.tokens.push(request.headers.authorization)
    send(request, response, file)
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const hub: HubServer = {
    endpoint: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    asked: [],
    tokens: [],
    files,
    cardData: {},
    fault: null,
    close: () =>
      new Promise((resolve) => {
        http.closeAllConnections()
        http.close(() => resolve())
      }),
  }
  servers.push(hub)
  return hub
}

/** Sends a file, or the range of it that is asked for. */
export function send(request: IncomingMessage, response: ServerResponse, file: Uint8Array): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
  const range = { 'content-range': `bytes ${start}-${file.length - 1}/${file.length}` }
  response.writeHead(start > 0 ? 206 : 200, { 'content-length': file.length - start, ...(start > 0 ? range : {}) })
  response.end(file.subarray(start))
}

function json(response: ServerResponse, value: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))
}

function entry(path: string, bytes: Uint8Array) {
  const oid = createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
  if (bytes.length <= 1000) return { type: 'file', oid, size: bytes.length, path }
  const lfs = { oid: createHash('sha256').update(bytes).digest('hex'), size: bytes.length, pointerSize: 134 }
  return { type: 'file', oid: 'f'.repeat(40), size: bytes.length, path, lfs }
}
