/**
 * `npm run bench -- agents`: a thousand agents at once in one process, each of which awaits timers of its own between its calls to
 * the model. Tells how many calls advance together, what the memory does, and checks that agents say what they say one at a time. And how
 * long a call through a gateway takes behind few turns and behind many, by the processor's time, beside a server that only reads it.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as wait } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { defineEngine, openGateway } from '../../src/entries/engines.ts'
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

/** Turns of a session before a call, and the tokens of a turn, half of them the model's. */
const BEHIND = [4, 15, 50, 90]
const TURN = 800

/** Milliseconds of the processor for a call behind so many turns, the client's part included: the median of nine calls. */
async function callMs(url: string, headers: Readonly<Record<string, string>>, words: string): Promise<number[]> {
  const messages: object[] = [{ role: 'user', content: words }]
  const times: number[] = []
  while (times.length < BEHIND.at(-1)! + 9) {
    const started = process.cpuUsage()
    const asked = { method: 'POST', headers, body: JSON.stringify({ model: 'x', messages }) }
    const { choices } = (await (await fetch(url, asked)).json()) as { choices: { message: object }[] }
    const { user, system } = process.cpuUsage(started)
    times.push((user + system) / 1000)
    messages.push(choices[0]!.message, { role: 'user', content: words })
  }
  return BEHIND.map((turns) => times.slice(turns, turns + 9).sort((a, b) => a - b)[4]!)
}

/** Calls through a gateway over an engine that takes no time; and to a server that only reads the same requests: what no gateway can do without. */
async function callsOf(sessions: number) {
  const words = 'ten bytes '.repeat(TURN / 20)
  const { encode, endIds } = byteTokenizer()
  const ids = [...encode(words), endIds[0]!]
  const said = new WeakMap<object, number>()
  const engine = defineEngine('at-once', () => ({
    logprobs: 'candidates',
    advance(turns) {
      for (const turn of turns) {
        const step = said.get(turn) ?? 0
        said.set(turn, step + 1)
        turn.add(ids[step]!, -1)
      }
    },
  }))
  const policy = languageModel({ width: 16, layers: 1, heads: 1, context: 2 ** 17, anyText: true })
  const gateway = await openGateway({ policy, engine })
  const answer = JSON.stringify({ choices: [{ message: { role: 'assistant', content: words } }] })
  const reader = createServer(async (request, response) => {
    JSON.parse(await text(request))
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer)
  })
  await once(reader.listen(0, '127.0.0.1'), 'listening')
  const bare = `http://127.0.0.1:${(reader.address() as AddressInfo).port}`
  const recorded: number[][] = []
  const read: number[][] = []
  for (let i = 0; i <= sessions; i++) {
    const { openaiUrl, key, end } = gateway.openSession()
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
    const [through, without] = [
      await callMs(`${openaiUrl}/chat/completions`, headers, words),
      await callMs(bare, headers, words),
    ]
    const { rows } = end({ reward: 1 })
    check(
      rows.length === 1 && rows[0]!.turns === BEHIND.at(-1)! + 9,
      'a session of a conversation that goes on has other rows than one',
    )
    if (i === 0) continue // Until the functions are compiled.
    recorded.push(through)
    read.push(without)
  }
  await gateway.close({ now: true })
  reader.close()
  reader.closeAllConnections()
  return { recorded, read }
}

const calls = await callsOf(5)

setFlagsFromString('--expose-gc')
const gc: () => void = runInNewContext('gc')
const together = await converse(AGENTS, CONVERSATIONS)
const alone = await converse(1, COMPARED)
check(
  together.rows.slice(0, COMPARED).join() === alone.rows.join(),
  `${COMPARED} conversations beside ${AGENTS} others are other ones than those had one at a time`,
)
const { megabytes, batch, seconds, turns } = together
/** A column of rows. */
const ofTurn = (rows: readonly (readonly number[])[], i: number) => rows.map((each) => each[i]!)
/** What a call takes beyond one to a server that only reads it. */
const own = (i: number) => ofTurn(calls.recorded, i).map((ms, s) => ms - calls.read[s]![i]!)
reportRoom('agents', [
  figure(`${AGENTS} agents, calls that advance together, mean`, 'calls', [batch], { atLeast: AGENTS / 4 }),
  ...BEHIND.flatMap((turns, i) => [
    figure(
      `a call through a gateway behind ${turns} turns of ${TURN} tokens, processor`,
      'ms',
      ofTurn(calls.recorded, i),
    ),
    figure(`the same behind ${turns} turns, without client and HTTP`, 'ms', own(i)),
  ]),
  figure(`${AGENTS} agents, turns of the model`, 'turns/s', [turns / seconds]),
  figure(`${AGENTS} agents, heap after each fifth of ${CONVERSATIONS} conversations`, 'MB', megabytes),
])
