// Trains a language model for one update and prints the bytes that were planned, and the largest resident size of the process.
import { readFileSync } from 'node:fs'

const { parameters, lanes, length } = JSON.parse(process.argv[2])
const { createTrainer, createWorld, languageModel, rl, sft, textEnvironmentFactory } = await import(
  '../../dist/src/index.js'
)
const environment = textEnvironmentFactory('text/copy')({ minLength: length, maxLength: length })
const policy = languageModel({ anyText: true, ...parameters })
const world = await createWorld({ environment, policy, numLanes: lanes, groupSize: lanes, seed: 3, maxTokens: length })
const phases = [sft({ updates: 1, batchSize: lanes }), rl({ updates: 1, groupsPerUpdate: 1, groupSize: lanes })]
const trainer = createTrainer(world, phases, { threads: 1 })
for await (const _ of trainer.updates());
const peak = /VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))
console.log(JSON.stringify({ planned: world.arena.bytes, resident: 1024 * Number(peak[1]) }))
