/**
 * `npm run bench -- gymnasium`: whole trainings of LunarLander-v3, which Python steps, by our PPO (`fromGymnasium`) and by
 * Stable-Baselines3's; and Stable-Baselines3's PPO on CartPole-v1 as Colonnade steps it (`ColonnadeVectorEnv`) and as Gymnasium does. Needs
 * Python 3.11 or newer and PyPI at the first visit.
 */
import { fileURLToPath } from 'node:url'
import { fromGymnasium } from '../../src/entries/environments.ts'
import { createTrainer, createWorld, mlp, ppo } from '../../src/index.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'
import { runnerOf } from '../training/steps.ts'

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))

interface Answer {
  readonly seconds: number
  readonly meanReturn: number | null
  readonly version: string
}

/** Stable-Baselines3's PPO on these lanes, once they are there. */
async function twinOf(python: string, environment: string, lanes: string): Promise<Companion> {
  const words = [peerSource('gymnasium_twins.py'), '--environment', environment, '--lanes', lanes]
  const twin = new Companion(python, [...words, '--command', process.execPath, MAIN])
  await twin.ask<object>('train 1') // Untimed: everything is there then.
  return twin
}

/** Ours and theirs by the settings of RL Zoo for this environment, but rollouts of 256 steps: 16 lanes, minibatches of 64 rows. */
async function lander(python: string): Promise<Figure[]> {
  const [numLanes, numSteps] = [16, 256]
  const environment = fromGymnasium({ id: 'LunarLander-v3', module: import.meta.url, python })()
  const world = await createWorld({ environment, policy: mlp(), numLanes, seed: 1 })
  const learner = ppo({
    ...{ numSteps, numMinibatches: 64, updateEpochs: 4, gamma: 0.999, gaeLambda: 0.98, entropyCoef: 0.01 },
    ...{ learningRate: 3e-4, learningRateSchedule: 'constant' },
  })
  const ours = runnerOf(createTrainer(world, learner, { threads: 1 }), numLanes * numSteps)
  const twins = {
    DummyVecEnv: await twinOf(python, 'LunarLander-v3', 'dummy'),
    SubprocVecEnv: await twinOf(python, 'LunarLander-v3', 'subproc'),
  }
  try {
    const answers: Record<string, Answer> = {}
    const runs = Object.entries(twins).map(([name, twin]) => [
      name,
      async () => {
        answers[name] = await twin.ask<Answer>('train 1')
        return answers[name].seconds
      },
    ])
    const seconds = await interleave({ ours: () => ours.train(1), ...Object.fromEntries(runs) }, { repeats: 3 })
    for (const [name, { meanReturn }] of Object.entries(answers)) learnt(name, meanReturn, -400)
    learnt('Colonnade', ours.episodeReturn(), -400) // They have just begun: actions at random return about −190.
    const told = (who: string, taken: number[]) =>
      figure(`LunarLander-v3, PPO, ${who}`, 'steps/s', rates(ours.steps, taken))
    return [
      ...Object.keys(twins).map((name) => told(`Stable-Baselines3 ${answers[name]!.version}, ${name}`, seconds[name]!)),
      {
        ...told('Colonnade, 1 thread, by fromGymnasium', seconds.ours!),
        ratios: Object.keys(twins).map((name) => ratio(name, seconds[name]!, seconds.ours!)),
      },
    ]
  } finally {
    for (const twin of Object.values(twins)) twin.close()
    ours.close()
  }
}

/** Stable-Baselines3's PPO on 64 lanes of 128 steps, and these lanes alone. */
async function cartPole(python: string): Promise<Figure[]> {
  const [numLanes, numSteps, alone] = [64, 128, 500]
  const theirs = await twinOf(python, 'CartPole-v1', 'sync')
  const ours = await twinOf(python, 'CartPole-v1', 'colonnade')
  try {
    const answers: Record<string, Answer> = {}
    const ask = (name: string, twin: Companion, request: string) => async () => {
      answers[name] = await twin.ask<Answer>(request)
      return answers[name].seconds
    }
    const trained = await interleave(
      { theirs: ask('theirs', theirs, 'train 2'), ours: ask('ours', ours, 'train 2') },
      { repeats: 3 },
    )
    for (const name of ['theirs', 'ours']) learnt(name, answers[name]!.meanReturn, 30)
    const stepped = await interleave(
      { theirs: ask('theirs', theirs, `step ${alone}`), ours: ask('ours', ours, `step ${alone}`) },
      { repeats: 3 },
    )
    const told = (what: string, steps: number, taken: { theirs: number[]; ours: number[] }): Figure[] => [
      figure(`${what}, gymnasium.make_vec`, 'steps/s', rates(steps, taken.theirs)),
      {
        ...figure(`${what}, ColonnadeVectorEnv`, 'steps/s', rates(steps, taken.ours)),
        ratios: [ratio('gymnasium.make_vec', taken.theirs, taken.ours)],
      },
    ]
    return [
      ...told("CartPole-v1, Stable-Baselines3's PPO", 2 * numLanes * numSteps, trained as never),
      ...told('CartPole-v1, its lanes alone', alone * numLanes, stepped as never),
    ]
  } finally {
    theirs.close()
    ours.close()
  }
}

function learnt(name: string, got: number | null, least: number): void {
  check(got !== null && got > least, `the mean return by ${name} is above ${least}, not ${got}`)
}

const python = peerPython()
reportRoom('gymnasium', [...(await lander(python)), ...(await cartPole(python))])
