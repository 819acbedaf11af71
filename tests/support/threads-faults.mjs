/**
 * Things that go wrong in one thread of a team only: an environment and a policy that are whole in every other thread. Each says on standard output when, in milliseconds of the clock, before it fails.
 */
import { writeSync } from 'node:fs'
import { workerData } from 'node:worker_threads'
import { choice, integer } from '../../dist/src/entries/settings.js'
import { box, defineEnvironment, discrete, mlp } from '../../dist/src/index.js'

/** This thread of the team: 0 is the caller's. */
const thread = workerData?.index ?? 0

const culprit = integer(2, 'the thread that fails', { min: 0 })

/** Whatever a program may throw. */
const thrown = {
  error: (phase) => new Error(`boom in ${phase}`),
  text: (phase) => `boom in ${phase}`,
  null: () => null,
}

function fail(phase, kind = 'error') {
  writeSync(1, 'failing\n')
  if (kind === 'exit') process.exit(3)
  throw thrown[kind](phase)
}

function workFor(milliseconds) {
  const end = performance.now() + milliseconds
  while (performance.now() < end);
}

/** Counts to ten. In the culprit's second episode it fails, in the phase and the way it is told. */
export const faultyEnvironment = defineEnvironment({
  id: 'Faulty-v0',
  module: import.meta.url,
  settings: {
    culprit,
    phase: choice('never', ['never', 'reset', 'step'], 'where it fails'),
    kind: choice('error', ['error', 'text', 'null', 'exit', 'nan', 'slow'], 'how it fails'),
  },
  state: () => ({ count: 'i32' }),
  make: ({ culprit, phase, kind }) => ({
    observationSpace: box({ low: 0, high: 10 }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 10,
    returnThreshold: null,
    reset({ state, observation, episode }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]
        if (phase === 'reset' && thread === culprit && episode[n] === 1) fail(phase, kind)
        state.count[n] = 0
        observation[n] = 0
      }
    },
    step({ state, observation, reward, episode, step }, from, to) {
      for (let n = from; n < to; n++) {
        state.count[n]++
        observation[n] = state.count[n]
        reward[n] = 1
        if (phase !== 'step' || thread !== culprit || episode[n] !== 1 || step[n] !== 4 || n !== to - 1) continue
        if (kind === 'slow') workFor(60_000)
        else if (kind !== 'nan') fail(phase, kind)
        writeSync(1, 'failing\n')
        observation[n] = Number.NaN
      }
    },
  }),
})

/** A factory of something that is like `inner`, but for what `change` makes of it. */
function defineFaulty(id, settings, inner, change) {
  const factory = (parameters) => ({ ...inner, ...change(parameters), id, parameters, module: import.meta.url })
  return Object.assign(factory, { id, settings })
}

const innerPolicy = mlp({ hidden: [8] })

/** A small perceptron that fails in the culprit's `calls`th call of `phase`: infer, values or differentiate. */
export const faultyPolicy = defineFaulty('faulty-policy', { culprit }, innerPolicy, ({ culprit, phase, calls }) => ({
  build(...spaces) {
    const model = innerPolicy.build(...spaces)
    return {
      ...model,
      bind(...columns) {
        const policy = model.bind(...columns)
        const inner = policy[phase].bind(policy)
        let done = 0
        // Whoever is free takes the next block: the others leave the culprit time to take one.
        if (phase === 'differentiate' && thread !== culprit) {
          policy[phase] = (...words) => {
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
            return inner(...words)
          }
        }
        if (thread !== culprit) return policy
        policy[phase] = (...words) => (++done === calls ? fail(phase) : inner(...words))
        return policy
      },
    }
  },
}))
