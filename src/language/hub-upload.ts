/**
 * Uploads to the Hugging Face hub in one commit, as its Python library does: the hub says which files are small enough to be sent with
 * the commit; the others go to its storage first, whole or in parts as it asks, unless they are there. Until the commit is made
 * nothing of it is in the repository.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, readFile, stat } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { environmentVariable } from '../base/environment-variables.ts'
import { InputError, show } from '../base/errors.ts'
import { type HttpAnswer, type HttpRequest, isOk, requestHttp } from '../base/http/http-request.ts'
import { checkRevision, hubEndpoint } from './hub.ts'

/** How something is put on the hub. */
export interface UploadOptions {
  /** The branch; default `main`. */
  readonly revision?: string
  /** Whether a repository that is made for it is private; one that is there stays as it is. Default false. */
  readonly private?: boolean
  /** The commit's; default `Upload by colonnade`. */
  readonly message?: string
  /** The hub's address; default `HF_ENDPOINT`, else https://huggingface.co. */
  readonly endpoint?: string
  /** Told of each file that is about to be sent to the storage, and of the commit, which has no file. */
  onProgress?(progress: UploadProgress): void
  readonly signal?: AbortSignal
}

/** What is sent next. */
export interface UploadProgress {
  /** Its path in the repository; null: the commit, with all small files in it. */
  readonly file: string | null
  readonly bytes: number
}

/** What an upload came to. */
export interface Uploaded {
  /** Where people look at the repository. */
  readonly url: string
  readonly commit: string
  /** Paths in the repository that went to its storage; the others are in the commit. */
  readonly stored: readonly string[]
}

/** A file to send. */
interface Local {
  /** Its path in the repository. */
  readonly path: string
  readonly file: string
  readonly bytes: number
}

/** Everything that a request needs to know. */
interface Target {
  readonly id: string
  readonly endpoint: string
  readonly token: string
  readonly revision: string
  readonly signal: AbortSignal
}

/** What the hub's storage wants to be done with a file. */
interface StorageAction {
  readonly href: string
  readonly header?: Readonly<Record<string, string>>
}

const REPOSITORY = /^\w[\w.-]*\/\w[\w.-]*$/
/** Bytes of a file's beginning by which the hub tells text from what is not. */
const SAMPLE_BYTES = 512
/** Requests that fail, one after another, before an upload is given up, and the shortest pause between two. */
const [ATTEMPTS, PAUSE_MS] = [4, 100]
/** What a request may take: so long, and longer for its bytes at the slowest connection that is waited for. */
const [ANSWER_MS, BYTES_A_MS] = [300_000, 20]
const ANSWER_BYTES_MAX = 2 ** 24
const JSON_TYPE = { 'content-type': 'application/json' }
const STORAGE_TYPE = {
  accept: 'application/vnd.git-lfs+json',
  'content-type': 'application/vnd.git-lfs+json',
}

/**
 * Puts files into a model's repository, which is made if it is not there, in one commit. `files`: by their path in the repository, where
 * each lies. The token is taken from the environment alone (`HF_TOKEN`), and goes to nobody but the hub.
 * @throws InputError for an id that is none, no files or one that cannot be read, no token, and a hub that refuses, that does not
 * answer, or that another changes at the same time: nothing is in the repository then, but where the answer to the commit itself did
 * not come, which the error says.
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

/**
 * The token, if the repository's id is one and there is a token.
 * @throws InputError as `uploadModel` does, before any work.
 */
export function checkUpload(id: string, revision = 'main'): string {
  if (!REPOSITORY.test(id) || id.includes('..')) {
    throw new InputError('repository', show(id), 'the id of a repository of the hub, owner/name')
  }
  checkRevision(revision)
  const token = environmentVariable('HF_TOKEN')
  if (token === undefined || token.trim() === '') {
    throw new InputError('HF_TOKEN', 'nothing', 'a token of the hub that may write, in the environment')
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

/** Makes the repository; one that is there is left as it is. */
async function makeRepository(hub: Target, isPrivate: boolean): Promise<void> {
  const [organization, name] = hub.id.split('/')
  const body = JSON.stringify({ type: 'model', name, organization, private: isPrivate })
  const url = `${hub.endpoint}/api/repos/create`
  const answer = await ask(hub, url, { method: 'POST', headers: JSON_TYPE, body })
  if (answer.status !== 409) accept(hub, url, answer)
}

/** How the hub wants each file: `regular`, in the commit, or `lfs`, in its storage. What it would ignore is an error. */
async function uploadModes(hub: Target, locals: readonly Local[]): Promise<Map<string, string>> {
  const files = []
  for (const { path, file, bytes } of locals) files.push({ path, size: bytes, sample: await sampleOf(file) })
  const url = `${hub.endpoint}/api/models/${hub.id}/preupload/${encodeURIComponent(hub.revision)}`
  const answer = await ask(hub, url, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify({ files }) })
  const told = parse(url, accept(hub, url, answer)).files
  const modes = new Map<string, string>()
  for (const each of Array.isArray(told) ? told : []) {
    if (each?.shouldIgnore === true) {
      throw new InputError(`the hub, ${each.path}`, 'a file that its .gitignore leaves out', 'one that it takes')
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

/** Sends files to the hub's storage, as far as they are not there. */
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

/** One file, whole, or in parts of the size that the storage names: their addresses stand by number in `header`. */
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

/** The commit: its head, and a line for each file, the small ones with all their bytes. Returns its id. */
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

/**
 * A request, again after a pause where it may go better then: no answer, 429, or 5xx. One that `commits` is not sent again where it is
 * not known what became of it. The token goes to the hub alone.
 */
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
        const got = `no answer to the commit (${failure}): whether it was made is not known`
        throw new InputError(`the hub, ${url}`, got, 'an answer; look at the repository, or push again', { cause })
      }
    }
    if (attempt >= ATTEMPTS) {
      const expected = 'an answer; nothing is in the repository, and what the storage has is not sent again'
      throw new InputError(`the hub, ${withoutQuery(url)}`, `no answer (${failure})`, expected, { cause })
    }
    await pause(PAUSE_MS * 4 ** (attempt - 1), undefined, { signal })
  }
}

/** Addresses of a storage have a signature behind their question mark. */
function withoutQuery(url: string): string {
  return url.split('?', 1)[0]!
}

/** The answer, if it says yes. @throws InputError for any other, with what it says. */
function accept({ id }: Target, url: string, answer: HttpAnswer): HttpAnswer {
  if (isOk(answer)) return answer
  const { status, body } = answer
  const expected: Record<number, string> = {
    401: 'a token that is valid (HF_TOKEN)',
    403: `a token that may write to ${id}`,
    404: `${id} and its branch, or a token that may see them`,
    409: 'a repository that nobody else changes at the same time: push again',
    412: 'a repository that nobody else changes at the same time: push again',
  }
  const said = body.subarray(0, 200).toString()
  const otherwise = 'an answer that takes it; nothing is in the repository'
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
