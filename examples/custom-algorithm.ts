/**
 * Your own algorithm in one file, from its loss: PPO with a penalty instead of a clip (Schulman et al. 2017, eq. 8,
 * with a fixed β),
 *
 *     loss   −A r + β KL(old ‖ new) + valueCoef ½ (v − R)² − entropyCoef · entropy        r = π(a) / π_old(a)
 *
 * It learns CartPole in a few seconds. Threads, and `colonnade train CartPole-v1 algorithm=` with this file's path,
 * import it for the algorithm, so it trains only when it is run.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { cartPole, createTrainer, createWorld, evaluate, mlp } from 'colonnade'
import { defineOnPolicyAlgorithm, onPolicySettings, rowLoss } from 'colonnade/algorithms'
import { integer, number } from 'colonnade/settings'

export const penaltyPpo = defineOnPolicyAlgorithm({
  id: 'penalty-ppo',
  module: import.meta.url, // Lets another thread, or a resumed run, make the algorithm again from its id.
  settings: {
    ...onPolicySettings({ numSteps: 64, learningRate: 2e-3 }),
    updateEpochs: integer(3, 'passes over each rollout', { min: 1 }),
    numMinibatches: integer(8, 'minibatches per pass', { min: 1 }),
    beta: number(1, 'weight of the divergence from the policy that collected the rollout', { min: 0 }),
  },
  // Metrics of the loss, per row.
  metrics: {
    policyLoss: { unit: null, description: 'surrogate of a row, without its penalty', reduction: 'rowMean' },
    valueLoss: { unit: null, description: "half the squared error of a row's value", reduction: 'rowMean' },
    entropy: { unit: 'nats', description: 'entropy of the action distribution', reduction: 'rowMean' },
    approxKl: { unit: 'nats', description: 'KL(old ‖ new), as r − 1 − log r', reduction: 'rowMean' },
  },
  // The loss of a row, and the metrics, as arithmetic over columns, from which derivatives are computed.
  loss: rowLoss(({ logprob, oldLogprob, advantage, value, return: returns, entropy }, settings) => {
    const logRatio = logprob.minus(oldLogprob)
    const ratio = logRatio.exp()
    const policyLoss = ratio.times(advantage).negative()
    const approxKl = ratio.minus(1).minus(logRatio)
    const valueLoss = value.minus(returns).square().times(0.5)
    const penalties = approxKl.times(settings.beta).minus(entropy.times(settings.entropyCoef))
    return {
      loss: policyLoss.plus(penalties).plus(valueLoss.times(settings.valueCoef)),
      ...{ policyLoss, valueLoss, entropy, approxKl },
    }
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
