/**
 * Conversations of three turns under a template that rewrites earlier ones: a training in a folder, saved after each tick and
 * gone on with from what was saved. `node three-turns-run.mjs MODEL FOLDER`; without a folder it is never saved. Prints each
 * save with its tick and the rows that conversations under way have put aside, and at the end the weights' checksum.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createTrainer, createWorld, defineTextEnvironment, languageModel, rl } from '../../dist/src/index.js'

const [modelFolder, folder] = process.argv.slice(2)

const environment = defineTextEnvironment({
  id: 'text/three-turns',
  settings: {},
  make: () => ({
    numExamples: 3,
    maxTurns: 3,
    maxTokens: 5,
    example: (index) => ({ prompt: [{ role: 'user', content: `${index}?` }] }),
    respond: ({ completion, messages, turn }) => {
      const said = [...messages.map(({ content }) => content), completion].join('')
      return { reward: said.length / 100 + turn, messages: [{ role: 'user', content: `${turn}!` }] }
    },
  }),
})()
const policy = languageModel({ folder: modelFolder, templateArguments: ['enable_thinking=false'] })
const world = await createWorld({ environment, policy, numLanes: 6, seed: 2, groupSize: 3, cutTurn: 'continue' })
const trainer = createTrainer(world, rl({ updates: 6, groupsPerUpdate: 2, groupSize: 3, learningRate: 1e-2 }))
if (folder && existsSync(join(folder, 'checkpoints'))) await trainer.restore(folder)

let saves = 0
while (trainer.progress().rlUpdates < 6) {
  const next = folder ? trainer.moves + 1 : Number.POSITIVE_INFINITY
  const stop = new AbortController()
  Object.defineProperty(stop.signal, 'aborted', { get: () => trainer.moves >= next })
  for await (const _ of trainer.updates({ signal: stop.signal }));
  if (!folder) continue
  await trainer.save(folder)
  console.log(`save ${++saves}: tick ${trainer.moves}, ${world.cohort().segments.flat().length} rows put aside`)
}
const { weights } = world.cohort()
console.log(`weights ${createHash('sha256').update(weights).digest('hex')} after ${trainer.moves} ticks`)
trainer.close()
