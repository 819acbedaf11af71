/**
 * Models and datasets of the Hugging Face hub, kept in the cache that its Python library uses, in its layout: `blobs/` has files by their
 * checksum, `snapshots/<commit>/` links to them by name, `refs/` has the commit of a branch. So what was downloaded by either
 * is not downloaded again by the other.
 *
 * A file stands in `blobs/` when its size and checksum are those that the hub told, and not before; what was interrupted is
 * continued. The hub's own package for JavaScript checks no checksums, continues nothing, and is 11 MB with what it needs;
 * what is taken of the hub here is three addresses.
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

/** How something is taken from the hub. */
export interface HubOptions {
  /** A branch, a tag, or a commit, which pins it; default `main`. */
  readonly revision?: string
  /** The cache; default `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub`. */
  readonly cache?: string
  /** The hub's address; default `HF_ENDPOINT`, else https://huggingface.co. */
  readonly endpoint?: string
  /** For what is not public; default `HF_TOKEN`. */
  readonly token?: string
  /** Takes what is in the cache and asks nobody; default whether `HF_HUB_OFFLINE` is 1. */
  readonly offline?: boolean
  /** Told of each piece that has come. */
  onProgress?(progress: DownloadProgress): void
  readonly signal?: AbortSignal
}

/** How far the download of a file is. */
export interface DownloadProgress {
  readonly file: string
  /** Bytes that are there. */
  readonly bytes: number
  /** Bytes of the whole file. */
  readonly fileBytes: number
}

/** A commit of a repository, as the hub lists it. */
export interface Listing {
  /** What to call it in errors. */
  readonly subject: string
  /** What the hub says of the repository; `cardData` is the head of its README. */
  readonly about: Readonly<Record<string, unknown>>
  /** The paths of its files; of a model those at the top. */
  readonly paths: readonly string[]
  /** Downloads one of them, if it is not in the cache, and says where it is. */
  take(path: string): Promise<string>
}

/** A file of a repository. */
interface HubFile {
  readonly path: string
  readonly size: number
  /** SHA-256 of a large file; of the others Git's own checksum. */
  readonly checksum: string
}

/** What is on the hub. */
type Kind = 'model' | 'dataset'

/** Everything that a download needs to know. */
interface Hub extends HubOptions {
  readonly kind: Kind
  readonly id: string
  readonly endpoint: string
  /** The repository's folder in the cache. */
  readonly folder: string
}

/** What of a repository is a language model, besides its weights. */
const FILES = ['config.json', ...TOKENIZER_FILES]
const REQUIRED = ['config.json', 'tokenizer.json']
const [WEIGHTS, INDEX] = ['model.safetensors', 'model.safetensors.index.json']
const COMMIT = /^[0-9a-f]{40}$/
/** Requests that bring nothing, one after another, before a download is given up. */
const ATTEMPTS = 4
/** What the hub says of a repository, and a page of its list of files, has at most so many bytes; its refusals far fewer. */
const [ANSWER_BYTES_MAX, REFUSAL_BYTES_MAX] = [64 * 2 ** 20, 2 ** 10]
const REDIRECTS_MAX = 10
const PAGES_MAX = 10_000

/**
 * The folder of a model of the hub, whole: downloaded, as far as it is not in the cache. A commit that is whole in the cache
 * is not asked for again.
 * @throws InputError for an id or revision that is not there or may not be read, a repository without config.json,
 * tokenizer.json or safetensors, a file whose size or checksum is not what the hub told, a hub that does not answer, and
 * with `offline` for a model that was not downloaded whole before.
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

/**
 * Files of a repository of the hub, as `choose` says which: downloaded, as far as they are not in the cache. `part` names
 * what is chosen, so that it is found again without the hub. The folder that they are in, and their paths in it.
 * @throws InputError as `downloadModel` does, and whatever `choose` throws.
 */
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
    const got = `no whole copy in ${folder}, and offline is set`
    const expected = `a ${kind} that was downloaded by this function before, or a connection`
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

/** The hub's address without a last slash: the given one, else `HF_ENDPOINT`. @throws InputError for what is no address. */
export function hubEndpoint(given = environmentVariable('HF_ENDPOINT') ?? 'https://huggingface.co'): string {
  const endpoint = given.replace(/\/$/, '')
  if (!URL.canParse(endpoint)) throw new InputError('endpoint', show(endpoint), 'the address of a hub, https://…')
  return endpoint
}

/** @throws InputError for what can be no branch, tag or commit. */
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

/** Lists the files of a commit, or of a part of it, that is whole in the cache. It is written last. */
function manifestOf({ folder }: Hub, commit: string, part: string): string {
  return `${folder}/colonnade/${commit}${part === '' ? '' : `-${encodeURIComponent(part)}`}.json`
}

/** What the manifest lists, if all of it is there, each file with the checksum that it was downloaded with. */
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

/** The commit that a branch had when it was last asked for. */
async function readReference({ folder }: Hub, revision: string): Promise<string | null> {
  const path = `${folder}/refs/${revision}`
  if (!(await isThere(path))) return null
  const commit = new TextDecoder().decode(await readWhole(path, 'a commit')).trim()
  if (!COMMIT.test(commit)) throw new InputError(path, show(commit), 'a commit')
  return commit
}

/** The files of a commit's tree, which comes in pages; of a model those at its top. */
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
        throw new InputError(`${url}, ${name}`, got, 'a path within the repository, its size and checksum')
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

/** The address of the next page, which is of the same hub and was not seen before. */
function nextPage(url: string, next: string, seen: Set<string>): string {
  const there = URL.canParse(next, url) ? new URL(next, url) : null
  if (there?.origin !== new URL(url).origin || seen.has(there.href) || seen.size >= PAGES_MAX) {
    const expected = `one of the same hub that was not there before, of ${PAGES_MAX} at most`
    throw new InputError(url, `a next page at ${show(next)}`, expected)
  }
  seen.add(there.href)
  return there.href
}

/** A file as the hub lists it: at a path that stays within the repository. */
function isHubFile(file: unknown): file is HubFile {
  const { path, size, checksum } = (file ?? {}) as Partial<Record<string, unknown>>
  const isPath =
    typeof path === 'string' && !path.includes('\0') && path.split('/').every((name) => !['', '.', '..'].includes(name))
  const isChecksum = typeof checksum === 'string' && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(checksum)
  return isPath && isChecksum && Number.isSafeInteger(size) && (size as number) >= 0
}

/** The names of the files that the index of a model's tensors has. */
async function shardsOf(path: string): Promise<string[]> {
  const { weight_map: places } = await readJsonObject(path)
  const shards = [...new Set(Object.values((places ?? {}) as Record<string, unknown>))]
  const wrong = shards.find((shard) => typeof shard !== 'string' || !/^\w[\w.-]*$/.test(shard))
  if (wrong !== undefined || shards.length === 0) {
    throw new InputError(`${path}, weight_map`, show(wrong ?? places), 'the names of files beside it')
  }
  return shards as string[]
}

/** Puts a file into the cache, and its name into the snapshot. */
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

/** Fetches a file to `to`, from where an earlier try ended, and sees that it is the one that the hub told of. */
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
      throw new InputError(url, got, 'the rest; the downloaded part is kept, and the next call continues it')
    } else await pause(100 * 4 ** attempt, undefined, hub.signal ? { signal: hub.signal } : {})
  }
  const checksum = await checksumOf(to, file)
  if (checksum === file.checksum) return
  await rm(to, { force: true })
  const expected = `${file.checksum}, as the hub says; the file was deleted`
  throw new InputError(url, `a file with checksum ${checksum}`, expected)
}

/** One request for what of a file is missing. Why it did not bring all of it; null where it did. */
async function fetchMore(hub: Hub, url: string, file: HubFile, path: string, start: number): Promise<string | null> {
  // As it is: a range of what a server has packed would be another part of the file.
  const asIs = { 'accept-encoding': 'identity' }
  const response = await ask(hub, url, start > 0 ? { ...asIs, range: `bytes=${start}-` } : asIs)
  if (response.status === 429 || response.status >= 500) {
    await response.body?.cancel()
    return `status ${response.status}`
  }
  // A server that knows no ranges sends the whole file again.
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
        await handle.truncate(0) // None of it is what was promised.
        throw new InputError(url, `more than ${file.size} bytes`, 'as many as the hub announced; they were deleted')
      }
      await handle.appendFile(piece.value)
      bytes += piece.value.byteLength
      hub.onProgress?.({ file: file.path, bytes, fileBytes: file.size })
    }
    await disk.sync(handle)
  } finally {
    await handle.close()
    await reader?.cancel().catch(() => undefined) // After an error; that one is the one to report.
  }
  return bytes < file.size ? 'the connection ended' : null
}

function rangeStart(response: Response): number {
  return Number(/^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1])
}

/** SHA-256 of a file, or the SHA-1 that Git has for it, whichever the hub told. */
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

/** The bytes of an answer. @throws InputError for more than `most`, and where the connection ends. */
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
    throw new InputError(url, `an answer that ends early (${reasonOf(cause)})`, 'a whole one', { cause })
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

/** A request; an answer that says no is an error, but for those that may be another tomorrow. */
async function ask(hub: Hub, url: string, headers: Record<string, string> = {}): Promise<Response> {
  const response = await follow(hub, url, headers)
  const { status } = response
  if (response.ok || ((status === 429 || status >= 500) && url.includes('/resolve/'))) return response
  const said = await bodyOf(url, response, REFUSAL_BYTES_MAX).then(
    (bytes) => new TextDecoder().decode(bytes).slice(0, 200),
    () => 'and more than is read of a refusal',
  )
  const expected: Record<number, string> = {
    401: `a ${hub.kind} that is public, or a token that may read it (HF_TOKEN)`,
    403: `a token that may read it; some ${hub.kind}s ask to accept their terms on the hub first`,
    404: `a ${hub.kind}, revision and file that are there`,
  }
  throw new InputError(`the hub, ${url}`, `status ${status} (${said})`, expected[status] ?? 'an answer')
}

/** Asks, and goes where the hub sends on; the token goes to the hub itself and to nobody else. */
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
        'a connection; or offline: true (HF_HUB_OFFLINE=1), for what is in the cache',
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

/** A file's bytes; null where there is none. */
async function sizeOf(path: string): Promise<number | null> {
  return (await isThere(path)) ? (await stat(path)).size : null
}
