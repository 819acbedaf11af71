import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { checkUpload, uploadModel } from '../../src/language/hub-upload.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { COMMIT, type HubServer, startHub } from './hub-server.ts'

vi.stubEnv('HF_TOKEN', 'hf_secret')

const bytes = (length: number, seed: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 31 + seed * 7) % 251))
const contents: Record<string, Buffer> = {
  'README.md': Buffer.from('# Tiny\n'),
  'empty.txt': Buffer.alloc(0),
  'model.safetensors': bytes(200_000, 1),
  'more/tokenizer.json': bytes(5000, 2),
}

let files: Record<string, string>
let hub: HubServer
beforeEach(async () => {
  const folder = await temporaryFolder()
  files = {}
  for (const [path, content] of Object.entries(contents)) {
    files[path] = join(folder, path.replace('/', '-'))
    writeFileSync(files[path]!, content)
  }
  hub = await startHub({})
})

const upload = (options: Parameters<typeof uploadModel>[2] = {}) =>
  uploadModel('org/tiny', files, { endpoint: hub.endpoint, ...options })
/** Answers the first `times` requests for a path with a status. */
function failing(path: string | RegExp, status: number, times = Number.POSITIVE_INFINITY): void {
  let left = times
  hub.fault = (request, response) => {
    if (!(typeof path === 'string' ? request.url === path : path.test(request.url!)) || left-- <= 0) return false
    request.resume().on('end', () => response.writeHead(status).end('{"error":"so it is"}'))
    return true
  }
}
const COMMIT_PATH = '/api/models/org/tiny/commit/main'

describe('uploadModel', () => {
  test('makes one commit of all files, small ones within it and large ones by the storage, byte for byte', async () => {
    const told: object[] = []
    const { url, commit, stored } = await upload({ message: 'First', onProgress: (each) => told.push(each) })
    expect({ url, commit }).toEqual({ url: `${hub.endpoint}/org/tiny`, commit: COMMIT })
    expect(stored).toEqual(['model.safetensors', 'more/tokenizer.json'])
    expect(hub.commits).toEqual([{ summary: 'First', regular: ['README.md', 'empty.txt'], large: stored }])
    for (const [path, content] of Object.entries(contents)) {
      expect(Buffer.compare(Buffer.from(hub.files[path]!), content), path).toBe(0)
    }
    expect(told).toEqual([
      { file: 'model.safetensors', bytes: 200_000 },
      { file: 'more/tokenizer.json', bytes: 5000 },
      { file: null, bytes: 7 },
    ])
  })

  test('tells the hub what it asks: whose repository, private or not, and how files begin', async () => {
    const bodies: Record<string, unknown> = {}
    const headers: Record<string, IncomingHttpHeaders> = {}
    hub.fault = (request) => {
      headers[request.url!] = request.headers
      const chunks: Buffer[] = []
      request.on('data', (chunk) => chunks.push(chunk))
      request.on('end', () => {
        bodies[request.url!] = Buffer.concat(chunks).toString()
      })
      return false
    }
    await upload({ private: true })
    const bodyOf = (path: string) => JSON.parse(bodies[path] as string)
    expect(bodyOf('/api/repos/create')).toEqual({ type: 'model', name: 'tiny', organization: 'org', private: true })
    const asked = bodyOf('/api/models/org/tiny/preupload/main').files
    expect(asked.map(({ path, size }: { path: string; size: number }) => [path, size])).toEqual(
      Object.entries(contents).map(([path, { length }]) => [path, length]),
    )
    for (const { path, sample } of asked) {
      expect(Buffer.from(sample, 'base64')).toEqual(contents[path]!.subarray(0, 512))
    }
    expect(bodyOf('/org/tiny.git/info/lfs/objects/batch')).toMatchObject({
      ...{ operation: 'upload', hash_algo: 'sha256', ref: { name: 'main' } },
      objects: [
        { oid: createHash('sha256').update(contents['model.safetensors']!).digest('hex'), size: 200_000 },
        { oid: createHash('sha256').update(contents['more/tokenizer.json']!).digest('hex'), size: 5000 },
      ],
    })
    expect(Object.values(headers).every(({ authorization }) => authorization === 'Bearer hf_secret')).toBe(true)
  })

  test('sends a file in the parts that the storage asks for', async () => {
    hub.partBytes = 65_536
    await upload()
    const sent = hub.asked.filter((path) => /\/storage\/[0-9a-f]+\/\d+$/.test(path))
    expect(sent).toHaveLength(4 + 1)
    expect(Buffer.compare(Buffer.from(hub.files['model.safetensors']!), contents['model.safetensors']!)).toBe(0)
  })

  test('sends nothing to the storage that it has', async () => {
    await upload()
    const before = hub.asked.length
    await upload()
    expect(hub.asked.slice(before).filter((path) => path.startsWith('/storage'))).toEqual([])
    expect(hub.commits).toHaveLength(2)
  })

  test('gives its token to nobody but the hub', async () => {
    const seen: IncomingHttpHeaders[] = []
    const storage = createServer((request, response) => {
      seen.push(request.headers)
      request.resume().on('end', () => response.writeHead(200).end())
    })
    await new Promise<void>((resolve) => storage.listen(0, '127.0.0.1', resolve))
    const elsewhere = `http://127.0.0.1:${(storage.address() as AddressInfo).port}`
    hub.fault = (request, response) => {
      if (!request.url!.endsWith('/objects/batch')) return false
      const chunks: Buffer[] = []
      request.on('data', (chunk) => chunks.push(chunk))
      request.on('end', () => {
        const { objects } = JSON.parse(Buffer.concat(chunks).toString())
        for (const { oid } of objects) hub.stored.set(oid, Object.values(contents).find((each) => sha(each) === oid)!)
        const upload = { href: `${elsewhere}/put`, header: {} }
        const answers = objects.map((object: object) => ({ ...object, actions: { upload } }))
        response.writeHead(200).end(JSON.stringify({ objects: answers }))
      })
      return true
    }
    await upload()
    storage.close()
    expect(seen).toHaveLength(2)
    expect(seen.some(({ authorization }) => authorization !== undefined)).toBe(false)
  })

  test('takes a repository that is there, and asks again what fails for a while', async () => {
    failing('/api/repos/create', 409)
    await upload()
    for (const [path, status] of [
      ['/api/repos/create', 500],
      [/^\/storage/, 503],
      ['/verify', 429],
      [COMMIT_PATH, 503],
    ] as const) {
      hub.stored.clear()
      failing(path, status, 2)
      await upload()
    }
    expect(hub.commits).toHaveLength(5)
  })

  test('goes on where the connection to the storage breaks in the middle of a file', async () => {
    let left = 1
    hub.fault = (request) => {
      if (!request.url!.startsWith('/storage') || left-- <= 0) return false
      request.once('data', () => request.destroy())
      return true
    }
    await upload()
    expect(hub.commits).toHaveLength(1)
  })

  test.each([
    ['/api/repos/create', 401, /status 401 \(\{"error":"so it is"\}\), expected a valid token \(HF_TOKEN\)/],
    ['/api/repos/create', 403, /status 403 .*expected a token with write access to org\/tiny/],
    ['/api/models/org/tiny/preupload/main', 404, /status 404 .*expected org\/tiny and its branch/],
    [COMMIT_PATH, 409, /status 409 .*a repository without concurrent changes: push again/],
    [COMMIT_PATH, 500, /status 500 .*expected a successful answer; the repository is unchanged/],
    [/^\/storage/, 500, /the hub, http:.*\/storage\/[0-9a-f]+: got status 500/],
    ['/verify', 422, /verify: got status 422/],
  ] as const)('says what %s answers with %i, and leaves nothing in the repository', async (path, status, message) => {
    failing(path, status)
    const attempt = upload()
    await expect(attempt).rejects.toThrow(InputError)
    await expect(attempt).rejects.toThrow(message)
    await expect(attempt).rejects.not.toThrow('secret')
    expect(hub.commits).toEqual([])
  })

  test('says that it does not know of a commit whose answer does not come, and does not ask for it twice', async () => {
    hub.fault = (request) => {
      if (request.url !== COMMIT_PATH) return false
      request.resume().on('end', () => request.socket.destroy())
      return true
    }
    await expect(upload()).rejects.toThrow(/no answer to the commit .*its outcome is unknown/)
    expect(hub.asked.filter((path) => path === COMMIT_PATH)).toHaveLength(1)
  })

  test('refuses answers that are none', async () => {
    const answers = (path: string, body: string) => {
      hub.fault = (request, response) => {
        if (request.url !== path) return false
        request.resume().on('end', () => response.writeHead(200).end(body))
        return true
      }
    }
    answers('/api/models/org/tiny/preupload/main', '<html>')
    await expect(upload()).rejects.toThrow(/expected an answer in JSON/)
    answers('/api/models/org/tiny/preupload/main', '{"files":[]}')
    await expect(upload()).rejects.toThrow(/README.md: got undefined, expected regular or lfs/)
    const ignored = Object.keys(contents).map((path) => ({ path, uploadMode: 'regular', shouldIgnore: true }))
    answers('/api/models/org/tiny/preupload/main', JSON.stringify({ files: ignored }))
    await expect(upload()).rejects.toThrow(/README.md: got a file that its .gitignore leaves out/)
    answers('/org/tiny.git/info/lfs/objects/batch', '{"objects":[]}')
    await expect(upload()).rejects.toThrow(/model.safetensors: got "nothing of it", expected a way to upload it/)
    answers(COMMIT_PATH, '{}')
    await expect(upload()).rejects.toThrow(/got undefined, expected the id of the commit/)
  })

  test.each([
    ['tiny', {}, /repository: got "tiny", expected the id of a repository of the hub, owner\/name/],
    ['org/../x', {}, /repository: got/],
    ['org/tiny', { 'a/../b': 'x' }, /path: got "a\/..\/b", expected a path within the repository/],
    ['org/tiny', { a: '/nowhere/at/all' }, /nowhere\/at\/all: got .*ENOENT.*, expected a file to upload/],
    ['org/tiny', {}, /files: got none/],
  ])('refuses %s with %j before it asks the hub', async (id, given, message) => {
    const attempt = uploadModel(id, given, { endpoint: hub.endpoint })
    await expect(attempt).rejects.toThrow(InputError)
    await expect(attempt).rejects.toThrow(message)
    expect(hub.asked).toEqual([])
  })

  test('wants a token in the environment', async () => {
    expect(checkUpload('org/tiny')).toBe('hf_secret')
    expect(() => checkUpload('org/tiny', '../x')).toThrow(/revision: got "..\/x", expected a branch, tag or commit/)
    vi.stubEnv('HF_TOKEN', '')
    await expect(upload()).rejects.toThrow(/HF_TOKEN: got nothing, expected a hub token with write access/)
    expect(hub.asked).toEqual([])
    vi.stubEnv('HF_TOKEN', 'hf_secret')
  })

  test('ends when it is told to', async () => {
    const control = new AbortController()
    hub.fault = (request) => {
      if (!request.url!.startsWith('/storage')) return false
      control.abort(new Error('enough'))
      return true
    }
    await expect(upload({ signal: control.signal })).rejects.toThrow('enough')
    expect(hub.commits).toEqual([])
  })
})

function sha(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
