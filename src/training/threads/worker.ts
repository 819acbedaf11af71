/** A worker's main program in Node. A page has another body (`worker.page.ts`). */
import { parentPort, workerData } from 'node:worker_threads'
import type { WorkerOrder } from './orders.ts'
import { work } from './work.ts'

work(workerData as WorkerOrder, (failure) => parentPort?.postMessage(failure))
