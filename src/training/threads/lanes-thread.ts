/** A worker of a trainer of lanes: it helps with rollouts and minibatches, or collects rollouts ahead. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { revive } from '../../base/definition.ts'
import { numCores } from '../../base/threads/cores.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import { asEpisodes } from '../../world/cohort.ts'
import type { EpisodeCohortOptions } from '../../world/episodes/options.ts'
import type { SystemDefinition, SystemOrder } from '../../world/system.ts'
import { openWorld } from '../../world/world.ts'
import { reserveEpisodes } from '../loop/episodes.ts'
import type { LanesOrder, WorkerProgram } from './orders.ts'
import { Sharing } from './sharing.ts'
import { actorProgram } from './thread-crew.ts'

/** The worker's part, built from definitions, whose modules were already admitted in the caller's thread. */
export async function lanesPart(order: LanesOrder): Promise<Sharing | WorkerProgram> {
  const { memory, index, count, threads, actor, numBuffers, seed, kernels } = order
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
  const sharing = order.sharing === null ? undefined : new Sharing(order.sharing, index, count, numCores(), world.clock)
  const options = { profile: false, beats: order.beat, numBuffers, stallSeconds: 0, sharing }
  const bind = reserveEpisodes(world, algorithms, options)
  if (actor !== null) return actorProgram(world, asEpisodes('actor', world.cohort()), actor)
  bind()
  return sharing!
}

/** A system in this thread. One without a module runs in the caller's; here it only has columns. */
async function systemOf(order: SystemOrder): Promise<SystemDefinition> {
  return order.module === undefined ? order : revive<SystemDefinition>('system', order, 'caller')
}
