/**
 * Two environments learned side by side in one world: one tick moves the lanes of both, and each has its own learner.
 */

import { query } from 'bitecs'
import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo } from 'colonnade'

const world = await createWorld({
  seed: 1,
  cohorts: [
    { name: 'cart', environment: cartPole(), policy: mlp({ hidden: [32] }), numLanes: 16 },
    { name: 'pendulum', environment: pendulum(), policy: mlp({ hidden: [32] }), numLanes: 8 },
  ],
})
const trainer = createTrainer(world, {
  cart: ppo({ numSteps: 64, learningRate: 1e-3 }),
  pendulum: ppo({ numSteps: 64, learningRate: 1e-3, gamma: 0.9 }),
})

for await (const { update, cohorts } of trainer.updates({ totalSteps: 20_000 })) {
  if (update % 4 !== 0) continue
  const returns = Object.entries(cohorts).map(([name, { episodeReturn }]) => `${name} ${episodeReturn.toFixed(1)}`)
  console.log(`update ${update}: ${returns.join(', ')}`)
}

// Lanes are entities: a query for a cohort's component finds them.
const lanes = query(world.ecs, [world.cohort('pendulum').observation])
console.log(`pendulum lanes: ${[...lanes].join(' ')}`)
