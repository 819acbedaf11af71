/**
 * Downloads models and datasets from the Hugging Face hub into the cache of its Python library, in the same layout:
 * `blobs/` has files by checksum, `snapshots/<commit>/` links to them by name, `refs/` has the commit of a branch. So
 * either library finds the other's downloads.
 *
 * A file enters `blobs/` only when its size and checksum match the hub's; an interrupted download is resumed. The hub's
 * own JavaScript package checks no checksums, resumes nothing, and is 11 MB with its dependencies. This file needs
 * three endpoints.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, readlink, rename, rm, stat, symlink } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { environmentVariable } from '../base/environment-variables.ts'
import { checkGiven, InputError, show } from '../base/errors.ts'
import {
  cannotWrite,
  disk,
  isThere,
  makeFolder,
  parseJsonObject,
  readJsonObject,
  readWhole,
  writeWhole,
} from '../base/files/files.ts'
import { TOKENIZER_FILES } from './tokenizers/load-tokenizer.ts'

/** How to download from the Hugging Face hub. */
export interface HubOptions {
  /** A branch, a tag, or a commit, which pins the content; default `main`. */
  readonly revision?: string
  /** The cache; default `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub`. */
  readonly cache?: string
  /** The hub's address; default `HF_ENDPOINT`, else https://huggingface.co. */
  readonly endpoint?: string
  /** For private repositories; default `HF_TOKEN`. */
  readonly token?: string
  /** Uses the cache only and sends no request; default: whether `HF_HUB_OFFLINE` is 1. */
  readonly offline?: boolean
  /** Called for each received piece. */
  onProgress?(progress: DownloadProgress): void
  readonly signal?: AbortSignal
}

/** Bytes so far of a file's download. */
export interface DownloadProgress {
  readonly file: string
  readonly bytes: number
  readonly fileBytes: number
}

/** A commit of a repository, as the hub lists it. */
export interface Listing {
  /** The repository's name in errors. */
  readonly subject: string
  /** The hub's information; `cardData` is the README's front matter. */
  readonly about: Readonly<Record<string, unknown>>
  /** The paths of its files; for a model, only those at the top level. */
  readonly paths: readonly string[]
  /** Downloads a file unless it is cached, and returns its local path. */
  take(path: string): Promise<string>
}

interface HubFile {
  readonly path: string
  readonly size: number
  /** SHA-256 of a large file; Git's checksum of others. */
  readonly checksum: string
}

type Kind = 'model' | 'dataset'

interface Hub extends HubOptions {
  readonly kind: Kind
  readonly id: string
  readonly endpoint: string
  /** The repository's folder in the cache. */
  readonly folder: string
}

/** The files of a language model besides its weights. */
const FILES = ['config.json', ...TOKENIZER_FILES]
const REQUIRED = ['config.json', 'tokenizer.json']
const [WEIGHTS, INDEX] = ['model.safetensors', 'model.safetensors.index.json']
const COMMIT = /^[0-9a-f]{40}$/
/** Requests in a row without progress before a download stops. */
const ATTEMPTS = 4
/** Maximum bytes of the hub's information or a page of files, and of a refusal. */
const [ANSWER_BYTES_MAX, REFUSAL_BYTES_MAX] = [64 * 2 ** 20, 2 ** 10]
const REDIRECTS_MAX = 10
const PAGES_MAX = 10_000

/**
 * The local folder of a hub model, complete. Files that are not in the cache are downloaded. A commit that is complete
 * in the cache causes no request.
 * @throws InputError for an id or revision that does not exist or may not be read, a repository without config.json,
 * tokenizer.json or safetensors, a wrong size or checksum, a hub that does not answer, and with `offline` for a model
 * that is not complete in the cache.
 * @example await downloadModel('HuggingFaceTB/SmolLM2-135M-Instruct', { revision: 'main' })
 */
export async function downloadModel(id: string, options: HubOptions = {}): Promise<string> {
  checkGiven('id of downloadModel', id, 'a text')
  const { folder } = await download('model', id, '', options, async ({ subject, paths, take }) => {
    const isSharded = !paths.includes(WEIGHTS)
    const missing = [...REQUIRED, isSharded ? INDEX : WEIGHTS].find((path) => !paths.includes(path))
    if (missing !== undefined) throw new InputError(subject, `no ${missing}`, 'a language model with safetensors')
    const chosen = [...FILES.filter((path) => paths.includes(path)), isSharded ? INDEX : WEIGHTS]
    return isSharded ? [...chosen, ...(await shardsOf(await take(INDEX)))] : chosen
  })
  return folder
}

/** Downloads a repository's files by `choose`; `part` names the choice for offline use. @throws InputError */
export async function download(
  kind: Kind,
  id: string,
  part: string,
  options: HubOptions,
  choose: (listing: Listing) => Promise<readonly string[]>,
): Promise<{ folder: string; paths: string[] }> {
  try {
    return await downloadWhole(kind, id, part, options, choose)
  } catch (cause) {
    if (!options.signal?.aborted) throw cause
    const got = `a download that was aborted (${reasonOf(options.signal.reason)})`
    throw new InputError(`${kind} ${id}`, got, 'a complete download; the downloaded part is kept and continued', {
      cause,
    })
  }
}

async function downloadWhole(
  kind: Kind,
  id: string,
  part: string,
  options: HubOptions,
  choose: (listing: Listing) => Promise<readonly string[]>,
): Promise<{ folder: string; paths: string[] }> {
  const { revision = 'main', offline = environmentVariable('HF_HUB_OFFLINE') === '1' } = options
  const { token = environmentVariable('HF_TOKEN') } = options
  checkName(kind, id, /^\w[\w.-]*(\/\w[\w.-]*)?$/, `the id of a ${kind} of the hub, owner/name`)
  checkRevision(revision)
  const folder = `${options.cache ?? defaultCache()}/${kind}s--${id.replace('/', '--')}`
  const endpoint = hubEndpoint(options.endpoint)
  const hub: Hub = { ...options, kind, id, folder, endpoint, ...(token ? { token } : {}) }
  const known = COMMIT.test(revision) ? revision : offline ? await readReference(hub, revision) : null
  const kept = known === null ? null : await readManifest(hub, known, part)
  if (kept !== null) return { folder: snapshotOf(hub, known!), paths: kept }
  if (offline) {
    const got = `no complete copy in ${folder}, and offline is set`
    const expected = `a ${kind} that was downloaded with Colonnade, or a connection`
    throw new InputError(`${kind} ${id}, revision ${revision}`, got, expected)
  }

  const about = await askObject(hub, `api/${kind}s/${id}/revision/${encodeURIComponent(revision)}`)
  const { sha } = about
  if (typeof sha !== 'string' || !COMMIT.test(sha)) throw new InputError(`${kind} ${id}, sha`, show(sha), 'a commit')
  const listed = await listFiles(hub, sha)
  const subject = `${kind} ${id}, revision ${sha}`
  const take = async (path: string): Promise<string> => {
    const file = listed.get(path)
    if (file === undefined) throw new InputError(subject, `no ${path}`, 'a file of the repository')
    await fetchFile(hub, sha, file)
    return `${snapshotOf(hub, sha)}/${path}`
  }
  const paths = [...(await choose({ subject, about, paths: [...listed.keys()], take }))]
  for (const path of paths) await take(path)
  if (sha !== revision) await writeWhole(`${folder}/refs/${revision}`, [sha])
  const files = paths.map((path) => listed.get(path)!)
  await writeWhole(manifestOf(hub, sha, part), [JSON.stringify({ files })])
  return { folder: snapshotOf(hub, sha), paths }
}

/** The hub's address (default `HF_ENDPOINT`) without a trailing slash. @throws InputError for an invalid one. */
export function hubEndpoint(given = environmentVariable('HF_ENDPOINT') ?? 'https://huggingface.co'): string {
  const endpoint = given.replace(/\/$/, '')
  if (!URL.canParse(endpoint)) throw new InputError('endpoint', show(endpoint), 'the address of a hub, https://…')
  return endpoint
}

/** @throws InputError for an invalid name of a branch, tag or commit. */
export function checkRevision(revision: string): void {
  checkName('revision', revision, /^\w[\w./-]*$/, 'a branch, tag or commit')
}

function checkName(subject: string, name: string, form: RegExp, expected: string): void {
  if (!form.test(name) || name.includes('..')) throw new InputError(subject, show(name), expected)
}

function defaultCache(): string {
  const home = environmentVariable('HF_HOME') ?? `${homedir()}/.cache/huggingface`
  return environmentVariable('HF_HUB_CACHE') ?? `${home}/hub`
}

function snapshotOf({ folder }: Hub, commit: string): string {
  return `${folder}/snapshots/${commit}`
}

/** The manifest lists the files of a complete download of a commit, or of a part of it. It is written last. */
function manifestOf({ folder }: Hub, commit: string, part: string): string {
  return `${folder}/colonnade/${commit}${part === '' ? '' : `-${encodeURIComponent(part)}`}.json`
}

/** The manifest's paths, if all files are there with the checksums of their download; otherwise null. */
async function readManifest(hub: Hub, commit: string, part: string): Promise<string[] | null> {
  const manifest = manifestOf(hub, commit, part)
  if (!(await isThere(manifest))) return null
  const { files } = await readJsonObject(manifest)
  if (!Array.isArray(files) || !files.every(isHubFile)) {
    throw new InputError(manifest, `files ${show(files)}`, 'a list of paths, sizes and checksums; it can be deleted')
  }
  for (const file of files) {
    const path = `${snapshotOf(hub, commit)}/${file.path}`
    if ((await sizeOf(path)) !== file.size || (await checksumOf(path, file)) !== file.checksum) return null
  }
  return files.map(({ path }) => path)
}

/** The commit of a branch at the last request. */
async function readReference({ folder }: Hub, revision: string): Promise<string | null> {
  const path = `${folder}/refs/${revision}`
  if (!(await isThere(path))) return null
  const commit = new TextDecoder().decode(await readWhole(path, 'a commit')).trim()
  if (!COMMIT.test(commit)) throw new InputError(path, show(commit), 'a commit')
  return commit
}

/** The files of a commit, which the hub lists in pages; for a model, only those at the top level. */
async function listFiles(hub: Hub, commit: string): Promise<Map<string, HubFile>> {
  const files = new Map<string, HubFile>()
  const pages = new Set<string>()
  const tree = `${hub.endpoint}/api/${hub.kind}s/${hub.id}/tree/${commit}`
  let url: string | undefined = hub.kind === 'dataset' ? `${tree}?recursive=true` : tree
  while (url !== undefined) {
    const response = await ask(hub, url)
    const entries = parseJson(url, await bodyOf(url, response, ANSWER_BYTES_MAX))
    if (!Array.isArray(entries)) throw new InputError(url, show(entries), 'a list of files')
    const before = files.size
    for (const entry of entries) {
      if (typeof entry !== 'object' || entry === null) throw new InputError(url, show(entry), 'a file or a folder')
      const { type, path, size, oid, lfs } = entry
      if (type !== 'file') continue
      const file = { path, size: lfs?.size ?? size, checksum: lfs?.oid ?? oid }
      if (!isHubFile(file)) {
        const name = typeof path === 'string' ? path : show(path)
        const got = `a file at ${show(path)} with ${show({ size, oid, lfs })}`
        throw new InputError(`${url}, ${name}`, got, 'a path within the repository, with size and checksum')
      }
      files.set(file.path, file)
    }
    const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1]
    if (next === undefined) break
    if (files.size === before && entries.length === 0) throw new InputError(url, 'an empty page', 'the last page')
    url = nextPage(url, next, pages)
  }
  return files
}

/** Checks the next page's address: it must be on the same hub and new. */
function nextPage(url: string, next: string, seen: Set<string>): string {
  const there = URL.canParse(next, url) ? new URL(next, url) : null
  if (there?.origin !== new URL(url).origin || seen.has(there.href) || seen.size >= PAGES_MAX) {
    const expected = `a new one on the same hub, and at most ${PAGES_MAX} pages`
    throw new InputError(url, `a next page at ${show(next)}`, expected)
  }
  seen.add(there.href)
  return there.href
}

/** Whether it is a file as the hub lists it, with a path that stays within the repository. */
function isHubFile(file: unknown): file is HubFile {
  const { path, size, checksum } = (file ?? {}) as Partial<Record<string, unknown>>
  const isPath =
    typeof path === 'string' && !path.includes('\0') && path.split('/').every((name) => !['', '.', '..'].includes(name))
  const isChecksum = typeof checksum === 'string' && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(checksum)
  return isPath && isChecksum && Number.isSafeInteger(size) && (size as number) >= 0
}

/** The names of the files in the index of a model's tensors. */
async function shardsOf(path: string): Promise<string[]> {
  const { weight_map: places } = await readJsonObject(path)
  const shards = [...new Set(Object.values((places ?? {}) as Record<string, unknown>))]
  const wrong = shards.find((shard) => typeof shard !== 'string' || !/^\w[\w.-]*$/.test(shard))
  if (wrong !== undefined || shards.length === 0) {
    throw new InputError(`${path}, weight_map`, show(wrong ?? places), 'the names of files beside it')
  }
  return shards as string[]
}

/** Puts a file into the cache and links it in the snapshot. */
async function fetchFile(hub: Hub, commit: string, file: HubFile): Promise<void> {
  const { folder } = hub
  const blob = `${folder}/blobs/${file.checksum}`
  const link = `${snapshotOf(hub, commit)}/${file.path}`
  try {
    await makeFolder(dirname(blob))
    await makeFolder(dirname(link))
    if ((await sizeOf(blob)) !== file.size || (await checksumOf(blob, file)) !== file.checksum) {
      await fetchWhole(hub, commit, file, `${blob}.incomplete`)
      await rename(`${blob}.incomplete`, blob)
    }
    const target = `${'../'.repeat(file.path.split('/').length)}../blobs/${file.checksum}`
    if ((await readlink(link).catch(() => null)) === target) return
    await rm(link, { force: true })
    await symlink(target, link)
  } catch (cause) {
    throw cannotWrite(link, cause)
  }
}

/** Downloads a file to `to`, resuming an earlier try, and checks its checksum. */
async function fetchWhole(hub: Hub, commit: string, file: HubFile, to: string): Promise<void> {
  const path = file.path.split('/').map(encodeURIComponent).join('/')
  const url = `${hub.endpoint}/${hub.kind === 'dataset' ? 'datasets/' : ''}${hub.id}/resolve/${commit}/${path}`
  for (let attempt = 1; ; attempt++) {
    const before = (await sizeOf(to)) ?? 0
    if (before === file.size && file.size > 0) break
    const failure = await fetchMore(hub, url, file, to, before > file.size ? 0 : before)
    hub.signal?.throwIfAborted()
    if (failure === null) break
    const after = (await sizeOf(to)) ?? 0
    if (after > before) attempt = 0
    else if (attempt >= ATTEMPTS) {
      const got = `${after} of ${file.size} bytes (${failure})`
      throw new InputError(url, got, 'the whole file; the downloaded part is kept, and the next call continues it')
    } else await pause(100 * 4 ** attempt, undefined, hub.signal ? { signal: hub.signal } : {})
  }
  const checksum = await checksumOf(to, file)
  if (checksum === file.checksum) return
  await rm(to, { force: true })
  const expected = `${file.checksum}, as the hub announced; the file was deleted`
  throw new InputError(url, `a file with checksum ${checksum}`, expected)
}

/** Requests the missing rest of a file. Returns why it is not complete, or null if it is. */
async function fetchMore(hub: Hub, url: string, file: HubFile, path: string, start: number): Promise<string | null> {
  // No compression: a range of compressed bytes would be another part of the file.
  const asIs = { 'accept-encoding': 'identity' }
  const response = await ask(hub, url, start > 0 ? { ...asIs, range: `bytes=${start}-` } : asIs)
  if (response.status === 429 || response.status >= 500) {
    await response.body?.cancel()
    return `status ${response.status}`
  }
  // A server without ranges sends the whole file again.
  let bytes = response.status === 206 && rangeStart(response) === start ? start : 0
  if (response.status === 206 && bytes !== start) return `a range that begins at ${rangeStart(response)}`
  const handle = await open(path, bytes > 0 ? 'a' : 'w')
  const reader = response.body?.getReader()
  try {
    while (reader) {
      let piece: Awaited<ReturnType<typeof reader.read>>
      try {
        piece = await reader.read()
      } catch (cause) {
        return reasonOf(cause)
      }
      if (piece.done) break
      if (bytes + piece.value.byteLength > file.size) {
        await handle.truncate(0) // None of it can be trusted.
        throw new InputError(url, `more than ${file.size} bytes`, 'as many as the hub announced; they were deleted')
      }
      await handle.appendFile(piece.value)
      bytes += piece.value.byteLength
      hub.onProgress?.({ file: file.path, bytes, fileBytes: file.size })
    }
    await disk.sync(handle)
  } finally {
    await handle.close()
    await reader?.cancel().catch(() => undefined) // The earlier error is the one to report.
  }
  return bytes < file.size ? 'the connection ended' : null
}

function rangeStart(response: Response): number {
  return Number(/^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1])
}

/** The file's SHA-256 or Git's SHA-1, whichever the hub gave. */
async function checksumOf(path: string, { size, checksum }: HubFile): Promise<string> {
  const hash = checksum.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`)
  for await (const chunk of createReadStream(path)) hash.update(chunk)
  return hash.digest('hex')
}

async function askObject(hub: Hub, path: string): Promise<Record<string, unknown>> {
  const url = `${hub.endpoint}/${path}`
  const response = await ask(hub, url)
  return parseJsonObject(url, await bodyOf(url, response, ANSWER_BYTES_MAX))
}

/** The bytes of a response. @throws InputError for more than `most`, and if the connection ends early. */
async function bodyOf(url: string, response: Response, most: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const piece of response.body ?? []) {
      bytes += piece.byteLength
      if (bytes > most) throw new InputError(url, `more than ${most} bytes`, 'a shorter answer')
      pieces.push(piece)
    }
  } catch (cause) {
    if (cause instanceof InputError) throw cause
    throw new InputError(url, `an answer that ends early (${reasonOf(cause)})`, 'a complete answer', { cause })
  }
  return Buffer.concat(pieces)
}

function parseJson(url: string, bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new InputError(url, (cause as Error).message, 'a list of files', { cause })
  }
}

/** Sends a request. A refusal is an error, except for those that are temporary. */
async function ask(hub: Hub, url: string, headers: Record<string, string> = {}): Promise<Response> {
  const response = await follow(hub, url, headers)
  const { status } = response
  if (response.ok || ((status === 429 || status >= 500) && url.includes('/resolve/'))) return response
  const said = await bodyOf(url, response, REFUSAL_BYTES_MAX).then(
    (bytes) => new TextDecoder().decode(bytes).slice(0, 200),
    () => 'and a longer refusal than is read',
  )
  const expected: Record<number, string> = {
    401: `a public ${hub.kind}, or a token with read access (HF_TOKEN)`,
    403: `a token with read access; some ${hub.kind}s require accepting their terms on the hub first`,
    404: `a ${hub.kind}, revision and file that exist`,
  }
  throw new InputError(`the hub, ${url}`, `status ${status} (${said})`, expected[status] ?? 'an answer')
}

/** Sends a request and follows redirects. The token goes to the hub only. */
async function follow(
  { endpoint, token, signal }: Hub,
  url: string,
  headers: Record<string, string>,
): Promise<Response> {
  let at = new URL(url)
  for (let count = 0; count <= REDIRECTS_MAX; count++) {
    const isHub = token !== undefined && at.origin === new URL(endpoint).origin
    const all = { ...headers, ...(isHub ? { authorization: `Bearer ${token}` } : {}) }
    let response: Response
    try {
      response = await fetch(at, { headers: all, redirect: 'manual', ...(signal ? { signal } : {}) })
    } catch (cause) {
      signal?.throwIfAborted()
      throw new InputError(
        `the hub, ${at}`,
        `no answer (${reasonOf(cause)})`,
        'a connection; or offline: true (HF_HUB_OFFLINE=1), to use the cache',
        { cause },
      )
    }
    const place = response.headers.get('location')
    if (response.status < 300 || response.status >= 400 || place === null) return response
    await response.body?.cancel()
    const next = URL.canParse(place, at) ? new URL(place, at) : null
    const isSafe = next?.protocol === 'https:' || (next?.protocol === 'http:' && at.protocol === 'http:')
    if (next === null || !isSafe) {
      const expected = 'an address of https, or of http from http'
      throw new InputError(`the hub, ${at}`, `a redirect to ${show(place)}`, expected)
    }
    at = next
  }
  throw new InputError(`the hub, ${url}`, `more than ${REDIRECTS_MAX} redirects in a row`, 'an answer')
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error
  return cause instanceof Error ? `${message}: ${cause.message}` : message
}

/** The size of a file in bytes; null if it does not exist. */
async function sizeOf(path: string): Promise<number | null> {
  return (await isThere(path)) ? (await stat(path)).size : null
}
