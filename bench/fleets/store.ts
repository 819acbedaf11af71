/**
 * What a store takes beside its parts: a folder beside the same files without hashes, with fsync and rename, by the same language; HTTP
 * beside `node:http` that sends from memory and keeps nothing. The server has a process of its own.
 */
import { createHash, randomBytes } from 'node:crypto'
import { open, readFile, rename, rm } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { FolderStore } from '../../src/fleet/store/folder-store.ts'
import { HttpStore } from '../../src/fleet/store/http-store.ts'
import type { Store } from '../../src/fleet/store/store.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import type { Served } from './server.ts'

const MIB = 2 ** 20
/** MiB of a blob, and blobs of a run. */
const SIZES = [
  [1, 8],
  [10, 3],
  [100, 1],
] as const
const WANTED = { atLeast: 0.5 }
const NAMES = {
  plain: 'plain folder',
  hashed: 'plain folder with a SHA-256',
  folder: 'store by folder',
  bare: 'node:http, both sides',
  HTTP: 'store by HTTP, both sides',
} as const

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

async function writePlain(folder: string, name: string, bytes: Uint8Array): Promise<void> {
  const handle = await open(join(folder, `${name}.tmp`), 'w')
  await handle.write(bytes)
  await handle.sync()
  await handle.close()
  await rename(join(folder, `${name}.tmp`), join(folder, name))
}

/** Sends a body, or none to get one of so many bytes; the answer's bytes. */
function bareRequest(url: string, body: Uint8Array | null, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { method: body === null ? 'GET' : 'POST' }, (response) => {
      const got = Buffer.allocUnsafeSlow(bytes)
      let length = 0
      response.on('data', (chunk: Buffer) => {
        length += chunk.copy(got, length)
      })
      response.on('end', () => resolve(got.subarray(0, length)))
    })
    asked.on('error', reject)
    asked.end(body ?? undefined)
  })
}

/** `processor`: milliseconds of processor time of this process and the server so far. */
export async function measureStores(
  folder: string,
  served: Served,
  key: string,
  processor: () => Promise<number>,
  repeats: number,
): Promise<Figure[]> {
  const figures: Figure[] = []
  const stores: Record<'folder' | 'HTTP', Store> = {
    folder: new FolderStore(join(folder, 'own')),
    HTTP: new HttpStore(served.url, key),
  }
  for (const [mib, count] of SIZES) {
    const bytes = randomBytes(mib * MIB)
    let fresh = 0
    /** Seconds for bytes that no run has had before. */
    const timed = async (work: (i: number) => Promise<unknown>, isFresh = true) => {
      let seconds = 0
      for (let i = 0; i < count; i++) {
        if (isFresh) bytes.writeUInt32LE(++fresh)
        const start = performance.now()
        await work(i)
        seconds += (performance.now() - start) / 1000
      }
      return seconds
    }
    const hashes: Record<string, string[]> = { folder: [], HTTP: [] }
    const put = (name: 'folder' | 'HTTP') => () =>
      timed(async (i) => {
        hashes[name]![i] = await stores[name].put(bytes)
      })
    const get = (name: 'folder' | 'HTTP') => () => timed((i) => stores[name].get(hashes[name]![i]!), false)
    const up = {
      plain: () => timed((i) => writePlain(folder, `plain${i}`, bytes)),
      hashed: () =>
        timed(async (i) => {
          sha256(bytes)
          await writePlain(folder, `plain${i}`, bytes)
        }),
      folder: put('folder'),
      bare: () => timed(() => bareRequest(served.bare, bytes, 100)),
      HTTP: put('HTTP'),
    }
    const down = {
      plain: () => timed((i) => readFile(join(folder, `plain${i}`)), false),
      hashed: () => timed(async (i) => sha256(await readFile(join(folder, `plain${i}`))), false),
      folder: get('folder'),
      bare: () => timed(() => bareRequest(`${served.bare}/${bytes.length}`, null, bytes.length), false),
      HTTP: get('HTTP'),
    }
    for (const name of ['folder', 'HTTP'] as const) {
      await up[name]()
      const wrong = `blobs of ${mib} MiB by ${name} are not those that were put`
      check(bytes.equals(await stores[name].get(hashes[name]!.at(-1)!)), wrong)
      check(hashes[name]!.at(-1) === sha256(bytes), wrong)
    }
    for (const [way, runners] of Object.entries({ up, down })) {
      const worked = Object.fromEntries(Object.keys(runners).map((name) => [name, [] as number[]]))
      const counted = Object.entries(runners).map(([name, run]) => {
        const measured = async () => {
          const before = await processor()
          const taken = await run()
          worked[name]!.push(((await processor()) - before) / (mib * count))
          return taken
        }
        return [name, measured] as const
      })
      const seconds = await interleave(Object.fromEntries(counted) as typeof runners, { repeats })
      /** Without the run that warms up. */
      const work = (name: keyof typeof up) => worked[name]!.slice(1)
      const told = (name: keyof typeof up) => rates(mib * count, seconds[name])
      const of = `${mib} MiB ${way}`
      figures.push(
        figure(`${of}, plain folder`, 'MiB/s', told('plain')),
        {
          ...figure(`${of}, plain folder with a SHA-256 before or after`, 'MiB/s', told('hashed')),
          ratios: [ratio('plain folder', seconds.plain, seconds.hashed)],
        },
        {
          ...figure(`${of}, store by folder`, 'MiB/s', told('folder')),
          ratios: [
            ratio('plain folder', seconds.plain, seconds.folder, WANTED),
            ratio('plain folder with a SHA-256', seconds.hashed, seconds.folder),
          ],
        },
        figure(`${of}, node:http, from and to memory`, 'MiB/s', told('bare')),
        {
          ...figure(`${of}, store by HTTP`, 'MiB/s', told('HTTP')),
          ratios: [
            ratio('plain folder', seconds.plain, seconds.HTTP, WANTED),
            ratio('node:http', seconds.bare, seconds.HTTP),
          ],
        },
        ...(['plain', 'hashed', 'folder', 'bare', 'HTTP'] as const).map((name) => {
          return figure(`${of}, processor time, ${NAMES[name]}`, 'ms/MiB', work(name))
        }),
      )
    }
    await rm(join(folder, 'own'), { recursive: true })
    await rm(join(folder, 'served'), { recursive: true })
  }
  for (const store of Object.values(stores)) await store.close()
  return figures
}
