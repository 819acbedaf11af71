/** The contract of stores, over every carrier. */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { FolderStore } from '../../src/fleet/store/folder-store.ts'
import { HttpStore, serveStore } from '../../src/fleet/store/http-store.ts'
import { openS3, parseS3 } from '../../src/fleet/store/s3-store.ts'
import type { OwnStore, Store } from '../../src/fleet/store/store.ts'
import { s3Places, storeCarriers } from '../support/fleet-carriers.ts'
import { temporaryFolder } from '../support/temporary.ts'

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

describe.each(storeCarriers)('a store by $name', ({ open }) => {
  let place: Awaited<ReturnType<typeof open>>
  let [one, other]: Store[] = []
  beforeAll(async () => {
    place = await open()
    one = await place.join()
    other = await place.join()
  })
  afterAll(async () => {
    await one!.close()
    await other!.close()
    await place.close()
  })

  test('gives every client the bytes that one has put, by their SHA-256', async () => {
    // The last is longer than two ranges of the client.
    for (const length of [0, 1, 1000, 2 ** 23, 2 ** 24 + 7]) {
      const bytes = randomBytes(length)
      const hash = await one!.put(bytes)
      expect(hash).toBe(sha256(bytes))
      expect(Buffer.compare(await other!.get(hash), bytes)).toBe(0)
      expect(await other!.put(bytes)).toBe(hash)
    }
  })

  test('gives ranges, cut at the end', async () => {
    const bytes = randomBytes(1000)
    const hash = await one!.put(bytes)
    for (const [from, to] of [
      [0, 1000],
      [0, 1],
      [10, 10],
      [990, 2000],
      [1000, 1001],
      [5000, 6000],
    ] as const) {
      expect(Buffer.compare(await other!.get(hash, { from, to }), bytes.subarray(from, to)), `${from} ${to}`).toBe(0)
    }
    await expect(other!.get(hash, { from: 2, to: 1 })).rejects.toThrow('range: got 2 to 1, expected')
  })

  test('refuses what is missing, and what is no hash', async () => {
    const none = sha256(Buffer.from('nobody has put this'))
    await expect(one!.get(none)).rejects.toMatchObject({ isMissing: true })
    await expect(one!.get(none, { from: 0, to: 9 })).rejects.toMatchObject({ isMissing: true })
    await expect(one!.get('../etc/passwd')).rejects.toThrow('blob: got "../etc/passwd", expected 64 hexadecimal digits')
  })

  test('takes the same blob from many at once', async () => {
    const bytes = randomBytes(100_000)
    const hashes = await Promise.all(Array.from({ length: 8 }, (_, i) => (i % 2 === 0 ? one! : other!).put(bytes)))
    expect(new Set(hashes)).toEqual(new Set([sha256(bytes)]))
    expect(Buffer.compare(await other!.get(hashes[0]!), bytes)).toBe(0)
  })
})

test.runIf(storeCarriers.some(({ name }) => name === 'S3'))(
  'S3 lists more blobs than one page has, removes them, and refuses other buckets',
  async () => {
    const place = await storeCarriers.find(({ name }) => name === 'S3')!.open()
    const store = (await place.join()) as OwnStore
    const hashes: string[] = []
    for (let i = 0; i < 1001; i++) hashes.push(await store.put(Buffer.from(`${i}`)))
    expect(await store.list()).toEqual(hashes.toSorted())
    for (const hash of hashes.slice(3)) await store.drop(hash)
    await store.drop(hashes[3]!)
    expect(await store.list()).toEqual(hashes.slice(0, 3).toSorted())
    const secret = process.env.AWS_SECRET_ACCESS_KEY!
    await expect(openS3('s3://another/run', s3Places)).rejects.toThrow(
      /^store: got s3:\/\/another, which cannot be listed: NoSuchBucket: .*, expected a bucket that these credentials may list$/,
    )
    process.env.AWS_SECRET_ACCESS_KEY = 'another secret'
    const refused = await openS3('s3://bucket/run', s3Places).catch((error: Error) => error.message)
    expect(refused).toContain('SignatureDoesNotMatch')
    expect(refused).not.toContain('another secret')
    process.env.AWS_SECRET_ACCESS_KEY = secret
    await store.close()
    await place.close()
  },
)

test('A server of S3 that ignores ranges is refused', async () => {
  const folder = await temporaryFolder()
  const own = join(folder, 'node_modules/@aws-sdk/client-s3')
  await mkdir(own, { recursive: true })
  await writeFile(join(folder, 'package.json'), '{}')
  await writeFile(
    join(own, 'package.json'),
    '{ "name": "@aws-sdk/client-s3", "exports": "./client.mjs", "type": "module" }',
  )
  // Of a range from byte 2 on, it sends all bytes; of others, as many as were asked for.
  await writeFile(
    join(own, 'client.mjs'),
    `const bytes = Buffer.from('0123456789')
    const answer = (httpStatusCode, sent) => ({ $metadata: { httpStatusCode }, Body: { transformToByteArray: async () => sent } })
    export class GetObjectCommand { constructor({ Range }) { this.from = Number(/^bytes=(\\d+)-/.exec(Range)[1]) } }
    export class ListObjectsV2Command {}
    export class S3Client {
      async send({ from }) { return from === 2 ? answer(200, bytes) : from === undefined ? {} : answer(206, bytes.subarray(from)) }
      destroy() {}
    }`,
  )
  const store = await openS3('s3://bucket/run', [join(folder, 'package.json')])
  const hash = sha256(Buffer.from('0123456789'))
  expect(Buffer.from(await store.get(hash)).toString()).toBe('0123456789')
  await expect(store.get(hash, { from: 2, to: 100 })).rejects.toThrow(
    'store: got status 200 for a range of a blob, expected 206: a server with ranges',
  )
  await store.close()
})

test('An address of S3 has a bucket and a prefix, and no credentials', () => {
  expect(parseS3('s3://bucket')).toEqual({ bucket: 'bucket', prefix: '' })
  expect(parseS3('s3://a.bucket/some/runs/')).toEqual({ bucket: 'a.bucket', prefix: 'some/runs/' })
  expect(() => parseS3('s3://key:secret@bucket/x')).toThrow('store: got "s3://…@bucket/x", expected a bucket and a')
  expect(() => parseS3('s3://bucket/a//b')).toThrow('store: got "s3://bucket/a//b"')
})

describe('A folder', () => {
  test('lists and removes blobs, notices damaged ones, and keeps no abandoned files', async () => {
    const folder = await temporaryFolder()
    const store = new FolderStore(folder)
    const hashes = [await store.put(Buffer.from('a')), await store.put(Buffer.from('b'))]
    expect(await store.list()).toEqual(hashes.toSorted())
    await store.drop(hashes[0]!)
    await store.drop(hashes[0]!)
    expect(await store.list()).toEqual([hashes[1]])
    for (const name of ['abandoned', 'new']) await writeFile(join(folder, `${name}.tmp`), '')
    await utimes(join(folder, 'abandoned.tmp'), 0, 0)
    expect(await store.list()).toEqual([hashes[1]])
    expect((await readdir(folder)).filter((name) => name.endsWith('.tmp'))).toEqual(['new.tmp'])
    const part = join(folder, hashes[1]!.slice(0, 2))
    await writeFile(join(part, hashes[1]!), 'c')
    await expect(store.get(hashes[1]!)).rejects.toMatchObject({ isMissing: false })
    expect(await readdir(part)).toEqual([hashes[1]])
  })
})

describe('HTTP', () => {
  test('a client that ends soon gives up at the next failure', async () => {
    const key = 'a key of more than sixteen letters'
    const listening = { host: '127.0.0.1', port: 0 }
    const served = await serveStore(new FolderStore('/nowhere'), { key, listening })
    await served.close()
    const store = new HttpStore(served.url, key)
    const refused = expect(store.get('0'.repeat(64))).rejects.toThrow(/ECONNREFUSED|fetch failed|refused/)
    store.leave()
    await refused
  })

  test('a client whose connection breaks continues where it was, and one that breaks off leaves no file', async () => {
    const folder = await temporaryFolder()
    const key = 'a key of more than sixteen letters'
    const served = await serveStore(new FolderStore(folder), { key, listening: { host: '127.0.0.1', port: 0 } })
    const port = Number(new URL(served.url).port)
    /** A way to the server that is cut after so many bytes of an answer, or of a request. */
    let [answered, asked] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
    const heads: string[] = []
    const way = createServer((client) => {
      const server = connect(port, '127.0.0.1')
      const cut = () => {
        client.destroy()
        server.destroy()
      }
      for (const socket of [client, server]) socket.on('error', cut).on('close', cut)
      client.on('data', (chunk) => {
        asked -= chunk.length
        heads.push(/^range: .*/im.exec(chunk.toString('latin1'))?.[0] ?? '')
        if (asked > 0) server.write(chunk)
        else cut()
      })
      server.on('data', (chunk) => {
        answered -= chunk.length
        if (answered > 0) client.write(chunk)
        else cut()
      })
    })
    await new Promise<void>((resolve) => way.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(way.address() as AddressInfo).port}`
    const [direct, cut] = [new HttpStore(served.url, key), new HttpStore(url, key, 1)]
    const bytes = randomBytes(2 ** 21 + 5)
    const hash = await direct.put(bytes)
    for (const [from, to] of [[0, Number.POSITIVE_INFINITY] as const, [7, 2 ** 21] as const]) {
      const range = Number.isFinite(to) ? { from, to } : undefined
      heads.length = 0
      answered = 2 ** 20
      const getting = cut.get(hash, range)
      await expect.poll(() => answered).toBeLessThanOrEqual(0)
      answered = Number.POSITIVE_INFINITY
      expect(Buffer.compare(await getting, bytes.subarray(from, to))).toBe(0)
      const [, last] = heads.map((head) => Number(/bytes=(\d+)-/.exec(head)?.[1]))
      expect(last).toBeGreaterThan(2 ** 19)
    }

    const names = async () => (await readdir(folder, { recursive: true })).filter((name) => name.length > 2)
    const before = await names()
    asked = 2 ** 20
    await expect(new HttpStore(url, key, 0).put(randomBytes(2 ** 21))).rejects.toThrow()
    await expect.poll(names).toEqual(before)
    for (const store of [direct, cut]) await store.close()
    way.close()
    served.closeConnections()
    await served.close()
  })

  test('a client that disconnects leaves no upload and no download waiting', async () => {
    const store = new FolderStore(await temporaryFolder())
    const key = 'a key of more than sixteen letters'
    const ended: string[] = []
    const served = await serveStore(
      {
        sizeOf: (hash) => store.sizeOf(hash),
        async putPieces(pieces) {
          served.closeConnections()
          await sleep(50) // The connection is closed before the first piece is requested.
          return store.putPieces(pieces).finally(() => ended.push('upload'))
        },
        async *pieces(hash, range) {
          try {
            for await (const piece of store.pieces(hash, range)) {
              served.closeConnections() // The response is not closed yet when the piece is written.
              yield piece
            }
          } finally {
            ended.push('download')
          }
        },
      },
      { key, listening: { host: '127.0.0.1', port: 0 } },
    )
    const client = new HttpStore(served.url, key, 0)
    const hash = await store.put(randomBytes(2 ** 21))
    await expect(client.put(randomBytes(2 ** 21))).rejects.toThrow()
    await expect.poll(() => ended, { timeout: 10_000 }).toEqual(['upload'])
    await expect(client.get(hash)).rejects.toThrow()
    await expect.poll(() => ended, { timeout: 10_000 }).toEqual(['upload', 'download'])
    await client.close()
    await served.close()
  })

  test('a blob that one request has no time for is read by several; a server that sends nothing is not asked again', async () => {
    const store = new FolderStore(await temporaryFolder())
    const key = 'a key of more than sixteen letters'
    let release = () => {}
    const stalled = new Promise<void>((resolve) => {
      release = resolve
    })
    let [requests, sent] = [0, 1]
    const served = await serveStore(
      {
        sizeOf: (hash) => store.sizeOf(hash),
        putPieces: (pieces) => store.putPieces(pieces),
        async *pieces(hash, range) {
          requests++
          let i = 0
          for await (const piece of store.pieces(hash, range)) {
            if (i++ === sent) await stalled
            yield piece
          }
        },
      },
      { key, listening: { host: '127.0.0.1', port: 0 } },
    )
    const bytes = randomBytes(2 ** 20)
    const hash = await store.put(bytes)
    const client = new HttpStore(served.url, key, 5, 2)
    expect(Buffer.compare(await client.get(hash), bytes)).toBe(0)
    expect(requests).toBe(2)
    sent = 0
    await expect(client.get(hash)).rejects.toThrow('timeout')
    expect(requests).toBe(3)
    release()
    await client.close()
    served.closeConnections()
    await served.close()
  })

  test('refuses at once a server that ignores ranges, or tells no length', async () => {
    const bytes = randomBytes(1000)
    const heads: (string | undefined)[] = []
    let [breaks, told] = [false, true]
    const server = createHttpServer((request, response) => {
      heads.push(request.headers.range)
      if (told) response.writeHead(200, { 'content-length': bytes.length })
      if (breaks) response.write(bytes.subarray(0, 400), () => response.destroy())
      else {
        response.write(bytes)
        response.end()
      }
      breaks = false
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const store = new HttpStore(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, 'any key')
    const hash = sha256(bytes)
    expect(Buffer.compare(await store.get(hash), bytes)).toBe(0)
    await expect(store.get(hash, { from: 0, to: 10 })).rejects.toThrow(`blobs/${hash}: status 200, expected 206`)
    breaks = true
    await expect(store.get(hash)).rejects.toThrow('status 200, expected 206')
    told = false
    await expect(store.get(hash)).rejects.toThrow(`content-length 0, expected 1 to ${2 ** 30}`)
    expect(heads).toEqual([undefined, 'bytes=0-9', undefined, 'bytes=400-', undefined])
    await store.close()
    server.close()
    server.closeAllConnections()
  })

  test('serves only whoever has the key, and no error repeats it', async () => {
    const folder = await temporaryFolder()
    const key = 'a key of more than sixteen letters'
    const served = await serveStore(new FolderStore(folder), { key, listening: { host: '127.0.0.1', port: 0 } })
    const right = new HttpStore(served.url, key, 0)
    const hash = await right.put(Buffer.from('a'))
    const wrong = new HttpStore(served.url, 'another key of sixteen letters', 0)
    await expect(wrong.put(Buffer.from('b'))).rejects.toThrow('status 401')
    await expect(wrong.get(hash)).rejects.toThrow('status 401')
    await served.close()
    served.closeConnections()
    await expect(right.get(hash)).rejects.toThrow(/^((?!key of more).)*$/s)
  })
})
