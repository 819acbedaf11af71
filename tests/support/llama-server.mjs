// llama.cpp, as node-llama-cpp has it, behind the routes of its own server that `llamaCppEngine` asks.
// Called with the module of node-llama-cpp, a GGUF file and a port; says when it listens.
import { createServer } from 'node:http'

const [module, file, port] = process.argv.slice(2)
const { getLlama } = await import(module)
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', skipDownload: true })
const model = await llama.loadModel({ modelPath: file })
// In half precision, which it has by default, log-probabilities are up to 4e-3 nats away.
const CACHE = { experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32' }
const context = await model.createContext({
  contextSize: 64,
  sequences: 1,
  threads: 1,
  flashAttention: false,
  ...CACHE,
})
const sequence = context.getSequence()

/** A number in [0, 1) of a seed (mulberry32). */
function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

async function complete({ prompt, n_predict: most, seed }) {
  await sequence.clearHistory()
  const draw = random(seed)
  const tokens = []
  const entries = []
  let asked = prompt
  while (tokens.length < most) {
    const last = [asked.at(-1), { generateNext: { logits: true } }]
    const { next } = (await sequence.controlledEvaluate([...asked.slice(0, -1), last])).at(-1)
    const largest = Math.max(...next.logits.values())
    const total = [...next.logits.values()].reduce((sum, logit) => sum + Math.exp(logit - largest), 0)
    let left = draw() * total
    let chosen
    for (const [id, logit] of next.logits) {
      chosen = { id, logprob: logit - largest - Math.log(total) }
      left -= Math.exp(logit - largest)
      if (left < 0) break
    }
    tokens.push(chosen.id)
    entries.push(chosen)
    if (chosen.id === 257) break
    asked = [chosen.id]
  }
  const stop_type = tokens.at(-1) === 257 ? 'eos' : 'limit'
  return { content: '', tokens, completion_probabilities: entries, stop: true, stop_type }
}

const answers = {
  '/props': () => ({ default_generation_settings: { n_ctx: 64 }, model_path: file }),
  // The file's vocabulary is numbers: a byte is its own id in the policy's.
  '/tokenize': ({ content }) => ({ tokens: [...Buffer.from(content)] }),
  '/completion': complete,
}
let queue = Promise.resolve()
const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString()
  queue = queue
    .then(() => answers[request.url](text === '' ? {} : JSON.parse(text)))
    .then(
      (made) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(made)),
      (error) => response.writeHead(500).end(String(error?.stack)),
    )
})
server.listen(Number(port), '127.0.0.1', () => console.log('listening'))
