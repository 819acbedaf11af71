/** How many threads this machine runs. A page has another body (`cores.page.ts`). */
import { availableParallelism } from 'node:os'

/** How many threads can run at once. */
export function numCores(): number {
  return availableParallelism()
}

/** Whether a thread can read a message in the middle of its work. */
export const readsMessages: boolean = true
