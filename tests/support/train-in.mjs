/** Trains for an update in the folder that is named, saves, and prints the folder in which it did. */
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'

const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
const trainer = createTrainer(world, ppo({ numSteps: 16 }), { folder: process.argv[2] })
for await (const _ of trainer.updates({ totalSteps: 64 }));
await trainer.save()
console.log(trainer.folder)
