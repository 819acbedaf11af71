/** Whole training loops against ours: the JAX twin. */
import { availableParallelism } from 'node:os'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { trainingRunner } from '../training/steps.ts'
import { peerSource } from './python.ts'

/** A loop that both run. Widths are of both hidden layers of either net; `checked` updates come before any is timed. */
interface Loop {
  readonly numLanes: number
  readonly numSteps: number
  readonly width: number
  readonly numMinibatches: number
  readonly learningRate: number
  /** Updates of one run. */
  readonly updates: number
  /** Runs before any is timed, after which both have to have learnt. */
  readonly checkedRuns: number
  /** Times as many steps a second as the JAX twin. */
  readonly wanted: number
}

const LARGE = { numLanes: 256, numSteps: 32, numMinibatches: 8, learningRate: 2e-3 }
const LOOPS: readonly Loop[] = [
  { ...LARGE, width: 64, updates: 10, checkedRuns: 4, wanted: 2 },
  { ...LARGE, width: 256, updates: 2, checkedRuns: 4, wanted: 1.3 },
  { ...LARGE, width: 512, updates: 1, checkedRuns: 6, wanted: 1.2 },
  // PureJaxRL's own.
  {
    numLanes: 4,
    numSteps: 128,
    width: 64,
    numMinibatches: 4,
    learningRate: 2.5e-4,
    updates: 100,
    checkedRuns: 4,
    wanted: 1.5,
  },
]
const REPEATS = 7
/** Mean return of a policy that has learnt something: random ones reach 22. */
const LEARNT = 30

interface Answer {
  readonly seconds: number
  readonly steps: number
  readonly meanReturn: number
  readonly version: string
}

/** Our training with one thread, and with as many as the machine has cores. */
async function ourRunners({ width, updates, checkedRuns, ...loop }: Loop) {
  const cores = availableParallelism()
  const single = await trainingRunner({ ...loop, hidden: [width, width], threads: 1 })
  const all = cores > 1 ? await trainingRunner({ ...loop, hidden: [width, width], threads: cores }) : undefined
  for (const runner of [single, all]) {
    if (runner === undefined) continue
    await runner.train(updates * checkedRuns)
    check(runner.episodeReturn() > LEARNT, `our mean return is above ${LEARNT}, not ${runner.episodeReturn()}`)
  }
  return { cores, single, all }
}

/** The JAX twin on all cores, or on one: compiled, and with the first runs behind it. */
async function jaxTwin(python: string, loop: Loop, cores: number) {
  const { numLanes, numSteps, width, numMinibatches, learningRate, updates, checkedRuns } = loop
  const sizes = ['--envs', numLanes, '--steps', numSteps, '--hidden', width, '--minibatches', numMinibatches]
  const words = [peerSource('jax_twin.py'), ...sizes, '--learning-rate', learningRate, '--cores', cores]
  const peer = new Companion(python, words.map(String))
  const compiled = await peer.ask<Answer>(`compile ${updates}`)
  const run = () => peer.ask<Answer>(`train ${updates}`)
  let learnt = await run()
  for (let done = 1; done < checkedRuns; done++) learnt = await run()
  check(learnt.meanReturn > LEARNT, `the JAX twin's mean return is above ${LEARNT}, not ${learnt.meanReturn}`)
  return { compileSeconds: compiled.seconds, version: learnt.version, run, close: () => peer.close() }
}

/** The same loop at several widths, and at PureJaxRL's own size. The faster of the twins on one core and on all is the one to beat. */
export async function jaxFigures(python: string): Promise<Figure[]> {
  const figures: Figure[] = []
  for (const loop of LOOPS) figures.push(...(await loopFigures(python, loop)))
  return figures
}

async function loopFigures(python: string, loop: Loop): Promise<Figure[]> {
  const { numLanes, numSteps, width, updates, wanted } = loop
  const { cores, single, all } = await ourRunners(loop)
  const one = await jaxTwin(python, loop, 1)
  const every = cores > 1 ? await jaxTwin(python, loop, 0) : undefined
  try {
    const absent = () => Number.NaN
    const seconds = await interleave(
      {
        single: () => single.train(updates),
        one: async () => (await one.run()).seconds,
        all: all === undefined ? absent : () => all.train(updates),
        every: every === undefined ? absent : async () => (await every.run()).seconds,
      },
      { repeats: REPEATS },
    )
    const name = `CartPole-v1, training, ${numLanes} × ${numSteps}, two ${width}-${width} nets`
    const steps = updates * single.steps
    const told = (who: string, taken: number[]) => figure(`${name}, ${who}`, 'steps/s', rates(steps, taken))
    const against = (taken: number[], isBest: boolean) => [
      ratio('JAX twin, 1 core', seconds.one, taken, isBest ? { atLeast: wanted } : undefined),
      ...(every === undefined
        ? []
        : [ratio('JAX twin, all cores', seconds.every, taken, isBest ? { atLeast: wanted } : undefined)]),
    ]
    return [
      told(`JAX ${one.version} twin, 1 core`, seconds.one),
      ...(every === undefined ? [] : [told(`JAX ${one.version} twin, all cores`, seconds.every)]),
      figure(`${name}, JAX twin, compilation (not counted above)`, 's', [one.compileSeconds]),
      { ...told('Colonnade, 1 thread', seconds.single), ratios: against(seconds.single, all === undefined) },
      ...(all === undefined
        ? []
        : [{ ...told(`Colonnade, ${cores} threads`, seconds.all), ratios: against(seconds.all, true) }]),
    ]
  } finally {
    one.close()
    every?.close()
    single.close()
    all?.close()
  }
}
