/**
 * `npm run bench -- serving`: a language model behind HTTP beside the same model without it, whole and streamed; then 256 connections
 * that ask all the time, with the times of their answers, and the memory before and after. Clients have a process of their own.
 *
 *     SECONDS=600 REPEATS=1 npm run bench -- serving        for how long the 256 ask, default 20; runs before that, default 3
 */
import { fork } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { serveModel } from '../../src/entries/engines.ts'
import { generateTokens } from '../../src/entries/text.ts'
import { languageModel } from '../../src/index.ts'
import { check, figure, rates, ratio } from '../measure.ts'
import { reportRoom } from '../report.ts'
import type { Asked, Told } from './clients.ts'

const SECONDS = Number(process.env.SECONDS ?? 20)
const REPEATS = Number(process.env.REPEATS ?? 3)
/** Answers of a run, tokens of each, and slots. */
const [ANSWERS, TOKENS, SLOTS] = [64, 240, 16]
const CONNECTIONS = 256
const PROMPT = 'hi'

const policy = languageModel({ width: 128, layers: 4, heads: 4, context: 256, anyText: true })

/** Lets the clients ask, in a process of their own. */
function ask(asked: Asked): Promise<Told> {
  const child = fork(fileURLToPath(new URL('./clients.js', import.meta.url)))
  return new Promise((resolve, reject) => {
    let told: Told | null = null
    child.once('message', (message) => (told = message as Told))
    child.once('exit', (code) => {
      if (told === null) reject(new Error(`the clients ended with code ${code}`))
      else setTimeout(resolve, 1000, told) // When the server has seen that their connections are closed.
    })
    child.send(asked)
  })
}

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void
const FILES = '/proc/self/fd'
/** What the server holds: its heap in megabytes, and its open files and connections, where the system tells of them. */
const held = () => {
  gc()
  return { heap: process.memoryUsage().heapUsed / 1e6, files: existsSync(FILES) ? readdirSync(FILES).length : null }
}

const server = await serveModel({ policy, slots: SLOTS, queue: 2 * CONNECTIONS })
const asked = { url: server.url, prompt: PROMPT, maxTokens: TOKENS }

const seconds = { direct: [] as number[], whole: [] as number[], streamed: [] as number[] }
const tokens = { direct: 0, whole: 0, streamed: 0 }
for (let repeat = 0; repeat < REPEATS; repeat++) {
  const start = performance.now()
  const samples = { policy, prompts: [PROMPT], samples: ANSWERS, numLanes: SLOTS, maxTokens: TOKENS, context: 256 }
  const answers = await generateTokens({ ...samples, seed: repeat })
  const counted = answers.reduce((sum, { completionIds }) => sum + completionIds.length, 0)
  // Answers end where they end: seconds for as many tokens as all of them may have.
  const whole = ANSWERS * TOKENS
  seconds.direct.push(((performance.now() - start) / 1000 / counted) * whole)
  tokens.direct += counted
  for (const way of ['whole', 'streamed'] as const) {
    const told = await ask({ ...asked, connections: ANSWERS, answers: ANSWERS, isStream: way === 'streamed' })
    check(told.errors === 0, `${way}: ${told.errors} answers went wrong`)
    seconds[way].push((told.seconds / told.tokens) * whole)
    tokens[way] += told.tokens
  }
}

const before = held()
const load = await ask({ ...asked, maxTokens: 32, connections: CONNECTIONS, forSeconds: SECONDS, isStream: true })
check(load.errors === 0, `${CONNECTIONS} connections: ${load.errors} answers went wrong`)
const after = held()
await server.close()

const all = ANSWERS * TOKENS
reportRoom('serving', [
  figure('the engine alone', 'tokens/s', rates(all, seconds.direct)),
  {
    ...figure(`whole answers, ${ANSWERS} connections`, 'tokens/s', rates(all, seconds.whole)),
    ratios: [ratio('the engine alone', seconds.direct, seconds.whole)],
  },
  {
    ...figure(`streamed, ${ANSWERS} connections`, 'tokens/s', rates(all, seconds.streamed)),
    ratios: [ratio('the engine alone', seconds.direct, seconds.streamed, { atLeast: 0.8 })],
  },
  figure(`${CONNECTIONS} connections for ${SECONDS} s, answers`, 'answers', [load.answers]),
  figure('until an answer of 32 tokens is over, half of them', 's', [load.latencies.half]),
  figure('until an answer of 32 tokens is over, 95 of 100', 's', [load.latencies.of95]),
  figure('until an answer of 32 tokens is over, 99 of 100', 's', [load.latencies.of99]),
  figure('heap of the server before', 'MB', [before.heap]),
  figure('heap of the server after', 'MB', [after.heap]),
  ...(before.files === null || after.files === null
    ? []
    : [
        figure('open files and connections before', 'files', [before.files]),
        figure('open files and connections after', 'files', [after.files]),
      ]),
])
