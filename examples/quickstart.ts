/** A vectorized world learns CartPole; the policy and a rollout are written to files. */
import { cartPole, createTrainer, createWorld, mlp, ppo, writeArrow } from 'colonnade'

const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [64, 64] }), numLanes: 16, seed: 1 })
const trainer = createTrainer(world, ppo({ numSteps: 128, learningRate: 1e-3, gamma: 0.99, gaeLambda: 0.95 }))

for await (const { steps, episodeReturn, stepsPerSecond } of trainer.updates({ totalSteps: 30_000 })) {
  console.log(`${steps} steps, return ${episodeReturn.toFixed(1)}, ${Math.round(stepsPerSecond)} steps/s`)
}

console.log(`checkpoint: ${await trainer.save('runs/quickstart')}`)
await writeArrow('runs/quickstart/cartpole.arrow', trainer.rollout.table)
