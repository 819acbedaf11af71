/**
 * The game beside this file, as an environment. Its components are the columns of observations and actions, and its
 * systems are the step. The policy learns in some seconds, is exported as a module, and then plays the game in real
 * time (`--watch`: for 20 seconds).
 */
import { realpathSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { createTrainer, createWorld, discrete, evaluate, mlp, ppo } from 'colonnade'
import { exportPolicy } from 'colonnade/data'
import { fromBitecs } from 'colonnade/environments'
import { Basket, createOrchard, type Orchard, Position, play, Sight, Steering, systems, Velocity } from './game.ts'

const player = (orchard: Orchard) => orchard.player

export const orchard = fromBitecs({
  id: 'Orchard-v0',
  module: import.meta.url, // Lets another thread, or a resumed run, make the game too.
  components: { Position, Velocity, Steering, Sight, Basket },
  createGame: createOrchard,
  systems,
  observation: [
    { entities: player, columns: ['Position.x', 'Position.y'], low: 0, high: 1 },
    { entities: player, columns: ['Velocity.x', 'Velocity.y'], low: -2, high: 2 },
    { entities: player, columns: ['Sight.appleX', 'Sight.appleY', 'Sight.waspX', 'Sight.waspY'], low: -1, high: 1 },
  ],
  action: { entity: player, columns: ['Steering.direction'], space: discrete(5) },
  reward: (orchard) => Basket.gained[orchard.player]!,
  maxEpisodeSteps: 200,
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const { adopted, adoptedBytes, copiedBytes } = orchard.memory
  console.log(
    `${adopted.length} columns lie in shared memory, ${adoptedBytes} bytes a lane; a step copies ${copiedBytes} bytes`,
  )

  const [environment, policy] = [orchard(), mlp({ hidden: [32, 32] })]
  const world = await createWorld({ environment, policy, numLanes: 64, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 64, learningRate: 3e-3, gamma: 0.97 }))
  for await (const { update, steps, episodeReturn } of trainer.updates({ totalSteps: 200_000 })) {
    if (update % 10 === 0) console.log(`${steps} steps, ${episodeReturn.toFixed(1)} apples an episode`)
  }
  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 50 })
  console.log(`greedy: ${episodeReturn.mean.toFixed(1)} ± ${episodeReturn.std.toFixed(1)} apples an episode`)

  // The original game in real time, with the policy at the keys.
  await exportPolicy({ environment, policy, weights, format: 'module', out: 'runs/orchard.mjs' })
  const pilot = await import(pathToFileURL(resolve('runs/orchard.mjs')).href)
  const seconds = process.argv.includes('--watch') ? 20 : 2
  const apples = await play(seconds, 7, (game) => orchard.act(game, pilot.act(orchard.observe(game))))
  console.log(`in real time: ${apples} apples in ${seconds} seconds`)
}
