/** How many threads a run takes when it is left to it, beside the other choice: what was chosen should be no slower. */
import { availableParallelism } from 'node:os'
import { configureRun, type EpisodeRunDefinition, runTrainer } from '../../src/index.ts'
import { type Figure, figure, interleave, rates, ratio } from '../measure.ts'

/** Lanes, steps, minibatches and width of the two networks' layers. */
const SHAPES: readonly (readonly [lanes: number, steps: number, minibatches: number, width: number])[] = [
  [4, 128, 4, 64],
  [16, 128, 4, 64],
  [256, 32, 8, 64],
  [256, 128, 4, 64],
  [16, 128, 4, 256],
]
const UPDATES = 4

async function runnerOf([lanes, steps, minibatches, width]: (typeof SHAPES)[number], threads: number) {
  const definition = (await configureRun('CartPole-v1', {
    numLanes: String(lanes),
    totalSteps: String(1e12),
    threads: String(threads),
    'ppo.numSteps': String(steps),
    'ppo.numMinibatches': String(minibatches),
    'mlp.hidden': `${width},${width}`,
  })) as EpisodeRunDefinition
  const trainer = await runTrainer(definition)
  const updates = trainer.updates({ totalSteps: definition.settings.totalSteps })
  const train = async (): Promise<number> => {
    const start = performance.now()
    for (let i = 0; i < UPDATES; i++) await updates.next()
    return (performance.now() - start) / 1000
  }
  return { train, threads: trainer.world.threads.count, close: () => trainer.close() }
}

/** A figure for each shape; none on a machine that runs one thread at a time. */
export async function threadFigures(): Promise<Figure[]> {
  const figures: Figure[] = []
  if (availableParallelism() < 2) return figures
  for (const shape of SHAPES) {
    const chosen = await runnerOf(shape, 0)
    const other = await runnerOf(shape, chosen.threads === 1 ? 2 : 1)
    const seconds = await interleave({ chosen: chosen.train, other: other.train }, { repeats: 9, warmups: 3 })
    chosen.close()
    other.close()
    const [lanes, steps, minibatches, width] = shape
    const what = `CartPole-v1, ${lanes} lanes × ${steps} steps, ${minibatches} minibatches, two ${width}-${width} nets`
    const name = `${what}, training with the threads that a run chooses (${chosen.threads})`
    const ratios = [ratio(`${other.threads} threads`, seconds.other, seconds.chosen, { atLeast: 0.95 })]
    figures.push({ ...figure(name, 'steps/s', rates(lanes * steps * UPDATES, seconds.chosen)), ratios })
  }
  return figures
}
