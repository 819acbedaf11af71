/** How commands end that a signal ends: as the shell expects it, with 128 and the signal's number as exit code. */
import { constants } from 'node:os'

const SIGNALS = ['SIGINT', 'SIGTERM'] as const

/**
 * Calls `end` at the first signal to end, after which the command has to come to its end by itself; a second signal ends the process at
 * once. What is returned takes no more notice of signals.
 */
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

/** Settles when `stop`, which is called at the first signal to end, has settled. */
export function stopped(stop: () => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const forget = onEndSignal(() => {
      stop().finally(forget).then(resolve, reject)
    })
  })
}
