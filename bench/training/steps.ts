/** Rollout and training steps a second on CartPole, two separate 64-64 tanh networks. */
import { cartPole, collect, createTrainer, createWorld, mlp, ppo } from '../../src/index.ts'
import { check, type Line, line, summary, time } from '../measure.ts'

const NUM_STEPS = 32
const NUM_LANES = 256

/** A rollout of 256 lanes × 32 steps, and the same with its update: 4 epochs of 8 minibatches. */
export async function trainingSteps(): Promise<Line[]> {
  const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: NUM_LANES, seed: 1 })
  const trainer = createTrainer(
    world,
    ppo({ numSteps: NUM_STEPS, numMinibatches: 8, updateEpochs: 4, learningRate: 2e-3 }),
  )
  const seconds: number[] = []
  let loss = Number.NaN
  for await (const { update, rolloutSeconds, updateSeconds, valueLoss } of trainer.updates({ totalSteps: 7 * 8192 })) {
    if (update > 2) seconds.push(rolloutSeconds + updateSeconds)
    loss = valueLoss
  }
  check(Number.isFinite(loss), 'the loss is finite')
  const rollout = time(() => collect(world, NUM_STEPS))
  const rows = NUM_STEPS * NUM_LANES
  return [
    line(`CartPole-v1, rollout, ${NUM_LANES} lanes × ${NUM_STEPS} steps`, 'steps', rows, rollout),
    line(`CartPole-v1, training, 4 epochs, 8 minibatches`, 'steps', rows, summary(seconds)),
  ]
}
