/** Whole training loops against ours: the JAX twin, and Stable-Baselines3 at its zoo settings. */
import { execFile } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { promisify } from 'node:util'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { trainingRunner } from '../training/steps.ts'
import { peerSource } from './python.ts'

/** Updates of one run, and of the run that is checked before any is timed. */
const UPDATES = 10
const CHECKED_UPDATES = 40
const REPEATS = 7
const SB3_STEPS = 20_000
const SB3_REPEATS = 5
/** Mean return of a policy that has learnt something: random ones reach 22. */
const LEARNT = 100

interface Answer {
  readonly seconds: number
  readonly steps: number
  readonly meanReturn: number
  readonly version: string
}

/** Our training with one thread, and with as many as the machine has cores. */
async function ourRunners() {
  const cores = availableParallelism()
  const single = await trainingRunner({ threads: 1 })
  const all = cores > 1 ? await trainingRunner({ threads: cores }) : undefined
  for (const runner of [single, all]) {
    if (runner === undefined) continue
    await runner.train(CHECKED_UPDATES)
    check(runner.episodeReturn() > LEARNT, `our mean return is above ${LEARNT}, not ${runner.episodeReturn()}`)
  }
  return { cores, single, all }
}

export async function jaxFigures(python: string): Promise<Figure[]> {
  const peer = new Companion(python, [peerSource('jax_twin.py')])
  const { cores, single, all } = await ourRunners()
  try {
    const compiled = await peer.ask<Answer>(`compile ${UPDATES}`)
    let learnt: Answer | undefined
    for (let done = 0; done < CHECKED_UPDATES; done += UPDATES) learnt = await peer.ask<Answer>(`train ${UPDATES}`)
    const { meanReturn, version } = learnt!
    check(meanReturn > LEARNT, `the JAX twin's mean return is above ${LEARNT}, not ${meanReturn}`)
    const seconds = await interleave(
      {
        single: () => single.train(UPDATES),
        jax: async () => (await peer.ask<Answer>(`train ${UPDATES}`)).seconds,
        all: all === undefined ? () => Number.NaN : () => all.train(UPDATES),
      },
      { repeats: REPEATS },
    )
    const name = 'CartPole-v1, training, 256 × 32'
    const steps = UPDATES * single.steps
    const ours = (what: string, taken: number[], wanted?: { atLeast: number }): Figure => ({
      ...figure(`${name}, Colonnade, ${what}`, 'steps/s', rates(steps, taken)),
      ratios: [ratio('JAX twin', seconds.jax, taken, wanted)],
    })
    return [
      figure(`${name}, JAX ${version} twin, all cores`, 'steps/s', rates(steps, seconds.jax)),
      figure(`${name}, JAX twin, compilation (not counted above)`, 's', [compiled.seconds]),
      ours('1 thread', seconds.single, all === undefined ? { atLeast: 1.5 } : undefined),
      ...(all === undefined ? [] : [ours(`${cores} threads`, seconds.all, { atLeast: 1.5 })]),
    ]
  } finally {
    peer.close()
    single.close()
    all?.close()
  }
}

export async function stableBaselinesFigures(python: string): Promise<Figure[]> {
  const { cores, single, all } = await ourRunners()
  const ours = all ?? single
  try {
    let version = ''
    const theirs = async () => {
      const words = [peerSource('stable_baselines3.py'), '--config', 'zoo', '--total-steps', String(SB3_STEPS)]
      const { stdout } = await promisify(execFile)(python, words)
      const result = JSON.parse(stdout.trim().split('\n').at(-1)!) as {
        steps_per_second: number
        final_mean_return_100: number
        versions: { stable_baselines3: string }
      }
      check(result.final_mean_return_100 > 30, `Stable-Baselines3 learns, not ${result.final_mean_return_100}`)
      version = result.versions.stable_baselines3
      return 1 / result.steps_per_second
    }
    const seconds = await interleave(
      { ours: async () => (await ours.train(UPDATES)) / (UPDATES * ours.steps), theirs },
      { repeats: SB3_REPEATS, warmups: 0 },
    )
    const name = 'CartPole-v1, training'
    return [
      figure(`${name}, Stable-Baselines3 ${version}, zoo settings`, 'steps/s', rates(1, seconds.theirs)),
      {
        ...figure(`${name}, 256 × 32, Colonnade, ${all ? cores : 1} threads`, 'steps/s', rates(1, seconds.ours)),
        ratios: [ratio('Stable-Baselines3', seconds.theirs, seconds.ours, { atLeast: 40 })],
      },
    ]
  } finally {
    single.close()
    all?.close()
  }
}
