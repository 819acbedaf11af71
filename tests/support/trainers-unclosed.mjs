/**
 * Trains with threads, keeps no trainer and closes none: prints what the process held (threads, open descriptors, MiB of memory)
 * before, at most, and once what was dropped has been collected. Run with --expose-gc, `lanes`, `actors` or `text`, and how
 * many trainers (4).
 */
import { readdirSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import * as colonnade from '../../dist/src/index.js'

const { cartPole, createTrainer, createWorld, languageModel, mlp, ppo, sft, textEnvironmentFactory } = colonnade
const entriesOf = (folder) => readdirSync(`/proc/self/${folder}`).length
const held = () => ({
  threads: entriesOf('task'),
  descriptors: entriesOf('fd'),
  memoryMib: Math.round(process.memoryUsage.rss() / 2 ** 20),
})

async function trainLanes(seed, maxStaleness = 0) {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 4, seed })
  const algorithm = ppo({ numSteps: 128, numMinibatches: 1, updateEpochs: 1, maxStaleness })
  const trainer = createTrainer(world, algorithm, { threads: 2 })
  for await (const _ of trainer.updates({ totalSteps: 1 }));
}

async function trainText(seed) {
  const environment = textEnvironmentFactory('text/reverse')({ maxLength: 2 })
  const world = await createWorld({ environment, policy: languageModel({ width: 8, layers: 1 }), numLanes: 2, seed })
  const trainer = createTrainer(world, sft({ updates: 1, batchSize: 2 }), { threads: 2 })
  for await (const _ of trainer.updates({ phase: 'sft' }));
}

const train = { lanes: trainLanes, actors: (seed) => trainLanes(seed, 1), text: trainText }[process.argv[2]]
const before = held()
const most = { ...before }
for (let i = 0; i < Number(process.argv[3] ?? 4); i++) {
  await train(i)
  const now = held()
  for (const name of Object.keys(most)) most[name] = Math.max(most[name], now[name])
}
for (let i = 0; i < 200 && held().threads > before.threads; i++) {
  await pause(20)
  gc()
}
console.log(JSON.stringify({ before, most, after: held() }))
