/**
 * A whole run as a process: `node dist/bench/training/whole-run.js CartPole-v1 SEED STARTED`, where STARTED is the time of
 * day in milliseconds at which the process was asked for. Trains by the preset in memory, until solved where there is a
 * threshold, notes the time, evaluates, and prints one JSON line.
 */
import { availableParallelism } from 'node:os'
import { configureRun, createTrainer, createWorld, evaluate } from '../../src/index.ts'

const [id, seed, started] = process.argv.slice(2) as [string, string, string]
const sinceStart = () => (performance.timeOrigin + performance.now() - Number(started)) / 1000

const { environment, policy, algorithm, settings } = await configureRun(id, { seed })

/** As a run chooses them: no more than cores, and than blocks of a minibatch. */
function usefulThreads(): number {
  const { numMinibatches } = algorithm.parameters as { numMinibatches: number }
  const minibatchRows = (algorithm.numSteps * settings.numLanes) / numMinibatches
  return Math.min(availableParallelism(), Math.max(1, Math.ceil(minibatchRows / 256)))
}

const world = await createWorld({ environment, policy, numLanes: settings.numLanes, seed: settings.seed })
const trainer = createTrainer(world, algorithm, { threads: settings.threads || usefulThreads() })
let solvedSeconds: number | null = null
for await (const _ of trainer.updates({ totalSteps: settings.totalSteps })) {
  if (trainer.progress().solvedAtStep === null) continue
  solvedSeconds ??= sinceStart()
  break // Solved: what follows is not what is asked for.
}
const weights = world.cohorts[0]!.weights
const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 100, seed: settings.seed + 1000 })
trainer.close()
const { solvedAtStep } = trainer.progress()
console.log(JSON.stringify({ solvedSeconds, solvedAtStep, episodeReturn: episodeReturn.mean }))
