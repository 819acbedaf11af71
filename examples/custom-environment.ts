/**
 * Your own environment in one file: a corridor. The agent walks left or right; the goal is at the right end, and each
 * step has a small cost. It learns in a second or two, and then the greedy policy is evaluated. Threads, and `colonnade
 * train` with this file's path, import it for the environment, so it trains only when it is run.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { box, createTrainer, createWorld, defineEnvironment, discrete, evaluate, mlp, ppo, Stream } from 'colonnade'
import { integer } from 'colonnade/settings'

export const corridor = defineEnvironment({
  id: 'Corridor-v0',
  module: import.meta.url, // Lets another thread, or a resumed run, make the environment again from its id.
  settings: { length: integer(10, 'cells of the corridor', { min: 2 }) },
  state: () => ({ cell: 'i32' }),
  make: ({ length }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [1] }),
    actionSpace: discrete(2), // 0 left, 1 right
    maxEpisodeSteps: 5 * length,
    returnThreshold: null,
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        state.cell[n] = Math.floor(random.uniform(0, 0, length - 1))
        observation[n] = state.cell[n]! / (length - 1)
      }
    },
    step({ state, observation, reward, terminated, action }, from, to) {
      for (let n = from; n < to; n++) {
        state.cell[n] = Math.max(0, state.cell[n]! + (action[n] === 1 ? 1 : -1))
        observation[n] = state.cell[n]! / (length - 1)
        terminated[n] = state.cell[n] === length - 1 ? 1 : 0
        reward[n] = terminated[n] === 1 ? 1 : -0.05
      }
    },
  }),
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const environment = corridor({ length: 12 })
  const policy = mlp({ hidden: [16] })
  const world = await createWorld({ environment, policy, numLanes: 32, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 32, learningRate: 3e-3 }))
  for await (const { update, steps, episodeReturn } of trainer.updates({ totalSteps: 40_000 })) {
    if (update % 10 === 0) console.log(`${steps} steps, return ${episodeReturn.toFixed(2)}`)
  }

  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 50 })
  console.log(`greedy: return ${episodeReturn.mean.toFixed(2)} ± ${episodeReturn.std.toFixed(2)}`)
}
