/** The body of `workers.ts` in a page, which has no threads that could stop endless work. */
import { InputError } from '../errors.ts'
import type * as node from './workers.ts'

export type { Outcome, Reply } from './workers.ts'

export class WorkerPool {
  readonly #entry: URL

  constructor(...[entry]: ConstructorParameters<typeof node.WorkerPool>) {
    this.#entry = entry
  }

  async run(): Promise<never> {
    throw new InputError(
      'reward',
      `a judge with a thread of its own (${this.#entry.pathname}) in a page`,
      'a reward without a thread',
    )
  }
}
