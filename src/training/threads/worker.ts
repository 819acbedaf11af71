/** A worker's main program: it builds its part of a trainer from its order, then runs commands. */
import { availableParallelism } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { textProgram } from '../text/learn/thread.ts'
import { lanesPart } from './lanes-thread.ts'
import { Sharing } from './sharing.ts'
import { Aborted, Barrier, failureOf, joinTeam, type WorkerOrder } from './team.ts'

async function work(order: WorkerOrder): Promise<void> {
  joinTeam()
  const part = order.kind === 'lanes' ? await lanesPart(order) : textProgram(order)
  const { control, command, count } = order
  const barrier = new Barrier(control, count, availableParallelism())
  barrier.meetAsleep()
  if (part instanceof Sharing) return part.serve()
  for (;;) {
    barrier.meetAsleep() // The command has been written.
    for (const _ of part(command)) barrier.meetAsleep()
  }
}

work(workerData as WorkerOrder).catch((error: unknown) => {
  if (!(error instanceof Aborted)) parentPort?.postMessage(failureOf(error))
})
