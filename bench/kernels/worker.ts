/** The second thread of a pair: spins while jobs come, sleeps between runs. */
import { parentPort, workerData } from 'node:worker_threads'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { Job, makeHalf, Told, workShare } from './pair.ts'

const { memory, build, rows, hidden, told } = workerData as {
  memory: WebAssembly.Memory
  build: KernelBuild
  rows: readonly number[]
  hidden: number
  told: Int32Array
}
const half = makeHalf(memory, build, rows, hidden)
parentPort!.postMessage('ready')

for (let done = 0; ; done++) {
  while (Atomics.load(told, Told.issued) === done) {
    if (Atomics.load(told, Told.awake) === 0) Atomics.wait(told, Told.awake, 0)
  }
  if (told[Told.job] === Job.end) break
  workShare(half, told[Told.job]!, told[Told.rows]!, 1)
  Atomics.store(told, Told.finished, done + 1)
}
