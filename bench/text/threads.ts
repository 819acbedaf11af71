/** Sampling and training of language models by one thread and by as many as there are cores, in turns, to the same bits. */
import { availableParallelism } from 'node:os'
import { createTrainer, createWorld, languageModel, rl, textEnvironmentFactory } from '../../src/index.ts'
import { check, type Figure, figure, ratio } from '../measure.ts'

const reverse = textEnvironmentFactory('text/reverse')

const GROUPS = 16
const GROUP_SIZE = 16
const WARMUPS = 1
const REPEATS = 7
const SIZES = [
  { name: '132k', width: 64, layers: 2, numLanes: 256 },
  { name: '132k', width: 64, layers: 2, numLanes: 32 },
  { name: '1.05M', width: 128, layers: 4, numLanes: 256 },
  { name: '1.05M', width: 128, layers: 4, numLanes: 32 },
]

async function trainerOf({ width, layers, numLanes }: (typeof SIZES)[number], threads: number) {
  const world = await createWorld({
    environment: reverse({ numExamples: GROUPS } as never),
    policy: languageModel({ width, layers }),
    numLanes,
    groupSize: GROUP_SIZE,
    seed: 1,
  })
  const settings = { updates: WARMUPS + REPEATS, groupsPerUpdate: GROUPS, groupSize: GROUP_SIZE, learningRate: 1e-6 }
  return createTrainer(world, rl(settings), { threads })
}

async function figuresOf(size: (typeof SIZES)[number], threads: number): Promise<Figure[]> {
  const trainers = [await trainerOf(size, 1), await trainerOf(size, threads)]
  const turns = trainers.map((trainer) => ({
    updates: trainer.updates(),
    rollout: [] as number[],
    training: [] as number[],
  }))
  for (let round = 0; round < WARMUPS + REPEATS; round++) {
    const norms: number[] = []
    for (const { updates, rollout, training } of turns) {
      const { gradNorm, rl: figures } = (await updates.next()).value!
      const { rolloutSeconds, updateSeconds, sampledTokens, trainedTokens } = figures!
      norms.push(gradNorm)
      if (round < WARMUPS) continue
      rollout.push(rolloutSeconds / sampledTokens)
      training.push(updateSeconds / trainedTokens)
    }
    check(norms[0] === norms[1], `the gradient by ${threads} threads has the norm of that by one, ${norms}`)
  }
  for (const trainer of trainers) trainer.close()
  const { name, numLanes } = size
  return (['rollout', 'training'] as const).flatMap((what) => {
    const [sole, shared] = turns.map((turn) => turn[what])
    const title = `${what}, ${name} parameters, ${GROUPS} × ${GROUP_SIZE}, ${numLanes} lanes`
    const perSecond = (costs: readonly number[]) => costs.map((cost) => 1 / cost)
    return [
      figure(`${title}, 1 thread`, 'tokens/s', perSecond(sole!)),
      {
        ...figure(`${title}, ${threads} threads`, 'tokens/s', perSecond(shared!)),
        ratios: [ratio('1 thread', sole!, shared!)],
      },
    ]
  })
}

/** Figures of each size; none where there is one core. */
export async function threadFigures(): Promise<Figure[]> {
  const threads = availableParallelism()
  const figures: Figure[] = []
  for (const size of threads === 1 ? [] : SIZES) figures.push(...(await figuresOf(size, threads)))
  return figures
}
