/** Programs of pages: linked with what is built into dist/page, as a bundler does, and run where there is nothing of Node. */
import { resolveObjectURL } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createContext, runInContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import { type OutputChunk, rolldown } from 'rolldown'

export const root = fileURLToPath(new URL('../..', import.meta.url))
export const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, { browser?: { default: string } }>
}

/** Links a program with what is built for pages. */
export async function link(program: string, format: 'esm' | 'iife'): Promise<OutputChunk[]> {
  const programs = {
    name: 'program',
    resolveId(id: string) {
      const page = exports[id.replace('colonnade', '.')]?.browser?.default
      return id === 'program' ? id : page === undefined ? null : join(root, page)
    },
    load: (id: string) => (id === 'program' ? program : null),
  }
  const bundle = await rolldown({ input: 'program', cwd: root, platform: 'browser', plugins: [programs] })
  const how = format === 'esm' ? { minify: true } : { name: 'program', codeSplitting: false }
  const { output } = await bundle.generate({ format, ...how })
  return output.filter((file) => file.type === 'chunk')
}

/** What comes before the program of a page's worker, in a thread that keeps nothing of Node. */
const BEFORE = `{
  const { parentPort } = require('node:worker_threads')
  globalThis.addEventListener = (event, listener) => parentPort.on(event, (data) => listener({ data }))
  globalThis.postMessage = (message) => parentPort.postMessage(message)
  Object.defineProperty(globalThis, 'navigator', { value: { hardwareConcurrency: 2 } })
  for (const name of ['process', 'Buffer', 'global', 'setImmediate', 'require', 'module']) globalThis[name] = undefined
}
`

/** A Web Worker of a blob, by a thread of Node. */
class PageWorker {
  static started = 0
  static ended = 0
  onmessage: ((event: { data: unknown }) => void) | null = null
  onerror: ((event: { error: unknown; message: string }) => void) | null = null
  readonly #thread: Promise<Worker>

  constructor(address: string) {
    PageWorker.started++
    this.#thread = resolveObjectURL(address)!
      .text()
      .then((program) => {
        const thread = new Worker(BEFORE + program, { eval: true })
        thread.on('message', (data) => this.onmessage?.({ data }))
        thread.on('error', (error) => this.onerror?.({ error, message: error.message }))
        return thread
      })
  }

  postMessage(message: unknown): void {
    void this.#thread.then((thread) => thread.postMessage(message))
  }

  terminate(): void {
    PageWorker.ended++
    void this.#thread.then((thread) => thread.terminate())
  }
}

/** How many workers pages have started and ended. */
export function countWorkers(): { readonly started: number; readonly ended: number } {
  const { started, ended } = PageWorker
  return { started, ended }
}

/** The exports of a linked program; with or without memory that threads share, and in a window, whose thread may not sleep. */
export function pageOf(script: string, isIsolated: boolean, isWindow = false): object {
  const globals = {
    performance,
    TextEncoder,
    TextDecoder,
    atob,
    btoa,
    Blob,
    Response,
    DecompressionStream,
    setTimeout,
    AbortController,
    AbortSignal,
    clearTimeout,
    setInterval,
    clearInterval,
    MessageChannel,
    URL,
    console,
    Worker: PageWorker,
    navigator: { hardwareConcurrency: 2 },
    crossOriginIsolated: isIsolated,
    isSecureContext: true,
  }
  const context = createContext({ ...globals, FinalizationRegistry })
  if (!isIsolated) runInContext('delete globalThis.SharedArrayBuffer', context)
  if (isWindow)
    runInContext("Atomics.wait = () => { throw new TypeError('Atomics.wait cannot be called here') }", context)
  return runInContext(`${script}; program`, context) as object
}
