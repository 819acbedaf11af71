/** Asynchronous answers of objects. */

export function isPromise(answer: unknown): answer is PromiseLike<unknown> {
  return typeof (answer as PromiseLike<unknown> | null)?.then === 'function'
}

export class Promised {
  /** Settles when the answer has arrived or failed; never rejects. */
  readonly arrival: Promise<void>
  /** The result; undefined while it is pending. */
  outcome: { readonly answer: unknown } | { readonly fault: unknown } | undefined
  /** Stops waiting for it. */
  abandon: () => void = () => {}

  constructor(promise: PromiseLike<unknown>, timeoutSeconds: number) {
    this.arrival = new Promise((resolve) => {
      const settle = (outcome: NonNullable<Promised['outcome']>): void => {
        clearTimeout(timer)
        this.outcome ??= outcome
        resolve()
      }
      const late = new Error(`got no answer in ${timeoutSeconds} s`)
      const timer = setTimeout(() => settle({ fault: late }), 1000 * timeoutSeconds)
      this.abandon = () => settle({ fault: new Error('got no answer while its world was open') })
      promise.then(
        (answer) => settle({ answer }),
        (fault: unknown) => settle({ fault }),
      )
    })
  }
}
