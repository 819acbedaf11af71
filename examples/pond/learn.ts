/** The worker in which the fish learn from what they live through: an update after each 64 steps of all of them. */
import { createTrainer, createWorld, mlp, ppo } from 'colonnade'
import { createPond, fishOf, NUM_FISH } from './pond.ts'

/** Learns as long as there are steps, and tells after each update how far it is. */
export async function learn(
  memory: SharedArrayBuffer,
  totalSteps: number,
  tell: (told: { readonly steps: number; readonly episodeReturn: number }) => void,
): Promise<void> {
  const world = await createWorld({
    environment: fishOf(createPond(memory)),
    policy: mlp({ hidden: [32, 32] }),
    numLanes: NUM_FISH,
    seed: 1,
  })
  const algorithm = ppo({
    numSteps: 64,
    numMinibatches: 4,
    updateEpochs: 4,
    learningRate: 3e-3,
    gamma: 0.98,
    entropyCoef: 0.01,
  })
  const trainer = createTrainer(world, algorithm, { threads: 1 })
  for await (const { steps, episodeReturn } of trainer.updates({ totalSteps })) tell({ steps, episodeReturn })
  trainer.close()
}

// In a page's worker.
if (typeof document === 'undefined' && typeof addEventListener === 'function') {
  addEventListener('message', ({ data }: MessageEvent<SharedArrayBuffer>) => {
    learn(data, 1e12, (told) => postMessage(told)).catch(({ message }: Error) => postMessage({ message }))
  })
}
