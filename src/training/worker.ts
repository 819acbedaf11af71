/** A worker's whole life: it makes its part of a trainer from what it is told, then runs its program, command by command. */
import { availableParallelism } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import type { AlgorithmDefinition } from '../algorithms/algorithm.ts'
import { Work } from '../clock.ts'
import type { EpisodeCohortOptions } from '../cohorts/episodes.ts'
import { revive } from '../definition.ts'
import type { EnvironmentDefinition } from '../environments/environment.ts'
import type { PolicyDefinition } from '../policies/policy.ts'
import { openWorld } from '../world.ts'
import { reserveEpisodes } from './episodes.ts'
import { Aborted, Barrier, failureOf, joinTeam, type LanesOrder, type WorkerOrder, type WorkerProgram } from './team.ts'
import { textProgram } from './text/thread.ts'

async function work(order: WorkerOrder): Promise<void> {
  joinTeam()
  const program = order.kind === 'lanes' ? await lanesProgram(order) : textProgram(order)
  const { control, command, count } = order
  const barrier = new Barrier(control, count, availableParallelism())
  barrier.meetAsleep()
  for (;;) {
    barrier.meetAsleep() // The command is there.
    for (const _ of program(command)) barrier.meetAsleep()
  }
}

/**
 * The updates of a trainer of lanes, which this thread makes its part of from definitions. The caller's thread has them
 * already: what a folder named was admitted there.
 */
async function lanesProgram(order: LanesOrder): Promise<WorkerProgram> {
  const { memory, index, count, seed, kernels } = order
  const cohorts: EpisodeCohortOptions[] = []
  for (const { environment, policy, ...rest } of order.cohorts) {
    cohorts.push({
      ...rest,
      environment: await revive<EnvironmentDefinition>('environment', environment, 'caller'),
      policy: typeof policy === 'string' ? policy : await revive<PolicyDefinition>('policy', policy, 'caller'),
    })
  }
  const algorithms: Record<string, AlgorithmDefinition> = {}
  for (const [name, record] of Object.entries(order.algorithms)) {
    algorithms[name] = await revive<AlgorithmDefinition>('algorithm', record, 'caller')
  }
  const world = await openWorld({ cohorts, seed, kernels }, { memory, index })
  world.split(count)
  const training = reserveEpisodes(world, algorithms, { profile: false, beats: order.beat })()
  world.clock.trace = order.trace
  world.clock.beat = order.beat
  return function* (command) {
    for (const _ of training.program(command)) {
      world.clock.rest()
      yield
      world.clock.mark(Work.waiting)
    }
    world.clock.rest()
  }
}

work(workerData as WorkerOrder).catch((error: unknown) => {
  if (!(error instanceof Aborted)) parentPort?.postMessage(failureOf(error))
})
