/**
 * A training with a service that may be killed at any time: `skyrl-run.ts URL LOSS UPDATES FOLDER`, started or resumed
 * from the last save. Saves after each update, then prints its number and reward.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { trainerAt } from './next-digit.ts'

const [url, loss, updates, folder] = process.argv.slice(2) as [string, string, string, string]
// With a constant rate it would sometimes collapse to one answer for all questions.
const trainer = await trainerAt(url, {
  loss,
  updates: Number(updates),
  groupSize: 16,
  learningRateSchedule: 'linear',
  folder,
})
if (existsSync(join(folder, 'checkpoints'))) await trainer.restore()
for await (const { rl: metrics } of trainer.updates({})) {
  await trainer.save()
  console.log(`update ${trainer.progress().rlUpdates} reward ${metrics!.reward}`)
}
await trainer.close()
