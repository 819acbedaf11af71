/** Trains with more threads than cores, so that the caller waits at nearly every meeting, and prints what is left on its heap. */
import { availableParallelism } from 'node:os'
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'

const threads = Math.min(64, availableParallelism() + 2)
const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: threads, seed: 1 })
const algorithm = ppo({ numSteps: 8, numMinibatches: 4, updateEpochs: 4 })
const trainer = createTrainer(world, algorithm, { threads })
const updates = Number(process.argv[2])
for await (const { update } of trainer.updates({ totalSteps: threads * 8 * 3 * updates })) {
  if (update % updates > 0) continue
  globalThis.gc()
  console.log(JSON.stringify({ threads, update, heap: process.memoryUsage().heapUsed }))
}
