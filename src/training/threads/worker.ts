/** A worker's main program: it builds its part of a trainer from its order, then runs commands. */
import { availableParallelism } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { textProgram } from '../text/learn/thread.ts'
import { lanesProgram } from './lanes-thread.ts'
import { Aborted, Barrier, failureOf, joinTeam, type WorkerOrder } from './team.ts'

async function work(order: WorkerOrder): Promise<void> {
  joinTeam()
  const program = order.kind === 'lanes' ? await lanesProgram(order) : textProgram(order)
  const { control, command, count } = order
  const barrier = new Barrier(control, count, availableParallelism())
  barrier.meetAsleep()
  for (;;) {
    barrier.meetAsleep() // The command has been written.
    for (const _ of program(command)) barrier.meetAsleep()
  }
}

work(workerData as WorkerOrder).catch((error: unknown) => {
  if (!(error instanceof Aborted)) parentPort?.postMessage(failureOf(error))
})
