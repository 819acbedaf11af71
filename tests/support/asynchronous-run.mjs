/**
 * An asynchronous training in a folder, saved after every few ticks and gone on with from what was saved: `node asynchronous-run.mjs
 * FOLDER`. Prints a line of JSON for each restore, save and update: what conversations are under way, and what was learned from.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { defineEngine } from '../../dist/src/entries/engines.js'
import { createTrainer, createWorld, defineTextEnvironment, languageModel, rl } from '../../dist/src/index.js'

const [folder] = process.argv.slice(2)
const UPDATES = 6
const GROUP = 2

/** Generates by itself, a token in some milliseconds; a turn that is submitted again goes on behind what it had. */
const engine = defineEngine('streaming', ({ tokenizer }) => ({
  logprobs: 'candidates',
  async begin(turn) {
    const [group, member] = turn.request.key
    const total = 2 + ((7 * group + 3 * member) % 11)
    for (let i = turn.request.generated; i < total && turn.isOpen; i++) {
      await new Promise((resolve) => setTimeout(resolve, 1 + ((group + i) % 3)))
      turn.add(i + 1 < total ? (group + member + i) % 6 : tokenizer.endIds[0], -Math.log(6))
    }
  },
}))
const environment = defineTextEnvironment({
  id: 'text/killed',
  settings: {},
  make: () => ({
    numExamples: 5,
    maxTokens: 14,
    alphabet: '0123456789',
    example: (index) => ({ prompt: String(index) }),
    respond: async ({ completion }) => {
      await new Promise((resolve) => setTimeout(resolve, completion.length % 4))
      return { reward: completion.length % 3 }
    },
  }),
})()

const policy = languageModel({ width: 8, layers: 1, heads: 1 })
const world = await createWorld({ environment, policy, numLanes: 6, groupSize: GROUP, engine })
const settings = { updates: UPDATES, groupsPerUpdate: 2, groupSize: GROUP, maxStaleness: 2 }
const trainer = createTrainer(world, rl({ ...settings, lossSettings: { klCoef: 0 } }))
const cohort = world.cohort()

const tell = (what, more = {}) => console.log(JSON.stringify({ what, update: trainer.progress().rlUpdates, ...more }))
/** The conversations under way, as far as they stand, and which are over and wait. */
function state() {
  const { conversation, context, numLanes, trajectories } = cohort
  const hash = createHash('sha256')
  let underWay = 0
  for (let n = 0; n < numLanes; n++) {
    if (conversation.phase[n] === 0) continue
    underWay += conversation.length[n]
    hash.update(`${conversation.group[n]} ${conversation.member[n]} `)
    hash.update(conversation.token.slice(n * context, n * context + conversation.length[n]))
    hash.update(conversation.version.slice(n * context, n * context + conversation.length[n]))
  }
  for (let i = 0; i < trajectories.count; i++) hash.update(JSON.stringify(Object.values(trajectories.row(i).token)))
  return { underWay, begun: conversation.begun[0], hash: hash.digest('hex') }
}

if (existsSync(join(folder, 'checkpoints'))) {
  await trainer.restore(folder)
  tell('restored', state())
}
while (trainer.progress().rlUpdates < UPDATES) {
  const next = trainer.checkpointNumber + 5
  const stop = new AbortController()
  Object.defineProperty(stop.signal, 'aborted', { get: () => trainer.checkpointNumber >= next })
  for await (const { rl: told } of trainer.updates({ signal: stop.signal })) {
    const { group, member, promptId, advantage } = cohort.trajectories.columns()
    const rows = [...group.keys()].filter((i) => !Number.isNaN(advantage[i]))
    tell('learned', { rows: rows.map((i) => [group[i], member[i], promptId[i]]), staleness: told.staleness.max })
  }
  const saved = state()
  await trainer.save(folder)
  tell('saved', saved)
}
trainer.close()
