/**
 * Prints, as JSON, how far the heap grew over 10,000 ticks (the least of ten times; of what was kept the third) and over 200 updates after warm-up,
 * with a young generation so large that nothing is collected in between: what was allocated and thrown away counts too; and what
 * choosing the candidate set of a token allocates. Run with --expose-gc --min-semi-space-size=256 --max-semi-space-size=256.
 */

import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo, tick } from '../../dist/src/index.js'
import { createKernels } from '../../dist/src/kernels/bind.js'

const cohorts = () => [
  { name: 'cart', environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 8 },
  { name: 'pendulum', environment: pendulum(), policy: mlp({ hidden: [8] }), numLanes: 4, explore: false },
]

const TICKS = 10_000
const world = await createWorld({ cohorts: cohorts() })
createTrainer(world, { cart: ppo({ numSteps: 64 }) })
for (let t = 0; t < 6 * TICKS; t++) tick(world)

function measureTicks() {
  globalThis.gc()
  const before = process.memoryUsage()
  for (let t = 0; t < TICKS; t++) tick(world)
  const after = process.memoryUsage()
  globalThis.gc()
  return {
    heapBytes: after.heapUsed - before.heapUsed,
    keptBytes: process.memoryUsage().heapUsed - before.heapUsed,
    bufferBytes: after.arrayBuffers - before.arrayBuffers,
  }
}

// Where other programs keep the compiler waiting, it does its work, on the heap, in one or another of these.
const measured = Array.from({ length: 10 }, measureTicks)
const sorted = (figure) => measured.map((each) => each[figure]).sort((a, b) => a - b)
const ticks = {
  heapBytes: sorted('heapBytes')[0],
  // A collection may give back what was there before, once or twice; what a tick leaves is left in all ten.
  keptBytes: sorted('keptBytes')[2],
  bufferBytes: sorted('bufferBytes')[2],
}

/**
 * Bytes an update of 32 ticks and 2 epochs of so many minibatches allocates, the metrics that it yields included: the least of five times 200 updates,
 * since compilers do their work in one or another of these. What an update allocates is in all of them.
 */
async function updateBytes(numMinibatches) {
  const trained = await createWorld({ cohorts: cohorts() })
  const trainer = createTrainer(trained, { cart: ppo({ numSteps: 32, numMinibatches, updateEpochs: 2 }) })
  const [UPDATES, TIMES] = [200, 5]
  const bytes = []
  let before = 0
  for await (const { update } of trainer.updates({ totalSteps: 8 * 32 * (2 + TIMES) * UPDATES })) {
    if (update % UPDATES > 0) continue
    if (update > 2 * UPDATES) bytes.push((process.memoryUsage().heapUsed - before) / UPDATES)
    globalThis.gc()
    before = process.memoryUsage().heapUsed
  }
  return Math.round(Math.min(...bytes))
}

/** Bytes that choosing and excluding tokens by top-p allocates, a row of logits: the least of five times. */
function candidateBytes() {
  const [numRows, size, temperature, topP] = [8, 260, 0.7, 0.9]
  const { buffer } = new WebAssembly.Memory({ initial: 2 })
  const { sumVocabulary, selectCandidates, restrictVocabulary } = createKernels({ buffer }, 'plain')
  const logits = Float32Array.from({ length: numRows * size }, (_, i) => Math.sin(12.9898 * i) / 4)
  const work = logits.slice()
  const [max, sum, weighted, targetLogit] = Array.from({ length: 4 }, () => new Float32Array(numRows))
  const [candidates, offset, target] = [numRows * size, numRows + 1, numRows].map((length) => new Int32Array(length))
  const end = offset.subarray(1)
  const inverse = 1 / temperature
  const choose = (times) => {
    for (let i = 0; i < times; i++) {
      work.set(logits)
      sumVocabulary(max, sum, weighted, targetLogit, work, target, inverse, numRows, 0, size)
      selectCandidates(candidates, offset, work, max, sum, inverse, 0, topP, 0, numRows, size)
      restrictVocabulary(work, candidates, offset, end, inverse, numRows, 0, size)
    }
  }
  choose(2000)
  const bytes = Array.from({ length: 5 }, () => {
    globalThis.gc()
    const before = process.memoryUsage().heapUsed
    choose(500)
    return (process.memoryUsage().heapUsed - before) / (500 * numRows)
  })
  return Math.min(...bytes)
}

const [few, many] = [await updateBytes(2), await updateBytes(64)]
console.log(JSON.stringify({ ticks: TICKS, ...ticks, updateBytes: { few, many }, candidateBytes: candidateBytes() }))
