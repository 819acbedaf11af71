/** The contract of what an actor does for a run: episodes (`episode-work.ts`) or conversations (`group-work.ts`). */
import type { Message } from '../../fleet/bus/bus.ts'
import type { Store } from '../../fleet/store/store.ts'
import { nextTurn } from '../loop/training.ts'

/** One collected part. */
export interface Collected {
  /** Environment steps, or tokens that a language model chose. */
  readonly steps: number
  readonly seconds: number
  readonly lanes: number
  readonly version: number
}

/** The inputs of its work from an actor. */
export interface WorkTools {
  readonly actor: string
  readonly store: Store
  /** Seconds of waiting for the task. */
  readonly waited: number
  /** Sends a result, which replaces none of the same id. */
  put(id: string, result: Message, collected: Collected): Promise<void>
  /** Runs code of the environment or the policy, whose errors belong to the run. */
  during<T>(work: () => Promise<T>): Promise<T>
}

export interface ActorWork {
  /** In words for the user. */
  readonly description: string
  collect(task: Message, tools: WorkTools): Promise<void>
  /** After a failure, in the middle of a task. */
  forget(task: Message): void
  /** The result that reports an error. */
  failed(task: Message, error: string, tools: Pick<WorkTools, 'actor' | 'waited'>): Message
  close(): void
}

/** Milliseconds of collecting after which other work of the process has a turn. */
const TURN_MS = 200

/** Lets timers and messages of the process have a turn from time to time. */
export function turns(): () => Promise<void> | undefined {
  let last = performance.now()
  return () => {
    if (performance.now() - last < TURN_MS) return undefined
    return nextTurn().then(() => {
      last = performance.now()
    })
  }
}
