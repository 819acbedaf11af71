/** A worker of a trainer of lanes: its share of a rollout's lanes, of each minibatch's slots, or both. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { Work } from '../../base/clock.ts'
import { revive } from '../../base/definition.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import { asEpisodes } from '../../world/cohort.ts'
import type { EpisodeCohortOptions } from '../../world/episodes/options.ts'
import type { SystemDefinition, SystemOrder } from '../../world/system.ts'
import { openWorld } from '../../world/world.ts'
import { reserveEpisodes } from '../loop/episodes.ts'
import type { LanesOrder, WorkerProgram } from './team.ts'
import { actorProgram } from './thread-crew.ts'

/** The worker's program, built from definitions, whose modules were already admitted in the caller's thread. */
export async function lanesProgram(order: LanesOrder): Promise<WorkerProgram> {
  const { memory, index, threads, actor, numBuffers, seed, kernels } = order
  const cohorts: EpisodeCohortOptions[] = []
  for (const { environment, policy, systems, ...rest } of order.cohorts) {
    cohorts.push({
      ...rest,
      systems: await Promise.all(systems.map(systemOf)),
      environment: await revive<EnvironmentDefinition>('environment', environment, 'caller'),
      policy: typeof policy === 'string' ? policy : await revive<PolicyDefinition>('policy', policy, 'caller'),
    })
  }
  const algorithms: Record<string, AlgorithmDefinition> = {}
  for (const [name, record] of Object.entries(order.algorithms)) {
    algorithms[name] = await revive<AlgorithmDefinition>('algorithm', record, 'caller')
  }
  const world = await openWorld({ cohorts, seed, kernels }, { memory, index })
  world.split(threads.count, threads.actors)
  world.clock.trace = order.trace
  world.clock.beat = order.beat
  const bind = reserveEpisodes(world, algorithms, { profile: false, beats: order.beat, numBuffers, stallSeconds: 0 })
  if (actor !== null) return actorProgram(world, asEpisodes('actor', world.cohort()), actor)
  const training = bind()
  return function* (command) {
    for (const _ of training.program(command)) {
      world.clock.rest()
      yield
      world.clock.mark(Work.waiting)
    }
    world.clock.rest()
  }
}

/** A system in this thread. One without a module runs in the caller's; here it only has columns. */
async function systemOf(order: SystemOrder): Promise<SystemDefinition> {
  return order.module === undefined ? order : revive<SystemDefinition>('system', order, 'caller')
}
