/** Starts threads that share memory. A page has another body (`thread.page.ts`). */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'

/** Another thread, with the methods that a team uses. */
export type Thread = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate' | 'performance'>

/** How many threads can run at once. */
export function numCores(): number {
  return availableParallelism()
}

/** Starts a thread that runs this module and reads `data` as its `workerData`. */
export function startThread(entry: URL, data: object, name: string): Thread {
  // Workers inherit the caller's flags, except the flag that reads the program from standard input.
  const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
  return new Worker(entry, { workerData: data, name, ...(isInline && { execArgv: [] }) })
}
