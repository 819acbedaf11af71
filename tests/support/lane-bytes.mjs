/** Prints, as JSON, what a world of many lanes takes a lane: the JavaScript heap (bitecs), and the columns by kind. Run with --expose-gc. */
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'

const numLanes = Number(process.argv[2])
globalThis.gc()
const before = process.memoryUsage().heapUsed
const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes, seed: 1 })
const trainer = createTrainer(world, ppo({ numSteps: 4, numMinibatches: 64, updateEpochs: 1 }))
globalThis.gc()
const heap = (process.memoryUsage().heapUsed - before) / numLanes
const bytes = (pattern) =>
  world.plan().reduce((sum, { name, bytes }) => sum + (pattern.test(name) ? bytes : 0), 0) / numLanes
let steps = 0
for await (const update of trainer.updates({ totalSteps: numLanes * 4 })) steps = update.steps
const lanes = bytes(/\.(episode|state|carried|laneList|bootstrap|clipped)/)
console.log(
  JSON.stringify({ numLanes, heap, lanes, rollout: bytes(/\.rollout\./), learner: bytes(/\.learner\./), steps }),
)
