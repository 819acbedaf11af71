/**
 * A training of conversations with three turns, under a template that rewrites earlier ones. `three-turns-run.ts MODEL
 * FOLDER` saves after each tick and resumes from the last save; without a folder it never saves. Prints each save with
 * its tick and the finished segments of running conversations, and at the end the weights' checksum.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { trained, trainerOf } from './three-turns.ts'

const [model, folder] = process.argv.slice(2)
const trainer = await trainerOf(6, ['enable_thinking=false'], { model })
if (folder !== undefined && existsSync(join(folder, 'checkpoints'))) await trainer.restore(folder)

const cohort = trainer.world.cohort()
let saves = 0
while (trainer.progress().rlUpdates < 6) {
  const next = folder === undefined ? Number.POSITIVE_INFINITY : trainer.checkpointNumber + 1
  const stop = new AbortController()
  Object.defineProperty(stop.signal, 'aborted', { get: () => trainer.checkpointNumber >= next })
  await trained(trainer, stop.signal)
  if (folder === undefined) continue
  await trainer.save(folder)
  console.log(`save ${++saves}: tick ${trainer.checkpointNumber}, ${cohort.segments.flat().length} rows put aside`)
}
console.log(
  `weights ${createHash('sha256').update(cohort.weights).digest('hex')} after ${trainer.checkpointNumber} ticks`,
)
trainer.close()
