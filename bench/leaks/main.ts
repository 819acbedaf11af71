/**
 * `npm run bench -- leaks`: 10,000 updates of a dense and of a recurrent network on wasm. Fails where the number of tensors or
 * their bytes differ from what they were after the first update; the process's memory is only shown.
 */

import {
  cartPolePosition,
  createTrainer,
  createWorld,
  dense,
  type PolicyDefinition,
  ppo,
  recurrent,
} from '../../src/index.ts'
import { startDevice } from '../../src/policies/devices/device.ts'
import { check, type Figure, figure } from '../measure.ts'
import { alignColumns, reportRoom } from '../report.ts'

const UPDATES = 10_000
const SHOWN_EVERY = 1000
const [NUM_LANES, NUM_STEPS] = [8, 16]

async function figuresOf(policy: PolicyDefinition): Promise<Figure[]> {
  const { tf } = await startDevice('wasm')
  const world = await createWorld({ environment: cartPolePosition(), policy, numLanes: NUM_LANES, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: NUM_STEPS, numMinibatches: 2, updateEpochs: 1 }))
  let first: { numTensors: number; numBytes: number } | undefined
  const shown = [['update', 'tensors', 'their bytes', 'process, MB']]
  const megabytes: number[] = []
  for await (const { update } of trainer.updates({ totalSteps: UPDATES * NUM_LANES * NUM_STEPS })) {
    const { numTensors, numBytes } = tf.memory()
    first ??= { numTensors, numBytes }
    const isSame = numTensors === first.numTensors && numBytes === first.numBytes
    const were = `${first.numTensors} tensors of ${first.numBytes} bytes`
    check(isSame, `${policy.id}, update ${update}: ${numTensors} tensors of ${numBytes} bytes, after the first ${were}`)
    if (update % SHOWN_EVERY !== 0) continue
    megabytes.push(process.memoryUsage.rss() / 1e6)
    shown.push([update, numTensors, numBytes, Math.round(megabytes.at(-1)!)].map(String))
  }
  trainer.close()
  console.log(`${policy.id}, ${UPDATES.toLocaleString('en')} updates`)
  for (const line of alignColumns(shown)) console.log(line)
  return [figure(`${policy.id}, process memory at every ${SHOWN_EVERY}th of ${UPDATES} updates`, 'MB', megabytes)]
}

const policies = [
  dense({ hidden: [16], device: 'wasm' }),
  recurrent({ units: 8, hidden: [8], sequenceLength: NUM_STEPS, device: 'wasm' }),
]
const figures: Figure[] = []
for (const policy of policies) figures.push(...(await figuresOf(policy)))
reportRoom('leaks', figures)
