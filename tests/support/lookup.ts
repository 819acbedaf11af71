/**
 * A task with a tool, in two turns: the model is asked for a name's digit, which changes each time, so it must look it
 * up (`?`) and then repeat it (`=7`).
 */

import { type Gateway, type RunAgentsOptions, runAgents } from '../../src/entries/engines.ts'
import { defineTextEnvironment, type Example } from '../../src/environments/text.ts'
import { createTrainer, createWorld, languageModel, rl, sft } from '../../src/index.ts'

const said = (content: string) => ({ role: 'assistant', content })

/** Only every other supervised example looks up; the others guess. */
export const lookupTasks: readonly Example[] = Array.from({ length: 60 }, (_, i) => {
  const [name, digit] = ['abc'[i % 3]!, String(i % 5)]
  const looksUp = [said('?'), { role: 'user', content: `=${digit}` }, said(digit)]
  return {
    prompt: [{ role: 'user', content: name }],
    answer: digit,
    demonstration: Math.floor(i / 5) % 2 === 0 ? looksUp : [said(digit)],
  }
})

/** The task, as the trainer's environment. */
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

/** A world trained on lookups, with a gateway. */
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
