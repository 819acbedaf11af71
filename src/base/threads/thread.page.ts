/**
 * The body of `thread.ts` in a page: a Web Worker. What it runs is text in a module that a page loads for its first thread, so that every
 * bundler includes it.
 */
import type * as node from './thread.ts'

export type { Thread } from './thread.ts'

// @ts-expect-error: the build writes this module.
const program = (): Promise<{ readonly text: string }> => import('./worker-program.js')

let address: Promise<string> | undefined

async function load(): Promise<string> {
  try {
    const { text } = await program()
    return URL.createObjectURL(new Blob([text], { type: 'text/javascript' }))
  } catch (error) {
    address = undefined // The next thread tries again.
    throw error
  }
}

/** Why a browser starts no worker without saying so. */
const POLICY =
  "the browser did not start it: a Content-Security-Policy has to allow worker-src blob: and script-src 'wasm-unsafe-eval'"

export const startThread: typeof node.startThread = (_entry, data, name) => {
  const listeners = new Map<string, (told: unknown) => void>()
  let worker: Worker | undefined
  let isOver = false
  const fail = (error: unknown) => listeners.get('error')?.(error)
  address ??= load()
  const started = address.then((url) => {
    if (isOver) return
    worker = new Worker(url, { name })
    worker.onmessage = ({ data: told }) => listeners.get('message')?.(told)
    worker.onerror = ({ error, message }) => fail(error ?? new Error(message || POLICY))
    worker.postMessage(data)
  })
  started.catch(fail)
  const thread = {
    on(event: string, listener: (told: unknown) => void) {
      listeners.set(event, listener)
      return thread
    },
    postMessage: (message: unknown) => void started.then(() => worker?.postMessage(message)).catch(fail),
    ref() {},
    unref() {},
    async terminate() {
      isOver = true
      worker?.terminate()
      return 0
    },
  }
  return thread as unknown as node.Thread
}
