/** Asynchrony with the local engine: it computes in the learner's thread, so what it brings is that no update waits for the longest conversation. */
import { createTrainer, createWorld, languageModel, rl } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { guessing } from './tasks.ts'

const LANES = 32
const GROUP = 4
const UPDATES = Number(process.env.UPDATES ?? 12)

async function train(maxStaleness: number) {
  const policy = languageModel({ width: 64, layers: 2, heads: 2 })
  const world = await createWorld({ environment: guessing(), policy, numLanes: LANES, groupSize: GROUP })
  const settings = { groupsPerUpdate: LANES / GROUP, groupSize: GROUP, updates: UPDATES, maxStaleness }
  const trainer = createTrainer(world, rl({ ...settings, lossSettings: { klCoef: 0 } }))
  const began = performance.now()
  let [tokens, rollout, update] = [0, 0, 0]
  for await (const { rl: told } of trainer.updates()) {
    tokens += told!.sampledTokens
    rollout += told!.rolloutSeconds
    update += told!.updateSeconds
  }
  const seconds = (performance.now() - began) / 1000
  trainer.close()
  return { tokensPerSecond: tokens / seconds, rollout: rollout / seconds, update: update / seconds }
}

export async function benchLocal(): Promise<Figure[]> {
  const figures: Figure[] = []
  for (const maxStaleness of [0, 1, 4]) {
    const { tokensPerSecond, rollout, update } = await train(maxStaleness)
    const parts = `${(100 * rollout).toFixed(0)} % sampling, ${(100 * update).toFixed(0)} % learning`
    console.log(`local engine, maxStaleness ${maxStaleness}: ${tokensPerSecond.toFixed(0)} tokens/s, ${parts}`)
    figures.push(figure(`local engine, maxStaleness ${maxStaleness}: trained`, 'tokens/s', [tokensPerSecond]))
  }
  return figures
}
