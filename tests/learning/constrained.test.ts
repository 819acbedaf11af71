/** Learning from constrained answers: the reward of what a schema leaves open rises, with the same bits on any number of threads. */
import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { type AgentRun, runAgents } from '../../src/entries/engines.ts'
import { defineTextEnvironment } from '../../src/environments/text.ts'
import { createTrainer, createWorld, languageModel, rl } from '../../src/index.ts'
import { opened } from '../support/gateway.ts'

const TASKS = [{ prompt: 'x' }, { prompt: 'y' }]
const environment = defineTextEnvironment({
  id: 'test/constrained',
  settings: {},
  make: () => ({ numExamples: 2, example: (i) => TASKS[i]!, respond: () => ({ reward: null }) }),
})
const SCHEMA = {
  type: 'object',
  properties: { digit: { type: 'integer', minimum: 0, maximum: 9 }, color: { enum: ['red', 'green', 'blue'] } },
  required: ['digit', 'color'],
}

/** Asks for an object; a high digit is worth a half, and blue the other. */
async function agent({ task, openaiUrl, apiKey, signal }: AgentRun): Promise<number> {
  const response = await fetch(`${openaiUrl}/chat/completions`, {
    ...{ method: 'POST', signal },
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({
      model: 'any',
      messages: [{ role: 'user', content: task.prompt }],
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: SCHEMA } },
    }),
  })
  // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
  const { choices } = (await response.json()) as any
  if (choices[0].finish_reason !== 'stop') return 0
  const { digit, color } = JSON.parse(choices[0].message.content)
  return (digit >= 7 ? 0.5 : 0) + (color === 'blue' ? 0.5 : 0)
}

/** The mean reward of each update, and the digest of the weights. */
async function train(updates: number, threads: number): Promise<{ rewards: number[]; digest: string }> {
  const policy = languageModel({ width: 32, layers: 1, heads: 2, context: 128, anyText: true })
  const world = await createWorld({ environment: environment(), policy, numLanes: 16, groupSize: 8, seed: 1 })
  const gateway = await opened({ world })
  const { collector } = runAgents({ gateway, tasks: TASKS, run: agent, maxAgents: 16 })
  const settings = { updates, groupsPerUpdate: 4, groupSize: 8, learningRate: 1e-2 }
  // With a correction every token is evaluated before the update, and compared with what was recorded.
  const lossSettings = { klCoef: 0, correction: 'token-truncate' as const }
  const trainer = createTrainer(world, rl({ ...settings, lossSettings }), { collector, threads })
  const rewards: number[] = []
  for await (const { rl: metrics } of trainer.updates()) {
    rewards.push(metrics!.reward!)
    expect([metrics!.mismatchKl, metrics!.numRecomputed, metrics!.numUnknown]).toEqual([0, 0, 0])
  }
  trainer.close()
  return { rewards, digest: createHash('sha256').update(world.cohort().weights).digest('hex') }
}

test('the reward rises, and what was recorded is what evaluating gives', { timeout: 120_000 }, async () => {
  const { rewards } = await train(25, 1)
  expect(rewards[0]).toBeLessThan(0.55)
  expect(rewards.slice(-3).reduce((sum, reward) => sum + reward, 0) / 3).toBeGreaterThan(0.9)
})

test('three threads come to the same weights', { timeout: 120_000 }, async () => {
  expect((await train(2, 3)).digest).toBe((await train(2, 1)).digest)
})
