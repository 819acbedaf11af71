/**
 * A training of a language model by two threads in which something goes wrong, as its argument says; it never ends the process
 * itself. Prints what it saw, a JSON object a line.
 */
import { createHash } from 'node:crypto'
import { slotRoom } from '../../dist/src/algorithms/tokens/token-learner.js'
import { createTrainer, createWorld, defineTextEnvironment, languageModel, rl } from '../../dist/src/index.js'

const { spoil, terminate, leave, threads = 2 } = JSON.parse(process.argv[2])

const print = (record) => console.log(JSON.stringify(record))
const failing = () => print({ failing: true })

const workers = []
let ended = 0
process.on('worker', (worker) => {
  workers.push(worker)
  worker.once('exit', () => ended++)
})

/** Ends the worker, as nobody in Colonnade does. */
function kill() {
  failing()
  return workers.at(-1).terminate()
}

function close() {
  failing()
  trainer.close()
}

/** Ends the worker once it has a micro-batch, for whose turn in the only gradient slot this thread then waits. */
if (terminate === 'in turn') {
  slotRoom.elements = 0
  const { add } = Atomics
  Atomics.add = (column, ...given) => {
    if (column.length === 1 && new Error().stack.includes('differentiate')) {
      Atomics.add = add
      while (Atomics.load(column, 0) === 0);
      kill()
    }
    return add(column, ...given)
  }
}

let replies = 0
let isSpoiled = false
const SPEAKING = 1
/** In the second update of 48, when most lanes still speak. */
const LATE = 50
const environment = defineTextEnvironment({
  id: 'text/faulty',
  settings: {},
  make: () => ({
    numExamples: 32,
    example: (index) => ({ prompt: `${index}`, maxTokens: 4 + (index % 9) }),
    respond: ({ completion }) => {
      replies++
      if (replies === LATE && terminate === 'midway') kill()
      if (replies === LATE && terminate === 'close') close()
      const { conversation, context } = trainer.world.cohort()
      // A token that no vocabulary has, in the lane that is asked for.
      if (spoil !== undefined && replies > LATE && !isSpoiled && conversation.phase[spoil] === SPEAKING) {
        isSpoiled = true
        failing()
        conversation.token[spoil * context + conversation.length[spoil] - 1] = 10_000
      }
      return { reward: completion.length }
    },
  }),
})()
const world = await createWorld({
  environment,
  policy: languageModel({ width: 64, layers: 2, anyText: true }),
  name: 'speakers',
  numLanes: 40,
  seed: 1,
  groupSize: 8,
})
const trainer = createTrainer(world, rl({ groupsPerUpdate: 6, groupSize: 8, updates: 3 }), { threads })

async function train() {
  try {
    for await (const { step } of trainer.updates()) {
      print({ update: step })
      if (leave) return
      if (step === 1 && terminate === 'between') await kill()
    }
    const weights = createHash('sha256').update(
      Uint8Array.from(new Uint8Array(trainer.world.cohort().weights.slice().buffer)),
    )
    print({ complete: weights.digest('hex') })
  } catch (error) {
    const { name, message, stack } = error ?? {}
    print({ name, message, stack })
  }
}

if (terminate === 'close early') setTimeout(close, 1)
await train()
if (!leave) await train()
process.on('exit', () => print({ exiting: true, started: workers.length, ended }))
print({ done: true })
