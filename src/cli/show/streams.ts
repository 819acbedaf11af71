/**
 * What cannot be said: a pipe whose reader has gone, a terminal that was closed, a full disk. A command goes on without it, but
 * does not end with exit code 0 where its result was lost.
 */
import type { WriteStream } from 'node:tty'

type StreamName = 'standard output' | 'standard error'

const lost = new Map<StreamName, string>()
const listeners = new Set<(line: string) => void>()

/** Keeps the process alive where nobody reads what it says. Call it once. */
export function outliveReaders(): void {
  watch('standard output', process.stdout)
  watch('standard error', process.stderr)
  process.on('exit', () => {
    if (lost.has('standard output') && !process.exitCode) process.exitCode = 1
  })
}

function watch(name: StreamName, stream: WriteStream): void {
  stream.on('error', ({ code, message }: NodeJS.ErrnoException) => {
    if (lost.has(name)) return
    const line = `${name} cannot be written (${code ?? message}): what is said there is lost`
    lost.set(name, line)
    for (const listener of listeners) listener(line)
    if (name === 'standard output') process.stderr.write(`colonnade: ${line}\n`)
  })
}

/** Tells of each stream that is lost, once, to the end of the process. */
export function onLostStream(listener: (line: string) => void): void {
  for (const line of lost.values()) listener(line)
  listeners.add(listener)
}
