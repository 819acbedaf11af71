/**
 * An existing environment, as an object with `reset` and `step`: a game of catch. An apple falls from the top of a
 * field, and a basket moves along its bottom. The class does not know Colonnade; `fromObjects` makes one object per
 * lane. It learns in a second or two.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { box, createTrainer, createWorld, discrete, evaluate, mlp, ppo } from 'colonnade'
import { fromObjects } from 'colonnade/environments'

const [WIDTH, HEIGHT] = [7, 8]

class Catch {
  apple = 0
  height = 0
  basket = 0

  reset(seed: number) {
    this.apple = seed % WIDTH
    this.basket = Math.floor(seed / WIDTH) % WIDTH
    this.height = HEIGHT
    return { observation: this.#seen() }
  }

  /** 0 moves the basket to the left, 1 leaves it, 2 moves it to the right. */
  step(action: number) {
    this.basket = Math.min(Math.max(this.basket + action - 1, 0), WIDTH - 1)
    this.height--
    const terminated = this.height === 0
    const reward = terminated ? (this.basket === this.apple ? 1 : -1) : 0
    return { observation: this.#seen(), reward, terminated, truncated: false }
  }

  #seen(): number[] {
    return [this.apple / (WIDTH - 1), this.basket / (WIDTH - 1), this.height / HEIGHT]
  }
}

export const catchGame = fromObjects(() => new Catch(), {
  id: 'Catch-v0',
  module: import.meta.url, // Lets another thread, or a resumed run, make the objects too.
  observationSpace: box({ low: 0, high: 1, shape: [3] }),
  actionSpace: discrete(3),
  maxEpisodeSteps: HEIGHT,
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  const environment = catchGame()
  const world = await createWorld({ environment, policy: mlp({ hidden: [32] }), numLanes: 32, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 32, learningRate: 5e-3 }))
  for await (const { update, steps, episodeReturn } of trainer.updates({ totalSteps: 120_000 })) {
    if (update % 10 === 0) console.log(`${steps} steps, return ${episodeReturn.toFixed(2)}`)
  }

  const { weights } = world.cohorts[0]!
  const { episodeReturn } = await evaluate({ environment, policy: mlp({ hidden: [32] }), weights, episodes: 100 })
  console.log(`greedy: return ${episodeReturn.mean.toFixed(2)} ± ${episodeReturn.std.toFixed(2)}`)
}
