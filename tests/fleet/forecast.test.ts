/** Forecasts of asynchronous trainings against trainings in real time, with engines and a learner whose speeds are timers'. */
import { expect, test } from 'vitest'
import { poolEngine } from '../../src/engines/pool.ts'
import { measureEngineSpeed } from '../../src/entries/text.ts'
import { type EngineSpeed, simulate } from '../../src/fleet/simulation.ts'
import { createTrainer, createWorld, languageModel, rl } from '../../src/index.ts'
import { digits } from '../support/conversations.ts'
import { engineSpeed, timedBackend, timedEngine } from '../support/timed.ts'

const GROUPS = 4
const GROUP_SIZE = 4
const LEARNER = 900
const UPDATES = 8
/** Lengths of answers: a few are long. */
const LENGTHS = [10, 12, 16, 20, 24, 28, 36, 80]
const lengthOf = ([group, member]: readonly [number, number, number]) =>
  LENGTHS[Math.abs(group * 7 + member * 3) % LENGTHS.length]!
const environment = digits({ maxTokens: 100, respond: ({ completion }) => ({ reward: completion.length % 3 }) })
const policy = languageModel({ width: 8, layers: 1, heads: 1, context: 128 })

const measure = (answers: readonly number[]) =>
  measureEngineSpeed({ environment, policy, engine: timedEngine(lengthOf), answers, rounds: 3 })

test('an engine is measured at each number of answers', async () => {
  for (const { answers, tokensPerSecond } of await measure([1, 4, 16])) {
    const ratio = tokensPerSecond / engineSpeed(answers)
    expect(ratio, `${answers} answers`).toBeGreaterThan(0.8)
    expect(ratio, `${answers} answers`).toBeLessThan(1.1)
  }
  await expect(measure([])).rejects.toThrow('answers: got none, expected at least one number')
  await expect(measure([0])).rejects.toThrow('answers: got 0')
})

let speeds: Promise<EngineSpeed[]> | null = null
const configurations = [1, 2, 4].flatMap((engines) => [0, 1, 2].map((maxStaleness) => ({ engines, maxStaleness })))

test.each(configurations)(
  '$engines engines at staleness $maxStaleness are as fast as they were forecast',
  async ({ engines, maxStaleness }) => {
    const numLanes = GROUPS * GROUP_SIZE * (1 + maxStaleness)
    const engine = poolEngine(Array.from({ length: engines }, () => timedEngine(lengthOf)))
    const world = await createWorld({ environment, policy, engine, numLanes, groupSize: GROUP_SIZE, seed: 2 })
    const settings = { groupsPerUpdate: GROUPS, groupSize: GROUP_SIZE, updates: UPDATES, maxStaleness }
    const trainer = await createTrainer(
      world,
      rl({ ...settings, loss: 'grpo', lossSettings: { klCoef: 0 } } as never),
      {
        backend: timedBackend(LEARNER),
      },
    )
    const start = performance.now()
    let tokens = 0
    for await (const metrics of trainer.updates()) tokens += (metrics as { readonly tokens: number }).tokens
    const real = tokens / ((performance.now() - start) / 1000)
    trainer.close()
    speeds ??= measure([1, 2, 4, 8, 16, 32, 48])
    const forecast = await simulate(
      {
        ...{ engines, maxStaleness, groupSize: GROUP_SIZE, groupsPerBatch: GROUPS, slots: numLanes, updates: UPDATES },
        ...{ learnerTokensPerSecond: LEARNER, updateSeconds: 0, deliverySeconds: 0 },
      },
      LENGTHS,
      await speeds,
    )
    console.log(JSON.stringify({ engines, maxStaleness, real, forecast: forecast.trainedTokensPerSecond }))
    expect(Math.abs(forecast.trainedTokensPerSecond / real - 1)).toBeLessThan(0.15)
  },
)
