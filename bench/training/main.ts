/** `npm run bench -- training`: rollouts, updates, and whole runs from the start of `node`. */
import { availableParallelism } from 'node:os'
import { cartPole, pendulum } from '../../src/index.ts'
import { check, type Figure, figure, interleave, rates } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { rolloutRunner, trainingRunner } from './steps.ts'
import { threadFigures } from './threads.ts'
import { fromNode } from './whole-runs.ts'

const UPDATES = 10
/** Mean return of a policy that has learnt something: random ones reach 22. */
const LEARNT = 100

async function stepFigures(): Promise<Figure[]> {
  const cores = availableParallelism()
  const single = await trainingRunner({ threads: 1 })
  const double = cores > 1 ? await trainingRunner({ threads: 2 }) : undefined
  for (const runner of [single, double]) {
    if (runner === undefined) continue
    await runner.train(4 * UPDATES)
    check(runner.episodeReturn() > LEARNT, `the mean return is above ${LEARNT}, not ${runner.episodeReturn()}`)
  }
  const rollout = await rolloutRunner()
  const seconds = await interleave({
    rollout,
    single: () => single.train(UPDATES),
    double: () => double?.train(UPDATES) ?? Number.NaN,
  })
  single.close()
  double?.close()
  const name = `${cartPole().id}, 256 lanes × 32 steps`
  const training = `${name}, training (two 64-64 nets, 4 epochs, 8 minibatches)`
  const { steps } = single
  return [
    figure(`${name}, rollout, 1 thread`, 'steps/s', rates(steps, seconds.rollout)),
    figure(`${training}, 1 thread`, 'steps/s', rates(steps * UPDATES, seconds.single)),
    ...(double ? [figure(`${training}, 2 threads`, 'steps/s', rates(steps * UPDATES, seconds.double))] : []),
  ]
}

async function wholeRunFigures(): Promise<Figure[]> {
  const solved = await fromNode(cartPole().id, { seeds: Array.from({ length: 20 }, (_, i) => i + 1), repeats: 2 })
  const swung = await fromNode(pendulum().id, { seeds: [1, 2, 3], repeats: 2 })
  return [
    figure('CartPole-v1, preset, from `node` starting to solved, seeds 1–20', 's', solved.solvedSeconds, {
      atMost: 0.6,
    }),
    figure('CartPole-v1, preset, steps until solved', 'steps', solved.solvedSteps),
    figure('CartPole-v1, preset, return of 100 fresh episodes', 'return', solved.returns, { atLeast: 475 }),
    figure('Pendulum-v1, preset, whole process, seeds 1–3', 's', swung.wholeSeconds, { atMost: 1.5 }),
    figure('Pendulum-v1, preset, return of 100 fresh episodes', 'return', swung.returns, { atLeast: -180 }),
  ]
}

reportRoom('training', [...(await stepFigures()), ...(await threadFigures()), ...(await wholeRunFigures())])
