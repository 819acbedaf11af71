/** A promise that settles when there is something to poll, and can be asked whether it has. */
export class Arrival {
  isSettled = false
  readonly promise: Promise<void>
  #resolve = () => {}

  constructor() {
    this.promise = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  settle(): void {
    this.isSettled = true
    this.#resolve()
  }
}
