/** Starts threads of the same memory. A page has another body (`thread.page.ts`). */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'

/** Another thread, as far as a team uses it. */
export type Thread = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate'>

/** How many threads can run at once. */
export function numCores(): number {
  return availableParallelism()
}

/** Starts a thread with this module as its program, which reads `data` as its `workerData`. */
export function startThread(entry: URL, data: object, name: string): Thread {
  // Workers inherit the caller's flags, except that of input from standard input.
  const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
  return new Worker(entry, { workerData: data, name, ...(isInline && { execArgv: [] }) })
}
