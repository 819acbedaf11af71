/**
 * A training by three threads in which something goes wrong, as its argument says; it never ends the process itself.
 * Prints what it saw, a JSON object a line.
 */
import { createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'
import { faultyEnvironment, faultyPolicy } from './threads-faults.mjs'

const { environment = {}, policy, way, terminate, leave, threads = 3 } = JSON.parse(process.argv[2])

const print = (record) => console.log(JSON.stringify(record))

const workers = []
let ended = 0
process.on('worker', (worker) => {
  workers.push(worker)
  worker.once('exit', () => ended++)
})

const mainOnly = way && (await import(`./threads-main-only.mjs?way=${way}`)).mainOnly
const world = await createWorld({
  environment: mainOnly ? mainOnly() : faultyEnvironment(environment),
  policy: policy ? faultyPolicy({ culprit: 2, ...policy }) : mlp({ hidden: [8] }),
  name: 'agents',
  numLanes: 40,
  seed: 1,
})
const trainer = createTrainer(world, ppo({ numSteps: 32, numMinibatches: 1, updateEpochs: 2 }), { threads })

/** Ends the second worker, as nobody in Colonnade does. */
function kill() {
  console.log('failing')
  return workers.at(-1).terminate()
}

const errors = []
async function train() {
  try {
    for await (const { update } of trainer.updates({ totalSteps: 40 * 32 * 5 })) {
      print({ update })
      if (leave) return
      if (update === 2 && terminate === 'between') await kill()
    }
    print({ complete: true })
  } catch (error) {
    errors.push(error)
    const { name, message, stack } = error ?? {}
    print({ name, message, stack })
  }
}

if (terminate === 'midway') setTimeout(kill, 400)
function close() {
  console.log('failing')
  trainer.close()
}
// Before the workers are there, or when they are at work.
if (terminate === 'close early') setTimeout(close, 1)
if (terminate === 'close') setTimeout(close, 1000)
await train()
if (!leave) {
  await train()
  print({ isSame: errors[0] === errors[1] })
  await new Promise((resolve) => setImmediate(resolve))
}
process.on('exit', () => print({ exiting: true, started: workers.length, ended }))
print({ done: true })
