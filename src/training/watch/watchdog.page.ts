/** The body of `watchdog.ts` in a page. It watches nothing: a page ends a worker that does not answer (`worker.terminate()`). */
import type * as node from './watchdog.ts'

export type { Watched } from './watchdog.ts'

export class Watchdog {
  static async start(..._: Parameters<typeof node.Watchdog.start>): Promise<Watchdog> {
    return new Watchdog()
  }

  hurry(): void {}

  close(): void {}
}
