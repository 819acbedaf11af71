/** Asynchrony with the local engine: it computes in the learner's thread, so what it brings is that no update waits for the longest conversation. */
import { createTrainer, createWorld, languageModel, rl } from '../../src/index.ts'
import { type Figure, figure, ratio } from '../measure.ts'
import { guessing } from './tasks.ts'

const LANES = 32
const GROUP = 4
const UPDATES = Number(process.env.UPDATES ?? 12)
const STALENESS = [0, 1, 4]
const REPEATS = 7

async function train(maxStaleness: number) {
  const policy = languageModel({ width: 64, layers: 2, heads: 2, context: 104 })
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
  const told = new Map(STALENESS.map((maxStaleness) => [maxStaleness, [] as Awaited<ReturnType<typeof train>>[]]))
  // In turns: neighbors in time share what the machine was doing.
  for (let i = 0; i < REPEATS; i++) for (const [maxStaleness, runs] of told) runs.push(await train(maxStaleness))
  const synchronous = told.get(0)!
  return [...told].map(([maxStaleness, runs]) => {
    const name = `local engine, maxStaleness ${maxStaleness}`
    const [rollout, update] = (['rollout', 'update'] as const).map((part) => {
      return (100 * runs.reduce((sum, run) => sum + run[part], 0)) / REPEATS
    })
    console.log(`${name}: ${rollout!.toFixed(0)} % of the time sampling, ${update!.toFixed(0)} % learning`)
    const secondsOf = (some: typeof runs) => some.map(({ tokensPerSecond }) => 1 / tokensPerSecond)
    const trained = figure(
      `${name}: trained`,
      'tokens/s',
      runs.map(({ tokensPerSecond }) => tokensPerSecond),
    )
    return maxStaleness === 0
      ? trained
      : { ...trained, ratios: [ratio('synchronous', secondsOf(synchronous), secondsOf(runs))] }
  })
}
