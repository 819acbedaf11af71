/** Survives closed pipes, closed terminals and full disks; the exit code is not 0 if a command's result was lost. */
import type { WriteStream } from 'node:tty'

type StreamName = 'standard output' | 'standard error'

const lost = new Map<StreamName, string>()
const listeners = new Set<(line: string) => void>()

/** Keeps the process alive when its output's reader is gone. Call it once. */
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
    const line = `${name} cannot be written (${code ?? message}): its output is lost`
    lost.set(name, line)
    for (const listener of listeners) listener(line)
    if (name === 'standard output') process.stderr.write(`colonnade: ${line}\n`)
  })
}

/** Reports each lost stream once, until the process ends. */
export function onLostStream(listener: (line: string) => void): void {
  for (const line of lost.values()) listener(line)
  listeners.add(listener)
}
