// Prints what the windows of a step take of the heap: run with --expose-gc.
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'

const NUM_STEPS = 20_000
const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 1 })
globalThis.gc()
const before = process.memoryUsage().heapUsed
createTrainer(world, ppo({ numSteps: NUM_STEPS, numMinibatches: 1 }))
globalThis.gc()
console.log(JSON.stringify({ stepBytes: (process.memoryUsage().heapUsed - before) / NUM_STEPS }))
