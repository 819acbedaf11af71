/** A worker's whole life: it makes its part of the world from definitions, then runs the trainer's program, update by update. */
import { availableParallelism } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import type { AlgorithmDefinition } from '../algorithms/algorithm.ts'
import { Work } from '../clock.ts'
import type { CohortOptions } from '../cohort.ts'
import { revive } from '../definition.ts'
import type { EnvironmentDefinition } from '../environments/environment.ts'
import type { PolicyDefinition } from '../policies/policy.ts'
import { World } from '../world.ts'
import { Aborted, Barrier, failureOf, joinTeam, type WorkerOrder } from './team.ts'
import { Trainer } from './trainer.ts'

async function work(order: WorkerOrder): Promise<void> {
  joinTeam()
  const { memory, control, command, index, count, seed, kernels } = order
  const cohorts: CohortOptions[] = []
  for (const { environment, policy, ...rest } of order.cohorts) {
    cohorts.push({
      ...rest,
      environment: await revive<EnvironmentDefinition>('environment', environment),
      policy: await revive<PolicyDefinition>('policy', policy),
    })
  }
  const algorithms: Record<string, AlgorithmDefinition> = {}
  for (const [name, record] of Object.entries(order.algorithms)) {
    algorithms[name] = await revive<AlgorithmDefinition>('algorithm', record)
  }
  const world = new World({ cohorts, seed, kernels }, { memory, index })
  const trainer = new Trainer(world, algorithms, { threads: count })
  world.clock.trace = order.trace
  const barrier = new Barrier(control, count, availableParallelism())
  barrier.meetAsleep()
  for (;;) {
    barrier.meetAsleep() // The command for an update is there.
    for (const _ of trainer.program(command)) {
      barrier.meetAsleep()
      world.clock.mark(Work.waiting)
    }
  }
}

work(workerData as WorkerOrder).catch((error: unknown) => {
  if (!(error instanceof Aborted)) parentPort?.postMessage(failureOf(error))
})
