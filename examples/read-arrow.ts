/** Writes the rollout of a short training as Arrow, reads it back, and prints statistics of its columns. */
import { cartPole, createTrainer, createWorld, mlp, ppo, readArrow, writeArrow } from 'colonnade'

const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [16] }), numLanes: 8, seed: 1 })
const trainer = createTrainer(world, ppo({ numSteps: 64 }))
for await (const _ of trainer.updates({ totalSteps: 2_000 }));
await writeArrow('runs/example.arrow', trainer.rollout.table)

const table = await readArrow('runs/example.arrow')
console.log(`${table.numRows} rows of ${table.schema.metadata.get('environment')}`)
for (const field of table.schema.fields) console.log(`  ${field.name.padEnd(14)} ${field.type}`)

// Whole columns are typed arrays: fast, and with the same bytes that a kernel reads.
const reward = table.getChild('reward')!.toArray() as Float32Array
const terminated = table.getChild('terminated')!.toArray() as Uint8Array
console.log(`rewards sum to ${reward.reduce((sum, value) => sum + value, 0)}`)
console.log(`${terminated.reduce((sum, value) => sum + value, 0)} episodes ended in a terminal state`)
console.log(`first row: ${table.get(0)}`)
