/** How commands end that run until they are told to. */

/** Settles when `stop`, which is called at each signal to end, has settled once. */
export function stopped(stop: (count: number) => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    let count = 0
    const onSignal = () => {
      stop(++count).then(() => {
        for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, onSignal)
        resolve()
      }, reject)
    }
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal)
  })
}
