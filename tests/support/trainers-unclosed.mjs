/**
 * Trains with threads, keeps no trainer and closes none: prints how many threads the process had before, with all of them, and
 * once what was dropped has been collected. Run with --expose-gc, `lanes` or `text`.
 */
import { readdirSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import * as colonnade from '../../dist/src/index.js'

const { cartPole, createTrainer, createWorld, languageModel, mlp, ppo, sft, textEnvironmentFactory } = colonnade
const threads = () => readdirSync('/proc/self/task').length

async function trainLanes(seed) {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 4, seed })
  const trainer = createTrainer(world, ppo({ numSteps: 128, numMinibatches: 1, updateEpochs: 1 }), { threads: 2 })
  for await (const _ of trainer.updates({ totalSteps: 1 }));
}

async function trainText(seed) {
  const environment = textEnvironmentFactory('text/reverse')({ maxLength: 2 })
  const world = await createWorld({ environment, policy: languageModel({ width: 8, layers: 1 }), numLanes: 2, seed })
  const trainer = createTrainer(world, sft({ steps: 1, batchSize: 2 }), { threads: 2 })
  for await (const _ of trainer.updates({ phase: 'sft' }));
}

const train = process.argv[2] === 'text' ? trainText : trainLanes
const before = threads()
let most = 0
for (let i = 0; i < 4; i++) {
  await train(i)
  most = Math.max(most, threads())
}
for (let i = 0; i < 200 && threads() > before; i++) {
  await pause(20)
  gc()
}
console.log(JSON.stringify({ before, most, after: threads() }))
