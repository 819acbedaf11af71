/** Saves checkpoints in a tight loop, pruning as a run does, and prints the number of each that is saved. */
import { listCheckpoints, pruneCheckpoints, writeCheckpoint } from '../../dist/src/training/folder/checkpoint.js'

const run = process.argv[2]
const numbers = new Uint32Array(65_536)
const tensor = { name: 'numbers', type: 'U32', shape: [numbers.length], bytes: new Uint8Array(numbers.buffer) }
for (let update = 1 + ((await listCheckpoints(run)).at(-1) ?? 0); ; update++) {
  numbers.fill(update)
  const manifest = { colonnade: '0', node: '0', kernels: 'plain', seed: 0, update, steps: 0, seconds: 0, cohorts: {} }
  await writeCheckpoint(run, [tensor], manifest)
  console.log(update)
  await pruneCheckpoints(run, 3)
}
