/**
 * `npm run bench -- fleets`: what a fleet's store carries, by folder and by HTTP, beside what the disk and the loopback can; and how long
 * weights take to eight processes.
 *
 *     REPEATS=15 npm run bench -- fleets
 */
import { fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { reportRoom } from '../report.ts'
import type { Served } from './server.ts'
import { measureStores } from './store.ts'
import { measureWeights } from './weights.ts'

const REPEATS = Number(process.env.REPEATS ?? 5)
const KEY = 'a key of the bench, long enough'

const folder = mkdtempSync(join(tmpdir(), 'colonnade-fleets-'))
const server = fork(fileURLToPath(new URL('./server.js', import.meta.url)), [join(folder, 'served'), KEY])
try {
  const served = await new Promise<Served>((resolve, reject) => {
    server.once('message', (told) => resolve(told as Served))
    server.once('exit', (code) => reject(new Error(`the server ended with code ${code}`)))
  })
  const processor = async () => {
    const { user, system } = process.cpuUsage()
    const other = new Promise<number>((resolve) => server.once('message', (told) => resolve(told as number)))
    server.send('processor time')
    return (user + system) / 1000 + (await other)
  }
  const stores = await measureStores(folder, served, KEY, processor, REPEATS)
  reportRoom('fleets', [...stores, ...(await measureWeights(folder, served, KEY))])
} finally {
  server.disconnect()
  rmSync(folder, { recursive: true, force: true })
}
