/**
 * `npm run bench -- agents`: a thousand agents at once in one process, each of which awaits timers of its own between its calls to
 * the model. Tells how many calls advance together, what the memory does, and checks that agents say what they say one at a time. And how
 * long a call through a gateway takes behind few turns and behind many.
 */
import { setTimeout as wait } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { openGateway, scriptedEngine } from '../../src/entries/engines.ts'
import { byteTokenizer, defineAgent } from '../../src/entries/text.ts'
import { createWorld, languageModel, Random, Stream, tick } from '../../src/index.ts'
import { check, figure } from '../measure.ts'
import { reportRoom } from '../report.ts'

const AGENTS = 1000
const CONVERSATIONS = 5000
/** Conversations that are had once more, one at a time. */
const COMPARED = 20
/** Milliseconds between two turns, at most. */
const LONGEST = 50

const patient = defineAgent({
  id: 'text/patient',
  settings: {},
  make: () => ({
    numExamples: CONVERSATIONS,
    maxTurns: 3,
    maxTokens: 8,
    alphabet: '0123456789',
    example: (index) => ({ prompt: String(index) }),
    async run({ exampleIndex, generate }) {
      const random = new Random(7)
      random.draw(Stream.reset, exampleIndex, 0, 0)
      const { completion } = await generate()
      let length = completion.length
      for (let turn = 1; turn < 3; turn++) {
        await wait(LONGEST * random.uniform(turn))
        length += (await generate({ messages: [{ role: 'user', content: String(turn) }] })).completion.length
      }
      return { reward: length }
    },
  }),
})

async function converse(numLanes: number, conversations: number) {
  const policy = languageModel({ width: 32, layers: 2 })
  const world = await createWorld({ environment: patient(), policy, numLanes, seed: 1, cutTurn: 'continue' })
  const cohort = world.cohort()
  const { engine, trajectories } = cohort
  cohort.released = conversations
  let [advances, calls] = [0, 0]
  const advance = engine.advance.bind(engine)
  engine.advance = () => {
    advances++
    calls += cohort.submitted.reduce((sum, isSubmitted) => sum + isSubmitted, 0)
    return advance()
  }
  /** Megabytes after each fifth of the conversations: what is not given back, without the conversations that are kept. */
  const megabytes: number[] = []
  const start = performance.now()
  while (trajectories.numConversations < conversations) {
    const waiting = tick(world)
    if (waiting !== undefined) await waiting
    if (trajectories.numConversations < ((megabytes.length + 1) * conversations) / 5) continue
    gc()
    megabytes.push(process.memoryUsage().heapUsed / 1e6)
  }
  const seconds = (performance.now() - start) / 1000
  const order = trajectories.order()
  const rows = Array.from({ length: conversations }, (_, i) => {
    const { promptId, token, logprob, reward } = trajectories.row(order[i]!)
    return JSON.stringify([promptId, Array.from(token), Array.from(logprob, String), reward])
  })
  world.close()
  return { rows, seconds, megabytes, batch: calls / advances, turns: 3 * conversations }
}

/** Turns of a session before a call. */
const BEHIND = [4, 16, 64, 150]

/** Milliseconds of a call through a gateway behind so many turns of 200 tokens, over an engine that takes no time: the median of five. */
async function callMs(): Promise<number[]> {
  const words = 'ten bytes '.repeat(10)
  const { encode, endIds } = byteTokenizer()
  const ids = [...encode(words), endIds[0]!]
  const engine = scriptedEngine((_, __, step) => ({ token: ids[step]!, logprob: -1 }))
  const policy = languageModel({ width: 16, layers: 1, heads: 1, context: 2 ** 16, anyText: true })
  const gateway = await openGateway({ policy, engine })
  const { openaiUrl, key } = gateway.openSession()
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
  const messages: object[] = [{ role: 'user', content: words }]
  const times: number[] = []
  while (times.length < BEHIND.at(-1)! + 5) {
    const asked = { method: 'POST', headers, body: JSON.stringify({ model: 'x', messages }) }
    const start = performance.now()
    const { choices } = (await (await fetch(`${openaiUrl}/chat/completions`, asked)).json()) as {
      choices: { message: object }[]
    }
    times.push(performance.now() - start)
    messages.push(choices[0]!.message, { role: 'user', content: words })
  }
  await gateway.close({ now: true })
  return BEHIND.map((turns) => times.slice(turns, turns + 5).sort((a, b) => a - b)[2]!)
}

await callMs() // Until the functions are compiled.
const calls: number[][] = []
for (let i = 0; i < 5; i++) calls.push(await callMs())

setFlagsFromString('--expose-gc')
const gc: () => void = runInNewContext('gc')
const together = await converse(AGENTS, CONVERSATIONS)
const alone = await converse(1, COMPARED)
check(
  together.rows.slice(0, COMPARED).join() === alone.rows.join(),
  `${COMPARED} conversations beside ${AGENTS} others are other ones than those had one at a time`,
)
const { megabytes, batch, seconds, turns } = together
reportRoom('agents', [
  figure(`${AGENTS} agents, calls that advance together, mean`, 'calls', [batch], { atLeast: AGENTS / 4 }),
  ...BEHIND.map((turns, i) =>
    figure(
      `a call through a gateway behind ${turns} turns`,
      'ms',
      calls.map((each) => each[i]!),
    ),
  ),
  figure(`${AGENTS} agents, turns of the model`, 'turns/s', [turns / seconds]),
  figure(`${AGENTS} agents, heap after each fifth of ${CONVERSATIONS} conversations`, 'MB', megabytes),
])
