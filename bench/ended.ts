import type { SpawnSyncReturns } from 'node:child_process'

/** Why a program could not start, or how it ended, with the last line of what it said. */
export function whyEnded({ error, status, signal, stderr }: SpawnSyncReturns<string>): string {
  if (error !== undefined) return error.message
  const last = stderr.trim().split('\n').at(-1)
  return `its process ended with ${signal ?? `code ${status}`}${last ? `, saying: ${last}` : ''}`
}
