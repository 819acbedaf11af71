/** Programs of pages: linked with what is built into dist/page, as a bundler does, and run where there is nothing of Node. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createContext, runInContext } from 'node:vm'
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

/** The exports of a linked program; with or without memory that threads share. */
export function pageOf(script: string, isIsolated: boolean): object {
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
  }
  const context = createContext({ ...globals, FinalizationRegistry })
  if (!isIsolated) runInContext('delete globalThis.SharedArrayBuffer', context)
  return runInContext(`${script}; program`, context) as object
}
