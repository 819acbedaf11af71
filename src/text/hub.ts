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
import { InputError, show } from '../errors.ts'
import { cannotWrite, isThere, makeFolder, parseJsonObject, readJsonObject, readWhole, writeWhole } from '../files.ts'
import { TOKENIZER_FILES } from './load-tokenizer.ts'

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

/**
 * The folder of a model of the hub, whole: downloaded, as far as it is not in the cache. A commit that is whole in the cache
 * is not asked for again.
 * @throws InputError for an id or revision that is not there or may not be read, a repository without config.json,
 * tokenizer.json or safetensors, a file whose size or checksum is not what the hub told, a hub that does not answer, and
 * with `offline` for a model that was not downloaded whole before.
 * @example await downloadModel('HuggingFaceTB/SmolLM2-135M-Instruct', { revision: 'main' })
 */
export async function downloadModel(id: string, options: HubOptions = {}): Promise<string> {
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
  const { HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE } = process.env
  const { revision = 'main', offline = HF_HUB_OFFLINE === '1', token = HF_TOKEN } = options
  checkName(kind, id, /^\w[\w.-]*(\/\w[\w.-]*)?$/, `the id of a ${kind} of the hub, owner/name`)
  checkName('revision', revision, /^\w[\w./-]*$/, 'a branch, tag or commit')
  const folder = `${options.cache ?? defaultCache()}/${kind}s--${id.replace('/', '--')}`
  const endpoint = (options.endpoint ?? HF_ENDPOINT ?? 'https://huggingface.co').replace(/\/$/, '')
  const hub: Hub = { ...options, kind, id, folder, endpoint, ...(token ? { token } : {}) }
  const known = COMMIT.test(revision) ? revision : offline ? await readReference(hub, revision) : null
  const kept = known === null ? null : await readManifest(hub, known, part)
  if (kept !== null) return { folder: snapshotOf(hub, known!), paths: kept }
  if (offline) {
    throw new InputError(
      `${kind} ${id}, revision ${revision}`,
      `no whole copy in ${folder}, and offline is set`,
      `a ${kind} that was downloaded by this function before, or a connection`,
    )
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

function checkName(subject: string, name: string, form: RegExp, expected: string): void {
  if (!form.test(name) || name.includes('..')) throw new InputError(subject, show(name), expected)
}

function defaultCache(): string {
  const { HF_HUB_CACHE, HF_HOME } = process.env
  return HF_HUB_CACHE ?? `${HF_HOME ?? `${homedir()}/.cache/huggingface`}/hub`
}

function snapshotOf({ folder }: Hub, commit: string): string {
  return `${folder}/snapshots/${commit}`
}

/** Lists the files of a commit, or of a part of it, that is whole in the cache. It is written last. */
function manifestOf({ folder }: Hub, commit: string, part: string): string {
  return `${folder}/colonnade/${commit}${part === '' ? '' : `-${encodeURIComponent(part)}`}.json`
}

/** What the manifest lists, if all of it is there. */
async function readManifest(hub: Hub, commit: string, part: string): Promise<string[] | null> {
  const manifest = manifestOf(hub, commit, part)
  if (!(await isThere(manifest))) return null
  const { files } = (await readJsonObject(manifest)) as { files: HubFile[] }
  for (const { path, size } of files) {
    if ((await sizeOf(`${snapshotOf(hub, commit)}/${path}`)) !== size) return null
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
  const tree = `${hub.endpoint}/api/${hub.kind}s/${hub.id}/tree/${commit}`
  let url: string | undefined = hub.kind === 'dataset' ? `${tree}?recursive=true` : tree
  while (url !== undefined) {
    const response = await ask(hub, url)
    const entries: unknown = await response.json().catch((cause: Error) => {
      throw new InputError(url as string, cause.message, 'a list of files', { cause })
    })
    if (!Array.isArray(entries)) throw new InputError(url, show(entries), 'a list of files')
    for (const { type, path, size, oid, lfs } of entries) {
      const file = { path, size: lfs?.size ?? size, checksum: lfs?.oid ?? oid }
      if (type !== 'file' || typeof path !== 'string') continue
      if (!Number.isSafeInteger(file.size) || !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(file.checksum)) {
        throw new InputError(`${url}, ${path}`, show({ size, oid, lfs }), 'its size and checksum')
      }
      if (path.split('/').some((name) => name === '' || name === '.' || name === '..')) {
        throw new InputError(url, `a file at ${show(path)}`, 'a path within the repository')
      }
      files.set(path, file)
    }
    const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1]
    url = next && new URL(next, url).href
  }
  return files
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
    if ((await sizeOf(blob)) !== file.size) {
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
      throw new InputError(url, got, 'the rest; what has come is kept, and continued when it is asked for again')
    } else await pause(100 * 4 ** attempt, undefined, hub.signal ? { signal: hub.signal } : {})
  }
  const checksum = await checksumOf(to, file)
  if (checksum === file.checksum) return
  await rm(to, { force: true })
  throw new InputError(
    url,
    `a file with checksum ${checksum}`,
    `${file.checksum}, as the hub tells; it was thrown away`,
  )
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
      await handle.appendFile(piece.value)
      bytes += piece.value.byteLength
      hub.onProgress?.({ file: file.path, bytes, fileBytes: file.size })
    }
    await handle.sync()
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
  return parseJsonObject(url, new Uint8Array(await response.arrayBuffer()))
}

/** A request; an answer that says no is an error, but for those that may be another tomorrow. */
async function ask(hub: Hub, url: string, headers: Record<string, string> = {}): Promise<Response> {
  const { token, signal } = hub
  let response: Response
  try {
    response = await fetch(url, {
      headers: { ...headers, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
      ...(signal ? { signal } : {}),
    })
  } catch (cause) {
    signal?.throwIfAborted()
    throw new InputError(
      `the hub, ${url}`,
      `no answer (${reasonOf(cause)})`,
      'a connection; or offline: true (HF_HUB_OFFLINE=1), for what is in the cache',
      { cause },
    )
  }
  const { status } = response
  if (response.ok || ((status === 429 || status >= 500) && url.includes('/resolve/'))) return response
  const said = (await response.text()).slice(0, 200)
  const expected: Record<number, string> = {
    401: `a ${hub.kind} that is public, or a token that may read it (HF_TOKEN)`,
    403: `a token that may read it; some ${hub.kind}s ask to accept their terms on the hub first`,
    404: `a ${hub.kind}, revision and file that are there`,
  }
  throw new InputError(`the hub, ${url}`, `status ${status} (${said})`, expected[status] ?? 'an answer')
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error
  return cause instanceof Error ? `${message}: ${cause.message}` : message
}

/** A file's bytes; null where there is none. */
async function sizeOf(path: string): Promise<number | null> {
  return (await isThere(path)) ? (await stat(path)).size : null
}
