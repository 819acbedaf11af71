/** The agents of a run: programs that ask its model through a gateway, in place of its lanes. */
import { resolve } from 'node:path'
import { InputError } from '../../../base/errors.ts'
import { isThere } from '../../../base/files/files.ts'
import type { World } from '../../../world/world.ts'
import type { CollectorDefinition } from '../../loop/collector.ts'
import type { ConversationRunDefinition } from '../../run/definition.ts'

/** The collector of a run's agents, and what ends the gateway that they ask. */
export interface OpenAgents {
  readonly collector: CollectorDefinition
  close(): Promise<void>
}

/** Opens a gateway to the world's engine on this machine, and runs the agents. @throws InputError for a missing module. */
export async function openAgents(
  world: World,
  {
    agent,
    agentSeconds,
    maxAgents,
  }: Pick<ConversationRunDefinition['settings'], 'agent' | 'agentSeconds' | 'maxAgents'>,
): Promise<OpenAgents> {
  const command = await commandOf(agent)
  const { openGateway } = await import('../../../agents/gateway/gateway.ts')
  const { runAgents } = await import('./run-agents.ts')
  const gateway = await openGateway({ world })
  return {
    collector(world, cohort, rl) {
      const { environment } = cohort // Its examples are those of the training only.
      return runAgents({ gateway, environment, command, maxAgents, deadline: agentSeconds }).collector(
        world,
        cohort,
        rl,
      )
    },
    close: () => gateway.close({ now: true }),
  }
}

/** A command for a shell, or a module of JavaScript for this Node. */
async function commandOf(agent: string): Promise<readonly string[]> {
  if (!/^\S+\.m?[jt]s$/.test(agent)) return ['/bin/sh', '-c', agent]
  const path = resolve(agent)
  if (await isThere(path)) return [process.execPath, path]
  throw new InputError('agent', path, 'an existing file')
}
