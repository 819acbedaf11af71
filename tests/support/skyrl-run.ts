/**
 * A training by a service that may be killed at any time: `skyrl-run.ts URL LOSS UPDATES FOLDER`, begun or gone on with from what was
 * saved last. Saves after each update, and then prints the update's number and its reward.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { trainerAt } from './next-digit.ts'

const [url, loss, updates, folder] = process.argv.slice(2) as [string, string, string, string]
// At its first rate to the end it would sometimes come to give one answer to all questions.
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
