/** Worlds of conversations for tests: a tiny model with built-in or own tasks. */

import { LocalEngine } from '../../src/engines/local/local.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { defineTextEnvironment, type TextEnvironmentModel } from '../../src/environments/text.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { tick } from '../../src/systems/tick.ts'
import type { ConversationCohort, ConversationCohortOptions } from '../../src/world/conversations/cohort.ts'
import { createWorld, type World } from '../../src/world/world.ts'

/** A small world of conversations; default environment `text/reverse`. */
export function talkWorld(
  options: Partial<ConversationCohortOptions> & { seed?: number } = {},
): Promise<World<ConversationCohort>> {
  return createWorld({
    environment: reverse(),
    policy: languageModel({ width: 16, layers: 1, heads: 2 }),
    numLanes: 4,
    seed: 3,
    ...options,
  })
}

/** The cohort's engine, which must be the local one. */
export function localEngineOf({ engine }: ConversationCohort): LocalEngine {
  if (!(engine instanceof LocalEngine)) throw new Error(`engine ${engine.id}, expected the local one`)
  return engine
}

/** A custom environment on digits. */
export function digits(model: Partial<TextEnvironmentModel>) {
  return defineTextEnvironment({
    id: 'text/digits',
    settings: {},
    make: () => ({
      numExamples: 5,
      maxTokens: 6,
      alphabet: '0123456789',
      example: (index) => ({ prompt: String(index), answer: String(index + 1) }),
      respond: () => ({ reward: 1 }),
      ...model,
    }),
  })()
}

/** Ticks until `count` conversations are over, and returns them by group and member. */
export async function talkUntil(world: World<ConversationCohort>, count: number) {
  const { trajectories } = world.cohort()
  world.cohort().released = count
  for (let ticks = 0; trajectories.numConversations < count; ticks++) {
    if (ticks > 10_000) throw new Error(`${trajectories.numConversations} of ${count} conversations after 10,000 ticks`)
    const waiting = tick(world)
    if (waiting !== undefined) await waiting
  }
  const sorted = trajectories.take(trajectories.order())
  return Array.from({ length: sorted.count }, (_, i) => {
    const { token, lossMask, logprob, version, turn, candidateCount = [], candidateIds = [], ...rest } = sorted.row(i)
    return {
      ...rest,
      token: Array.from(token),
      lossMask: Array.from(lossMask),
      logprob: Array.from(logprob),
      version: Array.from(version),
      turn: Array.from(turn),
      candidateCount: Array.from(candidateCount),
      candidateIds: Array.from(candidateIds),
    }
  })
}
