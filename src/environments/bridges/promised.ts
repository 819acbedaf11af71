/** Answers of objects that come later. */

/** Whether an object answers later. */
export function isPromise(answer: unknown): answer is PromiseLike<unknown> {
  return typeof (answer as PromiseLike<unknown> | null)?.then === 'function'
}

/** An answer that an object has promised. */
export class Promised {
  /** Settles when it is there, or will not come; never fails. */
  readonly arrival: Promise<void>
  /** What came: undefined while nothing has. */
  outcome: { readonly answer: unknown } | { readonly fault: unknown } | undefined
  /** Nobody waits for it any more. */
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
