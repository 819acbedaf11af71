/** A server that speaks what is taken of the Hugging Face hub, and can be told to fail. */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { atEnd } from '../support/end.ts'

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
  /** What was uploaded to the storage, by checksum, and the commits that were made. */
  readonly stored: Map<string, Buffer>
  readonly commits: Commit[]
  /** Bytes of a part in which the storage wants large files; undefined: whole. */
  partBytes: number | undefined
  /** Answers a request instead of the hub; true where it has. */
  fault: ((request: IncomingMessage, response: ServerResponse) => boolean) | null
  close(): Promise<void>
}

/** A commit as it was asked for. */
export interface Commit {
  readonly summary: string
  readonly regular: readonly string[]
  readonly large: readonly string[]
}

/** Files of more than 1000 bytes are large ones, known by their SHA-256. */
export async function startHub(files: Record<string, Uint8Array>): Promise<HubServer> {
  const http = createServer((request, response) => {
    hub.asked.push(`${request.url}${request.headers.range ? ` ${request.headers.range}` : ''}`)
    if (hub.fault?.(request, response)) return
    if (request.method === 'POST' || request.method === 'PUT') return void takeUpload(hub, request, response)
    const [path, query] = request.url!.split('?')
    const ask = /^\/api\/(models|datasets)\/org\/tiny\/(.*)$/.exec(path!)?.[2]
    if (ask === 'revision/main' || ask === `revision/${COMMIT}`) {
      const siblings = Object.keys(hub.files).map((rfilename) => ({ rfilename }))
      return json(response, { id: 'org/tiny', sha: COMMIT, cardData: hub.cardData, siblings, tags: [], private: false })
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
    const name = new RegExp(`^(?:/datasets)?/org/tiny/resolve/(?:main|${COMMIT})/(.*)$`).exec(path!)?.[1]
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
    stored: new Map(),
    commits: [],
    partBytes: undefined,
    fault: null,
    close: () =>
      new Promise((resolve) => {
        http.closeAllConnections()
        http.close(() => resolve())
      }),
  }
  atEnd(() => hub.close())
  return hub
}

const hex = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** What a client asks that uploads: the repository, how to send files, files for the storage, and the commit. */
async function takeUpload(hub: HubServer, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  const body = Buffer.concat(chunks)
  const path = request.url!
  if (path === '/api/validate-yaml') return json(response, {}) // Asked by Hugging Face's client alone.
  if (path === '/api/repos/create') return json(response, { url: `${hub.endpoint}/org/tiny` })
  if (path === '/api/models/org/tiny/preupload/main') {
    const files = JSON.parse(body.toString()).files as { path: string; size: number; sample: string }[]
    return json(response, {
      files: files.map(({ path, size }) => ({
        path,
        uploadMode: size > 1000 ? 'lfs' : 'regular',
        shouldIgnore: false,
      })),
    })
  }
  if (path === '/org/tiny.git/info/lfs/objects/batch') {
    const { objects } = JSON.parse(body.toString()) as { objects: { oid: string; size: number }[] }
    return json(response, { transfer: 'basic', objects: objects.map((object) => wayToStorage(hub, object)) })
  }
  const [, oid, part] = /^\/storage\/([0-9a-f]{64})(?:\/(\d+))?(?:\?.*)?$/.exec(path) ?? []
  if (oid !== undefined && request.method === 'PUT') {
    if (request.headers['content-length'] !== `${body.length}`) return void response.writeHead(411).end()
    hub.stored.set(part === undefined ? oid : `${oid}/${part}`, body)
    return void response.writeHead(200, { etag: `"${hex(body).slice(0, 8)}"` }).end()
  }
  if (oid !== undefined) {
    const { parts } = JSON.parse(body.toString()) as { parts: { partNumber: number; etag: string }[] }
    const pieces = parts.map(({ partNumber, etag }) => {
      const piece = hub.stored.get(`${oid}/${partNumber}`)!
      if (etag !== `"${hex(piece).slice(0, 8)}"`) throw new Error(`part ${partNumber} has another etag`)
      return piece
    })
    hub.stored.set(oid, Buffer.concat(pieces))
    return json(response, {})
  }
  if (path === '/verify') {
    const { oid, size } = JSON.parse(body.toString())
    const isThere = hub.stored.get(oid)?.length === size && hex(hub.stored.get(oid)!) === oid
    return void response.writeHead(isThere ? 200 : 422).end('{}')
  }
  if (path === '/api/models/org/tiny/commit/main') return makeCommit(hub, body, response)
  response.writeHead(404).end('{"error":"Repository not found"}')
}

function wayToStorage(hub: HubServer, { oid, size }: { oid: string; size: number }) {
  if (hub.stored.has(oid)) return { oid, size }
  const href = `${hub.endpoint}/storage/${oid}?signature=secret`
  const verify = { href: `${hub.endpoint}/verify` }
  if (hub.partBytes === undefined)
    return { oid, size, actions: { upload: { href, header: { 'x-way': 'whole' } }, verify } }
  const numbers = Array.from({ length: Math.ceil(size / hub.partBytes) }, (_, i) => String(i + 1).padStart(5, '0'))
  const parts = Object.fromEntries(numbers.map((n) => [n, `${hub.endpoint}/storage/${oid}/${Number(n)}`]))
  return { oid, size, actions: { upload: { href, header: { chunk_size: `${hub.partBytes}`, ...parts } }, verify } }
}

function makeCommit(hub: HubServer, body: Buffer, response: ServerResponse): void {
  const [head, ...lines] = body
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  const of = (key: string) => lines.filter((line) => line.key === key).map(({ value }) => value)
  for (const { path, content } of of('file')) hub.files[path] = Buffer.from(content, 'base64')
  for (const { path, oid, size } of of('lfsFile')) {
    const bytes = hub.stored.get(oid)
    if (bytes?.length !== size) return void response.writeHead(400).end(`{"error":"${path} is not in the storage"}`)
    hub.files[path] = bytes!
  }
  const paths = (key: string) => of(key).map(({ path }) => path)
  hub.commits.push({ summary: head.value.summary, regular: paths('file'), large: paths('lfsFile') })
  json(response, { success: true, commitOid: COMMIT, commitUrl: `${hub.endpoint}/org/tiny/commit/${COMMIT}` })
}

/** Sends a file, or the range of it that is asked for. */
export function send(request: IncomingMessage, response: ServerResponse, file: Uint8Array): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
  const range = { 'content-range': `bytes ${start}-${file.length - 1}/${file.length}` }
  const about = { 'x-repo-commit': COMMIT, etag: `"${entry('', file).lfs?.oid ?? entry('', file).oid}"` }
  const length = { 'content-length': file.length - start }
  response.writeHead(start > 0 ? 206 : 200, { ...about, ...length, ...(start > 0 ? range : {}) })
  if (request.method === 'HEAD') return void response.end()
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
