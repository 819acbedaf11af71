/**
 * A whole run as a process: `node dist/bench/training/whole-run.js CartPole-v1 SEED STARTED`, where STARTED is the time of
 * day in milliseconds at which the process was asked for. Trains by the preset in memory, until solved where there is a
 * threshold, notes the time, evaluates, and prints one JSON line.
 */
import { configureRun, type EnvironmentId, evaluate, runTrainer } from '../../src/index.ts'

const [id, seed, started] = process.argv.slice(2) as [string, string, string]
const sinceStart = () => (performance.timeOrigin + performance.now() - Number(started)) / 1000

const definition = await configureRun(id as EnvironmentId, { seed })
const { environment, policy, settings } = definition

const trainer = await runTrainer(definition)
const begun = performance.now()
let solvedSeconds: number | null = null
let steps = 0
for await (const update of trainer.updates({ totalSteps: settings.totalSteps })) {
  steps = update.steps
  if (trainer.progress().solvedAtStep === null) continue
  solvedSeconds ??= sinceStart()
  break // Solved: what follows is not what is asked for.
}
const trainingSeconds = (performance.now() - begun) / 1000
const weights = trainer.world.cohorts[0]!.weights
const { episodeReturn } = await evaluate({ environment, policy, weights, episodes: 100, seed: settings.seed + 1000 })
trainer.close()
const { solvedAtStep } = trainer.progress()
console.log(JSON.stringify({ solvedSeconds, solvedAtStep, trainingSeconds, steps, episodeReturn: episodeReturn.mean }))
