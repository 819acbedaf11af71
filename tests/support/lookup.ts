/**
 * A task with a tool, in two turns: the model is asked for a name's digit, which is another one each time, so it has to look it up (`?`)
 * and then say what it was told (`=7`).
 */

import { type Gateway, type RunAgentsOptions, runAgents } from '../../src/entries/engines.ts'
import { defineTextEnvironment, type Example } from '../../src/environments/text.ts'
import { createTrainer, createWorld, languageModel, rl, sft } from '../../src/index.ts'

const said = (content: string) => ({ role: 'assistant', content })

/** Of the examples that are shown beforehand only every other one looks up; the others guess. */
export const lookupTasks: readonly Example[] = Array.from({ length: 60 }, (_, i) => {
  const [name, digit] = ['abc'[i % 3]!, String(i % 5)]
  const looksUp = [said('?'), { role: 'user', content: `=${digit}` }, said(digit)]
  return {
    prompt: [{ role: 'user', content: name }],
    answer: digit,
    demonstration: Math.floor(i / 5) % 2 === 0 ? looksUp : [said(digit)],
  }
})

/** The task, as a trainer's table tells of it. */
export const lookup = defineTextEnvironment({
  id: 'test/lookup',
  settings: {},
  make: () => ({
    ...{ numExamples: lookupTasks.length, example: (i) => lookupTasks[i]!, maxTokens: 4 },
    respond: () => ({ reward: null }),
  }),
})

/** 1 for the right digit. */
export const isRight = (_: string, completion: string, { answer }: Example) => (completion === answer ? 1 : 0)

/** A world that has seen how one looks up, and a gateway to it. */
export async function lookupWorld(
  updates: number,
  open: (world: Awaited<ReturnType<typeof createWorld>>) => Promise<Gateway>,
) {
  const policy = languageModel({ width: 32, layers: 2, heads: 2, context: 24, anyText: true })
  const world = await createWorld({ environment: lookup(), policy, numLanes: 16, groupSize: 8, seed: 2 })
  const gateway = await open(world as never)
  return {
    gateway,
    train: (agent: Pick<RunAgentsOptions, 'run' | 'command' | 'maxAgents'>) => {
      const agents = runAgents({ gateway, tasks: lookupTasks, reward: isRight, ...agent })
      const settings = { updates, groupsPerUpdate: 8, groupSize: 8, learningRate: 5e-3 }
      const phases = [sft({ updates: 120, learningRate: 1e-2 }), rl({ ...settings, lossSettings: { klCoef: 0 } })]
      return { agents, trainer: createTrainer(world, phases, { collector: agents.collector }) }
    },
  }
}
