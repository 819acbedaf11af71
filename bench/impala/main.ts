/**
 * `npm run bench -- impala`: what actors gain that collect while others learn, where an environment sleeps so long that a rollout
 * waits as long as its update takes. Twice the steps a second is the most that can be gained. Returns do not depend on the time that
 * anything takes, so they are those of the same trainings without the sleep.
 */
import {
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentId,
  type PolicyDefinition,
  type UpdateMetrics,
} from '../../src/index.ts'
import { learn } from '../learning/learn.ts'
import { check, type Figure, figure, interleave, rates, ratio, spread } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { sleeping } from './sleeping.ts'

interface Setup {
  readonly environment: EnvironmentId
  readonly threads: number
  readonly updates: number
  readonly seeds: readonly number[]
  readonly episodes: number
  /** Settings of the training with actors, beside the preset's. */
  readonly stale: Readonly<Record<string, string>>
}

/** Of the corrections the one with which Breakout is learned best (`docs/log.md`). */
const STALE = { 'ppo.maxStaleness': '1', 'ppo.correction': 'decoupled', 'ppo.rhoMax': '2' }
const SETUPS: readonly Setup[] = [
  { environment: 'CartPole-v1', threads: 2, updates: 40, seeds: [1, 2, 3, 4, 5], episodes: 100, stale: STALE },
  {
    ...{ environment: 'Breakout-MinAtar', threads: 2, updates: 10, seeds: [1, 2, 3, 4, 5], episodes: 200 },
    // The preset moves the policy far in an update: rows that are an update old ask for a smaller clip.
    stale: { ...STALE, 'ppo.clipCoef': '0.1' },
  },
]
const median = (values: readonly number[]) => spread(values).median

/** A training by the preset of an environment that sleeps so many milliseconds a step. */
async function runner({ environment, threads }: Setup, milliseconds: number, texts: Readonly<Record<string, string>>) {
  const { algorithm, policy, settings } = await configureRun(environment, { policy: 'mlp', seed: '1', ...texts })
  const world = await createWorld({
    environment: sleeping({ environment, milliseconds }),
    policy: policy as PolicyDefinition,
    ...{ numLanes: settings.numLanes, seed: settings.seed },
  })
  const trainer = createTrainer(world, algorithm, { threads })
  const updates = trainer.updates({ totalSteps: Number.MAX_SAFE_INTEGER })
  const told: UpdateMetrics[] = []
  return {
    told,
    /** Wall-clock seconds of so many updates. */
    async train(count: number): Promise<number> {
      const start = performance.now()
      for (let i = 0; i < count; i++) {
        const { value, done } = await updates.next()
        if (!done) told.push(value)
      }
      return (performance.now() - start) / 1000
    },
    get weights(): Float32Array {
      return world.cohort().weights
    },
    steps: settings.numLanes * algorithm.numSteps,
    close: () => trainer.close(),
  }
}

/** Milliseconds a step for which a rollout of all threads takes as long as its update. */
async function calibrate(setup: Setup): Promise<number> {
  const awake = await runner(setup, 0, {})
  await awake.train(4 + setup.updates)
  awake.close()
  const seconds = median(awake.told.slice(4).map(({ updateSeconds, rolloutSeconds }) => updateSeconds - rolloutSeconds))
  return (1000 * seconds) / (await numStepsOf(setup))
}

async function numStepsOf({ environment }: Setup): Promise<number> {
  return (await configureRun(environment, {})).algorithm.numSteps
}

/** The sleep changes no bit, with actors or without. */
async function checkResults(setup: Setup): Promise<void> {
  for (const texts of [{}, setup.stale]) {
    const [asleep, awake] = [await runner(setup, 0.05, texts), await runner({ ...setup, threads: 3 }, 0, texts)]
    await asleep.train(3)
    await awake.train(3)
    const isSame = Buffer.from(asleep.weights.slice().buffer).equals(Buffer.from(awake.weights.slice().buffer))
    check(isSame, `${setup.environment}, ${JSON.stringify(texts)}: weights do not depend on the sleep`)
    asleep.close()
    awake.close()
  }
}

async function speedFigures(setup: Setup): Promise<Figure[]> {
  await checkResults(setup)
  const milliseconds = await calibrate(setup)
  const alone = await runner({ ...setup, threads: 1 }, milliseconds, {})
  const together = await runner(setup, milliseconds, {})
  const ahead = await runner(setup, milliseconds, setup.stale)
  const count = setup.updates
  const seconds = await interleave(
    { alone: () => alone.train(count), together: () => together.train(count), ahead: () => ahead.train(count) },
    { repeats: 5, warmups: 1 },
  )
  alone.close()
  together.close()
  ahead.close()
  const ofRollouts = together.told
    .slice(count)
    .map(({ rolloutSeconds, updateSeconds }) => rolloutSeconds / updateSeconds)
  const staleness = ahead.told.slice(count).map((metrics) => metrics.staleness!)
  const waits = ahead.told.slice(count).map((metrics) => metrics.learnerWaitSeconds! / metrics.updateSeconds)
  const weights = ahead.told.slice(count).map((metrics) => metrics.importanceWeightTruncated!)
  const name = `${setup.environment}, ${setup.threads} threads, steps that sleep ${milliseconds.toPrecision(3)} ms`
  const gained = [
    ratio(`${setup.threads} threads that collect, then learn`, seconds.together, seconds.ahead, { atLeast: 1.5 }),
    ratio('1 thread', seconds.alone, seconds.ahead),
  ]
  const { steps } = together
  return [
    figure(`${name}: all collect, then all learn`, 'steps/s', rates(steps * count, seconds.together)),
    figure(`${name}: 1 thread collects, then learns`, 'steps/s', rates(steps * count, seconds.alone)),
    figure(`${name}: a rollout's time of its update's`, '×', ofRollouts),
    {
      ...figure(`${name}: an actor, maxStaleness 1`, 'steps/s', rates(steps * count, seconds.ahead)),
      ratios: gained,
    },
    figure(`${name}: staleness`, 'updates', staleness),
    figure(`${name}: wait for a rollout of its update's time`, '×', waits),
    figure(`${name}: importance weight, truncated`, '', weights),
  ]
}

async function returnFigures({ environment, seeds, episodes, stale }: Setup): Promise<Figure[]> {
  const returns = async (settings: Readonly<Record<string, string>>) => {
    const found: number[] = []
    const task = { environment, settings: { policy: 'mlp', ...settings }, episodes }
    for (const seed of seeds) found.push((await learn(task, seed)).episodeReturn)
    return found
  }
  const together = await returns({})
  const ahead = await returns(stale)
  const name = `${environment} by its preset, seeds ${seeds.join(', ')}, return of ${episodes} fresh episodes`
  return [
    figure(name, 'return', together),
    figure(`${name}, maxStaleness 1`, 'return', ahead, { atLeast: Math.min(...together) }),
  ]
}

const figures: Figure[] = []
for (const setup of SETUPS) figures.push(...(await speedFigures(setup)), ...(await returnFigures(setup)))
reportRoom('impala', figures)
