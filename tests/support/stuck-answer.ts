/**
 * A run with an asynchronous policy, on one thread: the promise of its 41st answer, in the third update, never settles.
 * Its weights are a perceptron's, so a perceptron resumes it. The folder and `onStall` are arguments.
 */
import { configureRun, startRun } from '../../src/index.ts'
import { later } from './later.ts'

const [folder, onStall] = process.argv.slice(2) as [string, string]
const policy = later({ hidden: [4], hangs: 41 })
const keys = { totalSteps: '512', numLanes: '8', 'ppo.numSteps': '16', 'ppo.numMinibatches': '1', seed: '1' }
const definition = await configureRun('CartPole-v1', {
  ...{ ...keys, 'mlp.hidden': '4', threads: '1', stallSeconds: '1', onStall },
})
const run = await startRun({ ...definition, policy }, folder)
const interrupt = new AbortController()
process.once('SIGINT', () => interrupt.abort())
const { status } = await run.train({ signal: interrupt.signal })
console.log(`${status}: ${run.trainer.steps} steps`)
