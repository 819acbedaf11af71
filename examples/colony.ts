/**
 * A population: agents forage, starve, and have children if they eat well. The more there are, the less each finds, so
 * about a third of the lanes is taken. A death frees its lane, a birth takes one, and every agent has its own random
 * numbers. Threads import this file for the environment, so it trains only when it is run.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { query } from 'bitecs'
import {
  box,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  mlp,
  Present,
  ppo,
  type State,
  Stream,
  spawn,
} from 'colonnade'
import { integer, number } from 'colonnade/settings'

export const colony = defineEnvironment({
  id: 'Colony-v0',
  module: import.meta.url,
  settings: {
    meals: number(32, 'meals that there are in a step, for all together', { min: 0 }),
    lifespan: integer(200, 'steps after which an agent dies of age', { min: 1 }),
  },
  state: () => ({ energy: 'f32', generation: 'i32' }),
  make: ({ meals, lifespan }) => ({
    observationSpace: box({ low: 0, high: 2, shape: [2] }), // Its energy, and its chance of a meal.
    actionSpace: discrete(2), // 0 rest, 1 forage
    population: true,
    maxEpisodeSteps: lifespan,
    returnThreshold: null,
    reset({ state, observation, present }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        state.generation[n]!++ // A child has a copy of its parent's state.
        state.energy[n] = 0.8
        observation[2 * n] = state.energy[n]!
        observation[2 * n + 1] = Math.min(1, meals / present)
      }
    },
    step(
      { state, observation, action, reward, terminated, died, births, present, lane, episode, step, random },
      from,
      to,
    ) {
      const chance = Math.min(1, meals / present)
      for (let n = from; n < to; n++) {
        random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
        const eats = action[n] === 1 && random.uniform(0) < chance
        reward[n] = eats ? 1 : 0
        state.energy[n]! += (eats ? 0.5 : 0) - (action[n] === 1 ? 0.12 : 0.08)
        if (state.energy[n]! >= 1.5) {
          births[n] = 1
          state.energy[n]! -= 0.7
        }
        died[n] = terminated[n] = state.energy[n]! <= 0 || step[n] === lifespan - 1 ? 1 : 0
        state.energy[n] = Math.max(0, state.energy[n]!)
        observation[2 * n] = state.energy[n]!
        observation[2 * n + 1] = chance
      }
    },
  }),
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const environment = colony({ meals: 24 })
  const policy = mlp({ hidden: [16] })
  const world = await createWorld({ environment, policy, numLanes: 384, present: 64, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 16, learningRate: 3e-3, learningRateSchedule: 'constant' }))
  const cohort = world.cohort()
  for await (const { update, episodeReturn } of trainer.updates({ totalSteps: 300_000 })) {
    if (update === 20) spawn(cohort, 100) // Strangers arrive.
    if (update % 10 !== 0) continue
    // Present agents are the entities with the cohort's components and the tag.
    const agents = query(world.ecs, [cohort.state, Present]).length
    const generations = (cohort.state as unknown as State<{ generation: 'i32' }>).generation.subarray(0, agents)
    const { born, died } = trainer.progress().population!
    console.log(
      `${agents} agents, the youngest of generation ${Math.max(...generations)}; ${born} births, ${died} deaths; meals a life ${episodeReturn.toFixed(1)}`,
    )
    if (update === 60) break
  }
}
