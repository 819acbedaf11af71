/**
 * Your own optimizer in one file: Lion (Chen et al. 2023, algorithm 2), which steps by the sign of a mean of gradients.
 *
 *     c = β₁ m + (1 − β₁) g
 *     w = w − learningRate · (sign(c) + weightDecay · w)
 *     m = β₂ m + (1 − β₂) g
 *
 * Threads, and `colonnade train CartPole-v1 ppo.optimizer=` with this file's path, import it for the optimizer, so it
 * trains only when it is run.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { cartPole, createTrainer, createWorld, mlp, ppo } from 'colonnade'
import { defineOptimizer } from 'colonnade/algorithms'

export const lion = defineOptimizer({
  id: 'lion',
  module: import.meta.url, // Lets other threads and resumed runs find it.
  takes: ['beta1', 'beta2'],
  moments: 1,
  step({ weights, moment, gradient, gradientScale, learningRate, settings, length }) {
    const { beta1, beta2, weightDecay } = settings
    for (let i = 0; i < length; i++) {
      const [w, m, g] = [weights[i]!, moment[i]!, gradient[i]! * gradientScale]
      weights[i] = w - learningRate * (Math.sign(beta1 * m + (1 - beta1) * g) + weightDecay * w)
      moment[i] = beta2 * m + (1 - beta2) * g
    }
  },
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
  const trainer = createTrainer(world, ppo({ learningRate: 3e-4, beta2: 0.99 }, { optimizer: lion }))
  for await (const { update, steps, episodeReturn } of trainer.updates({ totalSteps: 60_000 })) {
    if (update % 10 === 0) console.log(`${steps} steps, return ${episodeReturn.toFixed(1)}`)
  }
}
