/** Starts threads that share memory. A page has another body (`thread.page.ts`). */
import { Worker } from 'node:worker_threads'
import { ownFile } from '../files/own-files.ts'

/** Another thread, with the methods that a team uses. */
export type Thread = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate' | 'performance'>

/** Starts a thread that runs this module and reads `data` as its `workerData`. */
export function startThread(entry: URL, data: object, name: string): Thread {
  // Workers inherit the caller's flags, except the flag that reads the program from standard input.
  const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
  return new Worker(ownFile(entry), { workerData: data, name, ...(isInline && { execArgv: [] }) })
}
