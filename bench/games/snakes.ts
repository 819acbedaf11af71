/** Snakes: how long they are on average, before a training and after it. */
import { configureRun, createTrainer, createWorld, infer, reset, step, store } from '../../src/index.ts'
import { trainingOf } from '../learning/learn.ts'

const ID = 'Snake-v0'
/** Snakes that are measured, over one episode each. */
const LANES = 256

/** Mean lengths over all steps of an episode: of snakes at random, and of those that learned by the preset. */
export async function measureSnakes(seed: number, settings: Readonly<Record<string, string>> = {}) {
  const run = await configureRun(ID, { ...settings, seed: String(seed) })
  const { environment, policy, algorithm } = run
  const { numLanes, totalSteps } = run.settings
  const world = await createWorld({ environment, policy, numLanes, seed })
  const trainer = createTrainer(world, algorithm)
  const start = performance.now()
  for await (const _ of trainer.updates({ totalSteps }));
  const training = trainingOf(run, trainer.steps, start)
  const weights = Float32Array.from(world.cohort().weights)
  trainer.close()

  async function meanLength(play: { readonly learned: boolean }): Promise<number> {
    const world = await createWorld({ environment, policy, numLanes: LANES, seed: 1000 + seed, explore: false })
    const cohort = world.cohort()
    cohort.weights.set(weights)
    const { length } = cohort.state as unknown as { readonly length: Int32Array }
    let sum = 0
    let word = seed
    for (let t = 0; t < environment.maxEpisodeSteps!; t++) {
      reset(world)
      infer(world)
      for (let n = 0; n < LANES && !play.learned; n++) {
        word = (Math.imul(word, 1664525) + 1013904223) >>> 0
        cohort.action.chosen[n] = Math.floor((word / 2 ** 32) * 3)
      }
      step(world)
      for (let n = 0; n < LANES; n++) sum += length[n]!
      store(world)
    }
    world.close()
    return sum / (LANES * environment.maxEpisodeSteps!)
  }
  return { random: await meanLength({ learned: false }), learned: await meanLength({ learned: true }), training }
}
