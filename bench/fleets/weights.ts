/** How long weights take to eight processes, from the request of the first to the answer of the last. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { StoreAddress } from '../../src/fleet/address.ts'
import { FolderStore } from '../../src/fleet/store/folder-store.ts'
import { check, type Figure, figure, interleave } from '../measure.ts'
import type { Asked } from './reader.ts'
import type { Served } from './server.ts'

const READERS = 8
/** Millions of parameters, and runs. */
const SIZES = [
  [1, 5],
  [10, 3],
  [100, 3],
] as const

/** What a reader says next, or that it has ended. */
const next = (child: ChildProcess) =>
  new Promise<unknown>((resolve, reject) => {
    const end = (code: number | null) => reject(new Error(`a reader ended with code ${code}`))
    child.once('exit', end)
    child.once('message', (told) => {
      child.off('exit', end)
      resolve(told)
    })
  })

export async function measureWeights(folder: string, served: Served, key: string): Promise<Figure[]> {
  const figures: Figure[] = []
  const path = join(folder, 'served')
  const own = new FolderStore(path)
  const addresses = {
    folder: { kind: 'folder', path },
    HTTP: { kind: 'http', url: served.url, key },
  } satisfies Record<string, StoreAddress>
  const readers = Array.from({ length: READERS }, () => fork(fileURLToPath(new URL('./reader.js', import.meta.url))))
  await Promise.all(readers.map(next))
  for (const [millions, repeats] of SIZES) {
    const weights = new Float32Array(millions * 1e6).fill(1 / millions)
    const hash = await own.put(new Uint8Array(weights.buffer))
    const read = (store: StoreAddress) => async () => {
      const start = performance.now()
      const lengths = readers.map((reader) => {
        reader.send({ store, hash } satisfies Asked)
        return next(reader)
      })
      for (const length of await Promise.all(lengths))
        check(length === weights.byteLength, `weights have ${length} bytes`)
      return (performance.now() - start) / 1000
    }
    const seconds = await interleave({ folder: read(addresses.folder), HTTP: read(addresses.HTTP) }, { repeats })
    for (const [name, each] of Object.entries(seconds)) {
      figures.push(figure(`${millions}M weights to ${READERS} processes, by ${name}`, 's', each))
    }
    await own.drop(hash)
  }
  for (const reader of readers) reader.disconnect()
  return figures
}
