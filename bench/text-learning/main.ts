/**
 * `npm run bench -- text-learning`: tasks × algorithms × seeds by the presets, mean reward over the first and the last 100
 * groups. Minutes a training: `TASKS`, `LOSSES` and `SEEDS` in the environment name fewer, separated by commas.
 */
import type { TextEnvironmentId } from '../../src/entries/text.ts'
import { configureRun, createTrainer, createWorld } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { reportRoom } from '../report.ts'

const words = (name: string, otherwise: string) => (process.env[name] ?? otherwise).split(',')
const TASKS = words('TASKS', 'text/arithmetic-1,text/reverse')
const LOSSES = words('LOSSES', 'grpo,gspo,rloo,ppo')
const SEEDS = words('SEEDS', '1,2,3')
const GROUPS = 100

async function learn(task: string, loss: string, seed: string) {
  // Before the first of an update's steps the ratio is 1, and GSPO's gradient is GRPO's: the second is its own.
  const updateEpochs = loss === 'gspo' ? '2' : '1'
  const run = await configureRun(task as TextEnvironmentId, { seed, 'rl.loss': loss, 'rl.updateEpochs': updateEpochs })
  const { environment, policy, settings, sft, rl } = run
  const { groupSize } = rl!.settings
  const world = await createWorld({ environment, policy, numLanes: settings.numLanes, seed: settings.seed, groupSize })
  const trainer = createTrainer(world, [sft!, rl!])
  for await (const _ of trainer.updates({ phase: 'sft' }));
  const rewards: number[] = []
  for await (const { rl: figures } of trainer.updates()) rewards.push(...figures!.groupRewards)
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  return { first: mean(rewards.slice(0, GROUPS)), last: mean(rewards.slice(-GROUPS)), seconds: trainer.seconds }
}

const figures: Figure[] = []
for (const task of TASKS) {
  for (const loss of LOSSES) {
    const runs: Awaited<ReturnType<typeof learn>>[] = []
    for (const seed of SEEDS) {
      runs.push(await learn(task, loss, seed))
      const { first, last, seconds } = runs.at(-1)!
      console.log(
        `${task} by ${loss}, seed ${seed}: ${first.toFixed(3)} → ${last.toFixed(3)} in ${seconds.toFixed(0)} s`,
      )
    }
    const name = `${task} by ${loss}, seeds ${SEEDS.join(', ')}`
    figures.push(
      figure(
        `${name}: first ${GROUPS} groups`,
        'reward',
        runs.map(({ first }) => first),
        { atMost: 0.5 },
      ),
      figure(
        `${name}: last ${GROUPS} groups`,
        'reward',
        runs.map(({ last }) => last),
        { atLeast: 0.95 },
      ),
      figure(
        `${name}: training`,
        's',
        runs.map(({ seconds }) => seconds),
        { atMost: 600 },
      ),
    )
  }
}
reportRoom('text-learning', figures)
