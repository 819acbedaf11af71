/**
 * Uploads to the Hugging Face hub in one commit, with the Python library's protocol. The hub decides which files are
 * sent with the commit; the others go to its storage first, whole or in parts, unless they are already there. Until the
 * commit, the repository is unchanged.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, readFile, stat } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { environmentVariable } from '../base/environment-variables.ts'
import { InputError, show } from '../base/errors.ts'
import { type HttpAnswer, type HttpRequest, isOk, requestHttp } from '../base/http/http-request.ts'
import { checkRevision, hubEndpoint } from './hub.ts'

/** How to upload to the Hugging Face hub. */
export interface UploadOptions {
  /** The branch; default `main`. */
  readonly revision?: string
  /** Whether a new repository is private; an existing one is unchanged. Default false. */
  readonly private?: boolean
  /** The commit message; default `Upload by colonnade`. */
  readonly message?: string
  /** The hub's address; default `HF_ENDPOINT`, else https://huggingface.co. */
  readonly endpoint?: string
  /** Called before each file is sent to the storage, and before the commit, which has no file. */
  onProgress?(progress: UploadProgress): void
  readonly signal?: AbortSignal
}

/** The data to send next. */
export interface UploadProgress {
  /** Its path in the repository; null for the commit with all small files. */
  readonly file: string | null
  readonly bytes: number
}

/** The result of an upload. */
export interface Uploaded {
  /** The repository's web page. */
  readonly url: string
  readonly commit: string
  /** Paths of the files in the storage; the others are in the commit. */
  readonly stored: readonly string[]
}

interface Local {
  readonly path: string
  readonly file: string
  readonly bytes: number
}

interface Target {
  readonly id: string
  readonly endpoint: string
  readonly token: string
  readonly revision: string
  readonly signal: AbortSignal
}

interface StorageAction {
  readonly href: string
  readonly header?: Readonly<Record<string, string>>
}

const REPOSITORY = /^\w[\w.-]*\/\w[\w.-]*$/
/** Leading bytes of a file by which the hub tells text from binary. */
const SAMPLE_BYTES = 512
/** Failed requests in a row before an upload stops, and the shortest pause between two. */
const [ATTEMPTS, PAUSE_MS] = [4, 100]
/** The time limit of a request: a base, plus time for its bytes at the slowest accepted rate. */
const [ANSWER_MS, BYTES_A_MS] = [300_000, 20]
const ANSWER_BYTES_MAX = 2 ** 24
const JSON_TYPE = { 'content-type': 'application/json' }
const STORAGE_TYPE = {
  accept: 'application/vnd.git-lfs+json',
  'content-type': 'application/vnd.git-lfs+json',
}

/**
 * Uploads files into a model's repository in one commit; creates the repository if it does not exist. `files` maps
 * paths in the repository to local paths. The token is read from the environment only (`HF_TOKEN`) and is sent to the
 * hub only.
 * @throws InputError for an invalid id, no files or an unreadable one, no token, and a hub that refuses, does not
 * answer, or reports a concurrent change. The repository is unchanged then, unless the answer to the commit itself is
 * missing; the error says so.
 * @example await uploadModel('me/cart-pole', { 'README.md': 'card.md', 'model.safetensors': 'weights.safetensors' })
 */
export async function uploadModel(
  id: string,
  files: Readonly<Record<string, string>>,
  options: UploadOptions = {},
): Promise<Uploaded> {
  const { revision = 'main', message = 'Upload by colonnade' } = options
  const token = checkUpload(id, revision)
  const signal = options.signal ?? new AbortController().signal
  const hub: Target = { id, endpoint: hubEndpoint(options.endpoint), token, revision, signal }
  const locals = await look(files)
  await makeRepository(hub, options.private ?? false)
  const modes = await uploadModes(hub, locals)
  const large = locals.filter(({ path }) => modes.get(path) === 'lfs')
  const checksums = new Map<string, string>()
  for (const local of large) checksums.set(local.path, await sha256(local.file))
  await store(hub, large, checksums, options.onProgress)
  const small = locals.filter(({ path }) => modes.get(path) === 'regular')
  options.onProgress?.({ file: null, bytes: small.reduce((sum, { bytes }) => sum + bytes, 0) })
  const commit = await makeCommit(hub, message, small, large, checksums)
  return { url: `${hub.endpoint}/${id}`, commit, stored: large.map(({ path }) => path) }
}

/** Returns the token after checking id and revision. @throws InputError as `uploadModel` does, before any work. */
export function checkUpload(id: string, revision = 'main'): string {
  if (!REPOSITORY.test(id) || id.includes('..')) {
    throw new InputError('repository', show(id), 'the id of a repository of the hub, owner/name')
  }
  checkRevision(revision)
  const token = environmentVariable('HF_TOKEN')
  if (token === undefined || token.trim() === '') {
    throw new InputError('HF_TOKEN', 'nothing', 'a hub token with write access, in the environment')
  }
  return token.trim()
}

async function look(files: Readonly<Record<string, string>>): Promise<Local[]> {
  const entries = Object.entries(files)
  if (entries.length === 0) throw new InputError('files', 'none', 'files to upload')
  const locals: Local[] = []
  for (const [path, file] of entries) {
    if (path.split('/').some((name) => ['', '.', '..'].includes(name))) {
      throw new InputError('path', show(path), 'a path within the repository')
    }
    try {
      const about = await stat(file)
      if (!about.isFile()) throw new InputError(file, 'no file', 'a file to upload')
      locals.push({ path, file, bytes: about.size })
    } catch (cause) {
      if (cause instanceof InputError) throw cause
      throw new InputError(file, (cause as Error).message, 'a file to upload', { cause })
    }
  }
  return locals
}

/** Creates the repository; an existing one is unchanged. */
async function makeRepository(hub: Target, isPrivate: boolean): Promise<void> {
  const [organization, name] = hub.id.split('/')
  const body = JSON.stringify({ type: 'model', name, organization, private: isPrivate })
  const url = `${hub.endpoint}/api/repos/create`
  const answer = await ask(hub, url, { method: 'POST', headers: JSON_TYPE, body })
  if (answer.status !== 409) accept(hub, url, answer)
}

/** Asks the hub where files go: `regular` (the commit) or `lfs` (its storage). It must not ignore any. */
async function uploadModes(hub: Target, locals: readonly Local[]): Promise<Map<string, string>> {
  const files = []
  for (const { path, file, bytes } of locals) files.push({ path, size: bytes, sample: await sampleOf(file) })
  const url = `${hub.endpoint}/api/models/${hub.id}/preupload/${encodeURIComponent(hub.revision)}`
  const answer = await ask(hub, url, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify({ files }) })
  const told = parse(url, accept(hub, url, answer)).files
  const modes = new Map<string, string>()
  for (const each of Array.isArray(told) ? told : []) {
    if (each?.shouldIgnore === true) {
      throw new InputError(
        `the hub, ${each.path}`,
        'a file that its .gitignore leaves out',
        'a file that the repository accepts',
      )
    }
    modes.set(each?.path, each?.uploadMode)
  }
  for (const { path } of locals) {
    if (['lfs', 'regular'].includes(modes.get(path)!)) continue
    throw new InputError(`${url}, ${path}`, show(modes.get(path)), 'regular or lfs')
  }
  return modes
}

async function sampleOf(file: string): Promise<string> {
  const handle = await open(file)
  try {
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(SAMPLE_BYTES), position: 0 })
    return buffer.toString('base64', 0, bytesRead)
  } finally {
    await handle.close()
  }
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(file)) hash.update(chunk)
  return hash.digest('hex')
}

/** Sends files to the hub's storage, unless they are there. */
async function store(
  hub: Target,
  large: readonly Local[],
  checksums: ReadonlyMap<string, string>,
  onProgress: UploadOptions['onProgress'],
): Promise<void> {
  if (large.length === 0) return
  const url = `${hub.endpoint}/${hub.id}.git/info/lfs/objects/batch`
  const objects = large.map(({ path, bytes }) => ({ oid: checksums.get(path), size: bytes }))
  const asked = { operation: 'upload', transfers: ['basic', 'multipart'], hash_algo: 'sha256', objects }
  const body = JSON.stringify({ ...asked, ref: { name: hub.revision } })
  const answer = await ask(hub, url, { method: 'POST', headers: STORAGE_TYPE, body })
  const told = parse(url, accept(hub, url, answer)).objects
  for (const local of large) {
    const oid = checksums.get(local.path)!
    const object = (Array.isArray(told) ? told : []).find((each) => each?.oid === oid)
    if (object === undefined || object.error !== undefined) {
      throw new InputError(`${url}, ${local.path}`, show(object?.error ?? 'nothing of it'), 'a way to upload it')
    }
    const { upload, verify } = (object.actions ?? {}) as { upload?: StorageAction; verify?: StorageAction }
    if (upload === undefined) continue // The storage has it.
    onProgress?.({ file: local.path, bytes: local.bytes })
    await send(hub, local, oid, upload)
    if (verify === undefined) continue
    const seen = JSON.stringify({ oid, size: local.bytes })
    accept(hub, verify.href, await ask(hub, verify.href, { method: 'POST', headers: STORAGE_TYPE, body: seen }))
  }
}

/** Sends a file, whole or in parts of the size that the storage sets; `header` has the parts' URLs by number. */
async function send(hub: Target, { file, bytes }: Local, oid: string, { href, header = {} }: StorageAction) {
  const { chunk_size: size, ...parts } = header
  if (size === undefined) {
    accept(hub, href, await ask(hub, href, { method: 'PUT', headers: header, body: { path: file, start: 0, bytes } }))
    return
  }
  const numbers = Object.keys(parts)
    .filter((key) => /^\d+$/.test(key))
    .sort((a, b) => Number(a) - Number(b))
  const partBytes = Number(size)
  if (!(partBytes > 0) || numbers.length !== Math.ceil(bytes / partBytes)) {
    throw new InputError(href, `${numbers.length} parts of ${size} bytes`, `parts for a file of ${bytes} bytes`)
  }
  const done: { partNumber: number; etag: string }[] = []
  for (const [i, number] of numbers.entries()) {
    const start = i * partBytes
    const url = parts[number]!
    const body = { path: file, start, bytes: Math.min(partBytes, bytes - start) }
    const answer = accept(hub, url, await ask(hub, url, { method: 'PUT', headers: {}, body }))
    if (answer.etag === null) throw new InputError(url, 'an answer without an etag', 'one that names the part')
    done.push({ partNumber: Number(number), etag: answer.etag })
  }
  const body = JSON.stringify({ oid, parts: done })
  accept(hub, href, await ask(hub, href, { method: 'POST', headers: STORAGE_TYPE, body }))
}

/** Makes the commit: a header line, and a line per file, small ones with all their bytes. Returns its id. */
async function makeCommit(
  hub: Target,
  summary: string,
  small: readonly Local[],
  large: readonly Local[],
  checksums: ReadonlyMap<string, string>,
): Promise<string> {
  const lines: object[] = [{ key: 'header', value: { summary, description: '' } }]
  for (const { path, file } of small) {
    const content = (await readFile(file)).toString('base64')
    lines.push({ key: 'file', value: { path, content, encoding: 'base64' } })
  }
  for (const { path, bytes } of large) {
    lines.push({ key: 'lfsFile', value: { path, algo: 'sha256', oid: checksums.get(path), size: bytes } })
  }
  const url = `${hub.endpoint}/api/models/${hub.id}/commit/${encodeURIComponent(hub.revision)}`
  const headers = { 'content-type': 'application/x-ndjson' }
  const body = lines.map((line) => `${JSON.stringify(line)}\n`).join('')
  const answer = accept(hub, url, await ask(hub, url, { method: 'POST', headers, body }, true))
  const { commitOid } = parse(url, answer)
  if (typeof commitOid !== 'string') throw new InputError(url, show(commitOid), 'the id of the commit')
  return commitOid
}

/** Sends a request to the hub, with the token. Retries no answer, 429 and 5xx after a pause, but not a commit. */
async function ask(
  { endpoint, token, signal }: Target,
  url: string,
  { method, headers, body }: Pick<HttpRequest, 'method' | 'headers' | 'body'>,
  commits = false,
): Promise<HttpAnswer> {
  if (!URL.canParse(url)) throw new InputError('the hub', `a redirect to ${show(url)}`, 'an address')
  const isHub = new URL(url).origin === new URL(endpoint).origin
  const all = { ...headers, ...(isHub ? { authorization: `Bearer ${token}` } : {}) }
  const sent = body === undefined ? {} : { body }
  const bytes = body === undefined ? 0 : typeof body === 'object' && 'bytes' in body ? body.bytes : body.length
  for (let attempt = 1; ; attempt++) {
    let failure: string
    let cause: unknown
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS + Math.ceil(bytes / BYTES_A_MS))])
    try {
      const answer = await requestHttp(url, {
        method,
        headers: all,
        ...sent,
        signal: limit,
        maxBytes: ANSWER_BYTES_MAX,
      })
      const mayChange = answer.status === 429 || (commits ? answer.status === 503 : answer.status >= 500)
      if (!mayChange || attempt >= ATTEMPTS) return answer
      failure = `status ${answer.status}`
    } catch (error) {
      signal.throwIfAborted()
      failure = (error as Error).message
      cause = error
      if (commits && (error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') {
        const got = `no answer to the commit (${failure}): its outcome is unknown`
        throw new InputError(`the hub, ${url}`, got, 'an answer; look at the repository, or push again', { cause })
      }
    }
    if (attempt >= ATTEMPTS) {
      const expected = 'an answer; the repository is unchanged, and stored files are not sent again'
      throw new InputError(`the hub, ${withoutQuery(url)}`, `no answer (${failure})`, expected, { cause })
    }
    await pause(PAUSE_MS * 4 ** (attempt - 1), undefined, { signal })
  }
}

/** The signature of a storage URL is in its query. */
function withoutQuery(url: string): string {
  return url.split('?', 1)[0]!
}

/** Returns a successful answer. @throws InputError for any other, with its text. */
function accept({ id }: Target, url: string, answer: HttpAnswer): HttpAnswer {
  if (isOk(answer)) return answer
  const { status, body } = answer
  const expected: Record<number, string> = {
    401: 'a valid token (HF_TOKEN)',
    403: `a token with write access to ${id}`,
    404: `${id} and its branch, or a token with read access`,
    409: 'a repository without concurrent changes: push again',
    412: 'a repository without concurrent changes: push again',
  }
  const said = body.subarray(0, 200).toString()
  const otherwise = 'a successful answer; the repository is unchanged'
  throw new InputError(`the hub, ${withoutQuery(url)}`, `status ${status} (${said})`, expected[status] ?? otherwise)
}

function parse(url: string, { body }: HttpAnswer): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(body.toString())
  } catch (cause) {
    throw new InputError(url, (cause as Error).message, 'an answer in JSON', { cause })
  }
  if (typeof value !== 'object' || value === null) throw new InputError(url, show(value), 'an object')
  return value as Record<string, unknown>
}
