/**
 * An algorithm of one's own in one file, from its loss: PPO with a penalty instead of a clip (Schulman et al. 2017, eq. 8, with
 * a fixed β),
 *
 *     loss   −A r + β KL(old ‖ new) + valueCoef ½ (v − R)² − entropyCoef · entropy        r = π(a) / π_old(a)
 *
 * It learns CartPole in a few seconds. Threads, and `colonnade train CartPole-v1 algorithm=` with this file's path, import it
 * for the algorithm: it trains only when it is run.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { cartPole, createTrainer, createWorld, evaluate, mlp } from 'colonnade'
import { defineOnPolicyAlgorithm, onPolicySettings } from 'colonnade/algorithms'
import { integer, number } from 'colonnade/settings'

export const penaltyPpo = defineOnPolicyAlgorithm({
  id: 'penalty-ppo',
  module: import.meta.url, // Lets another thread, or a resumed run, make the algorithm again from its id.
  settings: {
    ...onPolicySettings({ numSteps: 64, learningRate: 2e-3 }),
    updateEpochs: integer(3, 'passes over each rollout', { min: 1 }),
    numMinibatches: integer(8, 'minibatches a pass', { min: 1 }),
    beta: number(1, 'weight of the divergence from the policy that collected the rollout', { min: 0 }),
  },
  // What the loss adds up over rows, in this order.
  metrics: {
    policyLoss: { unit: null, description: 'surrogate of a row, without its penalty', reduction: 'rowMean' },
    valueLoss: { unit: null, description: "half the squared error of a row's value", reduction: 'rowMean' },
    entropy: { unit: 'nats', description: 'of the action distribution', reduction: 'rowMean' },
    approxKl: { unit: 'nats', description: 'KL(old ‖ new), as r − 1 − log r', reduction: 'rowMean' },
  },
  loss: ({ beta, entropyCoef, valueCoef }) => ({
    ofRows(derivatives, sums, evaluated, recorded, minibatch, numRows, from, sumsFrom) {
      const { advantageMean, advantageScale, weight } = minibatch
      let [policyLoss, valueLoss, entropy, kl] = [0, 0, 0, 0]
      for (let row = 0; row < numRows; row++) {
        const i = from + row
        const logRatio = evaluated.logprob[row]! - recorded.logprob[i]!
        const ratio = Math.exp(logRatio)
        const advantage = (recorded.advantage[i]! - advantageMean) * advantageScale
        const error = evaluated.value[row]! - recorded.return[i]!
        derivatives.dLogprob[row] = weight * (-advantage * ratio + beta * (ratio - 1))
        derivatives.dEntropy[row] = -weight * entropyCoef
        derivatives.dValue[row] = weight * valueCoef * error
        policyLoss -= advantage * ratio
        valueLoss += 0.5 * error * error
        entropy += evaluated.entropy[row]!
        kl += ratio - 1 - logRatio
      }
      for (const [k, sum] of [policyLoss, valueLoss, entropy, kl].entries()) sums[sumsFrom + k]! += sum
    },
  }),
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const environment = cartPole()
  const policy = mlp()
  const world = await createWorld({ environment, policy, numLanes: 16, seed: 1 })
  const trainer = createTrainer(world, penaltyPpo({ gamma: 0.98 }))
  for await (const { update, steps, episodeReturn, approxKl } of trainer.updates({ totalSteps: 100_000 })) {
    if (update % 20 === 0) console.log(`${steps} steps, return ${episodeReturn.toFixed(1)}, KL ${approxKl!.toFixed(4)}`)
  }

  const { weights } = world.cohort()
  const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 50 })
  console.log(`greedy: return ${episodeReturn.mean.toFixed(1)} ± ${episodeReturn.std.toFixed(1)}`)
}
