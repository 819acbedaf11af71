/**
 * Your own loss for language models in one file: a ratio that saturates instead of being clipped, and advantages by
 * rank.
 *
 *     loss   −A tanh(log r)        r = π(token) / π_old(token), so there is no gain far from the old policy
 *
 * It learns to reverse short words in some seconds. `colonnade train text/reverse rl.loss=PATH` uses the
 * loss if PATH is this file; the key `loss.slope` is the loss's setting. The file itself trains only when it is run as a program.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { createTrainer, createWorld, languageModel, rl, sft, textEnvironmentFactory } from 'colonnade'
import { defineTokenLoss, tokenLossSettings } from 'colonnade/algorithms'
import { number } from 'colonnade/settings'

export const bent = defineTokenLoss({
  id: 'bent',
  module: import.meta.url, // Lets a resumed run find the loss again from its id.
  settings: {
    ...tokenLossSettings({ aggregation: 'token-mean' }),
    slope: number(1, 'slope of the loss by the logarithm of the ratio, where that is 0', { above: 0 }),
  },
  // The loss of a token, as arithmetic over columns. Derivatives are computed, and other threads get the arithmetic.
  loss: ({ logprob, oldLogprob, advantage }, { slope }) =>
    logprob.minus(oldLogprob).times(slope).tanh().times(advantage).negative(),
  // Fraction of the group that an answer beats, minus the fraction that beats it.
  advantages: (group) =>
    group.map(({ reward }) => {
      const beaten = group.filter((other) => other.reward < reward).length
      const better = group.filter((other) => other.reward > reward).length
      return (beaten - better) / group.length
    }),
})

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const environment = textEnvironmentFactory('text/reverse')({ maxLength: 2 } as never)
  const policy = languageModel({ width: 32, layers: 2 })
  const world = await createWorld({ environment, policy, numLanes: 64, groupSize: 16, seed: 1 })
  const reinforced = rl({ updates: 40, groupsPerUpdate: 16, groupSize: 16 }, { loss: bent })
  const trainer = createTrainer(world, [sft({ updates: 20 }), reinforced])
  let sum = 0
  for await (const { step, rl } of trainer.updates()) {
    sum += rl?.reward ?? 0
    if (rl === null || step % 10 !== 0) continue
    console.log(`updates ${step - 9} to ${step}: reward ${(sum / 10).toFixed(2)}`)
    sum = 0
  }
}
