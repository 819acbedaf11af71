/** A worker's side of a `WorkerPool`: signals that it is ready, then answers one task after another. */
import { parentPort } from 'node:worker_threads'
import type { Reply } from './workers.ts'

/** Answers every message with the result of `work`; an exception becomes the error of that task. */
export function serve<T>(work: (task: T) => Reply | Promise<Reply>): void {
  parentPort!.on('message', async (task: T) => {
    let reply: Reply
    try {
      reply = await work(task)
    } catch (error) {
      reply = { error: error instanceof Error ? error.message : String(error) }
    }
    const moved = 'answer' in reply ? (reply.moved ?? []) : []
    parentPort!.postMessage(reply, moved)
  })
  parentPort!.postMessage({ answer: null } satisfies Reply)
}
