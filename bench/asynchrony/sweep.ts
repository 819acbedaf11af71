/** What a model has learned after so many updates, by how stale what it learns from may be. */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { drawCurves } from '../../src/entries/data.ts'
import { createTrainer, createWorld, languageModel, rl, sft } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { codes } from './tasks.ts'

const STALENESS = (process.env.STALENESS ?? '0,1,2,4,8').split(',').map(Number)
const SEEDS = (process.env.SEEDS ?? '1,2,3,4,5').split(',').map(Number)
const UPDATES = Number(process.env.UPDATES ?? 120)
const [GROUPS, SIZE] = [8, 8]
/** Updates at the end over which rewards are averaged. */
const LAST = 10

const losses = {
  /** The ratio is to the probabilities with which tokens were sampled, by whatever weights. */
  naive: { correction: 'none' },
  /** It is to those of the weights before the update, and a truncated weight stands for the rest. */
  decoupled: { correction: 'token-truncate', correctionHigh: 2 },
} as const

async function learn(loss: keyof typeof losses, maxStaleness: number, seed: number) {
  const world = await createWorld({
    ...{ environment: codes(), policy: languageModel({ width: 16, layers: 1, heads: 2 }), seed, groupSize: SIZE },
    numLanes: (maxStaleness + 1) * GROUPS * SIZE, // As many as may be sampled ahead: then they are as stale as they may be.
  })
  const settings = { groupsPerUpdate: GROUPS, groupSize: SIZE, updates: UPDATES, maxStaleness, learningRate: 0.003 }
  const lossSettings = { ...losses[loss], klCoef: 0, entropyCoef: 0.01, aggregation: 'token-mean' } as const
  const trainer = createTrainer(world, [sft({ updates: 10 }), rl({ ...settings, lossSettings })])
  const rewards: number[] = []
  let [age, apart] = [0, 0]
  for await (const { rl: told } of trainer.updates()) {
    if (told === null) continue
    rewards.push(told.reward!)
    age += told.staleness!.mean / UPDATES
    apart += (told.mismatchKl ?? 0) / UPDATES
  }
  trainer.close()
  const mean = (some: readonly number[]) => some.reduce((sum, reward) => sum + reward, 0) / some.length
  return { reward: mean(rewards.slice(-LAST)), all: mean(rewards), age, apart }
}

export async function benchSweep(): Promise<Figure[]> {
  const figures: Figure[] = []
  const curves = Object.keys(losses).map((name) => ({ name, points: [] as { x: number; y: number }[] }))
  console.log(
    `maxStaleness  loss       mean reward of the last ${LAST} of ${UPDATES} updates, by seed     of all   staleness  mismatch KL`,
  )
  for (const maxStaleness of STALENESS) {
    for (const [i, loss] of (Object.keys(losses) as (keyof typeof losses)[]).entries()) {
      const runs: Awaited<ReturnType<typeof learn>>[] = []
      for (const seed of SEEDS) runs.push(await learn(loss, maxStaleness, seed))
      const mean = (of: (run: (typeof runs)[number]) => number) =>
        runs.reduce((sum, run) => sum + of(run), 0) / runs.length
      const rewards = runs.map(({ reward }) => reward)
      const words = `${mean(({ reward }) => reward).toFixed(3)} (${rewards.map((each) => each.toFixed(3)).join(', ')})`
      const apart = loss === 'naive' ? '' : mean(({ apart }) => apart).toFixed(5)
      console.log(
        `${String(maxStaleness).padStart(12)}  ${loss.padEnd(9)}  ${words.padEnd(54)}  ${mean(({ all }) => all).toFixed(3)}  ${mean(
          ({ age }) => age,
        )
          .toFixed(2)
          .padStart(9)}  ${apart}`,
      )
      curves[i]!.points.push({ x: maxStaleness, y: mean(({ all }) => all) })
      figures.push(figure(`maxStaleness ${maxStaleness}, ${loss}: last ${LAST} updates`, 'reward', rewards))
    }
  }
  const inDist = import.meta.url.includes('/dist/bench/')
  const path = fileURLToPath(new URL(`${inDist ? '../../../' : '../../'}docs/staleness.svg`, import.meta.url))
  const drawn = drawCurves(curves, { x: 'maxStaleness', y: `mean reward of ${UPDATES} updates` })
  writeFileSync(path, drawn.replace('>\n', '>\n<title>What is learned by how stale it may be</title>\n'))
  console.log(`wrote ${path}`)
  return figures
}
