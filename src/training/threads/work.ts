/** What a worker does: it builds its part of a trainer from its order, then runs commands. */
import { numCores } from '../../base/threads/cores.ts'
import { textProgram } from '../text/learn/thread.ts'
import { lanesPart } from './lanes-thread.ts'
import { Aborted, joinTeam, type WorkerOrder } from './orders.ts'
import { Sharing } from './sharing.ts'
import { Barrier, failureOf, type WorkerFailure } from './team.ts'

/** Works until the team ends. `tell` sends the caller's thread why it fails. Nothing runs before `loaded` is there. */
export function work(order: WorkerOrder, tell: (failure: WorkerFailure) => void, loaded?: Promise<unknown>): void {
  doWork(order, loaded).catch((error: unknown) => {
    if (!(error instanceof Aborted)) tell(failureOf(error))
  })
}

async function doWork(order: WorkerOrder, loaded: Promise<unknown> | undefined): Promise<void> {
  joinTeam()
  await loaded
  const part = order.kind === 'lanes' ? await lanesPart(order) : textProgram(order)
  const { control, command, count } = order
  const barrier = new Barrier(control, count, numCores())
  barrier.meetAsleep()
  if (part instanceof Sharing) return part.serve()
  for (;;) {
    barrier.meetAsleep() // The command has been written.
    for (const _ of part(command)) barrier.meetAsleep()
  }
}
