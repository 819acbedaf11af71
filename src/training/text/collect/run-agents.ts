/** Runs agents for a training. Agents with the same task are a group, within which rewards are compared. */
import { type AgentCounts, AgentRunner, placeOf, type RunAgentsOptions } from '../../../agents/gateway/agent-runner.ts'
import type { EndedSession, SessionPlace } from '../../../agents/gateway/sessions.ts'
import { InputError } from '../../../base/errors.ts'
import { Trajectories } from '../../../tables/trajectories/trajectories.ts'
import type { CollectorDefinition } from '../../loop/collector.ts'
import { MemberCollector, type MemberRunner } from './member-collector.ts'

/** So many first agents without an answer of the model end a training. */
const MOST_SILENT = 32

/** Agents as a source of conversations. */
export interface Agents {
  /** For `createTrainer(world, rl(…), { collector })`. */
  readonly collector: CollectorDefinition
  readonly counts: AgentCounts
  /** Runs the next groups and returns their rows, for a `Trainer` built from parts. */
  collect(): Promise<Trajectories>
}

/**
 * Runs agents through a gateway.
 * @throws InputError for options that do not fit.
 * @example
 * const agents = runAgents({ gateway, tasks, run: async ({ task, openaiUrl, apiKey }) => solve(task, openaiUrl, apiKey) })
 * const trainer = createTrainer(world, rl({ updates: 50 }), { collector: agents.collector })
 */
export function runAgents(options: RunAgentsOptions): Agents {
  const runner = new AgentRunner(options)
  let next = 0
  const members: MemberRunner = {
    maxMembers: runner.maxAgents,
    async run({ group, member }, signal) {
      const { rows, worth } = await runner.run(placeOf(group, member, runner.numTasks), signal)
      if (rows.length > 0) return { rows, failure: null }
      const failure = worth.error ?? 'the agent did not ask the model'
      const { silent, ended } = runner.counts
      if (silent < ended || silent < MOST_SILENT) return { rows, failure }
      // A program that cannot run.
      throw new InputError(
        'agents',
        `no request to the model by the first ${silent}: ${failure}`,
        'agents that send requests to the model',
      )
    },
  }
  return {
    collector: (world, cohort, rl) => new MemberCollector(world, cohort, rl, members),
    get counts() {
      return { ...runner.counts }
    },
    async collect() {
      const { numTasks, groupSize, groups } = runner
      const first = next
      next += groups
      const places = Array.from({ length: groups * groupSize }, (_, i) => {
        const group = first + Math.floor(i / groupSize)
        return placeOf(group, i % groupSize, numTasks)
      })
      const waiting = [...places]
      const ended = new Map<Partial<SessionPlace>, EndedSession>()
      const stop = new AbortController()
      const work = async () => {
        for (let place = waiting.shift(); place !== undefined; place = waiting.shift()) {
          ended.set(place, await runner.run(place, stop.signal))
        }
      }
      await Promise.all(Array.from({ length: Math.min(runner.maxAgents, places.length) }, work))
      const trajectories = new Trajectories()
      for (const place of places) {
        const { rows } = ended.get(place)!
        if (rows.length > 0) trajectories.appendConversation(rows)
      }
      return trajectories
    },
  }
}
