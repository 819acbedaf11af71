/** Ends commands on signals, with exit code 128 plus the signal's number. */
import { mkdtempSync, rmSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'

const SIGNALS = ['SIGINT', 'SIGTERM'] as const

/** Calls `end` at the first end signal; a second ends the process. The returned function removes the handlers. */
export function onEndSignal(end: (signal: NodeJS.Signals) => void): () => void {
  let isTold = false
  const onSignal = (signal: NodeJS.Signals): void => {
    const code = 128 + constants.signals[signal]
    if (isTold) process.exit(code)
    isTold = true
    process.exitCode = code
    end(signal)
  }
  for (const signal of SIGNALS) process.on(signal, onSignal)
  return () => {
    for (const signal of SIGNALS) process.off(signal, onSignal)
  }
}

/** Settles when `stop`, which is called at the first end signal, has settled. */
export function stopped(stop: () => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const forget = onEndSignal(() => {
      stop().finally(forget).then(resolve, reject)
    })
  })
}

/** Gives `use` a new folder, which is removed when it has settled, and before an end signal ends the process. */
export async function inTemporaryFolder<T>(name: string, use: (folder: string) => Promise<T>): Promise<T> {
  let folder: string | undefined
  const remove = () => folder !== undefined && rmSync(folder, { recursive: true, force: true })
  // The handlers come first, and the folder is made at once: a signal between the two would leave it.
  const forget = onEndSignal(() => {
    remove()
    process.exit()
  })
  folder = mkdtempSync(join(tmpdir(), `colonnade-${name}-`))
  return use(folder).finally(() => {
    forget()
    remove()
  })
}
