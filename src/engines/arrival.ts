/** A promise that settles when there is something to poll, with a flag that says whether it has settled. */
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
