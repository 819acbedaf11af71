/**
 * Prints, as JSON, how far the heap grew over 10,000 ticks after warm-up, with a young generation so large that nothing
 * is collected in between: what was allocated and thrown away counts too. Run with --expose-gc --max-semi-space-size=256.
 */
import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo, tick } from '../../dist/src/index.js'

const policy = mlp({ hidden: [8] })
const world = await createWorld({
  cohorts: [
    { name: 'cart', environment: cartPole(), policy, numLanes: 8 },
    { name: 'pendulum', environment: pendulum(), policy, numLanes: 4, explore: false },
  ],
})
createTrainer(world, { cart: ppo({ numSteps: 64 }) })
for (let t = 0; t < 20_000; t++) tick(world)
globalThis.gc()
const before = process.memoryUsage()
for (let t = 0; t < 10_000; t++) tick(world)
const after = process.memoryUsage()
console.log(
  JSON.stringify({
    ticks: 10_000,
    heapBytes: after.heapUsed - before.heapUsed,
    bufferBytes: after.arrayBuffers - before.arrayBuffers,
  }),
)
