/**
 * Servers of others, begun with a model of ours. `transformers serve` needs a Python that has torch and transformers[serving]
 * (COLONNADE_PYTHON names one), vLLM one that has it, for the CPU or a GPU; llama.cpp's server comes from PyPI (xllamacpp, 34 MB). They are
 * asked by `npm run test:servers` alone, and skipped where they cannot be had.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { writeGguf } from '../../bench/peers/gguf.ts'
import type { EngineDefinition } from '../../src/engines/engine.ts'
import { llamaCppEngine } from '../../src/engines/servers/llama-cpp.ts'
import { openaiEngine } from '../../src/engines/servers/openai.ts'
import { vllmEngine } from '../../src/engines/servers/vllm.ts'
import { transformerLogprobs } from '../../src/entries/text.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { saveTokenizer } from '../../src/language/tokenizers/tokenizer.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import type { Started } from '../support/command.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { freePort, startServer } from '../support/programs.ts'
import { attempt, findInstalled, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const isAsked = import.meta.env.MODE === 'servers'
const ASKED = 'npm run test:servers asks it'
/** vLLM looks at itself for minutes before it begins. */
const START_MS = 20 * 60_000

const policy = () => languageModel({ width: 16, layers: 2, heads: 2, context: 64, anyText: true })
const drawn = { policy: policy(), maxTokens: 8 }
const options = { ...drawn, explore: false }

/** A world whose model chooses letters of one byte alone: of others only the server knows where a text without them is cut. */
async function letters(more: Partial<Parameters<typeof talkWorld>[0]> = {}) {
  const world = await talkWorld({ ...options, ...more })
  const { model, weights } = world.cohort()
  const { offset, shape } = model.parameters.find(({ name }) => name === 'model.embed_tokens.weight')!
  weights.fill(0, offset + 128 * shape[1]!, offset + shape[0]! * shape[1]!)
  return world
}

/** How far the log-probabilities of eight conversations' tokens are from ours, in nats. */
async function distancesOf(world: Awaited<ReturnType<typeof talkWorld>>): Promise<number[]> {
  const { model, weights } = world.cohort()
  const rows = await talkUntil(world, 8)
  const ids = rows.map(({ token }) => token)
  const expected = await transformerLogprobs({ model, weights: weights.slice() }).logprobs(ids)
  return rows.flatMap(({ lossMask, logprob, error }, r) => {
    expect(error).toBe(null)
    return lossMask.flatMap((flag, t) => (flag === 1 ? [Math.abs(logprob[t]! - expected[r]![t - 1]!)] : []))
  })
}

describe('transformers serve', () => {
  let server: Started | undefined
  let url = ''
  let folder = ''
  let why = ''
  beforeAll(async () => {
    const found = isAsked ? await findInstalled('torch, transformers, fastapi, uvicorn, openai') : { why: ASKED }
    if ('why' in found) {
      why = found.why
      console.warn(`SKIPPED: our model by transformers serve (${why})`)
      return
    }
    folder = await temporaryFolder()
    const { model, weights, tokenizer } = (await letters()).cohort()
    await saveTransformer(folder, model, weights)
    await saveTokenizer(folder, tokenizer)
    const { stdout } = await attempt(found.python, ['-c', 'import sysconfig; print(sysconfig.get_path("scripts"))'])
    const words = ['serve', folder, '--device', 'cpu', '--host', '127.0.0.1', '--port', String(await freePort())]
    url = `http://127.0.0.1:${words.at(-1)}`
    const program = `${stdout.trim()}/transformers`
    server = await startServer(program, words, { HF_HUB_OFFLINE: '1' }, 'Application startup complete')
  }, PYTHON_MS)
  beforeEach((context) => context.skip(server === undefined, why))
  afterAll(async () => {
    server?.process.kill()
    await server?.ended
  })

  test('continues conversations by a model of ours as the engine of this process does', async () => {
    const engine = openaiEngine({ url, model: folder })
    const own = await talkUntil(await letters(), 4)
    const asked = await talkUntil(await letters({ engine }), 4)
    const told = ({ token, lossMask, error }: (typeof own)[number]) => ({ token, lossMask, error })
    expect(own.some(({ lossMask }) => lossMask.includes(1))).toBe(true)
    expect(asked.map(told)).toEqual(own.map(told))
  }, 60_000)
})

describe('llama.cpp', () => {
  let server: Started | undefined
  let url = ''
  let why = ''
  beforeAll(async () => {
    const made = isAsked ? await findPython(['xllamacpp==2026.10.11549'], 'xllamacpp') : { why: ASKED }
    if ('why' in made) {
      why = made.why
      console.warn(`SKIPPED: our model by llama.cpp (${why})`)
      return
    }
    const { model, weights } = (await talkWorld(drawn)).cohort()
    const file = join(await temporaryFolder(), 'tiny.gguf')
    await writeGguf(file, model, weights)
    const script = fileURLToPath(new URL('../support/llama_server.py', import.meta.url))
    const port = String(await freePort())
    server = await startServer(made.python, [script, file, port], {}, 'listening\n')
    url = `http://127.0.0.1:${port}`
  }, PYTHON_MS)
  beforeEach((context) => context.skip(server === undefined, why))
  afterAll(async () => {
    server?.process.kill()
    await server?.ended
  })

  test('gives the tokens that it draws the log-probabilities that we give them, within 1e-4', async () => {
    const world = await talkWorld({ ...drawn, engine: llamaCppEngine({ url }) })
    const distances = await distancesOf(world)
    console.info(`llama.cpp: ${distances.length} tokens, at most ${Math.max(...distances)} nats apart`)
    expect(distances.length).toBeGreaterThan(30)
    expect(Math.max(...distances)).toBeLessThan(1e-4)
  }, 60_000)
})

describe('vLLM', () => {
  let server: Started | undefined
  let url = ''
  let why = ''
  // Heads of 32 are the smallest that it computes on the CPU.
  const world = (engine?: EngineDefinition) =>
    talkWorld({
      ...{ policy: languageModel({ width: 64, layers: 2, heads: 2, context: 64, anyText: true }), maxTokens: 8 },
      ...(engine && { engine }),
    })
  beforeAll(async () => {
    const found = isAsked ? await findInstalled('vllm') : { why: ASKED }
    if ('why' in found) {
      why = found.why
      console.warn(`SKIPPED: our model by vLLM (${why})`)
      return
    }
    const folder = await temporaryFolder()
    const { model, weights, tokenizer } = (await world()).cohort()
    await saveTransformer(folder, model, weights)
    await saveTokenizer(folder, tokenizer)
    const port = String(await freePort())
    url = `http://127.0.0.1:${port}`
    const words = [
      ...['-m', 'vllm.entrypoints.cli.main', 'serve', folder, '--host', '127.0.0.1', '--port', port],
      ...['--dtype', 'float32', '--enforce-eager', '--max-model-len', '64', '--max-num-seqs', '8'],
      ...['--logprobs-mode', 'processed_logprobs', '--generation-config', 'vllm', '--enable-scale-out'],
    ]
    const settings = {
      VLLM_CPU_KVCACHE_SPACE: '1',
      VLLM_SERVER_DEV_MODE: '1',
      HF_HUB_OFFLINE: '1',
      OMP_NUM_THREADS: '1',
    }
    server = await startServer(found.python, words, settings, 'Application startup complete')
  }, START_MS)
  beforeEach((context) => context.skip(server === undefined, why))
  afterAll(async () => {
    server?.process.kill()
    await server?.ended
  })

  test('gives the tokens that it draws the log-probabilities that we give them, within 1e-4', async () => {
    const distances = await distancesOf(await world(vllmEngine({ url })))
    console.info(`vLLM: ${distances.length} tokens, at most ${Math.max(...distances)} nats apart`)
    expect(distances.length).toBeGreaterThan(30)
    expect(Math.max(...distances)).toBeLessThan(1e-4)
  }, 120_000)
})
